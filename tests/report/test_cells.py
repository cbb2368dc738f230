import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.report.cells import MOST_ROWS, SHADES, Batch, confidence, typical_batch
from lightleak.report.comparison import compare
from lightleak.report.run_folder import RunFolder, load_run

HEADER = "row,column,true,reconstructed,correct,entropy\n"


def batch_of(run: RunFolder, redact: bool = False) -> Batch | None:
    return typical_batch([run], compare([run]), redact)


def test_the_median_batch_of_the_strongest_attack_is_shown(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=5))
    found = batch_of(run)
    assert found is not None
    scores = sorted(result.metrics["cell_accuracy"] for result in run.results if result.attack == "tableak")
    assert found.group.attack == "tableak"
    assert found.result.metrics["cell_accuracy"] == scores[2]
    assert found.place == (3, 5)
    assert len(found.rows) == found.n_rows == 8


def test_of_two_batches_the_weaker_is_shown(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=2))
    found = batch_of(run)
    assert found is not None
    assert found.result.metrics["cell_accuracy"] == min(
        r.metrics["cell_accuracy"] for r in run.results if r.attack == "tableak"
    )


def test_a_damaged_file_costs_its_batch_only(make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=3)
    run = load_run(folder)
    first = batch_of(run)
    assert first is not None
    (folder / first.result.reconstruction).write_text("damaged")
    second = batch_of(run)
    assert second is not None
    assert second.result != first.result
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
    ((_, (cell,)),) = found.rows
    assert (cell.true, cell.reconstructed, cell.correct) == (None, "37", None)


def write(folder: Path, run: RunFolder, text: str) -> None:
    for result in run.results:
        (folder / result.reconstruction).write_text(HEADER + text)


def test_cells_are_ordered_marked_and_shaded(make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    run = load_run(folder)
    write(folder, run, "4,sex,Male,Male,1,0.0\n4,age,37,41.00000001,0,-9\n9,age,20,20,1.0,\n9,sex,F,M,false,1.0\n")
    found = batch_of(run)
    assert found is not None
    assert found.columns == ("sex", "age")
    (one, (sex, age)), (two, (sex2, age2)) = found.rows
    assert (one, two) == (1, 2)
    assert [cell.correct for cell in (sex, age, sex2, age2)] == [True, False, False, True]
    assert [cell.shade for cell in (sex, age, sex2, age2)] == [SHADES, SHADES, 1, 0]
    assert age.reconstructed == "41"
    assert age2.entropy is None


def test_a_ragged_file_leaves_gaps(make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    run = load_run(folder)
    write(folder, run, "0,sex,Male,Male,1,0.0\n1,age,37,41,0,0.1\n")
    found = batch_of(run)
    assert found is not None
    assert [[cell is None for cell in cells] for _, cells in found.rows] == [[False, True], [True, False]]


def test_redaction_drops_values_and_keeps_marks(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1))
    open_batch, redacted = batch_of(run), batch_of(run, redact=True)
    assert open_batch is not None and redacted is not None
    for (_, shown), (_, hidden) in zip(open_batch.rows, redacted.rows, strict=True):
        assert [cell.correct for cell in shown] == [cell.correct for cell in hidden]
        assert all(cell.true is None and cell.reconstructed is None for cell in hidden)


def test_a_large_batch_is_cut(make_run) -> None:
    found = batch_of(load_run(make_run(batch_sizes=(128,), n_batches=1)))
    assert found is not None
    assert (len(found.rows), found.n_rows) == (MOST_ROWS, 128)


def test_a_run_of_another_name_is_found_by_its_own_folder(make_named_run) -> None:
    runs = [load_run(make_named_run(name)(batch_sizes=(8,), n_batches=1), name) for name in ("a", "b")]
    kept = replace(runs[0], results=())
    found = typical_batch([kept, runs[1]], compare([kept, runs[1]]), False)
    assert found is not None
    assert found.group.setting.run == "b"


@given(st.floats(-50, 50), st.floats(-50, 50), st.booleans())
def test_less_entropy_is_never_less_confidence(first: float, second: float, categorical: bool) -> None:
    low, high = sorted((first, second))
    assert 1 >= confidence(low, categorical) >= confidence(high, categorical) >= 0


@pytest.mark.parametrize("entropy", [0.2, 0.5, 0.9])
def test_both_readings_of_an_entropy_in_the_unit_interval_nearly_agree(entropy: float) -> None:
    assert abs(confidence(entropy, True) - confidence(entropy, False)) < 0.35


@pytest.mark.parametrize(
    ("true", "reconstructed", "shown"),
    [
        (["41.99999990349218", "22.5"], ["31.748757992593667", "1.30708e-06"], (["42", "22.5"], ["31.75", "0"])),
        (["37", "20"], ["41.00000001", "1e400"], (["37", "20"], ["41", "1e400"])),
        (["0.00012345678", "0.0001"], ["0.00012399999", "0.5"], (["0.0001235", "0.0001"], ["0.000124", "0.5"])),
        (["", ""], ["12345.678", "1.50"], (["", ""], ["12346", "2"])),
        (["1.50", "1.5"], ["v1.23456", "0"], (["1.50", "1.5"], ["v1.23456", "0"])),
        (["0.0", "0"], ["0.0", "0.1234567"], (["0.0", "0"], ["0.0", "0.1235"])),
    ],
)
def test_numbers_are_shown_with_few_digits(make_run, true, reconstructed, shown) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    run = load_run(folder)
    pairs = zip(true, reconstructed, strict=True)
    write(folder, run, "".join(f"{i},a,{left},{right},1,\n" for i, (left, right) in enumerate(pairs)))
    found = batch_of(run)
    assert found is not None
    cells = [row[0] for _, row in found.rows]
    assert ([cell.true or "" for cell in cells], [cell.reconstructed for cell in cells]) == shown
