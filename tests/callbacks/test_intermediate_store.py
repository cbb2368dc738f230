"""What is saved comes back as it was; what is damaged, foreign or inconsistent is refused with its place."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lightleak.callbacks.intermediate_store import load_observation, load_truth, save_observation, save_truth
from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import PropertyTruth
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts

FACTS = VerticalFacts(2, 0, 1, ("age", "größe"), ("sex",), 18, 64, 2)


def observation(adversary: Any = "C1", features: bool = True, dtype: torch.dtype = torch.float32) -> Any:
    draw = torch.Generator().manual_seed(0)
    kinds = ("AO", "AG", "VO", "VG") if adversary == "C1" else ("AO",)
    return IntermediateResults(
        adversary,
        torch.tensor([2, 3, 5, 8]),
        {kind: torch.randn(4, 3, generator=draw).to(dtype) for kind in kinds},
        AuxiliaryData("sex=Male", torch.tensor([3, 8, 8]), torch.tensor([True, False, False]), ("age",)),
        FACTS,
        torch.randn(4, 2, generator=draw) if features else None,
    )


def same(one: IntermediateResults, other: IntermediateResults) -> bool:
    def flat(seen: IntermediateResults) -> tuple[Any, ...]:
        known = seen.auxiliary
        tensors = [seen.ids, known.ids, known.has_property, *(seen.results[k] for k in sorted(seen.results))]
        tensors += [one for one in (seen.features, seen.labels) if one is not None]
        plain = (seen.adversary, sorted(seen.results), known.property_name, known.columns, seen.facts)
        return (*plain, [(str(t.dtype), t.tolist()) for t in tensors])

    return flat(one) == flat(other)


@pytest.mark.parametrize(
    ("adversary", "labels", "message"),
    [
        ("C2", [0, 1, 1, 0], "only the active party C1 holds labels; got labels for C2"),
        ("C1", [0, 1, 2, 0], "labels must be from 0 to 1, got 0 to 2"),
        ("C1", [0, 1, -1, 0], "labels must be from 0 to 1, got -1 to 1"),
        ("C1", [0, 1], r"labels must have shape \[4\], one per id; got \(2,\)"),
    ],
)
def test_labels_are_the_active_partys_and_of_known_classes(adversary: str, labels: list[int], message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        dataclasses.replace(observation(adversary), labels=torch.tensor(labels))


@pytest.mark.parametrize("adversary", ["C1", "C2"])
@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_observation_comes_back_as_it_was(
    tmp_path: Path, adversary: str, features: bool, dtype: torch.dtype
) -> None:
    seen = observation(adversary, features, dtype)
    folder = tmp_path / "new" / "observation"
    if adversary == "C1":
        seen = dataclasses.replace(seen, labels=torch.tensor([0, 1, 1, 0]))
    save_observation(seen, folder)
    assert same(load_observation(folder), seen)
    assert (load_observation(folder).labels is None) == (adversary == "C2")
    assert not same(
        load_observation(folder),
        dataclasses.replace(
            seen, ids=seen.ids + 1, auxiliary=dataclasses.replace(seen.auxiliary, ids=seen.auxiliary.ids + 1)
        ),
    )
    assert all(path.stat().st_mode & 0o077 == 0 for path in [folder, *folder.iterdir()])
    assert [path.name for path in folder.parent.iterdir()] == ["observation"]


def test_a_second_save_takes_the_place_of_the_first(tmp_path: Path) -> None:
    save_observation(observation("C1"), tmp_path / "o")
    (tmp_path / "o" / "old").touch()
    save_observation(observation("C2"), tmp_path / "o")
    assert same(load_observation(tmp_path / "o"), observation("C2"))
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["facts.json", "tensors.safetensors"]


def test_the_truth_is_nowhere_in_an_observation(tmp_path: Path) -> None:
    truth = PropertyTruth("sex=Male", 0.625, torch.tensor([True, False, True, True]))
    save_observation(observation(), tmp_path / "observation")
    save_truth(truth, tmp_path / "truth")
    again = load_truth(tmp_path / "truth")
    assert (again.property_name, again.fraction) == ("sex=Male", 0.625)
    assert torch.equal(again.has_property, truth.has_property)
    held = load_file(tmp_path / "observation" / "tensors.safetensors")
    assert {tensor.dtype for name, tensor in held.items() if name != "auxiliary/has_property"} <= {
        torch.float32,
        torch.int64,
    }
    assert "0.625" not in (tmp_path / "observation" / "facts.json").read_text()


def edited(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "facts.json"
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


def retensored(folder: Path, **change: Any) -> None:
    path = folder / "tensors.safetensors"
    tensors = load_file(path) | {name.replace("__", "/"): value for name, value in change.items()}
    save_file({name: value for name, value in tensors.items() if value is not None}, path)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no facts": (lambda f: (f / "facts.json").unlink(), "no intermediate results at .*: facts.json is missing"),
    "no tensors": (lambda f: (f / "tensors.safetensors").unlink(), "tensors.safetensors is missing"),
    "no JSON": (lambda f: (f / "facts.json").write_text("{"), "facts.json is not JSON"),
    "no UTF-8": (lambda f: (f / "facts.json").write_bytes(b"\xff\xfe"), "facts.json is not JSON"),
    "a list": (lambda f: (f / "facts.json").write_text("[1]"), "schema_version must be 1, got None"),
    "nested": (lambda f: (f / "facts.json").write_text("[" * 100_000), "is not JSON"),
    "version": (lambda f: edited(f, lambda d: d.update(schema_version=2)), "schema_version must be 1, got 2"),
    "foreign": (lambda f: edited(f, lambda d: d.update(what="property truth")), "must describe intermediate results"),
    "cut": (lambda f: (f / "tensors.safetensors").write_bytes(b"12345678"), "is not a safetensors file"),
    "adversary": (lambda f: edited(f, lambda d: d.update(adversary="C3")), "adversary must be one of C1, C2"),
    "no role": (lambda f: edited(f, lambda d: d.pop("adversary")), "does not describe intermediate results"),
    "passive": (lambda f: edited(f, lambda d: d.update(adversary="C2")), "an adversary C2 can see AO"),
    "list role": (lambda f: edited(f, lambda d: d.update(adversary=[])), "does not describe"),
    "unknown fact": (lambda f: edited(f, lambda d: d["facts"].update(secret=1)), "does not describe.*secret"),
    "missing fact": (
        lambda f: edited(f, lambda d: d["facts"].pop("epoch")),
        "epoch must be a whole number from 0 to 1000000000, got None",
    ),
    "text": (lambda f: edited(f, lambda d: d["facts"].update(n_classes="2")), "n_classes must be a whole number"),
    "path": (lambda f: edited(f, lambda d: d["facts"].update(epoch="../../x")), "epoch must be a whole number"),
    "endless": (lambda f: edited(f, lambda d: d["facts"].update(n_classes=10**12)), "n_classes must be a whole number"),
    "no party": (
        lambda f: edited(f, lambda d: d["facts"].update(victim_party=2)),
        "must be below the 2 parties, got 2",
    ),
    "same": (lambda f: edited(f, lambda d: d["facts"].update(victim_party=0)), "must be two parties, got 0 for both"),
    "both": (lambda f: edited(f, lambda d: d["facts"].update(victim_columns=["age"])), "got 'age' for both"),
    "stranger": (lambda f: edited(f, lambda d: d["auxiliary"].update(columns=["x"])), "the adversary's own, got 'x'"),
    "columns": (lambda f: edited(f, lambda d: d["facts"].update(victim_columns="sex")), "expected a list of names"),
    "reached": (lambda f: edited(f, lambda d: d["auxiliary"].update(columns=["sex"])), "these are the victim's: sex"),
    "auxiliary": (lambda f: edited(f, lambda d: d.update(auxiliary=3)), "does not describe"),
    "unknown": (lambda f: retensored(f, truth=torch.zeros(4)), "holds unknown tensors truth"),
    "missing": (lambda f: retensored(f, ids=None), "lacks ids"),
    "kind": (lambda f: retensored(f, results__XX=torch.zeros(4, 3)), "got 'XX' as well"),
    "rows": (lambda f: retensored(f, results__AO=torch.zeros(5, 3)), r"AO must have shape \[4, width\]"),
    "dims": (lambda f: retensored(f, results__AO=torch.zeros(4)), "AO must have 2 dimensions of a float type, got 1"),
    "type": (lambda f: retensored(f, ids=torch.zeros(4)), "ids must have 1 dimension of torch.int64, got 1 of torch.f"),
    "scalar": (lambda f: retensored(f, ids=torch.tensor(4)), "ids must have 1 dimension of"),
    "NaN": (lambda f: retensored(f, results__VG=torch.full((4, 3), torch.nan)), "VG must be finite"),
    "order": (lambda f: retensored(f, ids=torch.tensor([3, 2, 5, 8])), "ids must be ascending"),
    "strangers": (lambda f: retensored(f, auxiliary__ids=torch.tensor([3, 8, 9])), "1 of 3 ids are not"),
    "constant": (lambda f: retensored(f, auxiliary__has_property=torch.ones(3).bool()), "is constant"),
    "features": (lambda f: retensored(f, features=torch.zeros(3, 2)), "features must have 4 rows"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_foreign_or_inconsistent_folder_is_refused(tmp_path: Path, damage: str) -> None:
    save_observation(observation(), tmp_path / "o")
    spoil, message = DAMAGES[damage]
    spoil(tmp_path / "o")
    with pytest.raises(ObservationError, match=message) as caught:
        load_observation(tmp_path / "o")
    assert str(tmp_path / "o") in str(caught.value)


def test_a_truth_of_another_kind_is_refused(tmp_path: Path) -> None:
    save_truth(PropertyTruth("sex=Male", 0.5, torch.tensor([True, False])), tmp_path / "t")
    with pytest.raises(ObservationError, match="must describe intermediate results, got 'property truth'"):
        load_observation(tmp_path / "t")
    for change, message in (
        ({"fraction": 1.5}, "fraction must be from 0 to 1, got 1.5"),
        ({"fraction": "much"}, "does not describe property truth"),
        ({"fraction": float("nan")}, "fraction must be from 0 to 1, got nan"),
        ({"fraction": 0.5, "property_name": 7}, "expected text, got 7"),
    ):
        edited(tmp_path / "t", lambda facts, change=change: facts.update(change))
        with pytest.raises(ObservationError, match=message):
            load_truth(tmp_path / "t")
    edited(tmp_path / "t", lambda facts: facts.update(property_name="a=b"))
    retensored(tmp_path / "t", has_property=torch.zeros(2))
    with pytest.raises(ObservationError, match=r"has_property must have 1 dimension of torch\.bool"):
        load_truth(tmp_path / "t")


def test_files_beyond_the_size_limits_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_observation(observation(), tmp_path / "o")
    size = (tmp_path / "o" / "tensors.safetensors").stat().st_size
    with pytest.raises(ObservationError, match=rf"has {size} bytes; at most 100 are read"):
        load_observation(tmp_path / "o", max_tensor_bytes=100)
    monkeypatch.setattr("lightleak.core.stored.MAX_FACTS_BYTES", 10)
    with pytest.raises(ObservationError, match=r"facts\.json has \d+ bytes; at most 10 are read"):
        load_observation(tmp_path / "o")
