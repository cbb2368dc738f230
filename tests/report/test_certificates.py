"""What the report says of rows that an attack has proven."""

import json
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.report.cells import typical_batch
from lightleak.report.certificates import MARKS, MEANINGS, certificates
from lightleak.report.comparison import compare
from lightleak.report.result import METRICS, parse_result
from lightleak.report.run_folder import load_run

PROVING = ("tableak", "audit_max", "random")
ROW: dict[str, Any] = {
    "attack": "audit_max",
    "certified_rows": 1,
    "row_status": ["certified", "likely", "missing"],
    "certificate_residual": 0.3,
    "expected": "partial",
    "feasibility": {"ranks": [3], "row_constraints": [7], "unit_constraints": [9], "reason": "few"},
}


def test_a_certificate_is_read_strictly() -> None:
    proof = parse_result(ROW, "run", "row 2").proof
    assert proof is not None
    assert (proof.certified, proof.is_complete, proof.residual, proof.expected) == (1, False, 0.3, "partial")
    assert (proof.ranks, proof.row_constraints, proof.unit_constraints, proof.reason) == ((3,), (7,), (9,), "few")
    assert parse_result({"attack": "tableak", "row_status": None}, "run", "row 2").proof is None
    assert parse_result({"attack": "tableak"}, "run", "row 2").proof is None  # as earlier versions wrote it
    bare = parse_result({name: ROW[name] for name in ("attack", "certified_rows", "row_status")}, "run", "row 2").proof
    assert bare is not None and (bare.residual, bare.expected, bare.ranks) == (None, None, ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_status": ["certified", "sure"]}, "row 2: row_status must be a list of certified, likely, missing"),
        ({"row_status": []}, "row_status must be a list"),
        ({"row_status": "certified"}, "row_status must be a list"),
        ({"certified_rows": 2}, "certified_rows must be 1, the certified of row_status, got 2"),
        ({"expected": "perhaps"}, "expected must be one of exact, partial, approximate, got 'perhaps'"),
    ],
)
def test_a_certificate_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_result(ROW | change, "run", "row 2")


def test_settings_of_stages_are_told_one_by_one() -> None:
    options = parse_result(ROW | {"options": {"labels": "true", "exact": {"chains": 5}}}, "run", "row").options
    assert options == {"labels": "true", "exact.chains": "5"}


def test_batches_are_counted_and_the_worst_residual_is_told(make_run) -> None:
    run = load_run(make_run(attacks=PROVING, batch_sizes=(8, 32), n_batches=3))
    eight, many = certificates(compare([run]))
    assert (eight.group.attack, eight.group.batch_size, eight.complete, eight.batches) == ("audit_max", 8, 3, 3)
    assert eight.share.mean == 1 and eight.expected == (("exact", 3),) and eight.residual == 1.3e-7
    assert (many.complete, many.share.mean, many.residual) == (0, 0.75, 0.21)
    assert many.layers == [(1, 32, 74, 68), (2, 32, 69, 68)]
    assert certificates(compare([load_run(make_run(n_batches=1))])) == ()


def test_updates_before_training_are_told_from_those_of_epochs(page_of, make_run) -> None:
    page = page_of(make_run(attacks=("audit_max", "random"), batch_sizes=(32,), n_batches=2, epochs=2))
    rows = [row[1] for row in page.rows if row[0] == "Exact + TabLeak" and "exact" in row]
    assert rows == ["before training", "epoch 0", "epoch 1"]


def test_the_page_shows_proofs_and_explains_them(page_of, make_run) -> None:
    page = page_of(make_run(attacks=PROVING, batch_sizes=(8, 32), n_batches=3))
    assert "proven" in page.ids
    for words in (
        "Rows proven, without the truth",
        "whoever sees the update can be sure of its categories and label, without any truth to compare with",
        "Of rows that are not certified it does not say that the server knows which cells are right",
        "by the update alone.",
        "69 + 68 equations of layer 2 test every row.",
        "A row without a certificate is not safe for that",
        "Of these: cells right, rows exact",
    ):
        assert words in page.text, words
    table = next(row for row in page.rows if row[:2] == ["Exact + TabLeak", "8"] and "3 of 3" in row)
    assert table == [
        "Exact + TabLeak",
        "8",
        "exact",
        "100.0% (100.0 to 100.0)",
        "100.0%",
        "3 of 3",
        "1e-7",
        "100.0%, 100.0%",
    ]
    header = next(row for row in page.rows if "Rows proven" in row)
    line = next(row for row in page.rows if row[:2] == ["TabLeak", "32"])
    assert len(header) == len(line) and line[header.index("Rows proven")] == "–"


def test_rows_carry_their_marks(page_of, make_run) -> None:
    folder = make_run(attacks=("audit_max", "random"), batch_sizes=(32,), n_batches=1)
    page = page_of(folder)
    heads = [row[0] for row in page.rows if row and row[0].startswith("recovered ")]
    assert [head.split()[-1] for head in heads] == ["certified"] * 24 + ["likely"] * 6 + ["missing"] * 2
    for status, meaning in MEANINGS.items():
        assert f"{MARKS[status]} {status} {meaning}" in page.text.replace("\xa0", " ")
    redacted = page_of(folder, redact=True)
    assert sum("certified" in row[0] for row in redacted.rows if row) == 24  # a status is no value


def test_without_truth_certificates_stand_beside_confidence(page_of, make_run) -> None:
    folder = make_run(attacks=PROVING, batch_sizes=(8,), n_batches=2)
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        row |= dict.fromkeys(METRICS[:-1]) | {
            **{name: row[name] for name in ("certified_share", "certified_digits_share")},
            "column_accuracy": None,
        }
    (folder / "results.json").write_text(json.dumps(raw))
    page = page_of(folder)
    assert "Without any truth to compare with, 100.0% of the rows behind the updates that Exact + TabLeak" in page.text
    assert "Rows proven, without the truth" in page.text
    assert "Of these: cells right" not in page.text and "needed the truth" not in page.text
    run = load_run(folder)
    batch = typical_batch([run], compare([run]), redact=False)
    assert batch is not None and batch.group.attack == "audit_max" and batch.place is None
    assert batch.known_statuses == ["certified"]


def test_a_run_without_certificates_says_nothing_of_them(page_of, make_run, tmp_path: Path) -> None:
    page = page_of(make_run(batch_sizes=(8,), n_batches=2))
    assert "proven" not in page.ids
    for words in ("certified", "Rows proven", "likely"):
        assert words not in page.text
    assert "It does not say that the server knows which cells are right" in page.text


@pytest.mark.parametrize("status", ["", "sure", "<b>certified</b>"])
def test_an_unknown_status_of_a_file_is_no_status(make_run, status: str) -> None:
    folder = make_run(attacks=("audit_max",), batch_sizes=(8,), n_batches=1)
    run = load_run(folder)
    file = folder / run.results[0].reconstruction
    file.write_text(f"row,column,true,reconstructed,correct,entropy,status\n0,age,3,3,1,,{status}\n")
    batch = typical_batch([run], compare([run]), redact=False)
    assert batch is not None and batch.statuses == (None,)
