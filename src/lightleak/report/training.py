"""Leakage over training beside the validation accuracy of the target."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pandas as pd
from markupsafe import Markup

from lightleak.report.charts import VALIDATION_STYLE, Series, Style, line_chart, series_style, spread
from lightleak.report.comparison import Group
from lightleak.report.estimate import Estimate, estimate
from lightleak.report.result import Setting
from lightleak.report.run_folder import RunFolder
from lightleak.report.wording import attack_title, time_unit

VALIDATION_COLUMN = "val/accuracy"
VALIDATION = "Validation accuracy of the target"
LOGGED_ACCURACY = re.compile(r"(?:reconstruction|leakage)/(?P<attack>.+)/cell_accuracy")
"""A column of ``metrics.csv`` with an attack's score; earlier runs named it leakage."""
MOST_TICKS = 8

Curve = dict[int, Estimate]
Curves = dict[tuple[Setting, int | None], dict[str, Curve]]


@dataclass(frozen=True)
class TrainingPanel:
    """One chart over epochs: its setting (no epoch), batch size, series and drawing.

    ``thin`` says whether an attack was measured on a single update in some epoch, so that a point has no interval.
    """

    setting: Setting
    batch_size: int | None
    series: tuple[Series, ...]
    drawing: Markup
    thin: bool


def epoch_curve(metrics: pd.DataFrame, column: str) -> Curve:
    """One logged metric by epoch: the last value of each epoch.

    >>> log = pd.DataFrame({"epoch": [0, 0, 1], "val/accuracy": [0.5, 0.6, None]})
    >>> epoch_curve(log, "val/accuracy")[0].mean
    0.6
    """
    if column not in metrics.columns or "epoch" not in metrics.columns:
        return {}
    logged = metrics[["epoch", column]].dropna().groupby("epoch")[column].last()
    pairs = ((int(epoch), float(value)) for epoch, value in zip(logged.index, logged, strict=True))
    return {epoch: Estimate(value) for epoch, value in pairs if math.isfinite(value)}


def training_panels(
    runs: Sequence[RunFolder], groups: Sequence[Group], styles: Mapping[str, Style]
) -> tuple[TrainingPanel, ...]:
    """One panel for each setting and batch size that was attacked during training; none where nothing was captured.

    Numbers come from the result rows; a run whose attacks were only logged by a callback is read from its
    ``metrics.csv``. The validation accuracy is drawn where the run trained a single target, since the log does not say
    which target a line belongs to.
    """
    panels = []
    for run in runs:
        curves = _curves_of_rows(run, groups) or _curves_of_log(run)
        validation = epoch_curve(run.metrics, VALIDATION_COLUMN)
        targets = {(setting.dataset, setting.target, setting.defense) for setting, _ in curves}
        for (setting, batch_size), by_title in curves.items():
            drawn = dict(by_title) | ({VALIDATION: validation} if validation and len(targets) == 1 else {})
            panels.append(_panel(setting, batch_size, drawn, styles))
    return tuple(panels)


def _curves_of_rows(run: RunFolder, groups: Sequence[Group]) -> Curves:
    captured = [
        group
        for group in groups
        if group.setting.run == run.name and group.setting.source == "training" and group.setting.epoch is not None
    ]
    curves: Curves = defaultdict(dict)
    for group in captured:
        if group.is_baseline or group.accuracy is None or group.setting.epoch is None:
            continue
        panel = curves[replace(group.setting, epoch=None), group.batch_size]
        panel.setdefault(group.title, {})[group.setting.epoch] = group.accuracy
        if group.baseline is not None and group.baseline.accuracy is not None:
            panel.setdefault(group.baseline.title, {})[group.setting.epoch] = group.baseline.accuracy
    return curves


def _curves_of_log(run: RunFolder) -> Curves:
    logged = [found for name in run.metrics.columns if (found := LOGGED_ACCURACY.fullmatch(str(name)))]
    curves = {found["attack"]: _mean_by_epoch(run, found.string) for found in logged}
    known = {attack_title(attack): curve for attack, curve in curves.items() if curve}
    return {(Setting(run.name, source="training"), None): known} if known else {}


def _mean_by_epoch(run: RunFolder, column: str) -> Curve:
    """Several updates of one epoch may have been attacked."""
    if "epoch" not in run.metrics.columns:
        return {}
    logged = run.metrics[["epoch", column]].dropna()
    pairs = sorted((int(epoch), float(value)) for epoch, value in zip(logged["epoch"], logged[column], strict=True))
    found = {epoch: estimate(value for _, value in rows) for epoch, rows in groupby(pairs, key=lambda pair: pair[0])}
    return {epoch: value for epoch, value in found.items() if value is not None}


def _panel(
    setting: Setting, batch_size: int | None, curves: Mapping[str, Curve], styles: Mapping[str, Style]
) -> TrainingPanel:
    epochs = sorted({epoch for curve in curves.values() for epoch in curve})
    place = dict(zip(epochs, spread([float(epoch) for epoch in epochs]), strict=True))
    ordered = {title: curves[title] for title in (*styles, *curves) if title in curves}
    # An attack that only ran as a monitor is in no row: it gets the next look.
    looks = {**styles, VALIDATION: VALIDATION_STYLE}
    series = tuple(
        Series(
            title,
            tuple((place[epoch], curve[epoch]) for epoch in sorted(curve)),
            looks.get(title, series_style(len(styles))),
        )
        for title, curve in ordered.items()
    )
    step = -(-len(epochs) // MOST_TICKS)
    ticks = [(place[epoch], str(epoch)) for epoch in epochs[::step]]
    unit = time_unit(setting)
    name = f"Share of cells recovered in each {unit} of training, {len(epochs)} {unit}s, beside the validation accuracy"
    attacked = [curve for title, curve in curves.items() if title != VALIDATION]
    thin = any(not value.has_interval for curve in attacked for value in curve.values())
    return TrainingPanel(setting, batch_size, series, line_chart(name, series, ticks, unit), thin)
