from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from lightleak.report.comparison import Group, at_start, compare, paired_leakage, strongest_first
from lightleak.report.estimate import Estimate, estimate
from lightleak.report.result import Result, Setting
from lightleak.report.run_folder import RunFolder, load_run

SETTING = Setting("run", dataset="adult", labels="true", source="initial")


def result(attack: str, batch: int, accuracy: float | None, setting: Setting = SETTING, size: int = 8) -> Result:
    metrics = {} if accuracy is None else {"cell_accuracy": accuracy}
    return Result(setting, attack, size, (0, batch), metrics, {}, {})


def groups_of(*results: Result) -> tuple[Group, ...]:
    return compare([RunFolder("run", Path("."), results, pd.DataFrame(), None, {})])


def test_leakage_is_paired_by_batch() -> None:
    """Batches differ much in how easy they are to guess, the attack adds the same to each: the interval closes."""
    guessed = [0.2, 0.5, 0.8]
    found = groups_of(
        *(result("random", i, base) for i, base in enumerate(guessed)),
        *(result("tableak", i, base + 0.1) for i, base in enumerate(guessed)),
    )
    attack = next(group for group in found if group.attack == "tableak")
    assert attack.leakage is not None
    assert (attack.leakage.mean, attack.leakage.low, attack.leakage.high) == pytest.approx((0.1, 0.1, 0.1))
    assert attack.accuracy is not None and attack.accuracy.low < 0


def test_without_shared_batches_the_means_are_compared() -> None:
    attack, baseline = groups_of(result("tableak", 0, 0.9), result("random", 5, 0.5))
    found = paired_leakage(attack, baseline)
    assert found is not None
    assert (found.mean, found.n, found.has_interval) == (pytest.approx(0.4), 0, False)


def test_no_accuracy_no_leakage() -> None:
    attack, _ = groups_of(result("tableak", 0, None), result("random", 0, 0.5))
    assert attack.baseline is not None
    assert attack.leakage is None


def test_baseline_of_another_batch_size_or_setting_does_not_serve() -> None:
    other = replace(SETTING, dataset="german")
    found = groups_of(result("tableak", 0, 0.9), result("random", 0, 0.5, size=16), result("random", 0, 0.5, other))
    assert found[0].baseline is None


def test_baseline_serves_every_label_setting_and_its_own_first() -> None:
    restored = replace(SETTING, labels="restored")
    found = groups_of(
        result("tableak", 0, 0.9), result("tableak", 0, 0.8, restored),
        result("random", 0, 0.4), result("random", 0, 0.3, restored),
    )  # fmt: skip
    assert [group.leakage.mean for group in found[:2]] == pytest.approx([0.5, 0.5])
    without_own = groups_of(
        result("tableak", 0, 0.8, restored), result("random", 0, 0.3, replace(SETTING, labels=None))
    )
    assert without_own[0].leakage.mean == pytest.approx(0.5)


def test_numbers_are_those_of_the_rows(make_run) -> None:
    group = compare([load_run(make_run(batch_sizes=(8,), n_batches=4))])[0]
    assert group.accuracy == estimate(one.metrics["cell_accuracy"] for one in group.results)
    assert group.accuracy is not None and group.accuracy.n == 4


def test_an_attack_with_two_settings_is_two_attacks() -> None:
    few, many = ({"restarts": restarts, "steps": "100"} for restarts in ("5", "30"))
    results = [replace(result("tableak", i, accuracy), options=options)
               for accuracy, options in ((0.6, few), (0.8, many)) for i in range(2)]  # fmt: skip
    found = groups_of(*results, result("random", 0, 0.5), result("random", 1, 0.5))
    assert [group.title for group in found] == ["TabLeak (restarts 5)", "TabLeak (restarts 30)", "Guessing"]
    assert [group.leakage.mean for group in found[:2]] == pytest.approx([0.1, 0.3])


def test_settings_that_do_not_compete_make_no_variant() -> None:
    small = replace(result("tableak", 0, 0.6, size=8), options={"steps": "100"})
    large = replace(result("tableak", 0, 0.6, size=32), options={"steps": "700"})
    assert [group.title for group in groups_of(small, large)] == ["TabLeak", "TabLeak"]


def test_strongest_prefers_leakage_over_accuracy() -> None:
    easy = replace(SETTING, dataset="easy")
    found = groups_of(
        result("tableak", 0, 0.95, easy),
        result("random", 0, 0.9, easy),
        result("tableak", 0, 0.7),
        result("random", 0, 0.2),
    )
    assert [group.setting.dataset for group in strongest_first(found)] == ["adult", "easy"]


def test_a_lucky_single_batch_does_not_lead() -> None:
    found = groups_of(result("lucky", 0, 0.99), *(result("steady", i, 0.8) for i in range(4)))
    assert [group.attack for group in strongest_first(found)] == ["steady", "lucky"]


def test_what_was_attacked_before_training_leads() -> None:
    later = replace(SETTING, source="training", epoch=3)
    found = groups_of(result("tableak", 0, 0.8), result("tableak", 0, 0.9, later))
    assert [group.setting.source for group in at_start(found)] == ["initial"]
    assert len(at_start(groups_of(result("tableak", 0, 0.9, later)))) == 1


def test_columns_are_averaged_over_batches() -> None:
    results = [replace(result("tableak", i, 0.5), column_accuracy={"age": i / 2, "sex": 1.0}) for i in range(3)]
    (group,) = groups_of(*results)
    assert group.column_accuracy == {"age": 0.5, "sex": 1.0}


def test_an_estimate_without_ends_has_no_interval() -> None:
    assert not Estimate(0.5, 3, low=0.4).has_interval
