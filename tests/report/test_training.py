from dataclasses import replace

import pandas as pd
import pytest

from lightleak.report.comparison import compare
from lightleak.report.run_folder import RunFolder, load_run
from lightleak.report.scenarios import attack_styles
from lightleak.report.training import TrainingPanel, epoch_curve, training_panels


def panels_of(*runs: RunFolder) -> tuple[TrainingPanel, ...]:
    groups = compare(runs)
    return training_panels(runs, groups, attack_styles(groups))


def test_rows_stand_beside_the_validation_accuracy(make_run) -> None:
    (panel,) = panels_of(load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=4, keep_rows=False)))
    assert [series.label for series in panel.series] == ["TabLeak", "Guessing", "Validation accuracy of the target"]
    assert [len(series.points) for series in panel.series] == [4, 4, 4]
    assert (panel.batch_size, panel.setting.epoch) == (32, None)
    assert [value.mean for _, value in panel.series[2].points] == pytest.approx([0.75, 0.8, 0.85 - 0.1 / 3, 0.825])


def test_guessing_and_validation_stand_last(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=2, keep_rows=False))
    captured = [result for result in run.results if result.setting.source == "training"]
    another = [replace(result, attack="x") for result in captured if result.attack == "tableak"]
    (panel,) = panels_of(replace(run, results=(*run.results, *another)))
    assert [series.label for series in panel.series] == [
        "TabLeak",
        "x",
        "Guessing",
        "Validation accuracy of the target",
    ]


def test_a_run_without_captured_rows_is_read_from_its_log(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=4, keep_rows=False))
    initial = tuple(result for result in run.results if result.setting.source == "initial")
    (panel,) = panels_of(replace(run, results=initial))
    assert [series.label for series in panel.series] == ["TabLeak", "Validation accuracy of the target"]
    assert [value.mean for _, value in panel.series[0].points] == pytest.approx([0.8, 0.78, 0.76, 0.74])


@pytest.mark.parametrize("prefix", ["reconstruction", "leakage"])  # the name of today, and that of earlier runs
def test_several_updates_of_an_epoch_are_averaged(make_run, prefix: str) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, keep_rows=False))
    log = pd.DataFrame({"epoch": [0, 0, 1], f"{prefix}/tableak/cell_accuracy": [0.8, 0.6, 0.5]})
    (panel,) = panels_of(replace(run, metrics=log))
    first, second = (value for _, value in panel.series[0].points)
    assert (first.mean, first.n) == (pytest.approx(0.7), 2)
    assert (second.mean, second.has_interval) == (0.5, False)
    assert panel.thin


@pytest.mark.parametrize(
    "log",
    [
        pd.DataFrame(),
        pd.DataFrame({"val/accuracy": [0.5], "reconstruction/tableak/cell_accuracy": [0.5]}),
        pd.DataFrame({"epoch": [0], "val/accuracy": [float("nan")]}),
        pd.DataFrame({"epoch": [0], "val/accuracy": [float("inf")]}),
    ],
)
def test_no_usable_log_no_panel(make_run, log: pd.DataFrame) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, keep_rows=False))
    assert epoch_curve(log, "val/accuracy") == {}
    assert panels_of(replace(run, metrics=log)) == ()


def test_the_log_is_left_out_where_it_may_belong_to_either_target(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=2, keep_rows=False))
    other = tuple(replace(result, setting=replace(result.setting, target="resnet")) for result in run.results)
    found = panels_of(replace(run, results=run.results + other))
    assert [panel.setting.target for panel in found] == ["mlp-100-100", "resnet"]
    assert all("Validation" not in series.label for panel in found for series in panel.series)


def test_a_batch_without_accuracy_is_skipped(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=2, keep_rows=False, without=("metrics.csv",)))
    assert panels_of(replace(run, results=tuple(replace(result, metrics={}) for result in run.results))) == ()


def test_many_epochs_share_few_ticks(make_run) -> None:
    (panel,) = panels_of(load_run(make_run(batch_sizes=(8,), n_batches=1, epochs=50, keep_rows=False)))
    assert panel.drawing.count('class="tick"') <= 6 + 8
