"""The first page of a vertical audit follows from the numbers, in plain words."""

from typing import Any

import pytest

from lightleak.report.plain import Summary
from lightleak.report.vertical.comparison import compare
from lightleak.report.vertical.result import PropertyResult, Setting
from lightleak.report.vertical.summary import summary

JARGON = (
    "gradient", "epoch", "batch", "honest-but-curious", "active party", "passive party", "baseline", "ProVFL", "AIA",
    "prior", "auxiliary", "seed", "threat model", "vertical", "intermediate", "label",
)  # fmt: skip
SEES = "An active party (C1) that follows the protocol, sees AO and knows the property of 40 auxiliary rows."
GOOD, POOR = (0.01, -0.02, 0.03), (0.1, -0.15, 0.2)


def rows(errors: tuple[float, ...], defense: str = "none", **changes: Any) -> list[PropertyResult]:
    """One row per error of seeds 0, 1, ...; the truth is .66, own columns alone are .16 off."""
    values: dict[str, Any] = {
        "run": "run", "setting": Setting("adult", defense=defense), "attack": "provfl_b", "variant": "passive",
        "adversary": "C1", "property_name": "sex=Male", "true": 0.66, "own_error": 0.16, "auc": 0.9,
        "threat_model": SEES,
    }  # fmt: skip
    values |= changes
    return [PropertyResult(seed=seed, estimated=0.66 + error, **values) for seed, error in enumerate(errors)]


def told(*found: list[PropertyResult], redact: bool = False) -> Summary:
    return summary(compare([row for some in found for row in some]), redact)


def words(found: Summary) -> str:
    tiles = [f"{tile.value} {tile.label} {tile.detail}" for tile in found.tiles]
    table = [] if found.table is None else [found.table.head, *found.table.columns, found.table.note]
    cells = [
        f"{row.title} {row.detail} {cell.value} {cell.interval} {cell.change}"
        for block in (found.table.blocks if found.table else ())
        for row in block.rows
        for cell in row.cells
    ]
    questions = [part for pair in found.attacker for part in pair]
    return " ".join([*found.sentences, *tiles, *found.terms, *found.defences, *table, *cells, *questions, *found.notes])


def test_what_is_learned_stands_beside_what_own_columns_tell() -> None:
    found = told(rows(GOOD))
    assert found.sentences[0] == (
        "The company that knows the outcomes the model learns to predict (C1) could learn the share of the other "
        "company's customers with “sex=Male” from what is exchanged, to within 2 points on average (95% interval 0.0 "
        "to 4.5)."
    )
    assert found.sentences[1] == (
        "From its own columns alone, without the exchange, it would be 16 points off: 14.0 points more (95% interval "
        "11.5 to 16.5)."
    )
    assert found.sentences[2] == (
        "That is worth asking 481 (at least 153) customers drawn at random, its own columns alone 9 (9 to 9)."
    )
    assert "In truth 66 of 100 have it; the estimates say 66.7." in found.sentences
    assert [tile.value for tile in found.tiles] == ["2", "16"]
    assert "Of 40 customers whether they have the trait." in found.attacker[2][1]
    assert found.defences == (
        "No defence was tried. What a defence would change, and what it would cost, is not known from this report; an "
        "audit with and without one, reported together, tells.",
    )


def test_what_may_be_chance_is_said_to_be() -> None:
    found = told(rows(POOR))
    assert "(C1) was not shown to learn the share" in found.sentences[0]
    assert "its estimate was 15 points off (95% interval 2.6 to 27.4), not measurably closer" in found.sentences[0]
    assert "1.0 points more (95% interval −11.4 to 13.4, which may be chance: more trainings" in found.sentences[1]


def test_an_estimate_close_to_the_truth_that_own_columns_give_as_well_is_not_learned() -> None:
    found = told(rows((0.001, -0.001, 0.0012), own_error=0.001))
    assert "was not shown to learn the share" in found.sentences[0] and "could learn" not in words(found)


def test_what_is_measurably_worse_than_own_columns_is_not_called_chance() -> None:
    found = told(rows((0.3, 0.31, 0.32)))
    assert "15.0 points less (95% interval −17.5 to −12.5)." in found.sentences[1]


def test_the_attack_is_picked_by_the_other_trainings() -> None:
    found = told(rows(GOOD), rows(POOR, attack="aia"))
    assert found.sentences[-1].endswith("The attack is one of 2, picked for each training by the other trainings.")
    single = told(rows(GOOD[:1]), rows(POOR[:1], attack="aia"))
    assert "picked afterwards, so that it looks a little better than it is" in single.sentences[-1]


def test_traits_of_several_tables_are_told_apart() -> None:
    found = told(rows(GOOD), rows(GOOD, setting=Setting("bank")))
    assert found.table is not None
    assert [row.title.split(":")[0] for row in found.table.blocks[0].rows] == ["adult", "bank"]


def test_one_training_has_no_interval_and_no_truth_no_figure() -> None:
    found = told(rows(GOOD[:1]))
    assert "could estimate the share" in found.sentences[0]
    assert "to within 1 point (one training: no interval)" in found.sentences[0]
    unknown = told(rows(GOOD, true=None))
    assert "nothing says how close" in unknown.sentences[0] and unknown.table is None and unknown.attacker
    assert "Nothing can be said yet" in told([]).sentences[0]
    assert (
        "What it can tell from its own columns, without the exchange, is not known: nothing shows that the exchange "
        "gives it away." in told(rows(GOOD, own_error=None)).sentences
    )


def test_the_defence_that_helps_is_named_with_what_it_costs() -> None:
    found = told(
        rows(GOOD),
        rows((0.2, -0.21, 0.22), "withdraw ratio 0.5", auc=0.85),
        rows((0.1, -0.11, 0.12), "laplace scale 0.1", auc=0.89),
        rows((0.02, -0.01, 0.04), "ppdl epsilon 1", auc=0.9),
    )
    assert found.defences[0].startswith("2 of 3 defences help measurably. Which to name was decided after the fact")
    assert found.defences[1].startswith(
        "Withdraw ratio 0.5 (the company attacked leaves some of the customers who have"
    )
    assert (
        "an attacker who knows of it is then 21 points off instead of 2 (change +19.0, 95% interval 19.0 to 19.0)"
        in found.defences[1]
    )
    assert "The price: an AUC of 85 of 100 (change −5.0" in found.defences[1]
    assert found.defences[2].startswith("The least costly of those that help. Laplace scale 0.1 (random noise")
    assert [tile.value for tile in found.tiles] == ["2", "16", "21", "−5.0"]
    assert found.table is not None
    (block,) = found.table.blocks
    assert [row.title for row in block.rows] == [
        "No defence", "Withdraw ratio 0.5", "Laplace scale 0.1", "Ppdl epsilon 1",
    ]  # fmt: skip
    signs = [row.cells[0].change[:1] for row in block.rows]
    assert signs == ["", "▲", "▲", "○"]


def test_a_defence_is_not_credited_with_an_attack_that_was_not_tried_under_it() -> None:
    """The strongest attack was tried without the defence alone; the other is as close with it as without."""
    strong, weak = rows(GOOD, attack="provfl_m", variant="MR"), rows((0.1, -0.11, 0.12), attack="aia")
    found = told(strong, weak, rows((0.1, -0.11, 0.12), "withdraw ratio 0.5", attack="aia"))
    assert found.defences == ("The defence that was tried does not help measurably; see the table.",)
    assert "bends its own part of the training" in words(found)


def test_of_many_lines_those_of_the_trait_that_comes_out_best_are_shown() -> None:
    many = [rows(GOOD, adversary=who, property_name=f"a={k}") for who in ("C1", "C2") for k in range(4)]
    best = rows((0.001, -0.002, 0.001), property_name="b=1")
    found = told(*many, best, rows(POOR, "withdraw ratio 0.5", property_name="b=1"))
    assert found.table is not None
    assert [block.title for block in found.table.blocks] == ["b=1, the company with the outcomes (C1)"]
    assert "in 9 of 9 combinations of company and trait; this one is named afterwards" in words(found)
    assert "What is not shown here follows further down." in found.table.note


def test_redaction_leaves_no_share_and_nothing_it_follows_from() -> None:
    results = rows(GOOD, true=0.6321, own_error=0.2)
    shown, hidden = words(told(results)), words(told(results, redact=True))
    assert "63.2" in shown and "20" in shown.split()
    assert not any(part in hidden for part in ("63.2", "66.7", "20.0", "points more", "at random"))
    assert "to within" in hidden


@pytest.mark.parametrize("defense", ["none", "withdraw ratio 0.5"])
def test_it_is_free_of_jargon(defense: str) -> None:
    found = words(told(rows(GOOD, defense), rows(GOOD, defense, adversary="C2"), rows(POOR, "shuffle 0.2")))
    assert [word for word in JARGON if word.lower() in found.lower()] == []
    assert found.index("“AUC” says") < found.index("AUC, of 100")


def test_a_withdrawal_is_judged_by_an_attacker_who_inverts_it() -> None:
    """Taken as they are the estimates are 16 points off; who knows the ratio is 1 point off, and nothing is hidden."""
    known = rows((0.01, -0.011, 0.009), "withdraw ratio 0.5", unaware=0.5)
    found = told(rows((0.01, -0.009, 0.011)), known)
    assert found.defences == ("The defence that was tried does not help measurably; see the table.",)
    assert "The attacker is assumed to know which defence is used, and how strong." in words(found)
