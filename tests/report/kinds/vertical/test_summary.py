"""The first section of a vertical report follows from the numbers, in plain words."""

from typing import Any

import pytest

from lightleak.core.results import VerticalRow
from lightleak.core.threat_model import Threat
from lightleak.report.kinds.vertical_groups import attacks, chosen, compare, reference_of
from lightleak.report.kinds.vertical_words import summary
from lightleak.report.sections.summary import Summary

JARGON = (
    "gradient", "epoch", "batch", "honest-but-curious", "active party", "passive party", "baseline", "prior",
    "auxiliary", "seed", "threat model", "vertical", "intermediate", "label",
)  # fmt: skip
SEES = Threat("active_party", ("AO",), ("property_sample",), sample=40, about="sex=Male", epoch=3)
GOOD, POOR = (0.01, -0.02, 0.03), (0.1, -0.15, 0.2)


def rows(errors: tuple[float, ...], defense: str = "none", **changes: Any) -> list[VerticalRow]:
    """One row per error of seeds 0, 1, ...; the truth is .66, own columns alone are .16 off."""
    values: dict[str, Any] = {
        "run": "run", "dataset": "adult", "defense": defense, "defense_name": defense.split()[0], "attack": "provfl_b",
        "variant": "passive", "adversary": "C1", "property_name": "sex=Male", "true_fraction": 0.66,
        "own_columns_error": 0.16, "auc": 0.9, "threat": SEES, "threat_model": SEES.describe(),
    }  # fmt: skip
    values |= changes
    return [VerticalRow(seed=seed, estimated_fraction=0.66 + error, **values) for seed, error in enumerate(errors)]


def told(*found: list[VerticalRow], redact: bool = False) -> Summary:
    groups = attacks(compare([row for some in found for row in some]))
    reference = [group for group in groups if group.defense == reference_of(groups)] if groups else []
    return summary(groups, chosen(reference), redact)


def said(found: Summary) -> str:
    return " ".join(found.sentences)


def table(found: Summary) -> dict[str, list[list[str]]]:
    """Lines by the title of their group: name, and each cell with its small lines."""
    assert found.table is not None
    return {
        group.title: [[" ".join((cell.text, *cell.small)) for cell in line.cells] for line in group.lines]
        for group in found.table.groups
    }


def words(found: Summary) -> str:
    tiles = [f"{tile.value} {tile.label} {tile.detail}" for tile in found.tiles]
    cells = [cell for lines in table(found).values() for line in lines for cell in line] if found.table else []
    head = [*found.table.head, *table(found)] if found.table else []
    questions = [part for pair in found.attacker for part in pair]
    return " ".join(
        [said(found), *tiles, *found.terms, *found.defenses, *head, found.note, *cells, *questions, *found.notes]
    )


def test_what_is_learned_stands_beside_what_own_columns_tell() -> None:
    found = told(rows(GOOD))
    first = found.sentences[0]
    assert "(C1) could learn the share" in first and "“sex=Male”" in first
    assert "within 2 points on average (95% interval 0.0 to 4.5)" in first
    assert "16 points off: 14.0 points more (95% interval 11.5 to 16.5)" in found.sentences[1]
    # p (1 - p) = .2244; squared errors .0001, .0004, .0009: mean .000467, deviation .000404, half .001004.
    assert "481 (at least 153) customers drawn at random, its own columns alone 9 (9 to 9)" in found.sentences[2]
    assert "66 of 100 have it; the estimates say 66.7" in said(found)
    assert "Measured in 3 trainings" in said(found) and "combinations" not in said(found)
    assert [tile.value for tile in found.tiles] == ["2", "16"]
    assert table(found) == {
        "No defense": [
            [
                "sex=Male, the company with the outcomes (C1) 3 trainings", "2 0.0 to 4.5", "16 16.0 to 16.0",
                "+14.0 11.5 to 16.5", "90 90.0 to 90.0",
            ]
        ]
    }  # fmt: skip
    assert "Of 40 customers whether they have the trait." in found.attacker[2][1]
    assert len(found.defenses) == 1 and "No defense was tried" in found.defenses[0]
    assert "Attack budget: ProVFL-B" in said(found)


def test_the_interval_allows_for_the_number_of_places() -> None:
    found = told(rows(GOOD), rows((0.04, 0.05, 0.06), adversary="C2"))
    # 14 points, deviation 1: t(2) at 1 - 0.025 / 2 is 6.205.
    assert "14.0 points more (95% interval 10.4 to 17.6)" in found.sentences[1]
    assert "in 2 of 2 combinations of company and trait" in said(found)


def test_what_may_be_chance_is_said_to_be() -> None:
    found = told(rows(POOR))
    assert "(C1) was not shown to learn the share" in found.sentences[0]
    assert "15 points off (95% interval 2.6 to 27.4), not measurably closer" in found.sentences[0]
    assert "1.0 points more (95% interval −11.4 to 13.4, which may be chance" in found.sentences[1]


def test_of_many_chances_one_that_looks_learned_is_not_called_so() -> None:
    """By itself the difference is clear at 95%; picked among 20 it is not."""
    lucky = rows((0.02, 0.03, 0.025), own_columns_error=0.05)
    assert "could learn" in told(lucky).sentences[0]
    others = [rows((0.1, 0.11, 0.12), own_columns_error=0.1, property_name=f"a={k}") for k in range(19)]
    found = told(lucky, *others)
    assert "was not shown to learn the share" in found.sentences[0] and "“sex=Male”" in found.sentences[0]
    assert "in 0 of 20 combinations" in said(found)


def test_an_estimate_close_to_the_truth_that_own_columns_give_as_well_is_not_learned() -> None:
    found = told(rows((0.001, -0.001, 0.0012), own_columns_error=0.001))
    assert "was not shown to learn the share" in found.sentences[0] and "could learn" not in words(found)


def test_what_is_measurably_worse_than_own_columns_is_not_called_chance() -> None:
    found = told(rows((0.3, 0.31, 0.32)))
    assert "15.0 points less (95% interval −17.5 to −12.5)." in found.sentences[1]
    assert "was not shown to learn" in found.sentences[0]


def test_the_attack_is_picked_by_the_other_trainings() -> None:
    found = told(rows(GOOD), rows(POOR, attack="aia"))
    assert "The attack is one of 2, picked for each training by the other trainings." in found.sentences
    assert "picked afterwards" in said(told(rows(GOOD[:1]), rows(POOR[:1], attack="aia")))


def test_traits_of_several_tables_are_told_apart() -> None:
    (lines,) = table(told(rows(GOOD), rows(GOOD, dataset="bank"))).values()
    assert [line[0].split(":")[0] for line in lines] == ["adult", "bank"]


def test_one_training_has_no_interval() -> None:
    found = told(rows(GOOD[:1]))
    assert "could estimate the share" in found.sentences[0]
    assert "within 1 point (one training: no interval)" in found.sentences[0]
    assert "one training is too few to tell" in found.sentences[1]


def test_without_truth_only_the_estimate_is_told() -> None:
    unknown = told(rows(GOOD[:1], true_fraction=None, low=0.61, high=0.7))
    assert "nothing says how close" in unknown.sentences[0] and unknown.table is None and unknown.attacker
    assert "By ProVFL-B" in unknown.sentences[1]
    assert "67 of 100" in unknown.sentences[1] and "(95% interval 61.0 to 70.0)" in unknown.sentences[1]
    assert not unknown.tiles
    assert "67" not in said(told(rows(GOOD[:1], true_fraction=None), redact=True))


def test_without_an_attack_or_the_null_nothing_is_claimed() -> None:
    for found in (told([]), *(told(rows(GOOD, attack=name)) for name in ("prior", "aia_raw", "aia_raw_adjusted"))):
        assert found.sentences == ("Nothing can be said yet: no attack on the exchange has finished.",)
    lacking = told(rows(GOOD, own_columns_error=None))
    assert "could estimate the share" in lacking.sentences[0]
    assert "nothing shows that the exchange gives it away" in lacking.sentences[1]


def test_the_defense_that_helps_is_named_with_what_it_costs() -> None:
    found = told(
        rows(GOOD),
        rows((0.2, -0.21, 0.22), "withdraw ratio 0.5", auc=0.85),
        rows((0.1, -0.11, 0.12), "laplace scale 0.1", auc=0.89),
        rows((0.02, -0.01, 0.04), "ppdl epsilon 1", auc=0.9),
    )
    number, best, cheapest = found.defenses
    assert number.startswith("2 of 3 defenses help measurably")
    assert best.startswith("Withdraw ratio 0.5 (the company attacked leaves some of the customers who have")
    assert "21 points off instead of 2 (change +19.0, 95% interval 19.0 to 19.0)" in best
    assert "an AUC of 85 of 100 (change −5.0" in best
    assert "Laplace scale 0.1 (random noise" in cheapest
    assert [tile.value for tile in found.tiles] == ["2", "16", "21", "−5.0"]
    (lines,) = table(found).values()
    names = ["No defense", "Withdraw ratio 0.5", "Laplace scale 0.1", "Ppdl epsilon 1"]
    assert [line[0] for line in lines] == [f"{name} 3 trainings" for name in names]
    signs = [next((sign for sign in "▲▼○" if sign in line[1]), "") for line in lines]
    assert signs == ["", "▲", "▲", "○"]


def test_a_defense_without_a_name_of_its_own_is_called_by_its_label() -> None:
    found = told(rows(GOOD), rows((0.2, -0.21, 0.22), "withdraw ratio 0.5", defense_name=None))
    assert found.defenses[0].startswith("Withdraw ratio 0.5 helps")


def test_a_defense_is_not_credited_with_an_attack_that_was_not_tried_under_it() -> None:
    """The strongest attack was tried without the defense alone; the other is as close with it as without."""
    strong = rows(GOOD, attack="provfl_m", variant="MR", threat=None)
    weak = rows((0.1, -0.11, 0.12), attack="aia")
    found = told(strong, weak, rows((0.1, -0.11, 0.12), "withdraw ratio 0.5", attack="aia"))
    assert len(found.defenses) == 1 and "does not help measurably" in found.defenses[0]
    assert "bends its own part of the training" in said(found)
    assert found.attacker[0][1].count("In some of the attacks it departs") == 1


def test_of_many_lines_those_of_the_trait_that_comes_out_best_are_shown() -> None:
    many = [rows(GOOD, adversary=who, property_name=f"a={k}") for who in ("C1", "C2") for k in range(4)]
    best = rows((0.001, -0.002, 0.001), property_name="b=1")
    found = told(*many, best, rows(POOR, "withdraw ratio 0.5", property_name="b=1"))
    assert list(table(found)) == ["b=1, the company with the outcomes (C1)"]
    assert "in 9 of 9 combinations of company and trait" in said(found)
    assert "What is not shown here follows further down." in found.note
    (lines,) = table(told(*many)).values()
    assert len(lines) == 5


def test_redaction_leaves_no_share_and_nothing_it_follows_from() -> None:
    results = rows(GOOD, true_fraction=0.6321, own_columns_error=0.2)
    shown, hidden = words(told(results)), words(told(results, redact=True))
    assert "63.2" in shown and "20" in shown.split()
    assert not any(part in hidden for part in ("63.2", "66.7", "20.0", "points more", "at random"))
    assert "within" in hidden


@pytest.mark.parametrize("defense", ["none", "withdraw ratio 0.5"])
def test_it_is_free_of_jargon(defense: str) -> None:
    found = told(rows(GOOD, defense), rows(GOOD, defense, adversary="C2"), rows(POOR, "shuffle 0.2"))
    plain = words(found).replace(found.sentences[-1], "")  # the budget names attacks and their settings
    assert [word for word in JARGON if word.lower() in plain.lower()] == []
    assert plain.index("“AUC” says") < plain.index("AUC, of 100")


def test_a_sentence_of_an_older_file_is_shown() -> None:
    found = told(rows(GOOD, threat=None, threat_model="Knows sex=Male of 40 rows."))
    assert "Knows the property of 40 rows." in found.attacker[2][1] and "40 customers" not in found.attacker[2][1]


def test_a_withdrawal_is_judged_by_an_attacker_who_inverts_it() -> None:
    """Taken at face value the estimates are far off; who knows the ratio is 1 point off, and nothing is hidden."""
    known = rows((0.3, -0.3, 0.3), "withdraw ratio 0.5", informed_fraction=0.67)
    found = told(rows((0.01, -0.009, 0.011)), known)
    assert len(found.defenses) == 1 and "does not help measurably" in found.defenses[0]
    assert "The attacker is assumed to know which defense is used, and how strong." in found.notes
