"""Rows of updates grouped, each group measured against guessing."""

from dataclasses import replace
from pathlib import Path

import pytest

from lightleak.core.results import UpdateRow
from lightleak.report.intervals import Estimate, bounded, estimate
from lightleak.report.kinds.updates_groups import UpdateGroup, at_start, compare, strongest_first
from lightleak.report.read import Run, load_run

BASE = UpdateRow(attack="", run="run", dataset="adult", labels="true", source="initial", seed=0)


def row(attack: str, batch: int, accuracy: float | None, base: UpdateRow = BASE, size: int = 8, **fields) -> UpdateRow:
    metrics = {} if accuracy is None else {"cell_accuracy": accuracy}
    return replace(base, attack=attack, batch_index=batch, batch_size=size, metrics=metrics, **fields)


def groups_of(*rows: UpdateRow) -> tuple[UpdateGroup, ...]:
    return compare([Run("run", Path("."), "updates", rows)])


def gain(group: UpdateGroup) -> float:
    found = group.leakage
    assert found is not None
    return found.mean


def test_leakage_is_paired_by_batch() -> None:
    """Batches differ much in how easy they are to guess, the attack adds about the same to each."""
    guessed = [0.2, 0.5, 0.8]
    found = groups_of(
        *(row("random", i, base) for i, base in enumerate(guessed)),
        *(row("tableak", i, base + 0.1 + 0.01 * (i - 1)) for i, base in enumerate(guessed)),
    )
    attack = next(group for group in found if group.attack == "tableak")
    over, accuracy = attack.leakage, attack.mean("cell_accuracy")
    assert over is not None and accuracy is not None
    assert over.mean == pytest.approx(0.1) and 0.2 < 10 * (over.high - over.low) < 1
    assert (accuracy.low, accuracy.high) == (0.0, 1.0)


def test_equal_results_leave_open_what_so_few_do() -> None:
    """One fact has one interval, wherever it stands: that of `bounded`, which never closes on equal values."""
    attack, _ = groups_of(
        *(row(name, i, value) for name, value in (("tableak", 1.0), ("random", 0.4)) for i in range(6))
    )
    found = attack.mean("cell_accuracy")
    assert found == bounded([1.0] * 6) and found.low == pytest.approx(0.607, abs=1e-3)
    assert attack.leakage == bounded([0.6] * 6, -1.0, 1.0)


def test_without_shared_batches_the_means_are_compared() -> None:
    attack, _ = groups_of(row("tableak", 0, 0.9), row("random", 5, 0.5))
    found = attack.leakage
    assert found is not None
    assert (found.mean, found.n, found.has_interval) == (pytest.approx(0.4), 0, False)


def test_no_accuracy_no_leakage() -> None:
    attack, _ = groups_of(row("tableak", 0, None), row("random", 0, 0.5))
    assert attack.baseline is not None
    assert attack.leakage is None


def test_baseline_of_another_batch_size_or_setting_does_not_serve() -> None:
    other = replace(BASE, dataset="german")
    found = groups_of(row("tableak", 0, 0.9), row("random", 0, 0.5, size=16), row("random", 0, 0.5, other))
    assert found[0].baseline is None


def test_baseline_serves_every_label_setting_and_its_own_first() -> None:
    restored = replace(BASE, labels="restored")
    found = groups_of(
        row("tableak", 0, 0.9), row("tableak", 0, 0.8, restored),
        row("random", 0, 0.4), row("random", 0, 0.3, restored),
    )  # fmt: skip
    assert [gain(group) for group in found[:2]] == pytest.approx([0.5, 0.5])
    without_own = groups_of(row("tableak", 0, 0.8, restored), row("random", 0, 0.3, replace(BASE, labels=None)))
    assert gain(without_own[0]) == pytest.approx(0.5)


def test_numbers_are_those_of_the_rows(make_run) -> None:
    group = compare([load_run(make_run(batch_sizes=(8,), n_batches=4))])[0]
    found = group.mean("cell_accuracy")
    assert found == estimate([one.metrics["cell_accuracy"] for one in group.rows])
    assert found is not None and found.n == 4


def test_an_attack_with_two_settings_is_two_attacks() -> None:
    few, many = ({"restarts": restarts, "steps": 100} for restarts in (5, 30))
    rows = [row("tableak", i, accuracy, options=options)
            for accuracy, options in ((0.6, few), (0.8, many)) for i in range(2)]  # fmt: skip
    found = groups_of(*rows, row("random", 0, 0.5), row("random", 1, 0.5))
    assert [group.title for group in found] == ["TabLeak (restarts 5)", "TabLeak (restarts 30)", "Guessing"]
    assert [gain(group) for group in found[:2]] == pytest.approx([0.1, 0.3])


def test_settings_that_do_not_compete_make_no_variant() -> None:
    small = row("tableak", 0, 0.6, size=8, options={"steps": 100})
    large = row("tableak", 0, 0.6, size=32, options={"steps": 700})
    assert [group.title for group in groups_of(small, large)] == ["TabLeak", "TabLeak"]


def test_what_a_fedsgd_row_says_of_local_training_does_not_matter() -> None:
    said = replace(BASE, protocol="fedsgd", local_epochs=5, local_batches=4, n_clients=2)
    assert len(groups_of(row("a", 0, 0.5, said), row("a", 1, 0.5, replace(BASE, protocol="fedsgd")))) == 1
    fedavg = [replace(said, protocol="fedavg"), replace(said, protocol="fedavg", local_epochs=1)]
    assert len(groups_of(*(row("a", 0, 0.5, base) for base in fedavg))) == 2


def test_strongest_prefers_leakage_over_accuracy() -> None:
    easy = replace(BASE, dataset="easy")
    found = groups_of(
        row("tableak", 0, 0.95, easy), row("random", 0, 0.9, easy), row("tableak", 0, 0.7), row("random", 0, 0.2)
    )
    assert [group.first.dataset for group in strongest_first(found)] == ["adult", "easy"]


def test_a_lucky_single_batch_does_not_lead() -> None:
    found = groups_of(row("lucky", 0, 0.99), *(row("steady", i, 0.8) for i in range(4)))
    assert [group.attack for group in strongest_first(found)] == ["steady", "lucky"]


def test_what_was_attacked_before_training_leads() -> None:
    later = replace(BASE, source="training", epoch=3)
    found = groups_of(row("tableak", 0, 0.8), row("tableak", 0, 0.9, later))
    assert [group.first.source for group in at_start(found)] == ["initial"]
    assert len(at_start(groups_of(row("tableak", 0, 0.9, later)))) == 1


def test_columns_are_averaged_over_batches() -> None:
    rows = [row("tableak", i, 0.5, column_accuracy={"age": i / 2, "sex": 1.0}) for i in range(3)]
    (group,) = groups_of(*rows)
    assert group.means("column_accuracy") == {"age": 0.5, "sex": 1.0}


def test_an_estimate_without_ends_has_no_interval() -> None:
    assert not Estimate(0.5, 3, low=0.4).has_interval
