"""What the page concludes follows from the numbers."""

import re
from pathlib import Path

import pytest

from lightleak.report import build_report
from lightleak.report.kinds.study_trials import Search, read_search
from lightleak.report.read import load_run

INTERRUPTED = {"held_out": None, "importance": {}}


def search_of(folder: Path) -> Search:
    return read_search(load_run(folder))


@pytest.fixture
def summary(outline):
    """Text of the summary."""

    def of(*folders: Path) -> str:
        source = build_report(list(folders), folders[0] / "page.html").read_text(encoding="utf-8")
        found = re.search(r'<section id="summary".*?</section>', source, re.DOTALL)[0]
        return outline(found).text

    return of


@pytest.mark.parametrize(
    ("low", "high", "verdict", "tuned"),
    [
        (0.011, 0.035, "measurably better", "82.3%"),
        (-0.01, 0.03, "cannot be distinguished", "81.0%"),
        (0.0, 0.02, "cannot be distinguished", "81.0%"),
        (-0.03, -0.01, "worse", "78.0%"),
    ],
)
def test_only_an_interval_without_zero_is_better_or_worse(
    make_study, compared, summary, low, high, verdict: str, tuned: str
) -> None:
    text = summary(make_study(study={"held_out": compared(low, high)}))
    verdicts = ("measurably better", "cannot be distinguished", "worse")
    assert [one for one in verdicts if one in text] == [verdict]
    assert f"cell accuracy {tuned} against 80.0%" in text
    ends = " to ".join(f"{100 * end:.1f}".replace("-", "−") for end in (low, high))
    assert f"(95% interval {ends})" in text


def test_less_is_better_where_the_objective_is_minimized(make_study, compared, summary) -> None:
    objective = {"name": "cell_accuracy", "direction": "minimize", "words": "cell accuracy of tableak"}
    for low, high, verdict in ((-0.03, -0.01, "measurably better"), (0.01, 0.03, "are worse")):
        assert verdict in summary(make_study(study={"objectives": [objective], "held_out": compared(low, high)}))


def test_without_an_interval_nothing_is_claimed(make_study, compared, summary) -> None:
    comparison = compared(0.01, 0.03) | {"difference": {"mean": 0.02, "low": None, "high": None}}
    text = summary(make_study(study={"held_out": comparison}))
    assert "no interval" in text and "measurably" not in text


def test_what_was_searched_and_the_time_are_said(make_study, summary) -> None:
    text = summary(make_study())
    assert "6 settings" in text and "in 40 trials." in text


def test_a_gain_on_validation_alone_may_be_luck(make_study, summary) -> None:
    folder = make_study(study=INTERRUPTED)
    text, search = summary(folder), search_of(folder)
    best, default = (f"{100 * one.values['cell_accuracy']:.1f}%" for one in (search.chosen, search.default))
    assert f"the best trial reaches {best}, the defaults {default}. This may be luck" in text
    assert "interval of the held-out" not in text


def test_a_comparison_that_could_not_be_made_says_why(make_study, summary) -> None:
    text = summary(make_study(study=INTERRUPTED | {"uncompared": "of 1 seeds none can be paired"}))
    assert "there is no comparison on held-out data: of 1 seeds none can be paired." in text and "yet" not in text


def test_the_best_of_many_is_always_called_optimistic(make_study, summary) -> None:
    for study in ({}, INTERRUPTED):
        assert "Only the held-out comparison counts." in summary(make_study(study=study))


def test_defaults_that_nothing_beat_are_named(make_study, summary) -> None:
    def best_first(rows) -> None:
        for row in rows:
            row["is_best"] = row["trial"] == 0

    assert "there is nothing to change" in summary(make_study(change=best_first))


def test_an_interrupted_study_says_how_far_it_came(make_named_study, summary) -> None:
    def running(rows) -> None:
        for row in rows:
            row |= {"state": "pruned" if row["trial"] else "running", "values": None, "is_best": False}

    text = summary(make_named_study("three")(trials=3, change=running, study=INTERRUPTED))
    assert "no trial is complete (2 trials ended early)" in text
    assert "in 3 trials of 40 asked for." in text
    empty = summary(make_named_study("empty")(trials=0, study=INTERRUPTED))
    assert "no trial is complete (no trial has ended)" in empty
    late = summary(make_named_study("late")(trials=6, change=lambda rows: rows.pop(0), study=INTERRUPTED))
    assert "The defaults have not been measured yet." in late


def test_several_objectives_are_summarized_by_their_knee(make_study, compared, summary) -> None:
    folder = make_study(several=True)
    text, search = summary(folder), search_of(folder)
    words = [f"{one.name} {100 * search.chosen.values[one.name]:.1f}%" for one in search.study.objectives]
    assert f"the knee of the front reaches {' and '.join(words)}, the defaults accuracy 83.3%" in text
    lower = summary(make_study(several=True, study={"held_out": compared(-0.03, -0.01, metric="leakage")}))
    assert "measurably better than the defaults in leakage: leakage 78.0%" in lower
    unnamed = summary(make_study(several=True, change=lambda rows: [row.update(is_knee=False) for row in rows]))
    assert "nothing to propose" in unnamed


def test_several_studies_are_counted_by_what_held_out_data_say(make_named_study, compared, summary) -> None:
    comparisons = {"a": compared(0.01, 0.03), "b": compared(-0.01, 0.03), "c": compared(-0.03, -0.01), "d": None}
    folders = [make_named_study(name)(study={"held_out": one}) for name, one in comparisons.items()]
    text = summary(*folders)
    assert "4 studies: of 3 that were compared on held-out data, 1 found settings" in text
    assert "1 found worse ones" in text
    assert all(f" {name}: On " in text for name in comparisons)
    alone = summary(folders[3], make_named_study("e")(study={"held_out": None}))
    assert "Of 2 studies none has been compared" in alone
