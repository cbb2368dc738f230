"""The sentences follow from the numbers."""

import json
from pathlib import Path

import pytest

from lightleak.report.frontier.choice import choose
from lightleak.report.frontier.comparison import compare
from lightleak.report.frontier.headline import headline
from lightleak.report.frontier.result import FrontierResult, Setting, Strength
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


def test_how_far_the_frontier_can_be_trusted_is_said(make_frontier) -> None:
    first, second, *_ = told(make_frontier()).verdict
    assert first.startswith("Of 19 points measured, 7 are Pareto-best, from the most accurate to the least leaky: ")
    assert "of them are best in the means only" in second and "of the other 12, 1 cannot be told from" in second
    changed = {"none": (0.79, 0.84), "sign": (0.6, 0.86)}
    first, *others = told(make_frontier(curves=tuple(changed), changed=changed)).verdict
    assert first.startswith("Of 2 points measured, only one is Pareto-best: Sign. ") and others == []
    alone = told(make_frontier(curves=tuple(changed), changed=changed, trainings=1, clients=1)).verdict
    assert alone[1].startswith("One training and one client at each point give no intervals")


def test_more_accuracy_after_one_training_each_is_no_cost(make_frontier) -> None:
    changed = {"none": (0.79, 0.84), "gradient_compression": (0.6, 0.86)}
    found = told(make_frontier(curves=tuple(changed), changed=changed, trainings=1, clients=1))
    assert found.sentence.startswith("Gradient compression (the largest 0.")
    assert "with 2.0 points more accuracy, as far as one training each can tell" in found.sentence
    assert "Measured with 1 training and 1 client at each point." in found.selection


def test_what_is_missing_is_said(make_frontier) -> None:
    folder = make_frontier(curves=("sign",))
    assert told(folder).sentence.startswith("The undefended network has not been measured yet")
    (folder / "results.json").write_text(json.dumps({"schema_version": 1, "rows": []}))
    assert told(folder).sentence == "Nothing has finished yet: this run holds no results."


def test_the_choice_is_the_most_accurate_of_those_that_halve(make_frontier) -> None:
    (frontier,) = compare(load_frontier_run(make_frontier()).results)
    choice = choose(frontier)
    assert choice.halves and choice.point.gain <= 0.5 * choice.none.gain
    halving = [point for point in frontier.measured if point.gain <= 0.5 * choice.none.gain]
    assert choice.point.accuracy.mean == max(point.accuracy.mean for point in halving)


def test_an_erratic_defence_does_not_hide_a_steady_one() -> None:
    """One that leaks less in the mean, but not measurably, and is more accurate: it is not named."""

    def rows(label: str, cells: tuple[float, ...], accuracy: float) -> list[FrontierResult]:
        strength = Strength(label, label)
        attacked = [
            FrontierResult("r", Setting(), strength, "tableak", 0, i, cell_accuracy=one) for i, one in enumerate(cells)
        ]
        guessed = [
            FrontierResult("r", Setting(), Strength(), "random", 0, i, cell_accuracy=0.5) for i in range(len(cells))
        ]
        trained = [FrontierResult("r", Setting(), strength, None, i, accuracy=accuracy) for i in range(3)]
        return attacked + guessed + trained

    (frontier,) = compare(
        rows("none", (0.8, 0.81, 0.79), 0.84)
        + rows("steady", (0.6, 0.61, 0.6), 0.83)
        + rows("erratic", (0.3, 0.95, 0.5), 0.835)
    )
    assert choose(frontier).point.strength.label == "steady"


@pytest.mark.parametrize("level", [0.793, 0.53])
def test_nothing_is_concluded_from_less_than_the_published_budget(make_frontier, level: float) -> None:
    options = {"extra": {"options": {"steps": 100}}, "changed": {"none": (level, 0.84)}}
    found = told(make_frontier(curves=("none", "sign"), **options))
    assert found.sentence.startswith("Without any defence, at least ")
    assert found.sentence.endswith("Which defence helps cannot be said from attacks of this budget.")
    assert "TabLeak, 100 steps in place of 1500" in found.verdict[0]
    said = " ".join([found.sentence, *found.verdict, found.selection])
    assert "no leakage" not in said and "Pareto" not in said and "cuts" not in said
