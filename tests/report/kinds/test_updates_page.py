"""The page of attacks on updates: its sections, and that every fact of the rows gets there."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.results import UpdateRow, read_row
from lightleak.report import build_report
from lightleak.report.kinds.updates import page
from lightleak.report.page import render
from lightleak.report.read import Run, load_run
from lightleak.report.sections.rows import MOST_CELLS

HOSTILE = "<script>alert(1)</script>"
BASE = UpdateRow(
    attack="", run="run", dataset="adult", labels="true", source="initial", defense="none", batch_size=32, seed=0
)


def outline_of(outline, *runs: Run):
    return outline(render(page(runs, False)))


def section_of(found, name: str):
    """One section of a page."""
    return type(found)(re.search(rf'<section id="{name}".*?</section>', found.source, re.DOTALL)[0])


def run_of(*rows: UpdateRow) -> Run:
    return Run("run", Path("."), "updates", rows)


def measured(
    reached: Sequence[float], guessed: Sequence[float] | None = None, attack: str = "tableak", **fields: Any
) -> list[UpdateRow]:
    """One row of the attack, and one of guessing, for each batch."""
    known = {attack: reached} | ({"random": guessed} if guessed is not None else {})
    return [
        replace(BASE, attack=name, batch_index=i, metrics={"cell_accuracy": value}, **fields)
        for name, values in known.items()
        for i, value in enumerate(values)
    ]


def test_a_full_run_shows_every_section(page_of, make_run) -> None:
    found = page_of(make_run(n_batches=3, epochs=4))
    assert found.ids == [
        "summary", "risk", "tested", "what", "attacks", "training", "columns", "rows", "confidence", "run",
    ]  # fmt: skip
    for words in (
        "Leakage of the census table",
        "FedSGD",
        "Whoever runs the server or breaks into it. No participant has to help. It sees what each participant sends.",
        "number 2 of 3 by accuracy",
        "This file contains private data.",
        "Validation accuracy of the target",
        "lightleak audit config.yaml",
        "versions torch 2.13.0",
        "Seed: 0.",
        "command lightleak audit adult.yaml",
        "restarts 30, steps 1500",
    ):
        assert words in found.text, words


def test_fedavg_is_described_in_its_own_words_throughout(page_of, make_run) -> None:
    local = {"protocol": "fedavg", "local_epochs": 5, "local_batches": 4, "local_batch_size": 8, "n_clients": 2}
    noise = {"defense": "gaussian_noise", "defense_strength": 0.01}
    found = page_of(make_run(n_batches=3, epochs=4, extra=local | noise))
    for words in (
        "Here: 5 local epochs of 4 batches; the server sees the mean of 2 clients",
        "Under FedAvg the server also knows",
        "Rows behind an update",
        "rows behind the update",  # the axis
        "Updates of 32 rows.",
        "noise of standard deviation 0.01",
    ):
        assert words in found.text, words
    for words in ("FedSGD", "client's batch", "epoch of training", "one batch of"):
        assert words not in found.text, words


def test_the_table_holds_the_numbers_of_the_rows(page_of, make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=4, keep_rows=False)
    found = page_of(folder)
    head = next(row for row in found.rows if "Cells recovered (95% interval)" in row)
    lines = {row[0]: dict(zip(head, row, strict=True)) for row in found.rows if len(row) == len(head)}
    rows = load_run(folder).rows
    for name, title in (("tableak", "TabLeak"), ("inverting_gradients", "Inverting Gradients"), ("random", "Guessing")):
        values = [row.number("cell_accuracy") for row in rows if row.attack == name]
        assert lines[title]["Cells recovered (95% interval)"].startswith(f"{100 * sum(values) / 4:.1f}% (")
        assert (lines[title]["Rows in batch"], lines[title]["Batches"]) == ("8", "4")
    assert lines["TabLeak"]["Seconds"] == "2.40 s"
    assert lines["Guessing"]["Over guessing, points (95% interval)"] == "–"


def test_lines_stand_by_batch_size_then_accuracy_with_guessing_last(page_of, make_run) -> None:
    found = section_of(page_of(make_run(batch_sizes=(32, 8), n_batches=2, keep_rows=False)), "attacks")
    order = [(row[1], row[0]) for row in found.rows if row[0] in ("TabLeak", "Inverting Gradients", "Guessing")]
    titles = ["TabLeak", "Inverting Gradients", "Guessing"]
    assert order[:6] == [(size, title) for size in ("8", "32") for title in titles]


def test_one_batch_size_gives_bars_and_several_give_lines(outline, make_run) -> None:
    run = load_run(make_run(batch_sizes=(8, 32), n_batches=2, keep_rows=False))
    one = replace(run, rows=tuple(row for row in run.rows if row.number("batch_size") == 32))
    bars, lines = (section_of(outline_of(outline, found), "attacks").source for found in (one, run))
    assert 'class="bar s0"' in bars and 'class="link"' not in bars
    assert 'class="link"' in lines and 'class="bar s0"' not in lines


def test_the_baseline_stands_in_every_label_setting_once(outline, make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=2, keep_rows=False))
    restored = [replace(row, labels="restored") for row in run.rows if row.attack == "tableak"]
    found = outline_of(outline, replace(run, rows=(*run.rows, *restored)))
    assert [row[:2] for row in found.rows].count(["Guessing", "8"]) == 2
    assert {"labels known to the server", "labels restored from the update"} <= {row[0] for row in found.rows}


def test_a_baseline_that_ran_ahead_of_the_attacks_is_listed(outline, make_run) -> None:
    run = load_run(make_run(n_batches=2, keep_rows=False))
    finished = tuple(row for row in run.rows if row.attack == "random" or row.number("batch_size") == 8)
    found = section_of(outline_of(outline, replace(run, rows=finished)), "attacks")
    assert ["Guessing", "32"] in [row[:2] for row in found.rows]
    guesses = tuple(row for row in run.rows if row.attack == "random")
    alone = section_of(outline_of(outline, replace(run, rows=guesses)), "attacks")
    assert [row[:2] for row in alone.rows if row[0] == "Guessing"][:2] == [["Guessing", "8"], ["Guessing", "32"]]


def test_the_best_of_many_has_an_interval_that_allows_for_the_choice(page_of, make_run) -> None:
    text = page_of(make_run(n_batches=5)).text
    (n, low, high) = re.findall(r"strongest of (\d+) combinations.*?read (\d+\.\d) to (\d+\.\d) as", text)[0]
    assert n == "4"
    single = re.search(r"TabLeak 8 \d+\.\d% \((\d+\.\d) to (\d+\.\d)\)", text)
    assert single and float(low) < float(single[1]) and float(high) >= float(single[2])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "no attack has finished"),
        (measured([0.5], attack="random"), "Only the guessing baseline has finished"),
        ([replace(BASE, attack="tableak")], "how much was recovered is unknown"),
    ],
)
def test_nothing_to_report_is_said(outline, rows: list[UpdateRow], says: str) -> None:
    assert says in outline_of(outline, run_of(*rows)).text


def test_the_columns_that_leak_most_are_named(outline) -> None:
    reached = {"country": 0.95, "age": 0.6, "sex": 0.5}
    guessed = {"country": 0.9, "age": 0.2, "sex": 0.55}
    rows = measured([0.8], [0.4])
    known = [replace(row, column_accuracy=guessed if row.attack == "random" else reached) for row in rows]
    assert "Most was given away about age, country" in outline_of(outline, run_of(*known)).text
    assert "columns" not in outline_of(outline, run_of(*rows)).ids


def test_quarters_by_confidence_are_paired_by_kind_of_cell(outline) -> None:
    sure = {"top25_categorical": 0.99, "bottom25_categorical": 0.6, "top25_numerical": 0.8}
    rows = [replace(row, metrics=row.metrics | sure) for row in measured([0.8], [0.4]) if row.attack == "tableak"]
    found = outline_of(outline, run_of(*rows))
    assert "Categorical cells" in found.text and "Numerical cells" not in found.text
    assert "+39.0" in found.text.partition("The attacker's confidence")[2]
    assert "confidence" not in outline_of(outline, run_of(*measured([0.8], [0.4]))).ids


def test_every_value_is_escaped(page_of, make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=2, epochs=2)
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        cells = folder / row["reconstruction"]
        if row["source"] == "initial":
            cells.write_text(
                "row,column,true,reconstructed,correct,entropy\n"
                + "".join(f'{i},"{HOSTILE}","{HOSTILE}","\'""><img src=x>",{i},0.3\n' for i in range(2))
            )
        row["column_accuracy"] = {HOSTILE: 0.5}
        row["attack"] = HOSTILE if row["attack"] != "random" else "random"
        row["threat"] = None
        for name in ("dataset", "target", "protocol", "defense", "labels", "threat_model"):
            row[name] = HOSTILE
    raw["left_out"] = {HOSTILE: HOSTILE}
    (folder / "results.json").write_text(json.dumps(raw))
    (folder / "config.yaml").write_text(HOSTILE)
    (folder / "environment.json").write_text(json.dumps({HOSTILE: {HOSTILE: HOSTILE}}))
    found = page_of(folder)
    assert "script" not in found.tags and "img" not in found.tags
    assert found.text.count(HOSTILE) > 20
    assert "'\"><img src=x>" in found.text


def test_redaction_leaves_no_value(outline, page_of, make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=3)
    for file in (folder / "reconstructions").glob("*.csv"):
        cells = pd.read_csv(file)
        cells["true"], cells["reconstructed"] = "secret-truth", "secret-guess"
        cells.to_csv(file, index=False)
    assert {"secret-truth", "secret-guess"} <= set(page_of(folder).text.split())
    report = build_report(folder, redact=True).read_text(encoding="utf-8")
    assert "secret" not in report
    found = outline(report)
    assert "Redacted." in found.text
    assert "✓" in found.text and "✗" in found.text
    assert "marital-status" in found.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epochs": 0}, "No update was attacked during training"),
        ({"keep_rows": False}, "No reconstructed rows were kept"),
        ({"n_batches": 1}, "It is the only batch whose rows were kept."),
        ({"attacks": ("random",)}, "Only the guessing baseline has finished"),
        ({"n_batches": 0}, "no attack has finished"),
        ({"without": ("config.yaml",)}, "no config.yaml"),
        ({"batch_sizes": (128,)}, f"The first {MOST_CELLS // 14} of 128 rows are shown."),
        ({"extra": {"labels": "restored", "label_count_error": 1.0}}, "Wrong labels"),
        ({"extra": {"cell_accuracy": None}}, "how much was recovered is unknown"),
        ({"extra": {"source": "training", "epoch": 1}}, "during training, on updates captured"),
        ({"extra": {"batch_size": 1}}, "batches of 1 row: "),
    ],
)
def test_a_missing_piece_is_left_out_or_explained(page_of, make_run, options: dict[str, Any], says: str) -> None:
    assert says in page_of(make_run(**({"batch_sizes": (8,), "n_batches": 2} | options))).text


NUMBERS = st.sampled_from([None, float("nan"), 0.0, 0.5, 1.0])
ROWS = st.fixed_dictionaries(
    {"attack": st.sampled_from(["tableak", "random", "x"])},
    optional={
        **{name: NUMBERS for name in UpdateRow.METRICS},
        **{name: st.sampled_from([None, "", "a", 3]) for name in ("dataset", "target", "defense", "labels")},
        "options": st.sampled_from([None, {}, {"steps": 3}]),
        "protocol": st.sampled_from([None, "fedsgd", "other"]),
        "source": st.sampled_from([None, "initial", "training"]),
        "epoch": st.sampled_from([None, 0, 3]),
        "batch_size": st.sampled_from([None, 1, 32]),
        "batch_index": st.integers(0, 2),
        "column_accuracy": st.none() | st.dictionaries(st.sampled_from(["age", "sex"]), NUMBERS),
        "reconstruction": st.sampled_from([None, "missing.csv"]),
    },
)


@given(st.lists(ROWS, max_size=6))
@settings(max_examples=40)
def test_any_part_of_any_row_may_be_missing(outline, rows: list[dict[str, Any]]) -> None:
    read = tuple(read_row(row, "row", "run") for row in rows)
    log = ({"epoch": 0.0, "val/accuracy": 0.5}, {"epoch": 1.0})
    found = outline(render(page([Run("run", Path("."), "updates", read, metrics=log)], False)))
    assert {"summary", "what", "training", "rows", "run"} <= set(found.ids)
    assert "nan" not in found.text.lower().split() and "None" not in found.text.split()


@pytest.mark.parametrize(
    ("defense", "unit", "says"),
    [
        (
            "nvflare_svt",
            "client",
            "NVFlare SVTPrivacy (differential privacy for a client's whole update, as NVFlare claims, not verified, at "
            "δ 1e-05: ε 0.5 of one update)",
        ),
        (
            "flower_local_dp",
            "client",
            "Flower local DP (differential privacy for a client's whole update, at δ 1e-05: ε 0.5 of one update)",
        ),
        (
            "dp_sgd",
            None,
            "DP-SGD (differential privacy for every row, at δ 1e-05: ε 0.5 of one update, for a server that knows its "
            "batch)",
        ),
    ],
)
def test_a_guarantee_names_its_unit_and_who_only_claims_it(outline, defense: str, unit: str | None, says: str) -> None:
    granted = {"release_epsilon": 0.5, "delta": 1e-5, "privacy_unit": unit}
    rows = measured((0.5, 0.6), attack="exact", defense=defense, **granted)
    assert says in outline_of(outline, run_of(*rows)).text


def test_several_runs_stand_side_by_side(outline, make_named_run, tmp_path: Path) -> None:
    first = make_named_run("plain")(batch_sizes=(8,), n_batches=2)
    second = make_named_run("noisy")(batch_sizes=(8,), n_batches=2, extra={"defense": "noise"})
    found = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "plain · defense: none" in found.text
    assert "noisy · defense: noise" in found.text
    assert "strongest of 4 combinations" in found.text
