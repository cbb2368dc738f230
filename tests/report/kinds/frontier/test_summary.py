"""The summary of a defense frontier follows from the numbers, in plain words."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.guarantee import most_often_right
from lightleak.core.results import FrontierRow
from lightleak.core.threat_model import Threat
from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES
from lightleak.report.blocks import Page, Table
from lightleak.report.budget import NOTHING_FOLLOWS
from lightleak.report.kinds.frontier import page, summary_section
from lightleak.report.kinds.frontier_groups import compare
from lightleak.report.page import fill, render
from lightleak.report.read import Run, load_run

JARGON = (
    "gradient", "epoch", "batch", "honest-but-curious", "baseline", "TabLeak", "prior", "seed", "threat model",
    "Pareto", "Bonferroni", "dominat", "frontier", "cell", "update", "client", "marginal", "noise multiplier", "delta",
    "utility", "leakage",
)  # fmt: skip
THREAT = Threat("server", ("update",), ("true_labels", "column_bounds"))
FULL = {"restarts": 30, "steps": 1500}
ADULT: dict[str, Any] = {"dataset": "adult", "target": "mlp", "protocol": "fedsgd", "batch_size": 32}
GERMAN = ADULT | {"dataset": "german"}
Numbers = tuple[float, ...]


def rows(label: str, cells: Numbers, accuracy: Numbers, value: float | None = None, **fields: Any) -> list[FrontierRow]:
    """Attacks on clients 0, 1, ... and trainings with seeds 0, 1, ..."""
    option = {"gaussian_noise": "scale", "dp_sgd": "noise_multiplier"}.get(label)
    of = {"defense": label, "defense_strength": value, "defense_option": option, "run": "r"}
    of |= fields.pop("setting", ADULT)
    attack = {"attack": "tableak", "seed": 0, "threat": THREAT, "options": fields.pop("budget", FULL)}
    return [
        *(FrontierRow(**of, **attack, batch_index=i, metrics={"cell_accuracy": one}) for i, one in enumerate(cells)),
        *(FrontierRow(**of, **fields, attack="none", seed=i, accuracy=one) for i, one in enumerate(accuracy)),
    ]


def guesses(n: int, setting: dict[str, Any] = ADULT) -> list[FrontierRow]:
    return [
        FrontierRow(attack="random", run="r", seed=0, batch_index=i, metrics={"cell_accuracy": 0.5}, **setting)
        for i in range(n)
    ]


OPEN = (0.8, 0.82, 0.78, 0.8)
HIDDEN = (0.6, 0.61, 0.59, 0.6)
GOOD = (0.84, 0.85, 0.86)
NONE = rows("none", OPEN, GOOD) + guesses(4)
SIGN = rows("sign", HIDDEN, (0.82, 0.831, 0.839))
CLEAR = rows("none", (0.8, 0.82, 0.78, 0.8, 0.81, 0.79), GOOD) + guesses(6)
SAFE = (0.5, 0.51, 0.49, 0.5, 0.505, 0.495)
PRIVATE = rows(
    "dp_sgd", (0.45, 0.46, 0.44, 0.45), (0.81, 0.82, 0.83), 1.0, epsilon=1.0, release_epsilon=4.38, delta=1e-5
)


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


@dataclass(frozen=True)
class Said:
    """What the summary says, and its items on defenses."""

    text: str
    defenses: list[str]


def said(*found: Sequence[FrontierRow]) -> Said:
    rows = tuple(row for some in found for row in some)
    *blocks, _ = summary_section(compare(rows)).blocks  # the last: not tested
    html = "".join(block for block in blocks if isinstance(block, str))  # without the picture and its legend
    advice = html.partition("Does a defense help")[2]
    return Said(
        text_of(html),
        [text_of(item) for item in re.findall(r"<li>(.*?)</li>", advice, re.S)],
    )


def means(*found: Sequence[FrontierRow]) -> str:
    """What the section on means and tests says."""
    rows = tuple(row for some in found for row in some)
    made = page([Run("r", Path("."), "defense-frontier", rows)], redact=False)
    return text_of(render(Page("", "", [one for one in made.sections if one and one.id == "tested"])))


def lines(*found: Sequence[FrontierRow]) -> dict[str, dict[str, str]]:
    """Cells of the table by defense and heading."""
    rows = tuple(row for some in found for row in some)
    made = page([Run("r", Path("."), "defense-frontier", rows)], redact=False)
    (section,) = (one for one in made.sections if one and one.id == "frontier")
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    cells = [[" ".join((cell.text, *cell.small)) for cell in line.cells] for line in table.groups[0].lines]
    named = [re.split(" (?:<span|recommended|the cheapest|not |beaten)", first)[0] for first, *_ in cells]
    return {name: dict(zip(table.head, line, strict=True)) for name, line in zip(named, cells, strict=True)}


def has(text: str, *facts: str) -> bool:
    return all(fact in text for fact in facts)


def test_what_is_read_is_compared_with_what_guessing_gets() -> None:
    found = said(NONE)
    assert has(found.text, "32 records gets 80 of every 100", "77.4 to 82.6")
    assert has(found.text, " 50: the message gives away 30.0 points (95% interval 27.4 to 32.6)")
    assert "4 messages" in found.text
    assert has(means(NONE), "the true label of every record", "the smallest and largest possible value")
    assert has(means(NONE), "Tested: in part: 80 of 100 single values read without a defense")
    assert not found.defenses and list(lines(NONE)) == ["no defense"]


def test_the_recommended_defense_comes_with_what_it_leaves_and_costs() -> None:
    found = said(CLEAR, rows("sign", SAFE, (0.82, 0.831, 0.839)))
    first = found.defenses[0]
    assert has(first, "With Sign (of every number", "50 of 100 values", "instead of 80", "change −30.0, 95% interval")
    assert has(first, "on average no more than seeing nothing (difference 0.0, 95% interval −0.7 to 0.7)")
    assert has(first, "The price", "83 of 100", "instead of 85", "change −2.0,")
    assert "after the fact" not in found.text


@pytest.mark.parametrize(
    ("cells", "accuracy", "facts", "absent"),
    [
        (SAFE, (0.84, 0.84, 0.865), ("The price", "; it may be chance)."), ()),
        (SAFE, (0.87, 0.881, 0.889), ("No cost", "88 of 100"), ("The price",)),
        ((0.5, 0.53, 0.49, 0.52, 0.5, 0.51), GOOD, ("still 0.8 points", "−0.7 to 2.4; it may be chance"), ()),
        ((0.4, 0.41, 0.39, 0.4, 0.4, 0.4), GOOD, (": no more than seeing nothing.",), ("still", "on average")),
        ((0.49, 0.51, 0.48, 0.5, 0.5, 0.5), GOOD, ("on average no more", "difference −0.3", "−1.4 to 0.8"), ("still",)),
    ],
)
def test_what_may_be_chance_is_called_so(cells: Numbers, accuracy: Numbers, facts, absent) -> None:
    first = said(CLEAR, rows("sign", cells, accuracy)).defenses[0]
    assert has(first, *facts) and not any(word in first for word in absent)


def test_the_choice_after_the_fact_is_widened_by_how_many_were_tried() -> None:
    sign = rows("sign", SAFE, GOOD)
    found = said(CLEAR, sign, rows("clipping", OPEN, GOOD))
    assert "best of 2" in found.defenses[1] and "help may be chance" not in found.defenses[1]
    erratic = rows("none", (0.52, 0.7, 0.55, 0.6, 0.65, 0.52), GOOD) + guesses(6)
    many = [rows(f"clip{i}", OPEN, GOOD) for i in range(40)]
    assert "help may be chance" in said(erratic, sign, *many).defenses[1]


def test_single_messages_and_trainings_show_nothing_for_certain() -> None:
    found = said(rows("none", OPEN[:1], GOOD[:1]) + guesses(1), rows("sign", (0.6,), (0.83,)))
    assert has(found.text, "(one message: no interval)", "Too few measurements to tell") and not found.defenses
    trained_once = said(CLEAR, rows("sign", SAFE, (0.83,)))
    assert has(trained_once.text, "(change −1.0, no interval)", "cannot separate any of this from chance")
    table = lines(rows("none", OPEN[:1], GOOD[:1]) + guesses(1), rows("sign", (0.6,), (0.83,)))
    assert table["Sign"]["Cells recovered"] == "60.0% ○ −20.0"


@pytest.mark.parametrize(
    ("results", "fact"),
    [
        ([], "no training and no attack has finished"),
        (SIGN, "no attack without a defense has finished"),
        (rows("none", OPEN, GOOD) + SIGN, "who saw nothing would get right is not known"),
    ],
)
def test_what_is_missing_is_said(results: list[FrontierRow], fact: str) -> None:
    found = said(results)
    assert fact in found.text and not found.defenses


def test_nothing_to_take_away_and_nothing_taken_away() -> None:
    safe = said(rows("none", (0.5, 0.55, 0.48, 0.51), GOOD), guesses(4), SIGN)
    assert "so this may be chance" in safe.text and not safe.defenses
    below = said(rows("none", (0.4, 0.41, 0.4, 0.42), GOOD), guesses(4))
    assert "helped no attack (difference −9.2" in below.text
    useless = said(NONE, rows("sign", OPEN, GOOD), rows("clipping", OPEN, GOOD))
    assert "None of the 2 tested protects" in useless.text and not useless.defenses
    assert "An interval without width" in means(NONE, rows("sign", OPEN, GOOD), rows("clipping", OPEN, GOOD))
    table = lines(NONE, rows("sign", OPEN, GOOD), rows("clipping", OPEN, GOOD))
    # Four equal pairs leave open that 1 - .05 ** (1 / 4) of all differ.
    assert table["Sign"]["Cells recovered"] == "80.0% 77.4 to 82.6 ○ 0.0 (−52.7 to 52.7)"


def test_the_table_marks_what_the_recommendation_names(make_frontier) -> None:
    table = lines(load_run(make_frontier()).of(FrontierRow))
    assert table["DP-SGD noise multiplier 2"]["Epsilon, training"] == "1.02 73.5%"
    marks = ("recommended", "not measurably dearer", "the cheapest with a guarantee")
    marked = {mark: [name for name, line in table.items() if mark in line["Defense"]] for mark in marks}
    assert list(marked.values()) == [["Gaussian noise scale 0.1"], [], ["DP-SGD noise multiplier 0.5"]]


def test_settings_that_cost_as_much_as_the_recommended_one_are_marked() -> None:
    safe = [rows(name, SAFE, accuracy) for name, accuracy in (("sign", GOOD), ("clipping", (0.842, 0.848, 0.861)))]
    table = lines(CLEAR, *safe)
    assert "recommended" in table["Clipping"]["Defense"] and "not measurably dearer" in table["Sign"]["Defense"]


def test_a_guarantee_is_explained_by_how_often_a_bet_is_won() -> None:
    assert has(means(NONE, SIGN, PRIVATE), "1 in 100,000", "epsilon of one message")
    table = lines(NONE, SIGN, PRIVATE)
    assert [table[name]["Epsilon, training"] for name in ("Sign", "DP-SGD noise multiplier 1")] == [
        "–",
        "1 73.1%",
    ]


def test_without_a_guarantee_it_is_said() -> None:
    found = said(NONE, SIGN)
    assert "No tested setting limits what an attack that nobody has tried reads" in found.text
    assert not any("psilon" in name for name in lines(NONE, SIGN)["no defense"])
    assert "may fail" not in found.text


def test_a_bet_is_bounded_as_the_trade_off_of_randomized_response() -> None:
    """Randomized response, which tells the truth at odds of e^epsilon, reaches the bound."""
    for kept in (0.5, 0.6, 0.75, 0.99):
        epsilon = math.log(kept / (1 - kept))
        assert most_often_right(epsilon, 0.0) == pytest.approx(kept)
        assert most_often_right(epsilon, 0.01) == pytest.approx(kept + 0.01 * (1 - kept))
    assert most_often_right(1e9, 1e-5) == 1.0 and most_often_right(-1.0, None) == 0.5


def test_of_several_situations_the_one_with_most_points_is_summarized() -> None:
    found = said(NONE, SIGN, rows("none", OPEN, GOOD, setting=GERMAN) + guesses(4, GERMAN))
    assert has(found.text, "one of 2 situations", "(adult, mlp)")


def test_every_defense_that_can_be_measured_is_explained() -> None:
    for name in {*UPDATE_DEFENSES.names(), *TRAINING_DEFENSES.names()} - {"none"}:
        assert fill("frontier", "described", FrontierRow(attack="", defense=name)).startswith("("), name


@pytest.mark.parametrize("protocol", ["fedsgd", "fedavg"])
def test_it_is_short_and_free_of_jargon(make_frontier, protocol: str) -> None:
    folder: Path = make_frontier(extra={"protocol": protocol, "dataset": "adult", "target": "net"})
    found = said(load_run(folder).of(FrontierRow)).text
    assert len(found.split()) <= 350
    text = re.sub(r"Attack budget: .*?\. ", "", found)  # the budget names attacks
    assert [word for word in JARGON if word.lower() in text.lower()] == []


@pytest.mark.parametrize("level", [0.8, 0.45])
def test_nothing_is_concluded_from_less_than_the_published_budget(level: float) -> None:
    weak = {"steps": 100, "restarts": 30}
    cells = tuple(level + one for one in (0.0, 0.01, -0.01, 0.0))
    none, sign = rows("none", cells, GOOD, budget=weak), (0.5, 0.51, 0.49, 0.5)
    found = said(none, guesses(4), rows("sign", sign, GOOD, budget=weak))
    assert NOTHING_FOLLOWS in found.text
    assert "No recommendation" in found.text and not found.defenses and "helped no attack" not in found.text
    defended = rows("sign", sign, GOOD)
    assert "No recommendation" in said(none, guesses(4), defended).text
    assert "No recommendation" not in said(rows("none", cells, GOOD), guesses(4), defended).text
