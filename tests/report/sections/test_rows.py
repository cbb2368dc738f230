"""True and reconstructed rows of one batch side by side."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.report.blocks import Details, Page, Table
from lightleak.report.compare import attacks
from lightleak.report.kinds.updates_groups import compare, strongest_first
from lightleak.report.page import render
from lightleak.report.read import Run, load_run
from lightleak.report.sections.rows import MOST_CELLS, SHADES, Batch, confidence, rows_section, shade, typical_batch

HEADER = "row,column,true,reconstructed,correct,entropy\n"
UNIT = ("batch", "batches")


def batch_of(*runs: Run) -> Batch | None:
    groups = compare(runs)
    return typical_batch(
        runs, [*strongest_first(groups), *sorted(attacks(groups), key=lambda group: group.proven_share, reverse=True)]
    )


def table_of(batch: Batch | None, redact: bool = False) -> Table:
    folds = [block for block in rows_section(batch, UNIT, redact).blocks if isinstance(block, Details)]
    return next(block for fold in folds for block in fold.blocks if isinstance(block, Table))


def write(folder: Path, run: Run, text: str) -> None:
    for row in run.rows:
        (folder / row.reconstruction).write_text(HEADER + text)


def test_the_median_batch_of_the_strongest_attack_is_shown(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=5))
    found = batch_of(run)
    assert found is not None
    scores = sorted(row.number("cell_accuracy") for row in run.rows if row.attack == "tableak")
    assert found.group.attack == "tableak"
    assert found.row.number("cell_accuracy") == scores[2]
    assert found.place == (3, 5)
    assert len(table_of(found).groups) == found.n_rows == 8


def test_of_two_batches_the_weaker_is_shown(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=2))
    found = batch_of(run)
    assert found is not None
    lowest = min(row.number("cell_accuracy") for row in run.rows if row.attack == "tableak")
    assert found.row.number("cell_accuracy") == lowest


def test_a_damaged_file_costs_its_batch_only(make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=3)
    run = load_run(folder)
    first = batch_of(run)
    assert first is not None
    (folder / first.row.reconstruction).write_text("damaged")
    second = batch_of(run)
    assert second is not None
    assert second.row != first.row
    assert second.group.attack == "tableak"


def test_the_next_attack_serves_where_the_strongest_kept_nothing(make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=2)
    for file in (folder / "reconstructions").glob("tableak-*"):
        file.unlink()
    found = batch_of(load_run(folder))
    assert found is not None
    assert found.group.attack == "inverting_gradients"


def test_guessed_rows_are_not_an_attack(make_run) -> None:
    assert batch_of(load_run(make_run(attacks=("random",), batch_sizes=(8,), n_batches=2))) is None


def test_without_truth_the_first_batch_is_shown_unmarked(make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=2)
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        row["cell_accuracy"] = None
        (folder / row["reconstruction"]).write_text(HEADER + "0,age,,37,,0.5\n")
    (folder / "results.json").write_text(json.dumps(raw))
    found = batch_of(load_run(folder))
    assert found is not None
    assert found.place is None
    true, recovered = (line.cells[1].text for line in table_of(found).groups[0].lines)
    assert true == "–"
    assert 'class="cell unknown' in recovered and "37" in recovered


def test_cells_are_ordered_marked_and_shaded(make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    run = load_run(folder)
    write(folder, run, "4,sex,Male,Male,1,0.0\n4,age,37,41.00000001,0,-9\n9,age,20,20,1.0,\n9,sex,F,M,false,1.0\n")
    table = table_of(batch_of(run))
    assert table.head == ("Row", "sex", "age")
    recovered = [group.lines[1].cells[1:] for group in table.groups]
    (sex, age), (sex2, age2) = [[cell.text for cell in cells] for cells in recovered]
    for cell, css in zip((sex, age, sex2, age2), ("hit", "miss", "miss", "hit"), strict=True):
        assert f'class="cell {css} ' in cell
    for cell, step in zip((sex, age, sex2, age2), (SHADES, SHADES, 1, 0), strict=True):
        assert f"shade{step}" in cell
    assert ">41<" in age
    assert "no confidence" in age2


def test_a_ragged_file_leaves_gaps(make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    run = load_run(folder)
    write(folder, run, "0,sex,Male,Male,1,0.0\n1,age,37,41,0,0.1\n")
    table = table_of(batch_of(run))
    gaps = [[cell.text == "–" for cell in group.lines[1].cells[1:]] for group in table.groups]
    assert gaps == [[False, True], [True, False]]


def test_redaction_drops_values_and_keeps_marks(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1))
    batch = batch_of(run)
    shown, hidden = table_of(batch), table_of(batch, redact=True)
    assert batch is not None
    values = {cell[name] for name in ("true", "reconstructed") for cell in batch.cells if len(cell[name]) > 3}
    written = " ".join(cell.text for group in hidden.groups for line in group.lines for cell in line.cells)
    assert not [value for value in values if value in written]
    for group, redacted in zip(shown.groups, hidden.groups, strict=True):
        assert len(redacted.lines) == 1
        for cell, mark in zip(group.lines[1].cells[1:], redacted.lines[0].cells[1:], strict=True):
            assert ("hit" in cell.text) == ("hit" in mark.text)


def test_a_large_batch_is_cut(make_run) -> None:
    found = batch_of(load_run(make_run(batch_sizes=(128,), n_batches=1)))
    assert found is not None
    shown = table_of(found)
    assert found.n_rows == 128 and len(shown.groups) == MOST_CELLS // (len(shown.head) - 1) < 128
    assert f"The first {len(shown.groups)} of 128 rows are shown." in str(rows_section(found, UNIT, False).blocks[0])


def test_of_a_wide_table_fewer_rows_are_shown_folded(make_run) -> None:
    run = load_run(make_run(batch_sizes=(32,), n_batches=1))
    lines = "".join(f"{row},c{column},a,a,1,0.1\n" for row in range(32) for column in range(50))
    for one in run.rows:
        (run.path / one.reconstruction).write_text(HEADER + lines)
    section = rows_section(batch_of(run), UNIT, False)
    assert len(table_of(batch_of(run)).groups) == MOST_CELLS // 50 == 30
    assert isinstance(section.blocks[-1], Details) and section.blocks[-1].summary == "30 rows of 50 columns"
    assert len(render(Page("", "", [section]))) < 450_000


def test_rows_are_read_from_the_folder_of_their_own_run(make_named_run) -> None:
    runs = [load_run(make_named_run(name)(batch_sizes=(8,), n_batches=1), name) for name in ("a", "b")]
    found = batch_of(replace(runs[0], rows=()), runs[1])
    assert found is not None
    assert found.row.run == "b"


@given(st.floats(-50, 50), st.floats(-50, 50), st.booleans())
def test_less_entropy_is_never_less_confidence(first: float, second: float, categorical: bool) -> None:
    low, high = sorted((first, second))
    assert 1 >= confidence(low, categorical) >= confidence(high, categorical) >= 0
    assert SHADES >= shade(low, categorical) >= shade(high, categorical) >= 1


@pytest.mark.parametrize("entropy", [0.2, 0.5, 0.9])
def test_both_readings_of_an_entropy_in_the_unit_interval_nearly_agree(entropy: float) -> None:
    assert abs(confidence(entropy, True) - confidence(entropy, False)) < 0.35


@pytest.mark.parametrize(
    ("true", "reconstructed", "shown"),
    [
        (["41.99999990349218", "22.5"], ["31.748757992593667", "1.30708e-06"], (["42", "22.5"], ["31.75", "0"])),
        (["37", "20"], ["41.00000001", "1e400"], (["37", "20"], ["41", "1e400"])),
        (["0.00012345678", "0.0001"], ["0.00012399999", "0.5"], (["0.0001235", "0.0001"], ["0.000124", "0.5"])),
        (["", ""], ["12345.678", "1.50"], (["–", "–"], ["12346", "2"])),
        (["1.50", "1.5"], ["v1.23456", "0"], (["1.50", "1.5"], ["v1.23456", "0"])),
        (["0.0", "0"], ["0.0", "0.1234567"], (["0.0", "0"], ["0.0", "0.1235"])),
    ],
)
def test_numbers_are_shown_with_few_digits(make_run, true, reconstructed, shown) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    run = load_run(folder)
    pairs = zip(true, reconstructed, strict=True)
    write(folder, run, "".join(f"{i},a,{left},{right},1,\n" for i, (left, right) in enumerate(pairs)))
    lines = [group.lines for group in table_of(batch_of(run)).groups]
    recovered = [line[1].cells[1].text.removesuffix("</span>").rpartition(">")[2] for line in lines]
    assert ([line[0].cells[1].text for line in lines], recovered) == shown


@pytest.mark.parametrize("status", ["", "sure", "<b>certified</b>"])
def test_an_unknown_status_of_a_file_is_no_status(make_run, status: str) -> None:
    folder = make_run(attacks=("audit_max",), batch_sizes=(8,), n_batches=1)
    run = load_run(folder)
    file = folder / run.rows[0].reconstruction
    file.write_text(f"row,column,true,reconstructed,correct,entropy,status\n0,age,3,3,1,,{status}\n")
    head = table_of(batch_of(run)).groups[0].lines[1].cells[0].text
    assert "certified" not in head and "sure" not in head
