"""Leakage over training."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lightleak.report.blocks import Figure, Panels, Section
from lightleak.report.kinds.updates import styles_of
from lightleak.report.kinds.updates_groups import compare
from lightleak.report.read import Run, load_run
from lightleak.report.sections.training import VALIDATION, epoch_curve, training_section


def section_of(*runs: Run) -> Section:
    groups = compare(runs)
    return training_section(runs, groups, styles_of(groups))


def figures_of(section: Section) -> Sequence[Figure]:
    found = [block.figures if isinstance(block, Panels) else [block] for block in section.blocks]
    return [figure for block in found for figure in block if isinstance(figure, Figure)]


def labels_of(figure: Figure) -> list[str]:
    assert figure.legend is not None
    return [label for _, label in figure.legend.entries]


def values_of(figure: Figure, label: str) -> list[float]:
    """What the drawing says of the points of one line, in percent."""
    return [float(value) for value in re.findall(rf"{label}[^<]*?: (\d+\.\d)%", figure.drawing)]


def test_rows_are_drawn_with_the_validation_accuracy(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=4, keep_rows=False))
    (figure,) = figures_of(section_of(run))
    assert labels_of(figure) == ["TabLeak", "Guessing", VALIDATION]
    assert figure.caption.startswith("Batches of 32 rows.")
    assert values_of(figure, VALIDATION) == pytest.approx([75.0, 80.0, 81.7, 82.5])
    assert len(values_of(figure, "TabLeak")) == len(values_of(figure, "Guessing")) == 4


def test_guessing_and_validation_stand_last(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=2, keep_rows=False))
    captured = [row for row in run.rows if row.source == "training"]
    another = [replace(row, attack="x") for row in captured if row.attack == "tableak"]
    (figure,) = figures_of(section_of(replace(run, rows=(*run.rows, *another))))
    assert labels_of(figure) == ["TabLeak", "x", "Guessing", VALIDATION]


def test_a_run_without_captured_rows_is_read_from_its_log(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=4, keep_rows=False))
    initial = tuple(row for row in run.rows if row.source == "initial")
    (figure,) = figures_of(section_of(replace(run, rows=initial)))
    assert labels_of(figure) == ["TabLeak", VALIDATION]
    assert values_of(figure, "TabLeak") == pytest.approx([80.0, 78.0, 76.0, 74.0])


@pytest.mark.parametrize("prefix", ["reconstruction", "leakage"])  # the name of today, and that of earlier runs
def test_several_updates_of_an_epoch_are_averaged(make_run, prefix: str) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, keep_rows=False))
    name = f"{prefix}/tableak/cell_accuracy"
    log = tuple({"epoch": epoch, name: value} for epoch, value in ((0, 0.8), (0, 0.6), (1, 0.5)))
    (figure,) = figures_of(section_of(replace(run, metrics=log)))
    assert values_of(figure, "TabLeak") == pytest.approx([70.0, 50.0])
    assert "measured on one update only" in figure.caption


@pytest.mark.parametrize(
    "log",
    [
        (),
        ({"val/accuracy": 0.5, "reconstruction/tableak/cell_accuracy": 0.5},),
        ({"epoch": 0},),
    ],
)
def test_no_usable_log_no_drawing(make_run, log: tuple) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, keep_rows=False))
    assert epoch_curve(log, "val/accuracy") == {}
    assert figures_of(section_of(replace(run, metrics=log))) == []


def test_the_log_is_left_out_where_it_may_belong_to_either_target(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=2, keep_rows=False))
    other = tuple(replace(row, target="resnet") for row in run.rows)
    found = figures_of(section_of(replace(run, rows=run.rows + other)))
    assert [figure.title.partition(" · ")[0] for figure in found] == ["mlp-100-100", "resnet"]
    assert all(VALIDATION not in labels_of(figure) for figure in found)


def test_a_batch_without_accuracy_is_skipped(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=2, keep_rows=False, without=("metrics.csv",)))
    blind = tuple(replace(row, metrics={}) for row in run.rows)
    assert figures_of(section_of(replace(run, rows=blind))) == []


def test_many_epochs_share_few_ticks(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=50, keep_rows=False))
    (figure,) = figures_of(section_of(run))
    assert figure.drawing.count('class="tick"') <= 6 + 8
