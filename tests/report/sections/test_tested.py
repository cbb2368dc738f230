"""What was tested and what was not, by whom with what means, and the checklist."""

import csv
import io
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import get_args
from urllib.parse import unquote

import pytest

from lightleak.attacks import ATTACKS
from lightleak.core.results import ReleasedRow, Row, UpdateRow
from lightleak.core.threat_model import Aim, Does, Knows, Sees, Threat, Who
from lightleak.report.attacks import aims_of
from lightleak.report.blocks import Page
from lightleak.report.page import render
from lightleak.report.read import Run
from lightleak.report.sections.means import DOES, HELPERS, KNOWS, SEES, WHO
from lightleak.report.sections.tested import (
    AIMS,
    CONTROLLER,
    NOT_TESTED,
    UNKNOWN,
    checklist,
    evidence_section,
    untested,
)

SERVER = Threat("server", ("update",), ("restored_labels", "column_bounds"))
EXACT = UpdateRow(attack="exact", seconds=2.0, threat=SERVER, epsilon=3.0, delta=1e-5, defense="dp_sgd")


def drawn(*rows: Row, **given) -> str:
    return render(Page("", "", [evidence_section([Run("run", Path("."))], rows, given.pop("found", {}), **given)]))


def exported(page: str) -> dict[str, str]:
    """Answers by question, in the file that the link holds."""
    text = unquote(re.search(r'href="data:text/csv;charset=utf-8,([^"]*)"', unescape(page))[1])
    return {line["question"]: line["answer"] for line in csv.DictReader(io.StringIO(text))}


def test_every_aim_is_tested_or_said_not_to_be(outline) -> None:
    page = outline(drawn(EXACT, found={"reconstruction": "all of them"}))
    said = {row[0]: row[1] for row in page.rows if len(row) == 2 and row[1].startswith(("Tested", NOT_TESTED))}
    assert len(said) >= len(get_args(Aim))
    assert next(status for title, status in said.items() if title.startswith("Reconstruction")) == "Tested: all of them"
    assert next(status for title, status in said.items() if title.startswith("Membership")) == NOT_TESTED
    assert untested([EXACT]) == ["membership inference", "model inversion", "extraction", "property inference"]
    assert untested([ReleasedRow(attack="plgmi")])[-1] == "property inference"
    assert len(untested([UpdateRow(attack="random")])) == 6


def test_aims_are_those_that_attacks_declare() -> None:
    for name in ATTACKS:
        attack = ATTACKS.get(name)()
        assert aims_of(name) == (() if attack.is_baseline else attack.aims)


@pytest.mark.parametrize(
    ("words", "names"), [(WHO, Who), (HELPERS, Who), (SEES, Sees), (KNOWS, Knows), (DOES, Does), (AIMS, Aim)]
)
def test_every_fact_of_a_threat_model_has_words(words, names) -> None:
    assert set(words) == set(get_args(names))


def test_means_say_who_with_what_knowledge_in_what_time(outline) -> None:
    guess = UpdateRow(attack="random", seconds=0.5, threat=Threat("server", (), ("marginals",)))
    older = UpdateRow(attack="tableak", threat_model="Knows all.")
    timed = outline(drawn(replace(EXACT, cpu_seconds=1.5, peak_memory=734_003_200), guess)).rows
    assert [row[2:] for row in timed if len(row) == 5][-2:] == [["2.00 s", "1.50 s", "0.7 GB"], ["0.50 s", "–", "–"]]
    rows = outline(drawn(EXACT, EXACT, guess, older)).rows
    assert [
        "Whoever runs the server or breaks into it. No participant has to help. It sees what each participant sends."
    ] in rows
    assert ["Exact inversion", "; ".join((KNOWS["restored_labels"], KNOWS["column_bounds"])), "2.00 s"] in rows
    assert ["Guessing", KNOWS["marginals"], "0.50 s"] in rows
    assert ["TabLeak", "Knows all.", "–"] in rows
    of_four = drawn(replace(EXACT, n_clients=4))
    assert "It sees the mean of what 4 participants send." in of_four and SEES["update"] not in of_four


def test_the_checklist_answers_what_a_run_can_and_leaves_the_rest_to_the_controller() -> None:
    questions = checklist()
    assert len(questions) >= 40 and len({one.asks for one in questions}) == len(questions)
    found = exported(drawn(EXACT, answers={"linkage": "98 of 100"}))
    assert set(found) == {one.asks for one in questions}
    by_fact = {one.answer: found[one.asks] for one in questions if one.answer}
    assert by_fact["epsilon"] == "epsilon 3; delta 1e-05" and by_fact["linkage"] == "98 of 100"
    assert by_fact["membership_inference"] == NOT_TESTED and by_fact["groups"] == UNKNOWN
    assert by_fact["cost"] == "2.00 s of wall time for all 1 attacks together"
    timed = replace(EXACT, cpu_seconds=1.5, peak_memory=734_003_200)
    (asks,) = (one.asks for one in questions if one.answer == "cost")
    words = "1.50 s of processor time for all 1 attacks together, and at most 0.7 GB of memory"
    assert exported(drawn(timed))[asks] == words
    assert {found[one.asks] for one in questions if one.answer is None} == {CONTROLLER}
    plain = exported(drawn(replace(EXACT, epsilon=None, delta=None, defense=None)))
    said = {one.answer: plain[one.asks] for one in questions if one.answer}
    assert (said["epsilon"], said["defense_tested"]) == ("None: no defense", "No defense")


def test_every_kind_of_source_is_named() -> None:
    sources = " ".join({one.source for one in checklist()})
    assert all(name in sources for name in ("EDPB Opinion 28/2024", "WP216", "NIST SP 800-226", "CNIL", "Anonymeter"))
