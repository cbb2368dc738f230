"""What one call takes on a GPU is found by trying, within its memory, and stays what it was for a run folder."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightleak.attacks.gradient_inversion.optimize import attack as attack_module
from lightleak.attacks.gradient_inversion.optimize import shell
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.experiments import campaign
from lightleak.experiments.campaign import (
    MARGIN,
    PACKS_FILE,
    TRIAL_STEPS,
    find_sizes,
    largest_that_fits,
    memory_taken,
    pack_key,
    plan_packs,
)
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.unit import Unit, run_pack, unit_file

CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Card:
    """A device whose memory ends at so many units of a call; remembers what was tried on it."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.tried: list[int] = []

    def taken(self, unit: Unit, number: int, device: torch.device) -> float:
        assert device == GPU
        self.tried.append(number)
        return number / self.memory if self.memory else math.inf


@pytest.fixture(scope="module")
def units(tiny: Any) -> list[Unit]:
    """Twenty of each attack, on batches of 3 and of 5 rows."""
    attacks = {"tableak": {"steps": 20, "restarts": 3}, "random": {}}
    config = tiny(training__epochs=0, initial__batch_sizes=[3, 5], initial__batches=20, attacks=attacks)
    return plan_units(config, prepare_experiment(config), Path("no such folder"))


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the engine's estimate everything fits."""
    monkeypatch.setattr(shell, "card_memory", lambda device: 2**40)


@given(memory=st.integers(0, 300), most=st.integers(1, 100))
def test_the_search_stays_within_the_memory_and_uses_it(memory: int, most: int) -> None:
    tried: list[int] = []

    def taken(number: int) -> float:
        tried.append(number)
        return number / memory if memory else math.inf

    found = largest_that_fits(taken, most)
    assert found <= most and (found > 0) == (memory > 0)
    if found > 1:
        assert math.ceil(MARGIN * found) <= memory
    if found < most:
        # The next candidate above is at most 1.5 times as many (2 above 1), and did not fit.
        assert memory < math.ceil(MARGIN * max(2, math.ceil(1.5 * found)))
    assert len(tried) <= 3 + math.log2(most) + 1


def test_what_plainly_fits_is_tried_once_with_few_units() -> None:
    tried: list[int] = []

    def taken(number: int) -> float:
        tried.append(number)
        return 1e-6 * number

    assert largest_that_fits(taken, most=4369) == 4369  # updates of one row and 30 restarts on a large card
    assert tried == [16]


def test_the_sizes_found_cut_the_plan(tmp_path: Path, units: list[Unit]) -> None:
    sizes = find_sizes(units, GPU, tmp_path, Card(memory=9).taken)  # 8 would fit, without a margin
    packs = plan_packs(units, GPU, sizes)
    assert [unit.id for pack in packs for unit in pack] == [unit.id for unit in units]
    assert [len(pack) for pack in packs if pack[0].attack == "tableak"] == [6, 6, 6, 2] * 2
    assert [len(pack) for pack in packs if pack[0].attack == "random"] == [20, 20]  # it has no steps to try


def test_what_was_found_is_remembered_whatever_the_memory_is_later(tmp_path: Path, units: list[Unit]) -> None:
    first = find_sizes(units, GPU, tmp_path, Card(10).taken)
    text = (tmp_path / PACKS_FILE).read_text()
    later = Card(1000)
    assert find_sizes(units, GPU, tmp_path, later.taken) == first
    assert later.tried == [] and (tmp_path / PACKS_FILE).read_text() == text
    entries = json.loads(text)["units_of_a_call"]
    assert [(e["attack"], e["options"]["restarts"], e["shape"]["batch_size"], e["units"]) for e in entries] == [
        ("tableak", 3, 3, 8),
        ("tableak", 3, 5, 8),
    ]


def test_only_kinds_that_are_new_are_tried(tmp_path: Path, units: list[Unit]) -> None:
    small = [unit for unit in units if unit.facts["batch_size"] == 3]
    first = find_sizes(small, GPU, tmp_path, Card(10).taken)
    both = find_sizes(units, GPU, tmp_path, Card(5).taken)
    assert both == first | {key: 4 for key in both if key not in first} and len(both) == 2
    other = [replace(unit, options={**unit.options, "restarts": 4}) for unit in small if unit.attack == "tableak"]
    assert find_sizes(other, GPU, tmp_path, Card(5).taken).keys() > both.keys()


def test_what_is_remembered_is_of_the_device_and_not_of_how_many_came_first(tmp_path: Path, units: list[Unit]) -> None:
    of_all = find_sizes(units, GPU, tmp_path / "all", Card(9).taken)
    assert find_sizes([u for u in units if u.facts["batch_index"] < 2], GPU, tmp_path / "few", Card(9).taken) == of_all
    assert find_sizes(units, GPU, tmp_path / "few", Card(9).taken) == of_all


def test_no_more_is_tried_than_rows_that_pay_or_the_engine_takes_uncut(
    tmp_path: Path, units: list[Unit], monkeypatch: pytest.MonkeyPatch
) -> None:
    few, card = [unit for unit in units if unit.attack == "tableak"][:6], Card(12)
    monkeypatch.setitem(campaign.ROWS_PER_PACK, "cuda", 3 * 3 * 6)
    assert set(find_sizes(few, GPU, tmp_path / "few", card.taken).values()) == {6}
    assert max(card.tried) == math.ceil(MARGIN * 6)
    monkeypatch.setattr(GradientInversion, "updates_at_once", lambda *_: 3)
    assert set(find_sizes(few, GPU, tmp_path / "cut", card.taken).values()) == {3}


def test_a_cpu_is_not_tried(tmp_path: Path, units: list[Unit]) -> None:
    assert find_sizes(units, CPU, tmp_path, lambda *_: pytest.fail("tried")) == {}
    assert list(tmp_path.iterdir()) == []


def test_memory_for_no_unit_at_all_is_an_error(tmp_path: Path, units: list[Unit]) -> None:
    assert set(find_sizes(units, GPU, tmp_path / "one", Card(1).taken).values()) == {1}
    with pytest.raises(UsageError, match=r"one call of tableak on an update of batch size 3 .* set memory_mb"):
        find_sizes(units, GPU, tmp_path / "none", Card(0).taken)
    assert not (tmp_path / "none" / PACKS_FILE).exists()


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card of 200 bytes, 100 of which are free; 10 are allocated before a trial, 35 at its peak."""
    for name, value in (("mem_get_info", (100, 200)), ("memory_allocated", 10), ("max_memory_allocated", 35)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)


@pytest.mark.usefixtures("card")
def test_a_trial_runs_the_attack_for_few_steps_and_says_what_it_took(
    units: list[Unit], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_many, calls = GradientInversion.run_many, []

    def limited(attack: GradientInversion, updates: Sequence[Any], seeds: Sequence[int], *rest: Any) -> Any:
        calls.append((len(updates), attack.config.steps))
        if len(updates) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run_many(attack, updates, seeds, *rest)

    monkeypatch.setattr(GradientInversion, "run_many", limited)
    assert [memory_taken(units[0], number, CPU) for number in (1, 4, 5)] == [0.25, 0.25, math.inf]
    assert calls == [(1, TRIAL_STEPS), (4, TRIAL_STEPS), (5, TRIAL_STEPS)]


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Updates and candidates of each chunk that attacks run; on a stand-in for a GPU that computes on the CPU."""
    run_chunk, seen = GradientInversion._run_chunk, []

    def watched(attack: GradientInversion, pairs: Any, device: Any, at_once: int, *rest: Any) -> Any:
        seen.append((len(pairs), min(len(pairs) * attack.config.restarts, at_once)))
        return run_chunk(attack, pairs, CPU, at_once, *rest)

    monkeypatch.setattr(GradientInversion, "_run_chunk", watched)
    return seen


@pytest.mark.usefixtures("card")
def test_a_trial_beyond_the_budget_is_one_call(
    units: list[Unit], chunks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    attack, update = units[0].make_attack(), units[0].observe()[0]
    monkeypatch.setattr(shell, "MEMORY_SHARE", 1.0)
    monkeypatch.setattr(attack_module, "bytes_per_restart", lambda *_: 2**20)
    monkeypatch.setattr(shell, "card_memory", lambda device: 12 * 2**20)
    assert attack.on_card(GPU).updates_at_once(update, GPU) == 4
    assert memory_taken(units[0], 5, GPU) < 1 and chunks == [(5, 15)]
    # Where one unit alone is cut, so is its trial.
    monkeypatch.setattr(shell, "card_memory", lambda device: 2 * 2**20)
    assert memory_taken(units[0], 1, GPU) < 1 and chunks[1:] == [(1, 2)]


def test_a_pack_is_one_call_whatever_is_free_when_it_runs(
    tmp_path: Path, units: list[Unit], chunks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack_module, "bytes_per_restart", lambda *_: 2**20)
    monkeypatch.setattr(shell, "free_memory", lambda device: 1)
    monkeypatch.setattr(shell, "synchronize", lambda device: None)
    run_pack(units[:5], tmp_path, GPU, "nothing", lambda _: None)
    assert chunks == [(5, 15)]
    row = json.loads(unit_file(tmp_path, units[0].id).read_text())
    assert row["options"]["memory_mb"] is None  # as in the config


def test_a_pack_that_runs_out_of_memory_names_the_remedy(
    tmp_path: Path, units: list[Unit], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(GradientInversion, "run_many", full)
    with pytest.raises(LightLeakError, match=r"tableak on 2 updates ran out .* remove packs.json .* memory_mb"):
        run_pack(units[:2], tmp_path, CPU, "nothing", lambda _: None)
    assert not (tmp_path / "units").exists()


def test_units_of_a_kind_share_a_key_and_others_do_not(units: list[Unit]) -> None:
    assert len({pack_key(unit) for unit in units}) == 4
    changed = replace(units[0], options={**units[0].options, "steps": 21})
    assert pack_key(changed) != pack_key(units[0]) == pack_key(units[1])
