"""The summary follows from the numbers, in plain words."""

from typing import Any

import pytest

from lightleak.core.results import ReleasedRow, read_row
from lightleak.core.threat_model import Threat
from lightleak.metrics.inversion.score import MEASURES
from lightleak.report.kinds.released_groups import Attack, Entry, Memorization, compare
from lightleak.report.kinds.released_summary import LIMITS, equal_records, outcomes, summary
from lightleak.report.kinds.released_summary import MEASURES as PLAINLY
from lightleak.report.sections.summary import Summary

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


def made(*found: list[dict[str, Any]], entries: tuple[Entry, ...] = ()) -> Summary:
    return summary(compare([row_of(row) for some in found for row in some], entries))


def sentence(found: Summary, part: str) -> str:
    """The one sentence, or term, with these words."""
    (only,) = (one for one in (*found.sentences, *found.terms) if part in one)
    return only


def words(found: Summary) -> str:
    """All that it says but the budget, which names attacks."""
    tiles = [f"{tile.label} {tile.detail}" for tile in found.tiles]
    table = [] if found.table is None else [*found.table.head, found.note]
    lines = [part for group in (found.table.groups if found.table else ()) for line in group.lines
             for cell in line.cells for part in (cell.text, *cell.small)]  # fmt: skip
    questions = [part for pair in found.attacker for part in pair]
    sentences = [one for one in found.sentences if not one.startswith("Attack budget")]
    return " ".join([*sentences, *tiles, *found.terms, *found.defenses, *table, *lines, *questions, *found.notes])


PLGMI = rows("plgmi", 0.8, 0.82, 0.84, real_rows_accuracy=0.4)
PUBLIC = rows("public_pseudo_labelled", 0.6, 0.61, 0.62)
BLIND = rows("public_random", 0.05, 0.05, 0.06)


def test_recognized_records_stand_beside_public_real_and_unseen_ones() -> None:
    found = made(PLGMI, PUBLIC, BLIND, entries=(entry("plgmi"),))
    for part in ("its 20 groups", "82 of 100", "95% interval 77.0 to 87.0"):
        assert part in found.sentences[0]
    best = sentence(found, "merely sorted into the groups: 61 of 100")
    assert "has 21.0 more (95% interval" in best and "chance" not in best
    assert "5.3." in sentence(found, "took public records at random")
    assert "recognizes 40 of 100: made-up" in sentence(found, "real private records")
    assert "3 evaluations of 1,000 records each" in sentence(found, "Measured on 3 released models")
    assert [tile.value for tile in found.tiles] == ["82", "61", "40"]
    assert "5,000 public records" in dict(found.attacker)["What else do they know?"]
    assert "They were not compared" in found.sentences[2]
    assert set(LIMITS) < set(found.notes)


@pytest.mark.parametrize(
    ("public", "says"),
    [
        (rows("gan_without_target", 0.80, 0.83, 0.82), "That may be chance."),
        (rows("public_random", 0.90, 0.93, 0.91), "9.3 fewer (95% interval"),
        (rows("public_random", 0.5), "30.0 more (no interval). Whether that is chance is not known."),
        ([], "Nothing was measured with public data alone"),
    ],
)
def test_the_best_of_public_data_stands_beside_the_attack(public: list[dict[str, Any]], says: str) -> None:
    lower = rows("public_random", 0.04, 0.05, 0.06) if public and public[0]["attack"] != "public_random" else []
    found = made(PLGMI, public, lower)
    assert says in found.sentences[1]
    assert len(found.tiles) == 2 + bool(public)


def beside(gains: dict[str, tuple[float, ...] | None]) -> list[dict[str, Any]]:
    """Trainings whose measures differ so much from public records."""
    known = {name: of for name, of in gains.items() if of}
    return [row | {f"over_public_{name}": of[k] for name, of in known.items()} for k, row in enumerate(PLGMI)]


def main_of(found: list[dict[str, Any]]) -> Attack:
    """The only attack."""
    (scenario,) = compare(list(map(row_of, found)))
    return scenario.attacks[0]


def test_only_all_measures_together_say_that_the_model_gives_its_groups_away() -> None:
    assert GIVES_AWAY in made(beside(dict.fromkeys(MEASURES, MORE))).sentences[2]
    once = [row | {"seed": 0, "evaluation_index": k} for k, row in enumerate(beside(dict.fromkeys(MEASURES, MORE)))]
    single = made(once)
    assert GIVES_AWAY not in words(single)  # however often it is evaluated
    assert outcomes(main_of(once)) == outcomes(main_of(PLGMI)) == ""
    assert "single model" in single.sentences[2] and "another training" in sentence(single, "Measured on 1 released")


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize(
    ("gains", "outcome"), [(CHANCE, "may be chance: {}."), (LESS, "less by: {}."), (None, "not measured: {}.")]
)
def test_one_measure_that_does_not_say_so_is_enough(name: str, gains: Any, outcome: str) -> None:
    measured = beside(dict.fromkeys(MEASURES, MORE) | {name: gains})
    found = made(measured)
    assert GIVES_AWAY not in words(found)
    assert f"by 4 of {5 - (gains is None)} measures" in found.sentences[2] and "take all 5" in found.sentences[2]
    others = ", ".join(PLAINLY[one] for one in MEASURES if one != name)
    assert outcomes(main_of(measured)) == f"more by: {others}; {outcome.format(PLAINLY[name])}"


@pytest.mark.parametrize(("real", "typical"), [(0.4, True), (0.8, False), (None, None)])  # 0.8 is in the interval
def test_real_records_are_no_bound_of_the_attack(real: float | None, typical: bool | None) -> None:
    found = made([row | {"real_rows_accuracy": real} for row in PLGMI])
    told = [one for one in found.sentences if "real private records" in one]
    assert ["typical" in one for one in told] == ([] if typical is None else [typical])
    assert len(found.tiles) == 1 + (real is not None)


@pytest.mark.parametrize(
    ("entries", "parts"),
    [
        ((), ("not measured",)),
        ((entry("plgmi"),), ("not measured",)),
        ((entry("plgmi", 0.51),), ("51 of 100",)),
        ((entry("plgmi", 0.51, 0.49, 0.53),), ("No sign", "51 of 100", "49.0 to 53.0")),
        ((entry("plgmi", 0.93, 0.26, 0.99),), ("Too few private records",)),
        ((entry("plgmi", 0.45, 0.43, 0.47),), ("No sign", "45 of 100")),
        ((entry("plgmi", 0.60, 0.58, 0.62),), ("may come through", "60 of 100")),
        ((entry("plgmi", 0.60, 0.58, 0.62), entry("public_random", 0.5, 0.48, 0.52)), ("Traces", "public records 50")),
        ((entry("plgmi", 0.60, 0.58, 0.62), entry("public_random", 0.59, 0.57, 0.61)), ("No sign", "59 of 100 public")),
        # Over two seeds 61.0 (48.3 to 73.7): no longer sure.
        ((entry("plgmi", 0.60, 0.58, 0.62), entry("plgmi", 0.62, 0.6, 0.64, 1)), ("Too few", "61 of 100")),
    ],
)
def test_copies_are_told_from_nearness_that_public_records_have_too(
    entries: tuple[Entry, ...], parts: tuple[str, ...]
) -> None:
    found = made(PLGMI, BLIND, entries=entries)
    verdict = next(one for one in found.sentences if "single private records" in one or "made-up records lie" in one)
    assert all(part in verdict for part in parts)


def equal(*found: list[dict[str, Any]]) -> str:
    """What is said of records that equal a private one."""
    (scenario,) = compare([row_of(row) for some in found for row in some])
    return equal_records(scenario, scenario.attacks[0])


def test_equal_records_stand_beside_those_of_public_ones() -> None:
    mine = [row | {"exact_match_rate": 0.002 + 0.0001 * k} for k, row in enumerate(PLGMI)]
    many = [row | {"exact_match_rate": 0.011 + 0.0001 * k} for k, row in enumerate(BLIND)]
    none = [row | {"exact_match_rate": 0.0} for row in BLIND]
    assert equal(mine, BLIND).startswith("0.2 of 100") and "public" not in equal(mine)
    assert "of public ones 1.1 do" in equal(mine, many) and "say nothing about copying" in equal(mine, many)
    assert "of public ones 0 do" in equal(mine, none) and "copying" not in equal(mine, none)
    assert equal([row | {"exact_match_rate": 0.0} for row in PLGMI], many).startswith("No made-up record equals")
    assert equal(PLGMI, many) == ""


def test_how_the_attack_was_chosen_is_said() -> None:
    found = made(PLGMI, rows("plgmi", 0.7, 0.71, 0.72, label="other"), rows("plgmi", 0.6, 0.7, setting="3"))
    assert "optimistic" in sentence(found, "public data of 3 that were measured")
    assert not any("optimistic" in one for one in made(PLGMI).sentences)
    assert found.table is not None
    assert [group.title for group in found.table.groups] == ["Setting 2", "Setting 3"]


def test_what_was_not_measured_is_said_to_be() -> None:
    found = made(rows("plgmi", 0.8))
    assert "no interval" in found.sentences[0] and found.tiles[0].detail == "no interval"
    assert "Nothing was measured with public data alone" in found.sentences[1]
    assert "was not measured" in sentence(found, "who never saw the model")
    unjudged = [{key: row[key] for key in row if key != "attack_accuracy"} for row in PLGMI]
    for nothing, says in ((made(), "no attack"), (made(BLIND), "no attack"), (made(unjudged), "No other model judged")):
        assert says in nothing.sentences[0] and not nothing.tiles and nothing.table is None


def test_that_no_defense_was_tried_is_said_with_how_good_the_model_is() -> None:
    (line,) = made(PLGMI, entries=(entry("plgmi"),)).defenses
    assert "no defense" in line and "75 (95% interval 70.5 to 79.0) of 100" in line


def test_equal_measurements_have_the_interval_of_their_rows() -> None:
    found = made(rows("plgmi", 0.8, 0.82, exact_match_rate=0.0))
    assert found.table is not None
    assert found.table.groups[0].lines[0].cells[3].small == ("0.0 to 0.4",)


@pytest.mark.parametrize("threat", [None, Threat("model_holder", ("answers",)).to_dict()])
def test_who_may_only_ask_the_model_does_not_hold_it(threat: dict[str, Any] | None) -> None:
    attack = "plgmi" if threat else "plgmi_black_box"
    found = made(rows(attack, 0.7, 0.72, latent_search="gradient", threat=threat))
    assert found.sentences[0].startswith("Whoever may ask the released model")
    assert dict(found.attacker)["What do they see?"].startswith("The model's answers")
    assert "The whole model" in dict(made(PLGMI).attacker)["What do they see?"]


def test_it_is_free_of_jargon() -> None:
    found = words(made(PLGMI, PUBLIC, BLIND, rows("gan_without_target", 0.5), entries=(entry("plgmi", 0.5, 0.4, 0.6),)))
    assert [word for word in JARGON if word.lower() in found.lower()] == []
