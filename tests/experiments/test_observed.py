"""An observation is read, replayed, decoded and given an encoder once, however many attacks read it."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from rich.console import Console

import lightleak
from lightleak.callbacks.capture_store import Capture
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate, ProtocolFacts
from lightleak.core.remembered import Remembered
from lightleak.data.encoder import TableEncoder
from lightleak.experiments.kinds.updates import memory, plan
from lightleak.experiments.observed import Observed, bytes_of, named_captures, version_of
from lightleak.experiments.run import attack_captures, run_audit
from lightleak.metrics import cells, certificate

ATTACKS = {
    "tableak": {"steps": 5, "restarts": 2},
    "audit_max": {"exact": {"chains": 4, "sweeps": 1}, "tableak": {"steps": 5, "restarts": 2}},
    "random": {},
}


def update_of(rows: int) -> ClientUpdate:
    return ClientUpdate({}, {"w": torch.zeros(10)}, {"w": torch.zeros(10)}, {}, {}, ProtocolFacts(rows))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    found: Counter[str] = Counter()

    def counted(where: Any, name: str, label: str) -> None:
        original = getattr(where, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            found[label] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(where, name, staticmethod(call) if isinstance(where, type) else call)

    counted(ClientUpdate, "load", "loads")
    counted(plan, "require_replay", "replays")
    counted(TableEncoder, "from_state", "encoders")
    counted(cells, "match_rows", "assignments")
    counted(certificate, "match_rows", "further assignments")
    decode = TableEncoder.decode

    def of_truth(self: TableEncoder, rows: torch.Tensor, clamp: bool = True) -> Any:
        found["truths decoded"] += not clamp
        return decode(self, rows, clamp)

    monkeypatch.setattr(TableEncoder, "decode", of_truth)
    return found


def test_an_observation_costs_the_same_under_three_attacks_as_under_one(
    save_captures: Any, tiny: Any, tmp_path: Path, silent: Console, calls: Counter[str]
) -> None:
    save_captures(tmp_path / "captures", target__options={"hidden": [12, 12]})
    calls.clear()
    config = tiny(attacks=ATTACKS, target__options={"hidden": [12, 12]})
    results = attack_captures(config, tmp_path / "captures", tmp_path / "run", (), silent)
    assert len(results["rows"]) == 2 * len(ATTACKS)
    once = {name: calls[name] for name in ("loads", "replays", "encoders", "truths decoded")}
    assert once == {"loads": 2, "replays": 2, "encoders": 2, "truths decoded": 2}
    # What an attack found is matched with the truth once; more only where a certificate does not hold there.
    assert calls["assignments"] == len(results["rows"])
    assert calls["further assignments"] == 0


def test_a_capture_that_was_written_again_is_read_again(save_captures: Any, tmp_path: Path) -> None:
    (folder,) = save_captures(tmp_path, sizes=(3,))
    first, before = plan.load_capture(folder), version_of(folder)
    assert plan.load_capture(folder)[0] is first[0]
    (folder / "observation" / "facts.json").touch()
    assert version_of(folder) != before
    assert plan.load_capture(folder)[0] is not first[0]


def test_what_was_used_last_is_kept_within_the_bound() -> None:
    kept, made = Remembered[Observed](most=200, size=bytes_of), []

    def make(rows: int) -> Any:
        made.append(rows)
        return update_of(rows), None

    for rows in (1, 2, 1, 3, 1, 2):  # 80 bytes each: two fit
        assert kept.get((), lambda rows=rows: make(rows), rows)[0].facts.n_rows == rows
    assert made == [1, 2, 3, 2]


def test_a_client_update_passes_through_few_files(tiny: Any, tmp_path: Path, silent: Console) -> None:
    root, files = f"{Path(lightleak.__file__).parent}/", set()

    def holds(value: Any) -> bool:
        return isinstance(value, ClientUpdate | Capture) or (isinstance(value, list | tuple) and any(map(holds, value)))

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        place = frame.f_code.co_filename
        if place.startswith(root) and event in ("call", "return"):
            values = list(frame.f_locals.values()) if event == "call" else [argument]
            if any(map(holds, values)):
                files.add(place.removeprefix(root))

    config = tiny(initial__batches=0, training__epochs=1, capture__epochs=[0], attacks={"tableak": {"steps": 5}})
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        run_audit(config, tmp_path / "run", (), silent)
    finally:
        sys.setprofile(before)
    assert "callbacks/gradient_capture.py" in files and "attacks/gradient_inversion/optimize/attack.py" in files
    assert len(files) <= 25, sorted(files)


def test_captures_of_equal_joined_names_are_told_apart(tmp_path: Path) -> None:
    for place in ("a-b/c", "a/b-c", "a/b/c"):
        (tmp_path / place / "observation").mkdir(parents=True)
    names = named_captures(tmp_path)
    assert sorted(names) == ["a-b-c", "a-b-c-2", "a-b-c-3"] and len(set(names.values())) == 3


def test_an_update_in_memory_is_known_by_all_that_is_seen_of_it_and_by_its_truth() -> None:
    update = update_of(2)
    truth = GroundTruth(torch.zeros(2, 3), torch.tensor([0, 1]))
    others = [
        (replace(update, labels=torch.tensor([0, 1])), None),
        (replace(update, labels=torch.tensor([1, 1])), None),
        (replace(update, training_mode=False), None),
        (replace(update, buffers={"b": torch.ones(1)}), None),
        (update, truth),
        (update, replace(truth, labels=torch.tensor([1, 1]))),
    ]
    digests = [memory._digest(one) for one in [(update, None), *others]]
    assert len(set(digests)) == len(digests)
    assert digests[0] == memory._digest((update_of(2), None))
