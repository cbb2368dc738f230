"""The first page of a defence frontier follows from the numbers, in plain words."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES
from lightleak.report.frontier.choice import choose
from lightleak.report.frontier.comparison import Frontier, compare
from lightleak.report.frontier.plain import DOES, HOW_MUCH, most_often_right
from lightleak.report.frontier.result import FrontierResult, Setting, Strength
from lightleak.report.frontier.run_folder import load_frontier_run
from lightleak.report.frontier.shortlist import Line, shortlist
from lightleak.report.frontier.summary import summary
from lightleak.report.plain import MOST_LINES, Summary

JARGON = (
    "gradient", "epoch", "batch", "honest-but-curious", "baseline", "TabLeak", "prior", "seed", "threat model",
    "Pareto", "Bonferroni", "dominat", "frontier", "cell", "update", "client", "marginal", "noise multiplier", "delta",
    "utility", "leakage",
)  # fmt: skip
THREAT = "An honest-but-curious server that knows the update, the true labels, column bounds and encoder statistics."
GUESS = 0.5
FULL = {"restarts": "30", "steps": "1500"}
Numbers = tuple[float, ...]


def rows(
    label: str, cells: Numbers, accuracy: Numbers, value: float | None = None, **fields: Any
) -> list[FrontierResult]:
    """Attacks on clients 0, 1, ... and trainings with seeds 0, 1, ..."""
    setting = fields.pop("setting", Setting("adult", "mlp", "fedsgd", 32))
    budget = fields.pop("budget", None)
    options = {"gaussian_noise": "scale", "dp_sgd": "noise_multiplier"}
    strength = Strength(label, label, value, options.get(label))
    spent = FULL if budget is None else budget
    attacked = [
        FrontierResult("r", setting, strength, "tableak", 0, i, cell_accuracy=one, threat_model=THREAT, options=spent)
        for i, one in enumerate(cells)
    ]
    trained = [
        FrontierResult("r", setting, strength, None, i, accuracy=one, **fields) for i, one in enumerate(accuracy)
    ]
    return attacked + trained


def guesses(n: int, setting: Setting | None = None) -> list[FrontierResult]:
    known = setting or Setting("adult", "mlp", "fedsgd", 32)
    return [FrontierResult("r", known, Strength(), "random", 0, i, cell_accuracy=GUESS) for i in range(n)]


OPEN = (0.8, 0.82, 0.78, 0.8)
GOOD = (0.84, 0.85, 0.86)
NONE = rows("none", OPEN, GOOD) + guesses(4)
SIGN = rows("sign", (0.6, 0.61, 0.59, 0.6), (0.82, 0.831, 0.839))


def told(*found: list[FrontierResult]) -> Summary:
    return summary(compare([row for some in found for row in some]))


def words(found: Summary) -> str:
    tiles = [f"{tile.value} {tile.label} {tile.detail}" for tile in found.tiles]
    table = [] if found.table is None else [found.table.head, *found.table.columns, found.table.note]
    lines = [
        f"{block.title} {block.aside} {row.title} {row.detail} {cell.value} {cell.interval} {cell.change}"
        for block in (found.table.blocks if found.table else ())
        for row in block.rows
        for cell in row.cells
    ]
    questions = [part for pair in found.attacker for part in pair]
    return " ".join([*found.sentences, *tiles, *found.terms, *found.defences, *table, *lines, *questions, *found.notes])


def lines(found: Summary) -> list[tuple[str, str]]:
    assert found.table is not None
    return [(row.title, row.detail) for row in found.table.blocks[0].rows]


def test_what_is_read_stands_beside_who_saw_nothing() -> None:
    found = told(NONE)
    assert found.sentences[0] == (
        "Without a defence, whoever reads a message made from 32 records gets 80 of every 100 single values right (95% "
        "interval 77.4 to 82.6)."
    )
    assert found.sentences[1] == (
        "Someone who saw nothing, and went by general statistics, gets 50: the message gives away 30.0 points (95% "
        "interval 27.4 to 32.6)."
    )
    assert [tile.value for tile in found.tiles] == ["80", "50"]
    assert "such as a diagnosis; the smallest and largest possible value" in found.attacker[2][1]
    assert found.defences[0].startswith("No defence has been measured yet.")
    assert lines(found) == [("No defence", "")]


def test_the_named_defence_comes_with_what_it_leaves_and_costs() -> None:
    found = told(NONE, SIGN)
    first = found.defences[0]
    assert first.startswith(
        "The first to consider: Sign (of every number of the message only the sign is sent, plus or minus), the only "
        "defence that was tried, and takes away at least half of what is given away."
    )
    assert "60 of 100 values are then read instead of 80 (change −20.0, 95% interval −21.3 to −18.7)" in first
    assert "still 10.0 points more than seeing nothing (95% interval 8.7 to 11.3)" in first
    assert "The price: the model judges 83 of 100 new records rightly instead of 85 (change −2.0," in first
    assert [tile.value for tile in found.tiles] == ["80", "50", "60", "−2.0"]
    assert "Picked after the fact" not in words(found)


def test_a_price_that_may_be_chance_and_a_gain_are_said_to_be() -> None:
    unsure = told(NONE, rows("sign", (0.6, 0.61, 0.59, 0.6), (0.84, 0.84, 0.865))).defences[0]
    assert "; it may be chance)." in unsure and "The price" in unsure
    gain = told(NONE, rows("sign", (0.6, 0.61, 0.59, 0.6), (0.87, 0.881, 0.889))).defences[0]
    assert "It costs no accuracy that was measured: the model judges 88 of 100" in gain


def test_what_is_left_is_called_chance_or_nothing_where_it_is() -> None:
    chance = told(NONE, rows("sign", (0.5, 0.55, 0.48, 0.51), GOOD)).defences[0]
    assert "still 1.0 points more than seeing nothing (95% interval −3.7 to 5.7; it may be chance)" in chance
    nothing = told(NONE, rows("sign", (0.4, 0.41, 0.39, 0.4), GOOD)).defences[0]
    assert "): no more than seeing nothing." in nothing
    average = told(NONE, rows("sign", (0.45, 0.55, 0.42, 0.5), GOOD)).defences[0]
    assert "on average no more than seeing nothing (difference −2.0, 95% interval −11.1 to 7.1)" in average


def test_the_choice_after_the_fact_is_widened_by_how_many_were_tried() -> None:
    """The interval of one change, and the wider one that holds for every change of every defence at once."""
    weak = rows("clipping", OPEN, GOOD)
    found = told(NONE, SIGN, weak)
    assert "95% interval −21.3 to −18.7" in found.defences[0]
    # Student's t at 1 - 0.05 / 4 (two defences, two changes each) with 3 degrees of freedom is 5.39, not 3.18.
    assert "Picked after the fact, as the best of 2" in found.defences[1]
    assert "anything from −22.2 to −17.8 for values read" in found.defences[1]
    many = [rows(f"clip{i}", OPEN, GOOD) for i in range(40)]
    assert (
        "By this measure the help may be chance."
        in told(NONE, rows("sign", (0.6, 0.7, 0.5, 0.5), GOOD), *many).defences[1]
    )


def test_others_that_cannot_be_told_from_the_named_one_are_named() -> None:
    found = told(NONE, SIGN, rows("clipping", (0.605, 0.6, 0.6, 0.595), (0.821, 0.83, 0.838)))
    assert "Clipping is neither measurably less accurate nor measurably less protective." in found.defences[1]
    apart = told(NONE, SIGN, rows("clipping", (0.5, 0.51, 0.49, 0.5), (0.7, 0.711, 0.719)))
    assert "neither measurably" not in words(apart)


def test_single_messages_and_trainings_tell_nothing_for_sure() -> None:
    found = told(rows("none", OPEN[:1], GOOD[:1]) + guesses(1), rows("sign", (0.6,), (0.83,)))
    text = words(found)
    assert "right (one message: no interval)." in text and "(change −20.0, no interval)" in text
    assert "cannot tell any of this from chance" in text
    assert "▼ −" not in text and "○ −20.0" in text


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([], "Nothing can be said yet: no training and no attack has finished."),
        (SIGN, "no attack without a defence has finished"),
        (rows("none", OPEN, GOOD) + SIGN, "How many someone would get right who saw nothing is not known."),
        (rows("none", OPEN, ()) + guesses(4) + SIGN, "What a defence changes, and what it costs, is not known yet"),
    ],
)
def test_what_is_missing_is_said(results: list[FrontierResult], says: str) -> None:
    found = told(results)
    assert says in words(found)
    assert "first to consider" not in words(found)


def test_nothing_to_take_away_and_nothing_taken_away() -> None:
    safe = told(rows("none", (0.5, 0.55, 0.48, 0.51), GOOD), guesses(4), SIGN)
    assert ", so this may be chance." in safe.sentences[1]
    assert safe.defences[0].startswith("Without a defence nothing was shown to be given away")
    below = told(rows("none", (0.4, 0.41, 0.4, 0.42), GOOD), guesses(4))
    assert "the message helped no attack (difference −9.2" in below.sentences[1]
    useless = told(NONE, rows("sign", OPEN, GOOD), rows("clipping", OPEN, GOOD))
    assert useless.defences[0].startswith("None of the 2 defences was shown to help")
    assert "○ 0.0 (0.0 to 0.0)" in words(useless)
    assert "An interval without width means that all measurements agreed" in words(useless)


def test_the_table_holds_the_cheapest_the_most_protective_and_the_strongest_guarantee(make_frontier) -> None:
    found = summary(compare(load_frontier_run(make_frontier()).results))
    assert [(title, detail.split(";")[0]) for title, detail in lines(found)] == [
        ("No defence", ""),
        ("Gaussian noise 0.01", "named above"),
        ("Quantization 4", "costs least of those that help"),
        ("Gaussian noise 0.1", "gives least away"),
        ("DP-SGD 2", "the strongest guarantee"),
    ]
    assert "every number of the message is rounded coarsely, to 4 binary digits" in words(found)


@pytest.mark.parametrize("seed", range(2))
def test_no_other_defence_is_cheaper_or_more_protective_than_the_lines_say(make_frontier, seed: int) -> None:
    (frontier,) = compare(load_frontier_run(make_frontier(seed=seed)).results)
    found = {line.why: line.point for line in _lines(frontier)}
    named = next(line.point for line in _lines(frontier) if line.is_named)
    assert len(found) <= MOST_LINES
    assert all(
        point.gain >= found.get("gives least away", named).gain
        for point in frontier.measured
        if not point.strength.is_none
    )
    assert all(
        point.epsilon >= found["the strongest guarantee"].epsilon
        for point in frontier.measured
        if point.epsilon is not None
    )


def _lines(frontier: Frontier) -> tuple[Line, ...]:
    assert frontier.none is not None
    return shortlist(frontier, frontier.none, choose(frontier))


def test_a_guarantee_is_explained_by_how_often_a_bet_is_won() -> None:
    private = rows(
        "dp_sgd", (0.45, 0.46, 0.44, 0.45), (0.81, 0.82, 0.83), 1.0, epsilon=1.0, release_epsilon=4.38, delta=1e-5
    )
    found = told(NONE, SIGN, private)
    assert "a coin is right 50 times in 100. The limit is: DP-SGD 1 (epsilon 1) 73.1 times in 100." in found.defences[2]
    assert found.defences[2].endswith("The defence named above gives no guarantee.")
    assert "may fail with a chance of 1 in 100,000" in words(found)
    assert found.table is not None and found.table.columns[-1] == "Epsilon: training, message"
    assert told(NONE, private).defences[-1].endswith("The defence named above gives epsilon 1, one message 4.38.")
    assert "is bound by the epsilon of one message" in words(found)
    loose = rows("dp_sgd", (0.45, 0.46, 0.44, 0.45), (0.81, 0.82, 0.83), 0.1, epsilon=30.0, delta=1e-5)
    assert "DP-SGD 0.1 (epsilon 30) nearly always, hardly a limit" in words(told(NONE, loose))


def test_without_a_guarantee_it_is_said() -> None:
    found = told(NONE, SIGN)
    assert found.defences[-1].startswith("Nothing here is a guarantee")
    assert found.table is not None and not any("psilon" in name for name in found.table.columns)
    assert "may fail" not in words(found)


def test_a_bet_is_bounded_as_the_trade_off_of_randomised_response() -> None:
    """Randomised response, which tells the truth at odds of e^epsilon, reaches the bound."""
    for kept in (0.5, 0.6, 0.75, 0.99):
        epsilon = math.log(kept / (1 - kept))
        assert most_often_right(epsilon, 0.0) == pytest.approx(kept)
        assert most_often_right(epsilon, 0.01) == pytest.approx(kept + 0.01 * (1 - kept))
    assert most_often_right(1e9, 1e-5) == 1.0 and most_often_right(-1.0, None) == 0.5


def test_of_several_situations_the_one_with_most_points_is_told() -> None:
    other = Setting("german", "mlp", "fedsgd", 32)
    found = told(NONE, SIGN, rows("none", OPEN, GOOD, setting=other) + guesses(4, other))
    assert "one of 2 situations, the one in which most was measured (adult, mlp)" in words(found)


def test_every_defence_that_can_be_measured_is_explained() -> None:
    known = {*UPDATE_DEFENSES.names(), *TRAINING_DEFENSES.names()} - {"none"}
    assert known == set(DOES)
    assert {name for name, _ in HOW_MUCH} == known - {"sign"}


@pytest.mark.parametrize("protocol", ["fedsgd", "fedavg"])
def test_it_is_free_of_jargon(make_frontier, protocol: str) -> None:
    folder: Path = make_frontier(extra={"protocol": protocol, "dataset": "adult", "target": "net"})
    results = json.loads((folder / "results.json").read_text())
    for row in results["rows"]:
        if row["attack"] == "tableak":
            row["threat_model"] = THREAT
    (folder / "results.json").write_text(json.dumps(results))
    text = words(summary(compare(load_frontier_run(folder).results)))
    assert [word for word in JARGON if word.lower() in text.lower()] == []
    assert text.index("“Seeing nothing” is") < text.index("More than seeing nothing, points")
    assert text.index("A number, epsilon, says") < text.index("Epsilon: training")


@pytest.mark.parametrize("level", [0.8, 0.45])
def test_nothing_is_concluded_from_less_than_the_published_budget(level: float) -> None:
    weak = {"steps": "100", "restarts": "30"}
    none = rows("none", tuple(level + one for one in (0.0, 0.01, -0.01, 0.0)), GOOD, budget=weak)
    found = told(none, guesses(4), rows("sign", (0.5, 0.51, 0.49, 0.5), GOOD, budget=weak))
    assert found.budget.startswith("Attack budget: TabLeak, 100 steps in place of 1500.")
    assert found.defences[0].startswith("No conclusion is drawn about defenses")
    assert "helped no attack" not in words(found) and "nothing was shown to be given away" not in words(found)
    defended = rows("sign", (0.5, 0.51, 0.49, 0.5), GOOD, budget=FULL)
    assert told(none, guesses(4), defended).defences[0].startswith("No conclusion")
    none = rows("none", tuple(level + one for one in (0.0, 0.01, -0.01, 0.0)), GOOD, budget=FULL)
    assert not told(none, guesses(4), defended).defences[0].startswith("No conclusion")
