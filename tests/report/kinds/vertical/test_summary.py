"""The first section of a vertical report and what each company got follow from the numbers."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.results import VerticalRow
from lightleak.core.threat_model import Threat
from lightleak.report.blocks import Cell, Details, Figure, Page, Section, Table
from lightleak.report.kinds import vertical
from lightleak.report.page import render
from lightleak.report.read import Run

JARGON = (
    "gradient", "epoch", "batch", "honest-but-curious", "active party", "passive party", "baseline", "prior",
    "auxiliary", "seed", "threat model", "vertical", "intermediate", "label",
)  # fmt: skip
SEES = Threat("active_party", ("AO",), ("property_sample",), sample=40, about="sex=Male", epoch=3)
GOOD, POOR = (0.01, -0.02, 0.03), (0.1, -0.15, 0.2)
CLOSE, FAR = (0.01, -0.02, 0.02, 0.02, 0.02), (0.1, -0.11, 0.12, 0.1, 0.12)
WITHDRAWN = "withdraw ratio 0.5"


def rows(errors: tuple[float, ...], defense: str = "none", **changes: Any) -> list[VerticalRow]:
    """One row per error of seeds 0, 1, ...; the truth is .66, own columns alone are .16 off."""
    values: dict[str, Any] = {
        "run": "run", "dataset": "adult", "defense": defense, "defense_name": defense.split()[0], "attack": "provfl_b",
        "variant": "passive", "adversary": "C1", "property_name": "sex=Male", "true_fraction": 0.66,
        "own_columns_error": 0.16, "auc": 0.9, "threat": SEES, "threat_model": SEES.describe(),
        "options": {"samples": 200, "queries": 100},
    }  # fmt: skip
    values |= changes
    return [VerticalRow(seed=seed, estimated_fraction=0.66 + error, **values) for seed, error in enumerate(errors)]


def page_of_rows(*found: list[VerticalRow], redact: bool = False, captures: str | None = None) -> Page:
    rows = tuple(row for some in found for row in some)
    by_run = {name: tuple(row for row in rows if row.run == name) for name in dict.fromkeys(row.run for row in rows)}
    runs = [Run(name, Path("all", name), "vertical", of, captures=captures) for name, of in by_run.items()]
    return vertical.page(runs, redact)


def words(*found: list[VerticalRow], redact: bool = False) -> str:
    """What the first section says."""
    return _text(first_page(*found, redact=redact))


def first_page(*found: list[VerticalRow], redact: bool = False) -> Section:
    (section,) = (one for one in page_of_rows(*found, redact=redact).sections if one and one.id == "summary")
    return section


def outcomes(*found: list[VerticalRow]) -> str:
    """What the section on what was learned says."""
    (section,) = (one for one in page_of_rows(*found).sections if one and one.id in ("learned", "defenses"))
    return _text(section)


def _text(section: Section) -> str:
    return " ".join(
        unescape(re.sub(r"<[^>]+>", " ", render(Page("", "", [section])).split("</h2>")[1].split("<footer")[0])).split()
    )


def means(*found: list[VerticalRow]) -> str:
    """What the section on means and tests says."""
    (section,) = (one for one in page_of_rows(*found).sections if one and one.id == "tested")
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", render(Page("", "", [section])))).split())


def compared(*found: list[VerticalRow], redact: bool = False) -> list[list[str]]:
    """Lines of the first page's table without their intervals."""
    tables = (one for one in first_page(*found, redact=redact).blocks if isinstance(one, Table))
    return [[cell.text for cell in line.cells] for one in tables for group in one.groups for line in group.lines]


def in_one_line(cell: Cell) -> str:
    """A cell with its small figures in brackets."""
    return " ".join((cell.text, *(f"({small})" for small in cell.small)))


def table(*found: list[VerticalRow]) -> dict[str, list[dict[str, str]]]:
    """Lines of what each company got, by its title: cells by the heading of their column."""
    (section,) = (one for one in page_of_rows(*found).sections if one and one.id in ("learned", "defenses"))
    folded = [block for one in section.blocks if isinstance(one, Details) for block in one.blocks]
    (found_table,) = (one for one in (*section.blocks, *folded) if isinstance(one, Table))
    return {
        group.title: [dict(zip(found_table.head, map(in_one_line, line.cells), strict=True)) for line in group.lines]
        for group in found_table.groups
    }


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize(("truth", "is_learned"), [(0.52, False), (0.66, True)])
def test_an_answer_of_one_half_has_learned_nothing(truth: float, is_learned: bool, redact: bool) -> None:
    errors = (0.02, -0.021, 0.02, -0.019, 0.02, -0.02)
    near = [
        replace(row, true_fraction=truth, estimated_fraction=truth + error)
        for row, error in zip(rows(errors), errors, strict=True)
    ]
    said = words(near, redact=redact)
    assert ("could learn the share" in said) is is_learned
    assert ("was not shown to learn" in said and "or the answer “one half”" in said) is not is_learned
    if redact:
        assert compared(near, redact=True)[0][-1] == ("yes" if is_learned else "not shown")


def test_what_is_learned_is_compared_with_own_columns() -> None:
    found = words(rows(GOOD))
    assert "(C1) could learn the share" in found and "“sex=Male”" in found
    assert "within 2 points on average (95% interval 0.0 to 4.5)" in found
    assert "combinations" not in found and "No defense was tried" in found
    assert "lightleak audit all/run/config.yaml --defenses" in found
    spaced = words(rows(GOOD, run="my run"))
    assert (
        "lightleak audit 'all/my run/config.yaml' --defenses" in spaced and "--output 'all/my run-defended'" in spaced
    )
    assert "lightleak audit" not in render(page_of_rows(rows(GOOD), captures="/from/elsewhere"))
    known = means(rows(GOOD))
    assert "The party with the labels (C1), or whoever breaks into it. No other party has to help." in known
    assert "40 people of whom it knows whether they have the property" in known and "Attack budget: ProVFL-B" in known
    assert "Property inference which share of the people has a trait? Tested: 2 points off the true share" in known
    assert "Membership inference was a person's record part of the training? Not tested" in known
    assert compared(rows(GOOD)) == [["sex=Male · C1", "2", "16", "+14.0 (11.5 to 16.5)"]]
    # p (1 - p) = .2244; squared errors .0001, .0004, .0009: mean .000467, deviation .000404, half .001004.
    assert table(rows(GOOD)) == {
        "sex=Male · C1": [
            {
                "Defense": "no defense", "Attack": "ProVFL-B", "Off by, points": "2.0 (0.0 to 4.5)",
                "Own columns off by": "16.0 (5.9 to 69.1)", "Worth a random sample of": "481 (at least 153)",
                "Closer than own columns": "+14.0 (11.5 to 16.5)", "AUC, of 100": "90 (90.0 to 90.0)",
                "Seeds": "3",
            }
        ]
    }  # fmt: skip


def test_the_interval_allows_for_the_number_of_places() -> None:
    both = rows(GOOD), rows((0.04, 0.05, 0.06), adversary="C2")
    # 14 points, deviation 1: t(2) at 1 - 0.025 / 2 is 6.205.
    assert compared(*both)[0][-1] == "+14.0 (10.4 to 17.6)"
    assert "in 2 of 2 combinations of company and trait" in words(*both)


def test_what_may_be_chance_is_said_to_be() -> None:
    found = words(rows(POOR))
    assert "(C1) was not shown to learn the share" in found
    assert "15 points off (95% interval 2.6 to 27.4), not measurably closer" in found
    assert compared(rows(POOR))[0][-1] == "+1.0 (−11.4 to 13.4)"


def test_of_many_chances_one_that_looks_learned_is_not_called_so() -> None:
    """By itself the difference is clear at 95%; picked among 20 it is not."""
    lucky = rows((0.02, 0.03, 0.025), own_columns_error=0.05)
    assert "could learn" in words(lucky)
    others = [rows((0.1, 0.11, 0.12), own_columns_error=0.1, property_name=f"a={k}") for k in range(19)]
    found = words(lucky, *others)
    assert "was not shown to learn the share of the other company's customers with “sex=Male”" in found
    assert "Most exposed Nothing is named: in none of 20 combinations of company and trait was" in found


def test_an_estimate_close_to_the_truth_that_own_columns_give_as_well_is_not_learned() -> None:
    found = words(rows((0.001, -0.001, 0.0012), own_columns_error=0.001))
    assert "was not shown to learn the share" in found and "could learn" not in found
    assert "Most exposed Nothing is named: it was not shown that something was learned from the exchange." in found


def test_what_is_measurably_worse_than_own_columns_is_not_called_chance() -> None:
    assert "was not shown to learn" in words(rows((0.3, 0.31, 0.32)))
    assert compared(rows((0.3, 0.31, 0.32)))[0][-1] == "−15.0 (−17.5 to −12.5)"


def test_the_attack_is_picked_by_the_other_trainings() -> None:
    found = outcomes(rows(GOOD), rows(POOR, attack="aia"))
    assert "chosen among 2: for each seed the one that was closest on the other seeds." in found
    assert "afterwards, on this seed" in outcomes(rows(GOOD[:1]), rows(POOR[:1], attack="aia"))


def test_traits_of_several_tables_are_separated() -> None:
    assert list(table(rows(GOOD), rows(GOOD, dataset="bank"))) == ["adult: sex=Male · C1", "bank: sex=Male · C1"]


def test_one_training_has_no_interval() -> None:
    found = words(rows(GOOD[:1]))
    assert "could estimate the share" in found
    assert "within 1 point (one training: no interval)" in found


def test_without_truth_only_the_estimate_is_shown() -> None:
    unknown = rows(GOOD[:1], true_fraction=None, low=0.61, high=0.7)
    found = words(unknown)
    assert "nothing says how close" in found and "no result yet" in means(unknown)
    assert "By ProVFL-B" in found and "67 of 100" in found and "(95% interval 61.0 to 70.0)" in found
    assert not compared(unknown) and "learned" not in {one.id for one in page_of_rows(unknown).sections if one}
    assert "67" not in words(rows(GOOD[:1], true_fraction=None), redact=True)


def test_without_an_attack_or_the_null_nothing_is_claimed() -> None:
    for found in (words([]), *(words(rows(GOOD, attack=name)) for name in ("prior", "aia_raw", "aia_raw_adjusted"))):
        assert found.startswith("Nothing can be said yet: no attack on the exchange has finished. Not tested")
    lacking = words(rows(GOOD, own_columns_error=None))
    assert "could estimate the share" in lacking
    assert "nothing shows that the exchange gives it away" in outcomes(rows(GOOD, own_columns_error=None))
    assert compared(rows(GOOD, own_columns_error=None)) == [["sex=Male · C1", "2", "not measured", "–"]]


def test_the_defense_that_helps_is_named_with_what_it_costs() -> None:
    own = {"own_columns_error": 0.4}
    found = (
        rows(CLOSE, **own),
        rows((0.2, -0.21, 0.22, 0.2, 0.21), "withdraw ratio 0.5", auc=0.85, **own),
        rows((0.1, -0.11, 0.12, 0.1, 0.11), "laplace scale 0.1", auc=0.89, **own),
        rows((0.02, -0.01, 0.04, 0.02, 0.02), "ppdl epsilon 1", auc=0.9, **own),
    )
    text = words(*found)
    assert "2 of 3 defenses help measurably" in text
    assert "What helps is judged for all 3 comparisons of a defense, trait and company at once." in text
    best, _, cheapest = text.partition("The least costly of those that help.")
    assert "Withdraw ratio 0.5 (the company attacked leaves some of the customers who have" in best
    # Changes 19, 19, 20, 18, 19: deviation .707; t(4) at 1 - 0.05 / 3 / 2 is 3.961.
    assert "20.8 points off instead of 1.8 (change +19.0, 95% interval 17.7 to 20.3)" in best
    assert "an AUC of 85 of 100 (change −5.0" in best
    assert cheapest.startswith(" Laplace scale 0.1 (random noise")
    drawn = str(next(block.drawing for block in first_page(*found).blocks if isinstance(block, Figure)))
    assert "the same with withdraw ratio 0.5: 20.8%" in drawn and "the same by own columns alone: 40.0%" in drawn
    (lines,) = table(*found).values()
    assert [(line["Defense"], line["More than without"][:5]) for line in lines] == [
        ("no defense", "–"), ("withdraw ratio 0.5", "+19.0"), ("laplace scale 0.1", "+9.0 "),
        ("ppdl epsilon 1", "+0.4 "),
    ]  # fmt: skip
    assert [line["Change of AUC, points"].split()[0] for line in lines] == ["–", "−5.0", "−1.0", "0.0"]


def test_a_defense_without_a_name_of_its_own_is_called_by_its_label() -> None:
    found = words(rows(CLOSE), rows(FAR, WITHDRAWN, defense_name=None))
    assert "Withdraw ratio 0.5 helps" in found


def test_a_defense_is_not_credited_with_an_attack_that_was_not_tried_under_it() -> None:
    """The strongest attack was tried without the defense alone: 11 points with it are not to be set against 2."""
    strong = rows(GOOD, attack="provfl_m", variant="MR", threat=None)
    weak = rows((0.1, -0.11, 0.12), attack="aia")
    found = words(strong, weak, rows((0.1, -0.11, 0.12), "withdraw ratio 0.5", attack="aia"))
    assert "helps:" not in found and "does not help" not in found
    assert (
        "Whether withdraw ratio 0.5 helps is not known: ProVFL-M, MR, which came closest without a defense, was not"
        in found
    )
    learned = outcomes(strong, weak)
    assert "bends its own part of the training; following it, it came to within 11 points" in learned
    assert "trains its own network for the attack" in means(
        rows(GOOD, threat=Threat("active_party", ("VO",), does=("refines_network",)))
    )


def test_every_trait_and_company_has_a_line() -> None:
    many = [rows(GOOD, adversary=who, property_name=f"a={k}") for who in ("C1", "C2") for k in range(4)]
    best = rows((0.001, -0.002, 0.001), property_name="b=1")
    every = (*many, best, rows(POOR, "withdraw ratio 0.5", property_name="b=1"))
    assert "in 9 of 9 combinations of company and trait" in words(*every)
    assert {title: len(lines) for title, lines in table(*every).items()} == {
        **{f"a={k} · {who}": 1 for who in ("C1", "C2") for k in range(4)}, "b=1 · C1": 2,
    }  # fmt: skip


def test_redaction_leaves_no_share_and_nothing_it_follows_from() -> None:
    results = rows(GOOD, true_fraction=0.6321, own_columns_error=0.2)
    shown, hidden = (render(page_of_rows(results, redact=of)) for of in (False, True))
    assert "63.2%" in shown and compared(results) == [["sex=Male · C1", "3.5", "20", "+16.5 (10.3 to 22.8)"]]
    assert not any(part in hidden for part in ("63.2%", "66.7%", "20.0 (", "Worth a random"))
    assert compared(results, redact=True) == [["sex=Male · C1", "3.5", "yes"]]


@pytest.mark.parametrize("defense", ["none", "withdraw ratio 0.5"])
def test_it_is_free_of_jargon(defense: str) -> None:
    found = words(rows(GOOD, defense), rows(GOOD, defense, adversary="C2"), rows(POOR, "shuffle 0.2"))
    assert len(found.split()) <= 350
    plain = re.sub(r"Attack budget: .*?\.", "", found)  # the budget names attacks and their settings
    assert [word for word in JARGON if word.lower() in plain.lower()] == []


@pytest.mark.parametrize("redact", [False, True])
def test_the_first_page_and_the_checklist_say_which_risk_is_measured(redact: bool) -> None:
    found = rows(CLOSE), rows(FAR, WITHDRAWN)
    assert "The three risks Only inference is measured" in words(*found, redact=redact)
    (section,) = (one for one in page_of_rows(*found, redact=redact).sections if one and one.id == "tested")
    said = " ".join(unescape(re.sub(r"<[^>]+>", " ", render(Page("", "", [section])))).split())
    assert "Of a share of people, not of a person: 1.8 points off the true share" in said
    assert ("By attack 1.8 points off the true share (1.2 to 2.4), by its own columns alone 16" in said) is not redact
    assert "5 trainings (seeds) of each of 1 combination of company and trait" in said
    assert f"AUC with {WITHDRAWN}: 0.0" in said
    assert "No guarantee is claimed" in said and "an epsilon of a defense's name is its authors' claim" in said
    assert "which singles out and links nobody" in said


def test_a_sentence_of_an_older_file_is_shown() -> None:
    found = means(rows(GOOD, threat=None, threat_model="Knows sex=Male of 40 rows."))
    assert "As stated by an earlier version" in found and "Knows the property of 40 rows." in found


def test_a_withdrawal_is_judged_by_an_attacker_who_inverts_it() -> None:
    """Taken at face value the estimates are far off; who knows the ratio is 1 point off, and nothing is hidden."""
    known = rows((0.3, -0.3, 0.3), "withdraw ratio 0.5", informed_fraction=0.67)
    found = words(rows((0.01, -0.009, 0.011)), known)
    assert "does not help measurably" in found
    assert "The attacker is assumed to know which defense is used" in means(rows((0.01, -0.009, 0.011)), known)


def test_a_defense_that_helps_where_nothing_was_learned_is_said_to_concern_errors_alone() -> None:
    said = "Nothing was shown to be learned from the exchange that a defense could keep from it"
    assert said not in words(rows(CLOSE), rows(FAR, WITHDRAWN))
    as_close = {"own_columns_error": 0.018}
    found = words(rows(CLOSE, **as_close), rows(FAR, WITHDRAWN, own_columns_error=0.4))
    assert "was not shown to learn the share" in found and "helps: an attacker" in found and said in found


def test_own_columns_that_beat_the_defended_attack_count() -> None:
    """Under the defense the attack is 20 points off, and own columns alone are 3 off throughout."""
    own = {"own_columns_error": 0.03}
    found = rows(CLOSE, **own), rows((0.2, -0.21, 0.22, 0.2, 0.21), WITHDRAWN, **own)
    assert "helps: an attacker who knows of it is then 3 points off instead of 1.8 (change +1.2" in words(*found)
    drawn = str(next(block.drawing for block in first_page(*found).blocks if isinstance(block, Figure)))
    assert f"the same with {WITHDRAWN}: 3.0%" in drawn
    assert "helps: an attacker who knows of it is then measurably further off." in words(*found, redact=True)
    hidden = render(page_of_rows(*found, redact=True))
    assert f"the same with {WITHDRAWN}" not in hidden and "+1.2" not in hidden
    closer = {"own_columns_error": 0.018}
    assert "does not help measurably" in words(rows(CLOSE, **own), rows(FAR, WITHDRAWN, **closer))


def test_from_a_weak_attack_no_defense_is_concluded_to_help() -> None:
    weak = {"options": {"samples": 3, "queries": 2}}
    section = first_page(rows(CLOSE, **weak), rows(FAR, WITHDRAWN, **weak))
    assert "the same with" not in str(next(block.drawing for block in section.blocks if isinstance(block, Figure)))
    found = words(rows(CLOSE), rows(FAR, WITHDRAWN, **weak))
    assert "No conclusion is drawn about defenses" in found and "helps:" not in found and "does not help" not in found


def test_without_an_undefended_run_there_is_nothing_to_compare_with() -> None:
    found = rows(CLOSE, WITHDRAWN), rows(FAR, "shuffle 0.5")
    assert "Every training had a defense, so there is nothing to compare with" in words(*found)
    assert "measurably; see the table" not in words(*found)
    (lines,) = table(*found).values()
    assert all("More than without" not in line for line in lines)


def test_two_equal_changes_are_not_measurable() -> None:
    assert "does not help measurably" in words(rows((0.02, 0.02)), rows((0.03, 0.03), WITHDRAWN))


def test_of_many_defenses_one_that_helps_by_chance_is_not_said_to() -> None:
    """By itself the change is clear at 95%; among 20 it is not."""
    lucky = rows((0.03, 0.06, 0.04, 0.05, 0.04), "laplace scale 1")
    assert "helps:" in words(rows(CLOSE), lucky)
    others = [rows(CLOSE, f"laplace scale {k}") for k in range(2, 21)]
    assert "None of the 20 defenses that were tried helps measurably" in words(rows(CLOSE), lucky, *others)
    places = [rows(CLOSE, defense, property_name=f"a={k}") for k in range(19) for defense in ("none", lucky[0].defense)]
    assert "helps:" not in words(rows(CLOSE), lucky, *places)


def test_runs_that_differ_in_more_than_the_defense_are_named() -> None:
    found = words(rows(CLOSE, parties=2), rows(FAR, WITHDRAWN, parties=3))
    assert "Whether withdraw ratio 0.5 helps is not known: runs with and without it differ in more than" in found
    assert "( parties )" in found and "helps:" not in found
