"""Observations on disk: what is written comes back, and what is damaged is refused by name."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate, ProtocolFacts

TENSOR_GROUPS = (
    "parameters",
    "update",
    "encoder_tensors",
    "buffers",
    "batch_statistics",
    "further_parameters",
    "further_updates",
)


def make_update(n_rows: int = 3, dtype: torch.dtype = torch.float32, **changes: object) -> ClientUpdate:
    draw = torch.Generator().manual_seed(n_rows)
    weight = torch.randn(2, 4, generator=draw).to(dtype)
    settings = {
        "network": {"name": "linear", "n_classes": 2, "layout": {"blocks": [["x", 0, 4, False]]}, "options": {}},
        "parameters": {"linears.0.weight": weight, "linears.0.bias": torch.zeros(2, dtype=dtype)},
        "update": {"linears.0.weight": weight * 0.5, "linears.0.bias": torch.ones(2, dtype=dtype)},
        "encoder": {"encoding": "onehot", "schema": {"columns": []}},
        "encoder_tensors": {"shift": torch.zeros(4, dtype=torch.float64)},
        "facts": ProtocolFacts(n_rows=n_rows, batch_size=n_rows, learning_rate=0.1, step=7, epoch=1),
        "buffers": {"norm.num_batches_tracked": torch.tensor(5)},
        "labels": torch.arange(n_rows) % 2,
        "marginals": {"x": [[0.0, 1.0], [0.25, 0.75]]},
        "batch_statistics": {"norm.mean": torch.zeros(2), "norm.var": torch.ones(2)},
    }
    return ClientUpdate(**(settings | changes))


def same(a: ClientUpdate, b: ClientUpdate) -> bool:
    for name in TENSOR_GROUPS:
        one, other = getattr(a, name), getattr(b, name)
        if one.keys() != other.keys() or not all(torch.equal(one[k], other[k]) for k in one):
            return False
        if any(one[k].dtype != other[k].dtype for k in one):
            return False
    labels = (a.labels is None) == (b.labels is None) and (a.labels is None or torch.equal(a.labels, b.labels))
    plain = ("network", "encoder", "facts", "kind", "state", "training_mode", "marginals")
    return labels and all(getattr(a, name) == getattr(b, name) for name in plain)


@given(
    n_rows=st.integers(1, 9),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
    state=st.sampled_from(["raw", "clipped", "noised"]),
    training_mode=st.booleans(),
    shares=st.booleans(),
)
def test_saved_update_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    n_rows: int,
    dtype: torch.dtype,
    state: str,
    training_mode: bool,
    shares: bool,
) -> None:
    less = {} if shares else {"labels": None, "marginals": None, "buffers": {}, "batch_statistics": {}}
    update = make_update(n_rows, dtype, state=state, training_mode=training_mode, **less)
    folder = tmp_path_factory.mktemp("update")
    update.save(folder)
    assert same(ClientUpdate.load(folder), update)


def test_views_and_shared_storage_are_saved_as_they_read(tmp_path: Path) -> None:
    base = torch.arange(8.0).view(4, 2)
    update = make_update(
        parameters={"a": base.T, "b": base[:1]}, update={"a": base.T, "b": base[:1]}, buffers={}, batch_statistics={}
    )
    update.save(tmp_path)
    assert same(ClientUpdate.load(tmp_path), update)


def several_releases() -> tuple[ClientUpdate, list[ClientUpdate]]:
    sent = [make_update(), make_update(dtype=torch.float32), make_update()]
    sent = [replace(u, update={name: g + r for name, g in u.update.items()}) for r, u in enumerate(sent)]
    sent[2] = replace(sent[2], parameters={name: 2 * p for name, p in sent[2].parameters.items()})
    return ClientUpdate.of_releases(sent), sent


def test_releases_of_the_same_rows_come_back_one_by_one(tmp_path: Path) -> None:
    update, sent = several_releases()
    update.save(tmp_path)
    found = ClientUpdate.load(tmp_path).releases
    assert len(found) == 3 and all(same(one, other) for one, other in zip(found, sent, strict=True))
    assert ClientUpdate.of_releases(sent[:1]) is sent[0] and sent[0].releases == (sent[0],)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"further_updates": {}}, "further_updates must have 2 further releases"),
        ({"further_parameters": {"linears.0.weight": torch.zeros(2, 2, 4)}}, "further_parameters must have 2 further"),
        ({"further_updates": {"linears.0.bias": torch.zeros(())}}, "further releases"),
        ({"kind": "delta"}, "several releases of the same rows are gradients"),
    ],
)
def test_releases_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    update, _ = several_releases()
    with pytest.raises(ObservationError, match=message):
        replace(update, **change)
    stacked = {name: tensor.clone().fill_(NAN) for name, tensor in update.further_updates.items()}
    with pytest.raises(ObservationError, match="must be finite"):
        replace(update, further_updates=stacked)


@given(n=st.integers(1, 5), loss=st.none() | st.floats(0, 1e6))
def test_saved_truth_comes_back(tmp_path_factory: pytest.TempPathFactory, n: int, loss: float | None) -> None:
    truth = GroundTruth(torch.randn(n, 3), torch.zeros(n, dtype=torch.long), loss)
    folder = tmp_path_factory.mktemp("truth")
    truth.save(folder)
    loaded = GroundTruth.load(folder)
    assert torch.equal(loaded.inputs, truth.inputs)
    assert torch.equal(loaded.labels, truth.labels)
    assert loaded.loss == loss


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"update": {"linears.0.weight": torch.zeros(2, 4)}}, r"only in one of them: \['linears.0.bias'\]"),
        (
            {"update": {"linears.0.weight": torch.zeros(4, 2), "linears.0.bias": torch.zeros(2)}},
            r"'linears.0.weight' must have shape \(2, 4\), got \(4, 2\)",
        ),
        (
            {"update": {"linears.0.weight": torch.full((2, 4), NAN), "linears.0.bias": torch.zeros(2)}},
            "update 'linears.0.weight' must be finite",
        ),
        (
            {"parameters": {"linears.0.weight": torch.zeros(2, 4), "linears.0.bias": torch.full((2,), INFINITY)}},
            "parameter 'linears.0.bias' must be finite",
        ),
        ({"labels": torch.zeros(4, dtype=torch.long)}, r"labels must have shape \(3,\), one per row, got \(4,\)"),
    ],
)
def test_updates_that_no_attack_could_serve_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        make_update(**change)


def edit_facts(folder: Path, edit: Callable[[dict[str, object]], object]) -> None:
    facts = json.loads((folder / "facts.json").read_text())
    edit(facts)
    (folder / "facts.json").write_text(json.dumps(facts))


def edit_tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "tensors.safetensors")
    edit(tensors)
    save_file(tensors, folder / "tensors.safetensors")


def truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "facts missing": (lambda f: (f / "facts.json").unlink(), "facts.json is missing"),
    "tensors missing": (lambda f: (f / "tensors.safetensors").unlink(), "no tensors at"),
    "facts truncated": (lambda f: truncate(f / "facts.json"), "is not JSON"),
    "facts not text": (lambda f: (f / "facts.json").write_bytes(b"\xff\xfe\x00"), "is not JSON"),
    "facts a list": (lambda f: (f / "facts.json").write_text("[1]"), "schema_version must be 1, got None"),
    "tensors truncated": (lambda f: truncate(f / "tensors.safetensors"), "is not a safetensors file"),
    "tensors empty": (lambda f: (f / "tensors.safetensors").write_bytes(b""), "is not a safetensors file"),
    "later version": (lambda f: edit_facts(f, lambda x: x.update(schema_version=2)), "must be 1, got 2"),
    "no version": (lambda f: edit_facts(f, lambda x: x.pop("schema_version")), "must be 1, got None"),
    "unknown fact": (lambda f: edit_facts(f, lambda x: x.update(color="red")), "does not describe a client update"),
    "no network": (lambda f: edit_facts(f, lambda x: x.pop("network")), "does not describe a client update"),
    "no protocol facts": (lambda f: edit_facts(f, lambda x: x.pop("facts")), "facts must be a mapping, got None"),
    "unknown tensor": (
        lambda f: edit_tensors(f, lambda x: x.update({"secrets/a": torch.zeros(1)})),
        "unknown tensor 'secrets/a'",
    ),
    "update lacks a tensor": (
        lambda f: edit_tensors(f, lambda x: x.pop("update/linears.0.bias")),
        "only in one of them",
    ),
    "not a number": (
        lambda f: edit_tensors(f, lambda x: x["update/linears.0.weight"].fill_(NAN)),
        "must be finite",
    ),
    "wrong shape": (
        lambda f: edit_tensors(f, lambda x: x.update({"update/linears.0.bias": torch.zeros(3)})),
        r"must have shape \(2,\), got \(3,\)",
    ),
    "facts without end": (lambda f: (f / "facts.json").write_text("[" * 200_000), "is not JSON"),
    "number without end": (lambda f: (f / "facts.json").write_text("9" * 5000), "is not JSON"),
    "unknown kind": (lambda f: edit_facts(f, lambda x: x.update(kind="weights")), "kind must be one of gradient"),
    "unknown state": (lambda f: edit_facts(f, lambda x: x.update(state="fresh")), "state must be one of raw"),
    "mode a word": (lambda f: edit_facts(f, lambda x: x.update(training_mode="yes")), "must be true or false"),
    "network a list": (lambda f: edit_facts(f, lambda x: x.update(network=[1])), "network must be a mapping, got list"),
    "rows a fraction": (
        lambda f: edit_facts(f, lambda x: x["facts"].update(n_rows=3.0)),
        "n_rows must be a whole number from 1",
    ),
    **{
        f"{name} {value!r}": (
            lambda f, name=name, value=value: edit_facts(f, lambda x: x["facts"].update({name: value})),
            f"facts.{name} must be",
        )
        for name, value in [
            ("step", "../../x"),
            ("epoch", "../../x"),
            ("step", -1),
            ("step", True),
            ("epochs", 10**12),
            ("batch_size", "8"),
            ("n_clients", 0),
            ("local_steps", 1.5),
            ("client_rows", "12"),
            ("client_rows", [0]),
            ("learning_rate", "fast"),
            ("momentum", NAN),
            ("weight_decay", -1.0),
            ("optimizer", ["sgd"]),
            ("loss", None),
            ("defense", 3),
        ]
    },
    "unknown protocol fact": (lambda f: edit_facts(f, lambda x: x["facts"].update(color=1)), "facts has no color"),
    "version true": (lambda f: edit_facts(f, lambda x: x.update(schema_version=True)), "must be 1, got True"),
    "marginals a list": (lambda f: edit_facts(f, lambda x: x.update(marginals=[1])), "marginals must be a mapping"),
    "whole parameters": (
        lambda f: edit_tensors(f, lambda x: x.update({"update/linears.0.bias": torch.zeros(2, dtype=torch.long)})),
        "must be of a float type",
    ),
    "labels not whole": (
        lambda f: edit_tensors(f, lambda x: x.update({"labels/labels": torch.zeros(3)})),
        "labels must be int64",
    ),
    "buffer not a number": (
        lambda f: edit_tensors(f, lambda x: x.update({"buffers/norm.running_mean": torch.full((2,), NAN)})),
        "buffer 'norm.running_mean' must be finite",
    ),
    "no parameters": (
        lambda f: edit_tensors(f, lambda x: [x.pop(k) for k in list(x) if k.startswith(("parameters", "update"))]),
        "at least one parameter",
    ),
    "labels of other rows": (
        lambda f: edit_tensors(f, lambda x: x.update({"labels/labels": torch.zeros(5, dtype=torch.long)})),
        "one per row",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_folders_are_refused(tmp_path: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    make_update().save(tmp_path)
    damage(tmp_path)
    with pytest.raises(ObservationError, match=message):
        ClientUpdate.load(tmp_path)


@given(position=st.integers(0, 10**6), value=st.integers(0, 255))
def test_one_wrong_byte_in_the_tensors_never_breaks_out(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int
) -> None:
    folder = tmp_path_factory.mktemp("byte")
    make_update().save(folder)
    path = folder / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[position % len(data)] = value
    path.write_bytes(data)
    try:
        loaded = ClientUpdate.load(folder)
    except ObservationError:
        return
    assert loaded.parameters.keys() == loaded.update.keys()


def test_oversized_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_update().save(tmp_path)
    with pytest.raises(ObservationError, match="at most 16 are read"):
        ClientUpdate.load(tmp_path, max_tensor_bytes=16)
    monkeypatch.setattr("lightleak.core.stored.MAX_FACTS_BYTES", 10)
    with pytest.raises(ObservationError, match="at most 10 are read"):
        ClientUpdate.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_rows": 0}, "n_rows must be a whole number from 1 to 1000000000, got 0"),
        ({"n_rows": 10**12}, "n_rows must be a whole number from 1 to 1000000000"),
        ({"epochs": 0}, "epochs must be a whole number from 1"),
        ({"local_steps": -3}, "local_steps must be a whole number from 1"),
        ({"batch_size": True}, "batch_size must be a whole number from 1 to 1000000000, got True"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number from 0, got -1.0"),
        ({"learning_rate": True}, "learning_rate must be a finite number"),
        ({"momentum": NAN}, "momentum must be a finite number from 0, got nan"),
        ({"weight_decay": None}, "weight_decay must be a finite number from 0, got None"),
        ({"optimizer": None}, "optimizer must be text, got None"),
        ({"n_clients": 2, "client_rows": (1, 1)}, r"rows of each client \(n_clients: 2\), 3 together, got \(1, 1\)"),
        ({"n_clients": 2, "client_rows": (3,)}, "rows of each client"),
        ({"n_clients": 2, "client_rows": (1.5, 1.5)}, "client_rows must be whole numbers from 1"),
    ],
)
def test_facts_that_no_file_may_hold_are_refused_when_they_are_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        replace(ProtocolFacts(n_rows=3), **changes)


def test_numbers_of_numpy_are_kept_as_plain_ones(tmp_path: Path) -> None:
    facts = ProtocolFacts(
        n_rows=np.int64(3),
        n_clients=np.int32(2),
        client_rows=[np.int64(1), np.int64(2)],
        learning_rate=np.float32(0.5),
        momentum=np.float64(0.25),
        step=np.int64(7),
    )
    plain = ProtocolFacts(n_rows=3, n_clients=2, client_rows=(1, 2), learning_rate=0.5, momentum=0.25, step=7)
    assert repr(facts) == repr(plain)
    make_update(facts=facts).save(tmp_path)
    assert ClientUpdate.load(tmp_path).facts == plain


def test_missing_truth_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="no tensors at"):
        GroundTruth.load(tmp_path)


def test_incomplete_truth_is_refused(tmp_path: Path) -> None:
    save_file({"inputs": torch.zeros(1, 1)}, tmp_path / "truth.safetensors")
    with pytest.raises(ObservationError, match="lacks labels"):
        GroundTruth.load(tmp_path)
    save_file({"inputs": torch.zeros(2, 1), "labels": torch.zeros(1)}, tmp_path / "truth.safetensors")
    with pytest.raises(ObservationError, match=r"labels \[n\], got \(2, 1\) and \(1,\)"):
        GroundTruth.load(tmp_path)


@pytest.mark.parametrize("ids", [torch.tensor([1]), torch.tensor([1.0, 2.0]), torch.tensor([[1], [2]])])
def test_a_truth_names_one_person_for_each_row(tmp_path: Path, ids: torch.Tensor) -> None:
    GroundTruth(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long), ids=ids).save(tmp_path)
    with pytest.raises(ObservationError, match=r"ids must be int64 \[n\], one for each of the 2 rows"):
        GroundTruth.load(tmp_path)


def test_damaged_truth_is_refused(tmp_path: Path) -> None:
    GroundTruth(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long)).save(tmp_path)
    truncate(tmp_path / "truth.safetensors")
    with pytest.raises(ObservationError, match="is not a safetensors file"):
        GroundTruth.load(tmp_path)
