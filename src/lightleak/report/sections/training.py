"""Leakage over training, with the validation accuracy of the target."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lightleak.core.grouping import by_key
from lightleak.core.results import UpdateRow
from lightleak.report.blocks import Figure, Section
from lightleak.report.charts import VALIDATION_STYLE, Series, Style, line_figure, series_style, spaced_axis
from lightleak.report.compare import fixed
from lightleak.report.format import attack_title, capital
from lightleak.report.intervals import Estimate, estimate
from lightleak.report.kinds.updates_groups import UpdateGroup
from lightleak.report.kinds.updates_words import FIXED, of_rows, parts, time_unit, varying
from lightleak.report.page import figures, fill
from lightleak.report.read import Run

VALIDATION_COLUMN = "val/accuracy"
VALIDATION = "Validation accuracy of the target"
LOGGED_ACCURACY = re.compile(r"(?:reconstruction|leakage)/(?P<attack>.+)/cell_accuracy")
"""A column of ``metrics.csv`` with an attack's score; earlier runs named it leakage."""
MOST_TICKS = 8

Log = Sequence[Mapping[str, float]]
Curve = dict[int, Estimate]
Panel = tuple[UpdateRow, dict[str, Curve]]
"""A row with everything that is fixed, without its epoch, and the curves by title of the attack."""


def training_section(runs: Sequence[Run], groups: Sequence[UpdateGroup], styles: Mapping[str, Style]) -> Section:
    """Draw one panel for each setting and batch size that was attacked during training.

    Numbers come from the rows; a run whose attacks were only logged by a callback is read from its ``metrics.csv``. The
    validation accuracy is drawn where the run trained a single target, since the log does not say which target a line
    belongs to.
    """
    panels: list[Panel] = []
    for run in runs:
        found = _curves_of_rows(run, groups) or _curves_of_log(run)
        validation = epoch_curve(run.metrics, VALIDATION_COLUMN)
        if validation and len({(row.dataset, row.target, row.defense) for row, _ in found}) == 1:
            found = [(row, curves | {VALIDATION: validation}) for row, curves in found]
        panels += found
    differing = varying(row for row, _ in panels)
    drawn = [_figure(row, curves, styles, differing, len(panels) > 1) for row, curves in panels]
    return Section("training", "Over training", (fill("updates", "training", panels), *figures(drawn)))


def epoch_curve(log: Log, column: str) -> Curve:
    """Return one logged metric by epoch: the last value of each epoch.

    >>> epoch_curve([{"epoch": 0, "a": 0.5}, {"epoch": 0, "a": 0.6}, {"epoch": 1}], "a")
    {0: Estimate(mean=0.6, n=1, low=None, high=None)}
    """
    return {epoch: Estimate(values[-1]) for epoch, values in _logged(log, column).items()}


def _logged(log: Log, column: str) -> dict[int, list[float]]:
    lines = sorted((line for line in log if {"epoch", column} <= set(line)), key=lambda line: line["epoch"])
    by_epoch = by_key(lines, lambda line: int(line["epoch"]))
    return {epoch: [line[column] for line in same] for epoch, same in by_epoch.items()}


def _curves_of_rows(run: Run, groups: Sequence[UpdateGroup]) -> list[Panel]:
    attacks = [
        group
        for group in groups
        if group.first.run == run.name and group.first.source == "training" and group.first.epoch is not None
        if not group.is_baseline and group.mean("cell_accuracy")
    ]
    panels: list[Panel] = []
    names = [name for name in FIXED if name != "epoch"]
    for same in by_key(attacks, lambda group: (fixed(group.first, names), group.first.size)).values():
        curves: dict[str, Curve] = {}
        for group in (one for attack in same for one in (attack, attack.baseline) if one is not None):
            accuracy, epoch = group.mean("cell_accuracy"), group.first.epoch
            if accuracy is not None and epoch is not None:
                curves.setdefault(group.title, {})[epoch] = accuracy
        panels.append((replace(same[0].first, epoch=None), curves))
    return panels


def _curves_of_log(run: Run) -> list[Panel]:
    curves: dict[str, Curve] = {}
    for name in dict.fromkeys(name for line in run.metrics for name in line):
        if found := LOGGED_ACCURACY.fullmatch(name):  # several updates of one epoch may have been attacked
            by_epoch = _logged(run.metrics, name).items()
            if known := {epoch: value for epoch, values in by_epoch if (value := estimate(values))}:
                curves[attack_title(found["attack"])] = known
    return [(UpdateRow(attack="", run=run.name, source="training"), curves)] if curves else []


def _figure(
    row: UpdateRow, curves: Mapping[str, Curve], styles: Mapping[str, Style], differing: Sequence[str], several: bool
) -> Figure:
    epochs = sorted({epoch for curve in curves.values() for epoch in curve})
    # An attack that only ran as a monitor is in no row: it gets the next look.
    looks = {**styles, VALIDATION: VALIDATION_STYLE}
    ordered = [title for title in dict.fromkeys((*styles, *curves)) if title in curves]
    series = [
        Series(title, tuple(sorted(curves[title].items())), looks.get(title, series_style(len(styles))))
        for title in ordered
    ]
    every, unit = -(-len(epochs) // MOST_TICKS), time_unit(row)
    x = spaced_axis([(epoch, str(epoch)) for epoch in epochs], unit)
    x = replace(x, ticks=x.ticks[::every])
    name = f"Share of cells recovered in each {unit} of training, {len(epochs)} {unit}s, with the validation accuracy"
    attacked = [curve for title, curve in curves.items() if title != VALIDATION]
    thin = any(not value.has_interval for curve in attacked for value in curve.values())
    caption = "Some points were measured on one update only: read the trend, not the single point." if thin else ""
    if not several and row.batch_size:
        caption = f"{capital(of_rows(row))}. {caption}"
    title = " · ".join(filter(None, [*parts(row, differing), of_rows(row)])) if several else ""
    return line_figure(name, series, x, title, caption)
