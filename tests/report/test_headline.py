from collections.abc import Sequence
from dataclasses import replace

import pytest

from lightleak.report.comparison import Group
from lightleak.report.estimate import Estimate
from lightleak.report.headline import headline, verdict
from lightleak.report.result import Setting, parse_result

SETTING = Setting("run", dataset="adult", defense="none", source="initial")


def group(
    attack: str = "tableak",
    mean: float | None = 0.793,
    exact: float | None = 0.05,
    n: int = 20,
    leakage: Estimate | None = None,
    guess: float | None = 0.437,
    setting: Setting = SETTING,
) -> Group:
    metrics = {}
    if mean is not None:
        metrics["cell_accuracy"] = Estimate(mean, n, mean - 0.019, mean + 0.019) if n > 1 else Estimate(mean)
    if exact is not None:
        metrics["exact_match_rate"] = Estimate(exact, n, exact, exact)
    baseline = None
    if guess is not None and attack != "random":
        baseline = group("random", guess, 0.0, n)
    return Group(setting, attack, 32, (), metrics, baseline=baseline, leakage=leakage)


def test_the_sentence_says_what_was_measured() -> None:
    found = headline([group(leakage=Estimate(0.356, 20, 0.34, 0.37))])
    assert found.sentence == (
        "An honest-but-curious server recovered 79.3% of all cells (95% interval 77.4 to 81.2) of a client's batch of "
        "32 rows; guessing without the update gets 43.7%; 5.0% of whole rows are exact."
    )
    assert [tile.value for tile in found.tiles] == ["79.3%", "43.7%", "5.0%"]
    assert found.limits


def test_one_batch_has_no_interval() -> None:
    found = headline([group(n=1, leakage=Estimate(0.356))])
    assert "interval" not in found.sentence
    assert "one batch, no interval" in found.tiles[0].detail
    assert "1 batch," in found.selection
    assert "too few batches" in found.verdict


@pytest.mark.parametrize(
    ("leakage", "says"),
    [
        (Estimate(0.3, 9, 0.28, 0.32), "gave away more than guessing does: +30.0 points of cells"),
        (Estimate(0.01, 9, -0.02, 0.04), "not measurably better than guessing"),
        (Estimate(-0.1, 9, -0.12, -0.08), "did worse than guessing (−10.0 points"),
        (Estimate(0.1), "above guessing (+10.0 points), but too few batches"),
        (Estimate(-0.1), "not above guessing (−10.0 points), but too few batches"),
        (None, "Guessing without the update was not measured"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_the_paired_interval(leakage: Estimate | None, says: str) -> None:
    assert says in verdict(group(leakage=leakage))


@pytest.mark.parametrize(
    ("steps", "leakage", "is_said"),
    [
        ("100", Estimate(0.01, 9, -0.02, 0.04), True),
        ("100", Estimate(-0.1, 9, -0.12, -0.08), True),
        ("100", Estimate(0.3, 9, 0.28, 0.32), False),  # what was recovered was recovered
        ("1500", Estimate(0.01, 9, -0.02, 0.04), False),
    ],
)
def test_nothing_follows_from_what_a_weakened_attack_did_not_find(steps: str, leakage: Estimate, is_said: bool) -> None:
    result = parse_result({"attack": "tableak", "options": {"steps": int(steps)}}, "a", "row 0")
    found = verdict(replace(group(leakage=leakage), results=(result,)))
    assert ("100 steps in place of 1500, less than published, so nothing follows" in found) is is_said


def test_the_verdict_relates_leakage_to_what_guessing_leaves_open() -> None:
    assert "50% of the way" in verdict(group(leakage=Estimate(0.25, 9, 0.2, 0.3), guess=0.5))
    assert "of the way" not in verdict(group(leakage=Estimate(0.1, 9, 0.05, 0.2), guess=1.0))


@pytest.mark.parametrize(
    ("exact", "says"),
    [
        (0.0, "No row was recovered exactly."),
        (0.005, "About one row in 200 was recovered exactly."),
        (0.05, "On average 1.6 of 32 rows were recovered exactly."),
    ],
)
def test_whole_rows_are_counted(exact: float, says: str) -> None:
    assert says in verdict(group(exact=exact, leakage=Estimate(0.3, 9, 0.28, 0.32)))


def test_no_rate_of_whole_rows_is_left_out() -> None:
    found = headline([group(exact=None, leakage=Estimate(0.3, 9, 0.28, 0.32))])
    assert found.sentence.endswith("gets 43.7%.")
    assert "exactly" not in found.verdict
    assert len(found.tiles) == 2


def test_fedavg_and_a_defence_are_told_for_what_they_are() -> None:
    setting = Setting(
        "run",
        protocol="fedavg",
        source="initial",
        local_epochs=5,
        local_batches=1,
        n_clients=1,
        defense="clipping",
        strength=4,
    )
    found = headline([group("tableak_fedavg", leakage=Estimate(0.3, 9, 0.28, 0.32), setting=setting)])
    assert "of the 32 rows a client trained on; guessing" in found.sentence
    assert "Measured on 20 updates, each after 5 local epochs of 1 batch, before training" in found.selection
    assert "defence: clipping 4." in found.selection
    assert "gradient" not in found.sentence + found.selection


def test_a_higher_value_in_a_later_round_is_told_as_a_round() -> None:
    first = Setting("run", protocol="fedavg", source="initial", n_clients=1)
    later = Setting("run", protocol="fedavg", source="training", epoch=4, n_clients=1)
    found = headline([group(setting=first), group(mean=0.9, setting=later)])
    assert "90.0% by TabLeak in round 4 (32 rows)" in found.selection


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ([], "No attack has finished yet"),
        ([group("random")], "Only the guessing baseline has finished"),
        ([group(mean=None)], "how much was recovered rightly is unknown"),
    ],
)
def test_nothing_to_report_is_said(groups: Sequence[Group], says: str) -> None:
    found = headline(groups)
    assert found.group is None
    assert says in found.sentence


def test_the_selection_is_disclosed() -> None:
    noisy = Setting("run", dataset="adult", defense="noise", source="initial")
    groups = [group(leakage=Estimate(0.3)), group(leakage=Estimate(0.1), setting=noisy, mean=0.5)]
    found = headline(groups)
    assert found.group is groups[0]
    assert "strongest of the 2 combinations" in found.selection
    assert "labels not stated; defence: none." in found.selection
    german = Setting("run", dataset="german", defense="none", source="initial")
    assert "(adult)" in headline([groups[0], group(setting=german)]).selection


def test_a_higher_value_during_training_is_not_hidden() -> None:
    later = Setting("run", dataset="adult", defense="none", source="training", epoch=4)
    assert (
        "higher value was measured: 90.0% by TabLeak in epoch 4"
        in headline([group(), group(mean=0.9, setting=later)]).selection
    )
    assert "During training" not in headline([group(), group(mean=0.5, setting=later)]).selection
