"""Captures on disk are private and whole."""

import os
import stat
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from lightleak.callbacks.capture_store import Capture, list_captures, save_capture
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.data.encoder import TableEncoder
from lightleak.protocols.fedsgd import client_update, require_replay
from lightleak.targets import NetworkSpec, build_network


def make(encoder: TableEncoder, rows: TensorDataset, epoch: int = 0, step: int = 0, rank: int = 0) -> Capture:
    spec = NetworkSpec("linear", 2, encoder.layout)
    batch = rows[:8]
    network = build_network(spec, seed=step)
    update, truth = client_update(network, spec, encoder, *batch, share_labels=False, epoch=epoch, step=step)
    return Capture(update, truth, rank)


def test_every_folder_and_file_is_the_owners_alone(encoder: TableEncoder, rows: TensorDataset, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = make(encoder, rows).save(tmp_path / "captures")
    finally:
        os.umask(before)
    paths = [folder.parent, folder, *folder.rglob("*")]
    assert len(paths) == 8
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_saved_capture_comes_back(encoder: TableEncoder, rows: TensorDataset, tmp_path: Path) -> None:
    capture = make(encoder, rows, epoch=12, step=345678, rank=3)
    folder = capture.save(tmp_path)
    assert folder.name == "e012-s345678-r3"
    loaded = Capture.load(folder)
    assert loaded.rank == 3
    assert loaded.update.facts == capture.update.facts
    assert require_replay(loaded.update, loaded.truth) == 0.0
    assert torch.equal(GroundTruth.load(folder / "truth").inputs, capture.truth.inputs)


def test_observation_and_truth_lie_apart(encoder: TableEncoder, rows: TensorDataset, tmp_path: Path) -> None:
    folder = make(encoder, rows).save(tmp_path)
    rows_as_saved = rows[:8][0].numpy().tobytes()
    private = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    holding = [str(p) for p in private if rows_as_saved in (folder / p).read_bytes()]
    assert holding == ["truth/truth.safetensors"]


def test_a_second_save_takes_the_place_of_the_first(encoder: TableEncoder, rows: TensorDataset, tmp_path: Path) -> None:
    first, second = make(encoder, rows, step=1), make(encoder, rows, step=1)
    (first.save(tmp_path) / "observation" / "stale").touch()
    folder = second.save(tmp_path)
    assert not (folder / "observation" / "stale").exists()
    assert list_captures(tmp_path) == [folder]


@pytest.mark.parametrize("part", ["protocols.records.RecordedBatch.save", "core.observations.ClientUpdate.save"])
def test_an_interrupted_save_leaves_no_capture(
    encoder: TableEncoder, rows: TensorDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    capture = make(encoder, rows)
    with monkeypatch.context() as patch:
        patch.setattr(f"lightleak.{part}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            capture.save(tmp_path)
    assert list_captures(tmp_path) == []
    capture.save(tmp_path)
    assert len(list_captures(tmp_path)) == 1


def test_captures_are_listed_by_epoch_step_and_rank(encoder: TableEncoder, rows: TensorDataset, tmp_path: Path) -> None:
    places = [(1000, 0, 0), (2, 3, 10), (2, 3, 9), (2, 1000000, 0), (2, 4, 0)]
    for place in places:
        make(encoder, rows, *place).save(tmp_path)
    found = [Capture.load(folder) for folder in list_captures(tmp_path)]
    assert [(c.update.facts.epoch, c.update.facts.step, c.rank) for c in found] == sorted(places)


def test_folders_may_be_strings(encoder: TableEncoder, rows: TensorDataset, tmp_path: Path) -> None:
    capture = make(encoder, rows)
    folder = save_capture(str(tmp_path / "captures"), capture.update, capture.truth)
    assert list_captures(str(tmp_path / "captures")) == [folder]
    assert torch.equal(Capture.load(str(folder)).truth.inputs, capture.truth.inputs)
    with pytest.raises(UsageError, match="root must be a path"):
        save_capture(3, capture.update)  # type: ignore[arg-type]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="captures must be a folder"):
        list_captures(tmp_path / "absent")
    with pytest.raises(ObservationError, match=r"facts.json is missing"):
        Capture.load(tmp_path / "e000-s000000-r0")
