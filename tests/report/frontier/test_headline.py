"""The sentences follow from the numbers."""

import json
from pathlib import Path

import pytest

from lightleak.report.frontier.comparison import compare
from lightleak.report.frontier.headline import choose, headline
from lightleak.report.frontier.run_folder import load_frontier_run


def told(folder: Path):
    return headline(compare(load_frontier_run(folder).results))


def test_the_cheapest_defence_that_halves_the_leakage_is_named(make_frontier) -> None:
    found = told(make_frontier())
    assert found.sentence.startswith("Gaussian noise of scale 0.01 cuts what can be read from a client from 79.")
    assert "(guessing gives 53." in found.sentence
    assert found.sentence.endswith("points of accuracy.")
    assert "takes away at least half of the leakage" in found.selection
    assert [tile.label for tile in found.tiles] == [
        "of cells recovered without a defence",
        "with Gaussian noise 0.01",
        "points of accuracy it costs",
        "by guessing",
    ]
    assert "Measured with 5 trainings and 6 clients at each point." in found.selection


def test_where_none_halves_it_the_one_that_takes_most_is_named(make_frontier) -> None:
    found = told(make_frontier(curves=("none", "quantization"), changed={"quantization": (0.71, 0.845)}))
    assert "quantisation" in found.sentence and "none takes away half" in found.selection


def test_a_defence_that_takes_nothing_away_is_not_praised(make_frontier) -> None:
    found = told(make_frontier(curves=("none", "sign"), changed={"sign": (0.80, 0.84)}))
    assert found.sentence.startswith("No defence that was tried was shown to cut what can be read from a client: 79.")


def test_a_difference_that_may_be_chance_is_not_a_cut(make_frontier) -> None:
    found = told(make_frontier(curves=("none", "sign"), changed={"sign": (0.79, 0.84)}))
    assert "was shown to cut" in found.sentence


def test_no_leakage_without_a_defence_is_said(make_frontier) -> None:
    found = told(make_frontier(curves=("none", "sign"), changed={"none": (0.53, 0.84)}))
    assert found.sentence.endswith("no leakage was shown that a defence could take away.")


def test_a_cost_that_may_be_chance_is_no_cost(make_frontier) -> None:
    found = told(make_frontier(curves=("none", "sign"), changed={"sign": (0.6, 0.846), "none": (0.79, 0.846)}))
    assert "at no measurable cost in accuracy (" in found.sentence


def test_a_gain_in_accuracy_is_said(make_frontier) -> None:
    found = told(make_frontier(curves=("none", "sign"), changed={"sign": (0.6, 0.86), "none": (0.79, 0.84)}))
    assert "and accuracy rises by 2." in found.sentence


def test_the_guarantee_is_named_with_its_price(make_frontier) -> None:
    lines = " ".join(told(make_frontier()).verdict)
    assert "DP-SGD with noise multiplier 0.5 gives epsilon 9.83 at delta 1e-05" in lines
    without = told(make_frontier(curves=("none", "sign")))
    assert "guarantee" not in " ".join(without.verdict)


def test_what_epsilon_counts_on_is_said_where_there_is_one(make_frontier) -> None:
    assert "not which rows a step used" in " ".join(told(make_frontier(curves=("none", "dp_sgd"))).limits)
    assert "Epsilon is" not in " ".join(told(make_frontier(curves=("none", "sign"))).limits)


@pytest.mark.parametrize(("trainings", "clients"), [(1, 1), (1, 6), (5, 1)])
def test_single_trainings_and_clients_are_told_apart_from_intervals(make_frontier, trainings, clients) -> None:
    found = told(make_frontier(trainings=trainings, clients=clients))
    text = " ".join([found.sentence, *found.verdict, *(tile.detail for tile in found.tiles)])
    assert "None" not in text and "nan" not in text
    if trainings == 1:
        assert "as far as one training each can tell" in found.sentence
    if clients == 1:
        assert "one client, no interval" in text


def test_what_is_missing_is_said(make_frontier) -> None:
    folder = make_frontier(curves=("sign",))
    assert told(folder).sentence.startswith("The undefended network has not been measured yet")
    (folder / "results.json").write_text(json.dumps({"schema_version": 1, "rows": []}))
    assert told(folder).sentence == "Nothing has finished yet: this run holds no results."


def test_the_choice_is_pareto_best_and_measurably_better(make_frontier) -> None:
    (frontier,) = compare(load_frontier_run(make_frontier()).results)
    choice = choose(frontier)
    assert choice.halves and choice.point.gain <= 0.5 * choice.none.gain
    dearer = [
        point
        for point in frontier.measured
        if point.gain <= choice.point.gain and point.accuracy.mean > choice.point.accuracy.mean
    ]
    assert dearer == []
