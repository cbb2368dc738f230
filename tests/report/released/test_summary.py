"""The first page of an audit of a released model follows from the numbers, in plain words."""

from typing import Any

import pytest

from lightleak.metrics.inversion.score import MEASURES
from lightleak.report.plain import Summary
from lightleak.report.released.comparison import compare
from lightleak.report.released.entries import Entry, Memorisation
from lightleak.report.released.result import parse_result
from lightleak.report.released.summary import summary

JARGON = (
    "generator", "latent", "epoch", "gradient", "GAN", "PLG-MI", "baseline", "inversion", "white-box", "pseudo",
    "evaluation model", "threat model", "memoris", "Gower", "seed", "class ", "classes", "query",
)  # fmt: skip


def rows(attack: str, *accuracies: float, **fields: Any) -> list[dict[str, Any]]:
    return [
        {"attack": attack, "evaluation_index": 0, "seed": index, "attack_accuracy": value, "class": "all",
         "dataset": "d", "setting": "2", "samples": 1000, **fields}
        for index, value in enumerate(accuracies)
    ]  # fmt: skip


def entry(attack: str, share: float | None = None, low: float | None = None, high: float | None = None) -> Entry:
    memory = None if share is None else Memorisation(0.1, 0.1, share, low, high, 100)
    return Entry("run", attack, attack, "d", "2", 0, None, memorisation=memory,
                 task={"classes": 20, "public_rows": 5000, "private_test_rows": 400},
                 target_scores={"test_accuracy": 0.75})  # fmt: skip


def told(*found: list[dict[str, Any]], entries: tuple[Entry, ...] = ()) -> Summary:
    results = [parse_result(row, "run", "row") for some in found for row in some]
    return summary(compare(results, entries), entries)


def words(found: Summary) -> str:
    tiles = [f"{tile.label} {tile.detail}" for tile in found.tiles]
    table = [] if found.table is None else [found.table.head, *found.table.columns, found.table.note]
    lines = [f"{row.title} {row.detail}" for block in (found.table.blocks if found.table else ()) for row in block.rows]
    questions = [part for pair in found.attacker for part in pair]
    return " ".join([*found.sentences, *tiles, *found.terms, *found.defences, *table, *lines, *questions, *found.notes])


PLGMI = rows("plgmi", 0.8, 0.82, 0.84, real_rows_accuracy=0.4)
PUBLIC = rows("public_pseudo_labelled", 0.6, 0.61, 0.62)

BLIND = rows("public_random", 0.05, 0.05, 0.06)


def test_recognised_records_stand_beside_public_real_and_unseen_ones() -> None:
    found = told(PLGMI, PUBLIC, BLIND, entries=(entry("plgmi"),))
    assert found.sentences[0] == (
        "Whoever holds the released model could make up records of its 20 groups, of which another model recognises 82 "
        "of 100 (95% interval 77.0 to 87.0)."
    )
    assert "public records that the released model merely sorted into the groups: 61 of 100" in found.sentences[1]
    assert "has 21.0 more (95% interval" in found.sentences[1]
    assert found.sentences[2].startswith("They were not compared with as many public records")
    assert "never saw the model, and took public records at random, would have 5.3." in found.sentences[3]
    assert (
        "Of real private records that no model has learned from, it recognises 40 of 100: made-up" in found.sentences[4]
    )
    assert "Measured on 3 released models." in found.sentences
    assert [tile.value for tile in found.tiles] == ["82", "61", "40"]
    assert "5,000 public records" in found.attacker[2][1]


def measured(*gains: float, without: str = "", **of: Any) -> list[dict[str, Any]]:
    """Trainings whose measures differ so much from public records."""
    made = rows("plgmi", *(0.8 for _ in gains), **of)
    names = [name for name in MEASURES if name != without]
    return [row | {f"over_public_{name}": gain for name in names} for row, gain in zip(made, gains, strict=True)]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (measured(0.1, 0.12, 0.11), "By each of 5 measures the made-up records show more of the groups than as many"),
        (
            measured(0.1, 0.12, 0.11, without="nearer_to_train"),
            "show more of the groups by 4 of 4 measures (recognised, ",
        ),
        (measured(0.1, -0.1, 0.0), "show more of the groups by 0 of 5 measures. That the model gives away what its"),
        (measured(0.1), "On a single model nothing is concluded of what it gives away."),
    ],
)
def test_only_all_measures_say_that_the_model_gives_its_groups_away(found: list[dict[str, Any]], says: str) -> None:
    sentences = told(found, PUBLIC).sentences
    assert sum(says in one for one in sentences) == 1
    concluded = [one for one in sentences if one.endswith("the model gives away what its groups look like.")]
    assert len(concluded) == (says.startswith("By each"))


def test_a_difference_that_may_be_chance_is_said_to_be() -> None:
    assert told(PLGMI, rows("public_pseudo_labelled", 0.80, 0.83, 0.82)).sentences[1].endswith("That may be chance.")


def test_what_was_not_measured_is_said_to_be() -> None:
    found = told(rows("plgmi", 0.8))
    assert "(one training: no interval)" in found.sentences[0]
    assert "Nothing was measured with public data alone" in found.sentences[1]
    assert "What someone would have who never saw the model was not measured." in found.sentences
    assert "Whether single private records come through was not measured." in found.sentences
    assert "Nothing can be said yet" in told(BLIND).sentences[0]
    unjudged = [{key: row[key] for key in row if key != "attack_accuracy"} for row in PLGMI]
    assert "No other model judged the made-up records" in told(unjudged).sentences[0]


def test_that_no_defence_was_tried_is_said_with_how_good_the_model_is() -> None:
    (line,) = told(PLGMI, entries=(entry("plgmi"),)).defences
    assert "tries no defence" in line and "is not known from this report" in line
    assert "The released model now judges 75 (95% interval 70.5 to 79.0) of 100 new records rightly." in line


@pytest.mark.parametrize(
    ("share", "low", "high", "public", "says"),
    [
        (0.51, 0.49, 0.53, None, "No sign that single records are copied: 51 of 100"),
        (0.74, 0.24, 0.96, None, "Too few private records were held out"),
        (0.60, 0.58, 0.62, None, "Single records may come through"),
        (0.60, 0.58, 0.62, 0.5, "Traces of single records come through"),
        (0.60, 0.58, 0.62, 0.6, "public records, which are no copies, do so too"),
    ],
)
def test_copies_are_told_from_nearness(share: float, low: float, high: float, public: float | None, says: str) -> None:
    others = () if public is None else (entry("public_random", public, public - 0.02, public + 0.02),)
    found = told(PLGMI, BLIND, entries=(entry("plgmi", share, low, high), *others))
    assert says in words(found)


def test_equal_measurements_have_the_interval_of_their_rows() -> None:
    found = told(rows("plgmi", 0.8, 0.82, exact_match_rate=0.0))
    assert found.table is not None
    assert found.table.blocks[0].rows[0].cells[2].interval == "0.0 to 0.4"


def test_who_may_only_ask_the_model_does_not_hold_it() -> None:
    found = told(rows("plgmi_black_box", 0.7, 0.72, latent_search="gradient"))
    assert found.sentences[0].startswith("Whoever may ask the released model could make up")
    assert found.attacker[1][1] == "The model's answers to any record they ask it about, and not its inside."


def test_it_is_free_of_jargon() -> None:
    found = words(told(PLGMI, PUBLIC, BLIND, rows("gan_without_target", 0.5), entries=(entry("plgmi", 0.5, 0.4, 0.6),)))
    assert [word for word in JARGON if word.lower() in found.lower()] == []
