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
from lightleak.core.results import ReleasedRow, Row, UpdateRow, VerticalRow
from lightleak.core.threat_model import Aim, Does, Knows, Sees, Threat, Who
from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES
from lightleak.defenses.vertical import VERTICAL_DEFENSES
from lightleak.report.attacks import aims_of
from lightleak.report.blocks import Page
from lightleak.report.page import render
from lightleak.report.read import Run
from lightleak.report.sections.means import DOES, HELPERS, KNOWS, SEES, WHO
from lightleak.report.sections.tested import (
    AIMS,
    CONTROLLER,
    NO_NOISE,
    NOISELESS,
    NOISY,
    NOT_TESTED,
    UNCLAIMED,
    UNKNOWN,
    checklist,
    evidence_section,
    untested,
)

SERVER = Threat("server", ("update",), ("restored_labels", "column_bounds"))
EXACT = UpdateRow(attack="exact", seconds=2.0, threat=SERVER, epsilon=3.0, delta=1e-5, defense="dp_sgd")


def drawn(*rows: Row, **given) -> str:
    runs = given.pop("runs", [Run("run", Path("."))])
    return render(Page("", "", [evidence_section(runs, rows, given.pop("found", {}), **given)]))


def exported(page: str) -> dict[str, str]:
    """Answers by question, in the file that the link holds."""
    text = unquote(re.search(r'href="data:text/csv;charset=utf-8,([^"]*)"', unescape(page))[1])
    return {line["question"]: line["answer"] for line in csv.DictReader(io.StringIO(text))}


def answers(page: str) -> dict[str, str]:
    """Answers by name."""
    found = exported(page)
    return {one.answer: found[one.asks] for one in checklist() if one.answer}


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


def test_generators_count_once_for_each_training(outline) -> None:
    fitted = ReleasedRow(
        attack="plgmi", seed=0, seconds=2.0, cpu_seconds=3.0, unit="a", run="run", metrics={"fit_seconds": 30.0}
    )
    rows = [replace(fitted, evaluation_index=i) for i in range(3)]
    rows += [replace(fitted, seed=1, metrics={"fit_seconds": 50.0})]
    said = "1 min 28 s of wall time for all 4 attacks together, 1 min 20 s of it for training generators"
    assert answers(drawn(*rows))["cost"] == said
    assert ["PLG-MI", "Not stated.", "2.00 s", "40.00 s", "3.00 s"] in outline(drawn(*rows)).rows


def test_the_checklist_answers_what_a_run_can_and_leaves_the_rest_to_the_controller() -> None:
    questions = checklist()
    assert len(questions) >= 40 and len({one.asks for one in questions}) == len(questions)
    found = exported(drawn(EXACT, answers={"linkage": "98 of 100"}))
    assert set(found) == {one.asks for one in questions}
    by_fact = answers(drawn(EXACT, answers={"linkage": "98 of 100"}))
    assert by_fact["epsilon"] == "DP-SGD: epsilon 3, delta 1e-05" and by_fact["linkage"] == "98 of 100"
    assert by_fact["composition"] == "DP-SGD: epsilon 3, delta 1e-05, of all steps of the training"
    assert by_fact["trust"].startswith("By each client, to its update before it is sent")
    assert by_fact["membership_inference"] == NOT_TESTED and by_fact["groups"] == UNKNOWN
    assert by_fact["cost"] == "2.00 s of wall time for all 1 attacks together"
    timed = replace(EXACT, cpu_seconds=1.5, peak_memory=734_003_200)
    (asks,) = (one.asks for one in questions if one.answer == "cost")
    words = "1.50 s of processor time for all 1 attacks together, and at most 0.7 GB of memory"
    assert exported(drawn(timed))[asks] == words
    assert {found[one.asks] for one in questions if one.answer is None} == {CONTROLLER}
    said = answers(drawn(replace(EXACT, epsilon=None, delta=None, defense=None)))
    assert (said["epsilon"], said["defense_tested"]) == ("None: no defense", NO_NOISE)
    assert said["trust"] == "No noise is added; no guarantee is claimed"
    assert said["worst"] == f"Tested as {WHO['server']}, seeing {SEES['update']}; in no other role"


@pytest.mark.parametrize(
    ("row", "epsilon", "composition", "unit", "tested"),
    [
        (
            UpdateRow(attack="exact", defense="gaussian_noise", defense_strength=0.01),
            "noise of standard deviation 0.01 states no guarantee",
            UNCLAIMED,
            UNCLAIMED,
            "Attacked under noise of standard deviation 0.01",
        ),
        (
            UpdateRow(attack="exact", defense="clipping", defense_strength=0.1),
            "clipping to norm 0.1 states no guarantee",
            UNCLAIMED,
            UNCLAIMED,
            f"{NO_NOISE}: clipping to norm 0.1",
        ),
        (
            UpdateRow(attack="exact", defense="nvflare_svt", release_epsilon=0.5, delta=0.0, privacy_unit="client"),
            "NVFlare SVTPrivacy: epsilon 0.5, delta 0 of one update, as NVFlare claims",
            "alone: over several it adds up, which is not counted",
            "One client's whole update",
            "Attacked under NVFlare SVTPrivacy",
        ),
        (
            UpdateRow(
                attack="exact_joint",
                defense="flower_local_dp",
                releases=20,
                release_epsilon=9.06,
                delta=1e-5,
                privacy_unit="client",
            ),
            "Flower local DP: epsilon 9.06, delta 1e-05 of 20 updates of the same rows",
            "alone: over several it adds up, which is not counted",
            "One client's whole update",
            "Attacked under Flower local DP",
        ),
        (
            UpdateRow(attack="exact", defense="flower_local_dp", no_guarantee="its statistics leave"),
            "Flower local DP states no guarantee; Flower local DP: no guarantee where its statistics leave",
            UNCLAIMED,
            UNCLAIMED,
            "Attacked under Flower local DP",
        ),
    ],
)
def test_what_is_not_guaranteed_is_said(row: UpdateRow, epsilon: str, composition: str, unit: str, tested: str) -> None:
    said = answers(drawn(row))
    assert said["epsilon"].removeprefix("None: ") == epsilon
    assert said["composition"].endswith(composition)
    assert (said["privacy_unit"], said["defense_tested"]) == (unit, tested)


def test_where_noise_is_added_follows_from_the_point_of_the_defense() -> None:
    noisy = UpdateRow(attack="exact", defense="gaussian_noise", defense_strength=0.01, threat=SERVER)
    steps = Run("run", Path("."), config="defense: {name: gaussian_noise, point: steps}")
    assert answers(drawn(noisy, runs=[steps]))["trust"].startswith(
        "By each client, in every step of its local training"
    )
    said = answers(drawn(replace(noisy, n_clients=4)))["trust"]
    assert said.endswith("whoever averages what 4 participants send has to be trusted; no guarantee is claimed")
    shared = VerticalRow(attack="aia", property_name="sex=Male", defense="laplace scale 0.1", defense_strength=0.1)
    said = answers(drawn(shared))
    assert said["trust"].startswith("By a party, to its rows or to what it sends")
    assert said["defense"] == "laplace scale 0.1"
    for row in (replace(noisy, defense="clipped"), replace(shared, defense="half", defense_name="withdraw")):
        said = answers(drawn(row))
        assert said["trust"].startswith("No noise is added") and said["defense_tested"].startswith(NO_NOISE)


@pytest.mark.parametrize("name", ["DP-SGD, noise multiplier 1, rows clipped to norm 1", "DPOptimizer", "noised"])
def test_of_a_defense_that_an_update_describes_no_noise_is_denied(name: str) -> None:
    described = UpdateRow(attack="exact", defense=name, threat=SERVER)
    said = answers(drawn(described))
    assert said["defense_tested"] == f"Attacked under {name} (whether it adds noise is not known)"
    assert said["trust"] == UNKNOWN
    both = answers(drawn(described, replace(described, defense="gaussian_noise", defense_strength=0.01)))
    assert both["defense_tested"].startswith("Attacked under noise of standard deviation 0.01; ")
    assert answers(drawn(replace(described, defense="none")))["defense_tested"] == NO_NOISE


def test_of_every_registered_defense_it_is_known_whether_it_adds_noise() -> None:
    registered = {*UPDATE_DEFENSES, *TRAINING_DEFENSES, *VERTICAL_DEFENSES} - {"none"}
    assert sorted((*NOISY, *NOISELESS)) == sorted({*registered, "clipped"})


def test_trainings_of_one_noise_state_an_epsilon_each() -> None:
    """In whatever order: the runs of a report may have trained for different numbers of epochs."""
    short, long = (
        UpdateRow(attack="exact", defense="dp_sgd", defense_strength=1.0, epsilon=epsilon, delta=1e-5, threat=SERVER)
        for epsilon in (1.19, 6.5)
    )
    for rows in ((short, long), (long, short), (short, long, short)):
        said = answers(drawn(*rows))["epsilon"]
        assert said.count("epsilon 1.19, delta 1e-05") == said.count("epsilon 6.5, delta 1e-05") == 1


def test_every_question_without_a_general_answer_is_answered_by_a_kind_of_run() -> None:
    open_ = {name for name, said in answers(drawn(EXACT)).items() if said == UNKNOWN}
    of_risks = {"singling_out", "linkage", "inference", "baseline", "control", "attempts"}
    assert open_ == of_risks | {"direct", "persons", "groups", "behind", "utility"}


def test_every_question_names_its_document_and_the_part_of_it() -> None:
    assert all(one.source and one.section for one in checklist())
    places = {one.section for one in checklist() if one.answer in get_args(Aim)}
    assert places == {"AI model testing and resistance to attacks, paragraph 55"}  # as `threat_model.Aim` cites it
    of_risks = {one.answer: one.section for one in checklist() if one.answer in ("baseline", "control")}
    assert all(section.startswith("sections 3 and 4") for section in of_risks.values())  # as `core.people` cites it


def test_every_kind_of_source_is_named() -> None:
    sources = " ".join({one.source for one in checklist()})
    assert all(name in sources for name in ("EDPB Opinion 28/2024", "WP216", "NIST SP 800-226", "CNIL", "Anonymeter"))
