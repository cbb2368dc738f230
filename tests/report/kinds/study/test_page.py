"""The whole page of a study."""

import json
import re
from pathlib import Path

import pytest

from lightleak.core.errors import UsageError
from lightleak.report import build_report
from lightleak.report.kinds.study import page as study_page
from lightleak.report.page import render
from lightleak.report.read import load_run, load_runs

HOSTILE = "<script>alert(1)</script>"
SECTIONS = ["summary", "held-out", "trials", "best", "importance", "slices", "accounting", "what", "run"]
INTERRUPTED = {"held_out": None, "importance": {}}


def test_a_finished_study_shows_every_section(page_of, make_study) -> None:
    page = page_of(make_study())
    assert page.ids == SECTIONS
    for words in (
        "Tuning TabLeak on Adult",
        "measurably better than the defaults",
        "20 clients of 32 rows drawn from the other training rows",
        "over 20 pairs",
        "the best so far",
        "lightleak audit best.yaml",
        "Estimated from 30 complete trials",
        "With so few",
        "has a value in 28 of 39 trials",
        "40 trials of 40 asked for, from 41 attempts of which 1 was run again",
        "A trial keeps its score and wall time alone.",
        "Run again: trial 12 as trial 40.",
        "Trial 22: loss is not finite at step 3",
        "45,000 steps over all restarts per batch",
        "8 clients of 32 rows, drawn from a fifth of the training rows",
        "TPE: it proposes",
        "Hyperband:",
        "Only the held-out comparison counts",
        "lightleak tune config.yaml",
        "packages optuna 5.0.0",
    ):
        assert words in page.text, words
    assert "nan" not in page.text.lower().split() and "None" not in page.text.split()


def test_numbers_in_the_tables_are_those_of_the_rows(page_of, make_study) -> None:
    folder = make_study()
    raw = json.loads((folder / "results.json").read_text())
    done = [row for row in raw["rows"] if row["state"] == "complete"]
    best = max(done, key=lambda row: row["values"]["cell_accuracy"])
    rows = [row for row in page_of(folder).rows if row]
    (first,) = [row for row in rows if row[0] == f"{best['trial']} best"]
    rate = best["parameters"]["attacks.tableak.learning_rate"]
    assert first[1:3] == [f"{100 * best['values']['cell_accuracy']:.1f}%", f"{best['seconds']:.2f} s"]
    assert first[3] == f"{rate:.4g} {'▲' if rate > 0.06 else '▼'}"
    assert ["Tuned", "82.3%", "80.6 to 84.0", "6.34 s"] in rows
    assert ["Defaults", "80.0%", "78.1 to 81.9", "6.12 s"] in rows
    assert ["Tuned minus defaults, paired", "+2.3 points", "1.1 to 3.5", ""] in rows
    listed = [row for row in rows if len(row) == 6 and row[1] in ("complete", "pruned", "failed", "running")]
    assert [int(row[0]) for row in listed] == [row["trial"] for row in raw["rows"]]


def test_importance_has_a_bar_for_each_parameter_of_each_objective(page_of, make_study) -> None:
    assert page_of(make_study()).source.count('class="bar s0"') == 6
    page = page_of(make_study(several=True))
    assert page.source.count('class="bar s0"') == 12
    assert page.text.count("58.0%") == 2


def test_an_objective_that_is_no_fraction_is_shown_as_it_is(page_of, make_study) -> None:
    def as_loss(rows) -> None:
        for row in rows:
            row["values"] = row["values"] and {"loss": 1 - row["values"]["cell_accuracy"]}

    objective = {"name": "loss", "direction": "minimize", "words": "loss on validation rows"}
    folder = make_study(study={"objectives": [objective], **INTERRUPTED}, change=as_loss)
    raw = json.loads((folder / "results.json").read_text())["rows"]
    for row in raw:  # what was the best accuracy is the least loss
        assert not row["is_best"] or row["values"]["loss"] == min(one["values"]["loss"] for one in raw if one["values"])
    page, default = page_of(folder), raw[0]["values"]["loss"]
    assert f"the defaults {default:.4g}. This may be luck" in page.text
    assert "Loss (lowest is best)" in page.text


@pytest.mark.parametrize(
    ("options", "says", "gone"),
    [
        ({"trials": 0, "study": INTERRUPTED}, "no trial has ended", SECTIONS[1:6]),
        ({"study": INTERRUPTED}, "no comparison on held-out data yet", ["held-out", "importance"]),
        ({"study": {"parameters": []}}, "0 settings", ["slices", "importance"]),
        ({"without": ("config.yaml", "environment.json")}, "contains no config.yaml", []),
        ({"several": True}, "the knee of the front reaches", ["held-out"]),
    ],
)
def test_a_missing_piece_is_left_out_or_explained(page_of, make_study, options, says: str, gone: list[str]) -> None:
    page = page_of(make_study(**options))
    assert says in page.text
    assert set(page.ids) == set(SECTIONS) - set(gone)
    assert {f"#{name}" for name in gone}.isdisjoint(re.findall(r'href="(#[\w-]+)"', page.source))


def test_a_study_of_which_no_trial_is_complete_proposes_nothing(page_of, make_study) -> None:
    def unfinished(rows) -> None:
        for row in rows:
            row |= {"state": ("running", "pruned", "failed")[row["trial"] % 3], "values": None, "is_best": False}

    folder = make_study(trials=9, change=unfinished, study=INTERRUPTED)
    page = page_of(folder)
    assert "Nothing can be said yet: no trial is complete (6 trials ended early)." in page.text
    assert "best.yaml" not in page.text and "best" not in page.ids
    # in the history all of them, in the plots of each setting the pruned ones that have it
    rows = json.loads((folder / "results.json").read_text())["rows"]
    pruned = [row for row in rows if row["state"] == "pruned"]
    assert len(pruned) == 3
    assert page.source.count('class="point trial') == 9 + sum(len(row["parameters"]) for row in pruned)


def test_values_of_the_study_are_escaped(page_of, make_study) -> None:
    def hostile(rows) -> None:
        for row in rows:
            row |= {"worker": HOSTILE, "error": HOSTILE}
            row["parameters"] |= {HOSTILE: HOSTILE, "list": [HOSTILE]}

    words = dict.fromkeys(("sampler", "pruner", "setting", "budget", "validation"), HOSTILE)
    objective = {"name": "cell_accuracy", "direction": "maximize", "words": HOSTILE}
    parameters = [
        {"key": HOSTILE, "kind": "choice", "of": [HOSTILE], "default": HOSTILE, "when": HOSTILE},
        {"key": "list", "kind": "choice", "of": [[HOSTILE]], "default": None},
    ]
    importance = {"cell_accuracy": {HOSTILE: 0.5}}
    study = {**words, "objectives": [objective], "parameters": parameters, "importance": importance}
    page = page_of(make_study(study=study, change=hostile, config={"title": HOSTILE}))
    assert "script" not in page.tags and "<script" not in page.source
    assert page.text.count(HOSTILE) > 20


def test_a_study_is_told_by_its_file_with_or_without_rows(make_named_study, make_run) -> None:
    empty = make_named_study("empty")(trials=0, study=INTERRUPTED, config={"kind": "vertical"})
    full = make_named_study("full")(trials=3)
    assert {run.kind for run in load_runs([empty, full])} == {"tuning"}
    audit = make_run(batch_sizes=(8,), n_batches=1)
    with pytest.raises(UsageError, match=r"one report for each kind; got .*full: tuning; .*run: updates"):
        build_report([full, audit], full / "both.html")


def test_several_studies_stand_side_by_side(outline, make_named_study, tmp_path: Path) -> None:
    first = make_named_study("first")(trials=10)
    second = make_named_study("second")(trials=14, seed=3)
    page = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert page.ids == SECTIONS
    assert page.text.count("number of the trial") == 2
    assert page.text.startswith("Tuning TabLeak") and "2 studies: of 2 that were compared" in page.text
    # a history each, and six slices each
    begun, valued = 10 + 14, 10 + 14
    lambdas = [json.loads((one / "results.json").read_text())["rows"] for one in (first, second)]
    having = sum("attacks.tableak.lambda_inv" in row["parameters"] for rows in lambdas for row in rows)
    assert page.source.count('class="point trial') == begun + 5 * valued + having


def test_studies_of_other_objectives_are_refused_by_name(make_named_study, tmp_path: Path) -> None:
    one, two = make_named_study("one")(trials=3), make_named_study("two")(trials=3, several=True)
    said = "one: maximize cell_accuracy; two: maximize accuracy, minimize leakage"
    with pytest.raises(UsageError, match=f"same objectives; make one report of each; got {said}"):
        build_report([one, two], tmp_path / "both.html")
    direction = {"name": "cell_accuracy", "direction": "minimize"}
    three = make_named_study("three")(trials=3, study={"objectives": [direction]})
    with pytest.raises(UsageError, match="three: minimize cell_accuracy"):
        build_report([one, three], tmp_path / "both.html")


def test_the_report_is_the_same_each_time_and_redacted_or_not(make_study) -> None:
    run = load_run(make_study())
    assert len({render(study_page([run], redact)) for redact in (False, False, True)}) == 1
