"""The sentences follow from the numbers."""

import pytest

from lightleak.report.tuning.headline import headline
from lightleak.report.tuning.run_folder import load_tuning_run

INTERRUPTED = {"held_out": None, "importance": {}}


def told(folder):
    return headline([load_tuning_run(folder)])


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.011, 0.035, "the tuned settings are truly better than the defaults: cell accuracy 82.3% against 80.0%"),
        (-0.01, 0.03, "the tuned settings cannot be told from the defaults: cell accuracy 81.0% against 80.0%"),
        (0.0, 0.02, "the tuned settings cannot be told from the defaults"),
        (-0.03, -0.01, "the tuned settings are worse than the defaults: cell accuracy 78.0% against 80.0%"),
    ],
)
def test_only_an_interval_without_zero_is_better_or_worse(make_study, compared, low, high, says: str) -> None:
    found = told(make_study(study={"held_out": compared(low, high)}))
    assert f"On held-out data, which no trial was scored on, {says}" in found.sentence
    ends = " to ".join(f"{100 * end:.1f}".replace("-", "−") for end in (low, high))
    assert f"points (95% interval {ends})." in found.sentence
    assert [tile.label for tile in found.tiles][-1] == "points, tuned against defaults"
    assert found.tiles[0].detail == "held-out data, 95% interval 80.6 to 84.0"


def test_less_is_better_where_the_objective_is_minimised(make_study, compared) -> None:
    objective = {"name": "cell_accuracy", "direction": "minimize", "words": "cell accuracy of tableak"}
    for low, high, says in ((-0.03, -0.01, "truly better"), (0.01, 0.03, "are worse")):
        found = told(make_study(study={"objectives": [objective], "held_out": compared(low, high)}))
        assert says in found.sentence


def test_without_an_interval_nothing_is_claimed(make_study, compared) -> None:
    comparison = compared(0.01, 0.03)
    comparison["difference"] = {"mean": 0.02, "low": None, "high": None}
    found = told(make_study(study={"held_out": comparison}))
    assert "cannot be told whether the tuned settings are better, as there is no interval" in found.sentence
    assert "truly" not in found.sentence


def test_what_was_searched_and_the_time_are_said(make_study) -> None:
    searched, validated, time = told(make_study()).verdict
    assert searched == (
        "Searched: 6 settings, for the highest cell accuracy of tableak on validation clients, in 40 trials "
        "(30 complete, 9 pruned, 1 failed)."
    )
    assert validated.endswith("the defaults 80.0%; being picked for it flatters it.")
    assert time == "The tuned settings took 6.34 s where the defaults took 6.12 s (1.04 times as long)."


def test_a_gain_on_validation_alone_may_be_luck(make_study) -> None:
    folder = make_study(study=INTERRUPTED)
    found, run = told(folder), load_tuning_run(folder)
    best, default = (f"{100 * one.values['cell_accuracy']:.1f}%" for one in (run.chosen, run.default))
    assert found.sentence == (
        f"On validation data the best trial reaches {best}, the defaults {default}. This may be luck: there is no "
        "comparison on held-out data yet."
    )
    assert [tile.value for tile in found.tiles] == [best, default]
    assert "interval of the held-out" not in " ".join(found.limits)


def test_the_best_of_many_is_always_called_optimistic(make_study) -> None:
    for study in ({}, INTERRUPTED):
        assert "Only the held-out comparison counts." in told(make_study(study=study)).limits[0]


def test_defaults_that_nothing_beat_are_named(make_study) -> None:
    def best_first(rows) -> None:
        for row in rows:
            row["is_best"] = row["trial"] == 0

    found = told(make_study(change=best_first))
    assert "the best trial is the trial of the defaults itself" in found.sentence
    assert "there is nothing to change" in found.sentence


def test_an_interrupted_study_says_how_far_it_came(make_study) -> None:
    def running(rows) -> None:
        for row in rows:
            row |= {"state": "pruned" if row["trial"] else "running", "values": None, "is_best": False}

    found = told(make_study(trials=3, change=running, study=INTERRUPTED))
    assert found.sentence == "Nothing can be said yet: no trial is complete (2 trials ended early)."
    assert found.tiles == () and "in 3 trials of 40 asked for (2 pruned, 1 running)." in found.verdict[0]
    empty = told(make_study(trials=0, study=INTERRUPTED))
    assert empty.sentence.endswith("no trial is complete (no trial has ended).")
    late = told(make_study(trials=6, change=lambda rows: rows.pop(0), study=INTERRUPTED))
    assert late.sentence.endswith("The defaults have not been measured yet.")


def test_several_objectives_are_told_by_their_knee(make_study, compared) -> None:
    run = load_tuning_run(make_study(several=True))
    found = headline([run])
    words = [f"{one.name} {100 * run.chosen.values[one.name]:.1f}%" for one in run.study.objectives]
    assert f"the knee of the front reaches {' and '.join(words)}, the defaults accuracy 83.3%" in found.sentence
    assert (
        f"{len(run.front)} trials are on the front" in found.verdict[1]
        and "The defaults are on it too." in found.verdict[1]
    )
    assert [tile.label for tile in found.tiles] == ["accuracy", "leakage", "accuracy", "leakage"]
    lower = told(make_study(several=True, study={"held_out": compared(-0.03, -0.01, metric="leakage")}))
    assert "the tuned settings are truly better than the defaults in leakage: leakage 78.0%" in lower.sentence
    unnamed = told(make_study(several=True, change=lambda rows: [row.update(is_knee=False) for row in rows]))
    assert "nothing to propose" in unnamed.sentence


def test_several_studies_are_counted_by_what_held_out_data_say(make_named_study, compared) -> None:
    comparisons = {"a": compared(0.01, 0.03), "b": compared(-0.01, 0.03), "c": compared(-0.03, -0.01), "d": None}
    runs = [load_tuning_run(make_named_study(name)(study={"held_out": one})) for name, one in comparisons.items()]
    found = headline(runs)
    assert found.sentence == (
        "4 studies: of 3 that were compared on held-out data, 1 found settings that are truly better than the "
        "defaults and 1 found worse ones."
    )
    assert [line.split(":")[0] for line in found.verdict] == ["a", "b", "c", "d"]
    assert headline(runs[3:] * 2).sentence == (
        "Of 2 studies none has been compared with the defaults on held-out data yet."
    )
