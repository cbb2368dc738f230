"""What the report shows of rows that an attack has proven."""

import json

from lightleak.report.blocks import Table
from lightleak.report.kinds.updates_groups import compare
from lightleak.report.read import load_run
from lightleak.report.sections.certificates import certificates_section

PROVING = ("tableak", "audit_max", "random")
UNIT = ("batch", "batches")
TITLE = "Exact + TabLeak"


def test_batches_are_counted_and_the_worst_residual_is_shown(page_of, make_run) -> None:
    page = page_of(make_run(attacks=PROVING, batch_sizes=(8, 32), n_batches=3))
    assert "proven" in page.ids
    head = next(row for row in page.rows if "Batches certified whole" in row)
    lines = [dict(zip(head, row, strict=True)) for row in page.rows if row[0] == TITLE and len(row) == len(head)]
    eight, many = (line for line in lines if " of 3" in line["Batches certified whole"])
    assert eight == {
        "Attack": TITLE,
        "Rows in batch": "8",
        "Expected beforehand": "exact",
        "Rows certified (95% interval)": "100.0% (36.8 to 100.0)",
        "With their numbers": "100.0%",
        "Batches certified whole": "3 of 3",
        "Left unexplained, at most": "1e-7",
        "Of these: cells right": "100.0%",
        "Of these: rows exact": "100.0%",
    }
    assert (many["Rows certified (95% interval)"], many["Batches certified whole"]) == (
        "75.0% (27.6 to 90.8)",
        "0 of 3",
    )
    assert many["Left unexplained, at most"] == "21.0%"


def test_ranks_and_equations_are_listed_by_layer(page_of, make_run) -> None:
    page = page_of(make_run(attacks=PROVING, batch_sizes=(32,), n_batches=1))
    layers = [row for row in page.rows if row[:2] == [TITLE, "32"] and len(row) == 6]
    assert [row[2:] for row in layers] == [["1", "32", "74", "68"], ["2", "32", "69", "68"]]
    assert "69 + 68 equations of layer 2 test every row." in page.text


def test_attacks_without_certificates_have_a_dash_in_the_comparison(page_of, make_run) -> None:
    page = page_of(make_run(attacks=PROVING, batch_sizes=(8, 32), n_batches=3))
    header = next(row for row in page.rows if "Rows proven" in row)
    line = next(row for row in page.rows if row[:2] == ["TabLeak", "32"])
    assert len(header) == len(line) and line[header.index("Rows proven")] == "–"


def test_updates_before_training_are_told_from_those_of_epochs(make_run) -> None:
    run = load_run(make_run(attacks=("audit_max", "random"), batch_sizes=(32,), n_batches=2, epochs=2))
    section = certificates_section(compare([run]), UNIT)
    assert section is not None
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    assert [group.title for group in table.groups] == ["before training", "epoch 0", "epoch 1"]


def test_rows_carry_their_marks(page_of, make_run) -> None:
    folder = make_run(attacks=("audit_max", "random"), batch_sizes=(32,), n_batches=1)
    page = page_of(folder)
    heads = [row[0] for row in page.rows if row and row[0].startswith("recovered ")]
    assert [head.split()[-1] for head in heads] == ["certified"] * 24 + ["likely"] * 6 + ["missing"] * 2
    for told in ("◆ certified proven:", "◇ likely the best explanation", "○ missing not found:"):
        assert told in page.text.replace("\xa0", " ")
    redacted = page_of(folder, redact=True)
    assert sum("certified" in row[0] for row in redacted.rows if row) == 24  # a status is no value


def test_without_truth_only_what_needs_none_is_shown(page_of, make_run) -> None:
    folder = make_run(attacks=PROVING, batch_sizes=(8,), n_batches=2)
    raw = json.loads((folder / "results.json").read_text())
    known = ("certified_share", "certified_digits_share", "certified_rows", "certificate_residual")
    for row in raw["rows"]:
        scores = [key for key, value in row.items() if isinstance(value, float) and key not in known]
        row |= dict.fromkeys([*scores, "exact_match_rate", "column_accuracy"])
    (folder / "results.json").write_text(json.dumps(raw))
    page = page_of(folder)
    line = next(row for row in page.rows if row[0] == TITLE and "2 of 2" in row)
    assert "100.0% (22.4 to 100.0)" in line
    assert "Of these: cells right" not in page.text and "needed the truth" not in page.text


def test_a_run_without_certificates_says_nothing_of_them(page_of, make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=2)
    assert certificates_section(compare([load_run(folder)]), UNIT) is None
    page = page_of(folder)
    assert "proven" not in page.ids
    assert "Rows proven" not in {cell for row in page.rows for cell in row}
