"""The charts: a mark for each trial, at its value, inside the plot."""

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.results import TrialRow
from lightleak.report.kinds.study_charts import (
    COMPLETE,
    DEFAULT,
    FAILED,
    MOST_SLICES,
    PRUNED,
    front,
    front_corners,
    fronts,
    history,
    hover_text,
    slices,
)
from lightleak.report.kinds.study_trials import Objective, Parameter, Search, Study, read_search
from lightleak.report.read import Run, load_run

HOSTILE = '<script>alert("&")</script>'
LESS, MORE = Objective("loss", "minimize"), Objective("accuracy", "maximize")


def run_of(trials, objectives=(MORE,), parameters=(), importance=None) -> Search:
    study = Study(objectives, tuple(parameters), importance or {})
    return Search(Run("run", Path("."), "tuning"), study, tuple(trials))


def search_of(folder: Path) -> Search:
    return read_search(load_run(folder))


def classed(drawing: str, name: str) -> list[ET.Element]:
    return [node for node in ET.fromstring(drawing).iter() if name in node.get("class", "").split()]


def by_number(drawing: str) -> dict[int, ET.Element]:
    """Marks by the number of their trial; each hover text begins with it or with the value of a slice."""
    found = {}
    for node in classed(drawing, "trial"):
        number = int(re.search(r"trial (\d+)", node.find("title").text)[1])
        assert number not in found
        found[number] = node
    return found


def x_of(node: ET.Element) -> float:
    return float(node.get("x")[:-1])


def y_of(node: ET.Element) -> float:
    return float(node.get("y"))


VALUES = st.floats(-1e6, 1e6, allow_subnormal=False)
STATES = st.sampled_from(["complete", "pruned", "failed", "running"])


@st.composite
def studies(draw) -> Search:
    objectives = draw(st.sampled_from([(MORE,), (LESS, MORE)]))
    parameters = (
        Parameter("a.rate", "float", 0.001, 1.0, draw(st.booleans()), default=0.1),
        Parameter("a.steps", "int", 1, 9, default=3),
        Parameter(HOSTILE, "choice", of=(True, 1, None, [1, 2], HOSTILE, "a long name of a choice"), default=True),
    )
    trials = []
    for number in range(draw(st.integers(0, 8))):
        state = draw(STATES)
        done = state == "complete" and draw(st.booleans())
        chosen = {
            "a.rate": draw(st.floats(0.001, 1)),
            "a.steps": draw(st.integers(1, 9)),
            HOSTILE: draw(st.sampled_from(parameters[2].of)),
        }
        kept = draw(st.sets(st.sampled_from(sorted(chosen)), max_size=3))
        reported = ((1.0, draw(VALUES)),) if draw(st.booleans()) else ()
        trials.append(
            TrialRow(
                trial=number,
                state=state,
                worker=HOSTILE,
                values={one.name: draw(VALUES) for one in objectives} if done else {},
                parameters={key: chosen[key] for key in sorted(kept)},
                intermediate=reported,
                is_default=number == 0,
                on_front=draw(st.booleans()),
                is_knee=number == 1,
                error=HOSTILE if state == "failed" else None,
            )
        )
    return run_of(trials, objectives, parameters)


@given(studies())
@settings(max_examples=40)
def test_charts_are_well_formed_stay_inside_and_mark_each_trial_once(run: Search) -> None:
    drawn = [one.drawing for one in slices(run, run.study.objectives[0])]
    if plots := history(run):
        (plot,) = plots
        drawn.append(plot.drawing)
        assert sorted(by_number(plot.drawing)) == [one.trial for one in run.trials]
        floor = float(ET.fromstring(plot.drawing).get("height"))
        assert all(0 < y_of(node) < floor for node in classed(plot.drawing, "trial"))
    else:
        assert run.trials == ()
    if not run.is_single:
        plot = (fronts(run) or [None])[0]
        assert (plot is None) == (run.measured == ())
        if plot is not None:
            drawn.append(plot.drawing)
            assert sorted(by_number(plot.drawing)) == sorted(one.trial for one in run.measured)
    for one in drawn:
        assert "<script" not in one and "nan" not in one
        places = re.findall(r'\b(?:x|x1|x2)="([-\d.]+)%"', one)
        assert places and all(0 <= float(value) <= 100 for value in places)


def test_a_history_stands_at_values_and_shows_how_each_trial_ended(make_study) -> None:
    run = search_of(make_study())
    (plot,) = history(run)
    marks = by_number(plot.drawing)
    assert len(marks) == 41
    styles = {"complete": COMPLETE, "pruned": PRUNED, "failed": FAILED}
    for trial in run.trials:
        expected = DEFAULT if trial.is_default else styles[trial.state]
        assert f"point trial {expected.css}" == marks[trial.trial].get("class")
    assert [x_of(marks[i]) for i in range(41)] == sorted(x_of(marks[i]) for i in range(41))
    best, worst = run.ranked[0].trial, run.ranked[-1].trial
    assert y_of(marks[best]) == min(y_of(node) for node in marks.values()) < y_of(marks[worst])
    base = float(classed(plot.drawing, "axis-line")[0].get("y1"))
    assert {number for number, node in marks.items() if y_of(node) > base} == {12, 22}
    # the line of the defaults runs through their mark
    (line,) = classed(plot.drawing, "guess")
    assert float(line.get("y1")) == float(line.get("y2")) == pytest.approx(y_of(marks[0]), abs=0.2)
    assert len(classed(plot.drawing, "chosen")) == 1
    assert marks[best].find("circle").get("class") == "chosen"
    assert f"trial {best}: {100 * run.ranked[0].values['cell_accuracy']:.1f}%" in plot.drawing


@pytest.mark.parametrize(("objective", "expected"), [(MORE, [0, 2, 4]), (LESS, [0, 1, 5])])
def test_the_step_line_goes_through_the_trials_that_were_better_than_all_before(objective, expected) -> None:
    values = [0.5, 0.4, 0.6, 0.45, 0.9, 0.1]
    trials = [TrialRow(trial=i, state="complete", values={objective.name: value}) for i, value in enumerate(values)]
    trials.append(TrialRow(trial=6, state="pruned", intermediate=((1, 2.0 if objective is MORE else -2.0),)))
    drawing = history(run_of(trials, (objective,)))[0].drawing
    marks, (steps,) = by_number(drawing), classed(drawing, "so-far")
    corners = [tuple(map(float, pair.split())) for pair in steps.get("d")[1:].split("L")]
    assert corners[:-1:2] == [(x_of(marks[i]), y_of(marks[i])) for i in expected]
    assert corners[-1] == (100, corners[-2][1])
    # along at the old value, then to the new one: never better than what had been reached
    assert all(before[1] == corner[1] for before, corner in zip(corners[::2], corners[1::2], strict=False))
    assert all(corner[0] == after[0] for corner, after in zip(corners[1::2], corners[2::2], strict=False))


def test_a_legend_says_what_is_there_and_no_more(make_study) -> None:
    (plot,) = history(search_of(make_study()))
    words = [words.split(":")[0] for _, words in plot.legend.entries]
    assert words == ["complete", "pruned", "failed", "the defaults", "the best"]
    assert plot.legend.entries[1][0] == PRUNED
    (alone,) = history(run_of([TrialRow(trial=0, state="running")]))
    assert [words for _, words in alone.legend.entries] == ["not finished when this was written"]


def test_the_front_is_ringed_and_joined_and_the_knee_named(make_study) -> None:
    run = search_of(make_study(several=True))
    plot = front(run, *run.study.objectives)
    marks = by_number(plot.drawing)
    ringed = {number for number, node in marks.items() if node.find("circle") is not None}
    assert ringed == {one.trial for one in run.front}
    knee = [number for number, node in marks.items() if classed(ET.tostring(node, "unicode"), "chosen")]
    assert knee == [run.chosen.trial] and f">knee, trial {run.chosen.trial}<" in plot.drawing
    (line,) = classed(plot.drawing, "front-line")
    assert line.get("d").count("L") == 2 * (len(run.front) - 1)
    # more accuracy further right, less leakage further down
    leaky = max(run.measured, key=lambda one: one.values["leakage"])
    accurate = max(run.measured, key=lambda one: one.values["accuracy"])
    assert y_of(marks[leaky.trial]) == min(map(y_of, marks.values()))
    assert x_of(marks[accurate.trial]) == max(map(x_of, marks.values()))


POINTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8, unique=True)


@given(POINTS, st.booleans(), st.booleans())
def test_corners_of_a_front_are_beaten_by_both_neighbours_and_beat_no_point(points, first: bool, second: bool) -> None:
    across, upwards = (
        Objective(name, "maximize" if more else "minimize") for name, more in (("x", first), ("y", second))
    )

    def as_good(a, b) -> bool:
        return all(not one.is_better(w, v) for one, v, w in zip((across, upwards), a, b, strict=True))

    front = [p for p in points if not any(as_good(q, p) and q != p for q in points)]
    corners = front_corners(front, across, upwards)
    assert corners[::2] == sorted(front)
    for before, corner, after in zip(corners[::2], corners[1::2], corners[2::2], strict=False):
        assert as_good(before, corner) and as_good(after, corner)
        assert corner[0] in (before[0], after[0]) and corner[1] in (before[1], after[1])


def test_three_objectives_are_drawn_in_pairs_without_a_line() -> None:
    third = Objective("seconds", "minimize")
    trials = [
        TrialRow(
            trial=i, state="complete", values={"accuracy": i, "loss": i, "seconds": 1}, on_front=True, is_knee=i == 1
        )
        for i in range(3)
    ]
    run = run_of(trials, (MORE, LESS, third))
    drawn = fronts(run)
    pairs = [re.search(r'aria-label="(\w+) against (\w+)', one.drawing).groups() for one in drawn]
    assert pairs == [("loss", "accuracy"), ("seconds", "accuracy"), ("seconds", "loss")]
    drawing = drawn[0].drawing
    assert classed(drawing, "front-line") == [] and len(classed(drawing, "on-front")) == 2


def test_slices_come_by_importance_and_are_bounded() -> None:
    parameters = [Parameter(f"p{i}", "float", 0, 1) for i in range(12)]
    values = {one.key: 0.5 for one in parameters}
    shares = {f"p{i}": share for i, share in enumerate([0.1, 0.4, 0.0, 0.5])}
    trials = [TrialRow(trial=0, state="complete", values={"accuracy": 1}, parameters=values)]
    run = run_of(trials, parameters=parameters, importance={"accuracy": shares})
    assert [one.key for one in run.by_importance(MORE)][:4] == ["p3", "p1", "p0", "p2"]
    assert [one.title for one in slices(run, MORE)] == ["p3", "p1", "p0", "p2", "p4", "p5", "p6", "p7"]
    assert len(slices(run, MORE)) == MOST_SLICES


def test_a_slice_shows_the_trials_that_have_a_value_and_says_how_many(make_study) -> None:
    run = search_of(make_study())
    found = {one.title: one for one in slices(run, run.study.objectives[0])}
    assert list(found) == ["learning rate", "restarts", "schedule", "sign", "lambda inv", "alpha1"]
    valued = [one for one in run.trials if one.state in ("complete", "pruned")]
    having = [one for one in valued if "attacks.tableak.lambda_inv" in one.parameters]
    assert sorted(by_number(found["lambda inv"].drawing)) == [one.trial for one in having]
    assert found["lambda inv"].caption == f"has a value in {len(having)} of {len(valued)} trials"
    assert found["learning rate"].caption == ""
    for title, key, scale in (("learning rate", "learning_rate", math.log), ("lambda inv", "lambda_inv", float)):
        marks = by_number(found[title].drawing)
        at = sorted(
            (scale(run.trials[n].parameters[f"attacks.tableak.{key}"]), x_of(mark)) for n, mark in marks.items()
        )
        (low, left), *_, (high, right) = at
        assert all(x == pytest.approx(left + (right - left) * (v - low) / (high - low), abs=0.02) for v, x in at)


def test_choices_have_columns_that_never_mix() -> None:
    of = (True, 1, "1", None, [1])
    parameter = Parameter("p", "choice", of=of)
    trials = [
        TrialRow(trial=i, state="complete", values={"accuracy": 0.5}, parameters={"p": of[i % 5]}) for i in range(40)
    ]  # ten trials in each column, all at one height
    (found,) = slices(run_of(trials, parameters=[parameter]), MORE)
    marks = by_number(found.drawing)
    for trial in trials:
        column = trial.trial % 5
        assert 20 * column < x_of(marks[trial.trial]) < 20 * (column + 1)
    assert len({x_of(node) for node in marks.values()}) == 40


def test_hovering_says_number_state_values_and_parameters(make_study) -> None:
    run = search_of(make_study())
    first, pruned, failed = run.trials[0], run.trials[7], run.trials[22]
    said = hover_text(run, first)
    assert said.startswith(f"trial 0, the defaults, complete; cell accuracy {100 * first.values['cell_accuracy']:.1f}%")
    assert "learning rate 0.06; restarts 30; schedule constant; sign true; lambda inv 1; alpha1 0.1" in said
    assert f"{100 * pruned.intermediate[-1][1]:.1f}% when it was stopped at step 1" in hover_text(run, pruned)
    assert "loss is not finite at step 3" in hover_text(run, failed)
