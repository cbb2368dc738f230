"""A released model on disk: read back as it was, never unpickled, damaged files named."""

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from lightleak.core.errors import ObservationError
from lightleak.core.released_model import ReleasedModel


@pytest.fixture
def model() -> ReleasedModel:
    public = pd.DataFrame({"age": [30, 40], "sex": ["F", "M"]})
    return ReleasedModel(
        {"name": "mlp"}, {"w": torch.ones(2, 2)}, {"encoding": "onehot"}, {"shift": torch.zeros(3)}, public,
        buffers={"count": torch.tensor(3)},
    )  # fmt: skip


def test_it_is_read_back_as_it_was(model: ReleasedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "kept")
    found = ReleasedModel.load(tmp_path / "kept")
    assert found.network == model.network and found.encoder == model.encoder and found.access == "white_box"
    assert torch.equal(found.parameters["w"], model.parameters["w"]) and int(found.buffers["count"]) == 3
    assert torch.equal(found.encoder_tensors["shift"], model.encoder_tensors["shift"])
    pd.testing.assert_frame_equal(found.public, model.public)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in (tmp_path / "kept").iterdir())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"access": "gray_box"}, "access must be one of white_box, black_box"),
        ({"network": None}, "network must be a mapping"),
        ({"public": pd.DataFrame({"age": []})}, "public rows, got none"),
        ({"parameters": {"w": torch.tensor([float("nan")])}}, "parameter 'w' must be finite"),
    ],
)
def test_what_cannot_be_served_is_refused(model: ReleasedModel, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ObservationError, match=said):
        replace(model, **changed)


@pytest.mark.parametrize("name", ["facts.json", "tensors.safetensors", "public.parquet"])
def test_a_missing_or_damaged_file_is_named(model: ReleasedModel, tmp_path: Path, name: str) -> None:
    model.save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ObservationError, match=name):
        ReleasedModel.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ObservationError, match=name):
        ReleasedModel.load(tmp_path)


def test_another_version_and_an_unknown_tensor_are_refused(model: ReleasedModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    facts = json.loads((tmp_path / "facts.json").read_text())
    (tmp_path / "facts.json").write_text(json.dumps(facts | {"schema_version": 9}))
    with pytest.raises(ObservationError, match="schema_version must be 1"):
        ReleasedModel.load(tmp_path)
    (tmp_path / "facts.json").write_text(json.dumps({key: facts[key] for key in facts if key != "access"}))
    with pytest.raises(ObservationError, match="lacks 'access'"):
        ReleasedModel.load(tmp_path)
