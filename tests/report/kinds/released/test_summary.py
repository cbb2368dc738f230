"""The summary follows from the numbers, in plain words."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.results import ReleasedRow, read_row
from lightleak.core.threat_model import Threat
from lightleak.metrics.inversion.score import MEASURES
from lightleak.report.blocks import Page, Table
from lightleak.report.kinds import released
from lightleak.report.kinds.released import summary_section
from lightleak.report.kinds.released_entries import Entry, Memorization, PseudoLabel
from lightleak.report.kinds.released_groups import compare
from lightleak.report.kinds.released_scores import COUNT, Attack
from lightleak.report.page import render
from lightleak.report.read import Run

JARGON = (
    "generator", "latent", "epoch", "gradient", "GAN", "PLG-MI", "baseline", "inversion", "white-box", "pseudo",
    "evaluation model", "threat model", "memori", "Gower", "seed", "class ", "classes", "query",
)  # fmt: skip
GIVES_AWAY = "the model gives away what its groups look like."
MORE, CHANCE, LESS = (0.10, 0.11, 0.12), (-0.1, 0.0, 0.1), (-0.10, -0.11, -0.12)


def rows(attack: str, *accuracies: float, **fields: Any) -> list[dict[str, Any]]:
    """One training for each accuracy, evaluated once."""
    return [
        {"attack": attack, "evaluation_index": 0, "seed": index, "attack_accuracy": value, "class": "all",
         "dataset": "d", "setting": "2", "samples": 1000, **fields}
        for index, value in enumerate(accuracies)
    ]  # fmt: skip


def entry(
    attack: str, share: float | None = None, low: float | None = None, high: float | None = None, seed: int = 0
) -> Entry:
    memory = None if share is None else Memorization(0.1, 0.1, share, low, high, 100)
    return Entry(attack, attack, "d", "2", seed, memorization=memory,
                 task={"classes": 20, "public_rows": 5000, "private_test_rows": 400},
                 target_scores={"test_accuracy": 0.75})  # fmt: skip


def row_of(raw: dict[str, Any]) -> ReleasedRow:
    row = read_row(raw | {"kind": "released-model"}, "row", "run")
    assert isinstance(row, ReleasedRow)
    return row


def html(*found: list[dict[str, Any]], entries: tuple[Entry, ...] = ()) -> str:
    section = summary_section(compare([row_of(row) for some in found for row in some], entries))
    return render(Page("", "", [section])).split("</h2>")[1].split("<footer")[0]


def made(*found: list[dict[str, Any]], entries: tuple[Entry, ...] = ()) -> str:
    """What the summary says."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html(*found, entries=entries))).split())


def risks(*found: list[dict[str, Any]], entries: tuple[Entry, ...] = ()) -> list[list[str]]:
    """What the first page's table compares, without intervals."""
    section = summary_section(compare([row_of(row) for some in found for row in some], entries))
    tables = (one for one in section.blocks if isinstance(one, Table))
    return [[cell.text for cell in line.cells] for one in tables for group in one.groups for line in group.lines]


PLGMI = rows("plgmi", 0.8, 0.82, 0.84, real_rows_accuracy=0.4)
PUBLIC = rows("public_pseudo_labeled", 0.6, 0.61, 0.62)
BLIND = rows("public_random", 0.05, 0.05, 0.06)


def test_recognized_records_are_compared_with_public_real_and_unseen_ones() -> None:
    found = made(PLGMI, PUBLIC, BLIND, entries=(entry("plgmi"),))
    for part in (
        "its 20 groups, of which another model recognizes 82 of 100 (95% interval 77.0 to 87.0)",
        "merely sorted into the groups: 61 of 100, so that the attack has 21.0 more (95% interval",
        "They were not compared",
    ):
        assert part in found, part
    assert "That may be chance" not in found
    assert "real records 40.0%" in found and len(found.split()) <= 350
    (recognized, _, _) = risks(PLGMI, PUBLIC, BLIND)
    assert recognized == ["Recognized", "82", "61"]


@pytest.mark.parametrize(
    ("public", "says"),
    [
        (rows("gan_without_target", 0.80, 0.83, 0.82), "That may be chance."),
        (rows("public_random", 0.90, 0.93, 0.91), "9.3 fewer (95% interval"),
        (rows("public_random", 0.5), "30.0 more (no interval). Whether that is chance is not known."),
        ([], "Nothing was measured with public data alone"),
    ],
)
def test_the_attack_is_compared_with_the_best_of_public_data(public: list[dict[str, Any]], says: str) -> None:
    lower = rows("public_random", 0.04, 0.05, 0.06) if public and public[0]["attack"] != "public_random" else []
    assert says in made(PLGMI, public, lower)
    assert (risks(PLGMI, public, lower)[0][2] == "–") is not bool(public)


def beside(gains: dict[str, tuple[float, ...] | None]) -> list[dict[str, Any]]:
    """Trainings whose measures differ so much from public records."""
    known = {name: of for name, of in gains.items() if of}
    return [row | {f"over_public_{name}": of[k] for name, of in known.items()} for k, row in enumerate(PLGMI)]


def main_of(found: list[dict[str, Any]]) -> Attack:
    """The only attack."""
    (scenario,) = compare(list(map(row_of, found)))
    return scenario.attacks[0]


def test_only_all_measures_together_say_that_the_model_gives_its_groups_away() -> None:
    measured = beside(dict.fromkeys(MEASURES, MORE))
    assert GIVES_AWAY in made(measured)
    once = [row | {"seed": 0, "evaluation_index": k} for k, row in enumerate(measured)]
    single = made(once)
    assert GIVES_AWAY not in single  # however often it is evaluated
    assert {one.outcome for one in main_of(once).measures} == {"one training"}
    assert "On a single model nothing is concluded" in single and "another training" in single


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("gains", [CHANCE, LESS, None])
def test_one_measure_that_does_not_say_so_is_enough(name: str, gains: Any) -> None:
    found = made(beside(dict.fromkeys(MEASURES, MORE) | {name: gains}))
    assert GIVES_AWAY not in found
    assert f"by 4 of {5 - (gains is None)} measures" in found and "would take all 5" in found


@pytest.mark.parametrize(("kept", "is_repeated"), [(50, False), (30, True)])
def test_repeated_public_records_are_pointed_out(kept: int, is_repeated: bool) -> None:
    measured = beside(dict.fromkeys(MEASURES, MORE))
    per_class = [row | {"class": "a", "samples": 50} for row in rows("plgmi", 0.8, 0.82, 0.84)]
    sorted_rows = (PseudoLabel("a", 80.0, float(kept)), PseudoLabel("b", 3.0, 0.0, "too few"))
    found = made(measured, per_class, PUBLIC, entries=(replace(entry("plgmi"), pseudo_labels=sorted_rows),))
    assert GIVES_AWAY in found and ("so they are repeated: 2 of the measures" in found) is is_repeated


@pytest.mark.parametrize(("real", "is_judged"), [(0.4, True), (0.06, False), (None, True)])
def test_a_judge_that_does_not_know_real_records_shows_nothing(real: float | None, is_judged: bool) -> None:
    """Of 400 real records 24 are recognized where 20 are by chance."""
    found = made([row | {"real_rows_accuracy": real} for row in PLGMI], entries=(entry("plgmi"),))
    assert "(95% interval 77.0 to 87.0); naming a group at random is right for 5." in found
    assert ("so nothing can be concluded from what it recognizes" in found) is not is_judged


@pytest.mark.parametrize(
    ("left_out", "says", "is_too_few"),
    [((0, 0, 0), "its 20 groups", False), ((3, 3, 3), "17 of its 20 groups", False), ((3, 19, 5), "1 to 17 of", True)],
)
def test_groups_that_were_not_attacked_are_not_claimed(left_out: tuple[int, ...], says: str, is_too_few: bool) -> None:
    rows = [row | {"excluded_classes": n} for row, n in zip(PLGMI, left_out, strict=True)]
    found = made(rows, entries=(entry("plgmi"),))
    assert f"make up records of {says}" in found
    assert ("so nothing can be concluded" in found) is is_too_few


def test_the_judge_is_held_against_chance_in_all_groups() -> None:
    """A judge that takes every record for the one group attacked recognizes all of its real records."""
    rows, known = [row | {"real_rows_accuracy": 1.0} for row in PLGMI], entry("plgmi")
    assert "nothing can be concluded" not in made(rows, entries=(known,))
    found = made(rows, entries=(replace(known, evaluation_scores={"class_mean": 0.05}),))
    assert "recognizes 5 of 100 real records, not measurably more than at random" in found


@pytest.mark.parametrize("real", [0.4, None])
def test_real_records_are_drawn_where_they_were_judged(real: float | None) -> None:
    assert ("real records" in made([row | {"real_rows_accuracy": real} for row in PLGMI])) is (real is not None)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ((), "was not measured"),
        ((entry("plgmi"),), "was not measured"),
        ((entry("plgmi", 0.51),), "was not measured"),
        ((entry("plgmi", 0.51, 0.49, 0.53),), "No sign that single records are copied: made-up"),
        ((entry("plgmi", 0.93, 0.26, 0.99),), "Too few private records"),
        ((entry("plgmi", 0.45, 0.43, 0.47),), "No sign that single"),
        ((entry("plgmi", 0.60, 0.58, 0.62),), "may come through"),
        ((entry("plgmi", 0.60, 0.58, 0.62), entry("public_random", 0.5, 0.48, 0.52)), "Traces"),
        ((entry("plgmi", 0.60, 0.58, 0.62), entry("public_random", 0.59, 0.57, 0.61)), "copied: public ones"),
        # Over two seeds 61.0 (48.3 to 73.7): no longer sure, however many private records were held out.
        ((entry("plgmi", 0.60, 0.58, 0.62), entry("plgmi", 0.62, 0.6, 0.64, 1)), "The trainings are too few"),
        # One half is within the interval, and so is 0.7: nothing is ruled out.
        ((entry("plgmi", 0.55, 0.5, 0.7),), "Too few private records"),
        # Public ones are not shown to be as near: 5 to 100 of 100 of them are.
        ((entry("plgmi", 0.90, 0.89, 0.91), entry("public_random", 0.567, 0.05, 1)), "may come through"),
        ((entry("plgmi", 0.90, 0.89, 0.91), entry("public_random", 0.89)), "may come through"),
    ],
)
def test_copies_are_separated_from_nearness_that_public_records_have_too(entries: tuple[Entry, ...], says: str) -> None:
    assert says in made(PLGMI, BLIND, entries=entries)


def test_copies_are_those_of_the_attack_with_most() -> None:
    copying = rows("plgmi", 0.7, 0.72, 0.74, label="copying", exact_match_rate=0.4)
    main = [row | {"exact_match_rate": 0.0} for row in PLGMI]
    public = [row | {"exact_match_rate": 0.01} for row in PUBLIC]
    memories = (entry("plgmi", 0.5, 0.48, 0.52), entry("public_pseudo_labeled", 0.5, 0.48, 0.52))
    other = replace(entry("plgmi", 0.95, 0.94, 0.96), label="copying")
    found = made(main, copying, public, entries=(*memories, other))
    assert "another model recognizes 82 of 100" in found
    assert "Traces of single records" in found and "Of 2 attacks, this is about the one with the most signs" in found
    assert [line[1:] for line in risks(main, copying, public, entries=(*memories, other))[1:]] == [
        ["95", "50"], ["40", "1"],
    ]  # fmt: skip
    found = made(main, copying, public, entries=memories)  # equal records are no reassurance whatever their distance
    assert "No sign" not in found and "but 40 of 100 made-up ones equal a private one, and 1 of public ones" in found
    assert "No sign" in made(main, public, entries=memories)
    elsewhere = replace(other, setting="3")
    assert "may come through" in made(
        main, public, [row | {"setting": "3"} for row in copying], entries=(*memories, elsewhere)
    )


def test_equal_gains_of_a_count_are_of_several_trainings() -> None:
    equal = beside(dict.fromkeys(MEASURES, MORE) | {COUNT: (20.0, 20.0, 20.0)})
    assert next(one for one in main_of(equal).measures if one.is_count).outcome == "chance"
    found = made(equal)
    assert "On a single model" not in found and "by 4 of 5 measures" in found
    partly = beside(dict.fromkeys(MEASURES, MORE))
    for row in partly[1:]:
        del row[f"over_public_{COUNT}"]
    assert "by 4 of 5 measures" in made(partly)  # the other measures are of three models


def test_a_gain_stands_beside_the_figures_that_it_is_of() -> None:
    uneven, once = rows("plgmi", 0.95, 0.45, 0.45), rows("gan_without_target", 0.9)
    found = made(uneven, once)
    assert "another model recognizes 61.7 of 100" in found
    assert "90 of 100 where both were measured, against 95 of the attack, so that the attack has 5.0 more" in found
    few, most = rows("plgmi", 0.9), rows("public_random", 0.7, 0.9, 0.9)
    assert "70 of 100 where both were measured, against 90 of the attack, so that the attack has 20.0" in made(
        few, most
    )
    assert "where both" not in made(PLGMI, PUBLIC)


def test_equal_records_are_compared_with_those_of_public_ones() -> None:
    mine = [row | {"exact_match_rate": 0.002 + 0.0001 * k} for k, row in enumerate(PLGMI)]
    many = [row | {"exact_match_rate": 0.011 + 0.0001 * k} for k, row in enumerate(BLIND)]
    assert [risks(mine, public)[2][1:] for public in (BLIND, many)] == [["0.2", "–"], ["0.2", "1.1"]]
    assert risks(PLGMI, many)[2][1] == "not measured"


def test_how_the_attack_was_chosen_is_said() -> None:
    found = made(PLGMI, rows("plgmi", 0.7, 0.71, 0.72, label="other"), rows("plgmi", 0.6, 0.7, setting="3"))
    assert "public data of 3 that were measured" in found and "optimistic" in found
    assert "optimistic" not in made(PLGMI)


def test_what_was_not_measured_is_said_to_be() -> None:
    found = made(rows("plgmi", 0.8))
    assert "one training: no interval" in found
    assert "Nothing was measured with public data alone" in found
    unjudged = [{key: row[key] for key in row if key != "attack_accuracy"} for row in PLGMI]
    for nothing, says in (((), "no attack"), ((BLIND,), "no attack"), ((unjudged,), "No other model judged")):
        assert says in made(*nothing) and not risks(*nothing)


def test_that_no_defense_was_tried_is_said_with_how_good_the_model_is() -> None:
    found = made(PLGMI, entries=(entry("plgmi"),))
    assert "tries no defense" in found and "75 (95% interval 70.5 to 79.0) of 100" in found


def test_equal_measurements_have_the_interval_of_their_rows() -> None:
    equal = main_of(rows("plgmi", 0.8, 0.82, exact_match_rate=0.0)).equal_rows
    assert equal is not None and equal.low == 0.0 and equal.high == pytest.approx(0.0038, abs=1e-4)


@pytest.mark.parametrize("threat", [None, Threat("model_holder", ("answers",)).to_dict()])
def test_who_may_only_ask_the_model_does_not_hold_it(threat: dict[str, Any] | None) -> None:
    attack = "plgmi" if threat else "plgmi_black_box"
    found = made(rows(attack, 0.7, 0.72, latent_search="gradient", threat=threat))
    assert found.startswith("Whoever may ask the released model")
    assert made(PLGMI).startswith("Whoever holds the released model")


def test_it_is_free_of_jargon() -> None:
    found = made(PLGMI, PUBLIC, BLIND, rows("gan_without_target", 0.5), entries=(entry("plgmi", 0.5, 0.4, 0.6),))
    plain = found.partition("Not tested")[0]  # what follows has the terms of regulators
    assert [word for word in JARGON if word.lower() in plain.lower()] == []


def checklist(*found: dict[str, Any]) -> str:
    """What the section of questions says."""
    page = released.page([Run("run", Path("."), "released-model", tuple(map(row_of, found)))], False)
    (section,) = (one for one in page.sections if one and one.id == "tested")
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", render(Page("", "", [section])))).split())


def test_the_checklist_states_intervals_only_where_there_are_several_trainings() -> None:
    said = checklist(*PLGMI[:1], *PUBLIC[:1])
    assert "1 training, 1 evaluation; no interval" in said and "95% intervals over trainings" not in said


def test_the_checklist_says_what_made_up_records_show_and_that_they_are_nobodys() -> None:
    some = rows("plgmi", 0.8, 0.82, 0.84, exact_match_rate=0.01)
    per_class = [
        row | {"class": name, "attack_accuracy": value} for row in some for name, value in (("a", 0.9), ("b", 0.7))
    ]
    said = checklist(*some, *per_class, *PUBLIC)
    for part in (
        "Recognized as a record of the group it was made for: 82 of 100 (77.0 to 87.0) made-up records; of public",
        "Equal to a private record: 1 of 100",
        "a: 90.0% of made-up records recognized",
        "a made-up record describes a group and need not be anybody's",
        "3 trainings, 3 evaluations; 95% intervals over trainings",
        "None: no defense",
    ):
        assert part in said, part
