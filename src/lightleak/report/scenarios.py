"""Attacks side by side within one setting: the table and the chart of accuracies."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from lightleak.report.charts import BASELINE_STYLE, Bar, Series, Style, bar_chart, line_chart, series_style, spread
from lightleak.report.comparison import Group
from lightleak.report.result import Setting
from lightleak.report.wording import rows_axis


@dataclass(frozen=True)
class Scenario:
    """All attacks of one setting.

    Attributes:
        setting: what was held fixed.
        groups: by batch size, the most accurate attack first and the baseline last.
        drawing: bars for one batch size, lines over several; None where no accuracy is known.
        styles: look of each title that the drawing shows as a mark with a legend; empty for bars.
    """

    setting: Setting
    groups: tuple[Group, ...]
    drawing: Markup | None
    styles: Mapping[str, Style]


def attack_styles(groups: Sequence[Group]) -> dict[str, Style]:
    """One look for each title of an attack, the same in every chart of a report; the baseline's comes last."""
    titles = dict.fromkeys(group.title for group in groups if not group.is_baseline)
    guesses = dict.fromkeys((group.title for group in groups if group.is_baseline), BASELINE_STYLE)
    return {title: series_style(index) for index, title in enumerate(titles)} | guesses


def scenarios(groups: Sequence[Group], styles: Mapping[str, Style]) -> tuple[Scenario, ...]:
    """One scenario for each setting; the baseline, which reads no labels, stands in each setting that it serves."""
    by_setting: dict[Setting, list[Group]] = defaultdict(list)
    for group in groups:
        if not group.is_baseline:
            by_setting[group.setting].append(group)
    baselines = [group for group in groups if group.is_baseline]
    served = {replace(setting, labels=None) for setting in by_setting}
    for group in baselines:
        if replace(group.setting, labels=None) not in served:
            by_setting.setdefault(group.setting, [])
    return tuple(
        _scenario(setting, [*members, *_serving(setting, baselines)], styles) for setting, members in by_setting.items()
    )


def _serving(setting: Setting, baselines: Sequence[Group]) -> list[Group]:
    """One baseline for each batch size, that of the same label setting where there is one."""
    fitting = [group for group in baselines if replace(group.setting, labels=None) == replace(setting, labels=None)]
    fitting.sort(key=lambda group: group.setting.labels == setting.labels)
    return list({group.batch_size: group for group in fitting}.values())


def _scenario(setting: Setting, members: Sequence[Group], styles: Mapping[str, Style]) -> Scenario:
    everything = sorted(members, key=_reading_order)
    sizes = sorted({group.batch_size for group in everything if group.batch_size is not None})
    if not any(group.accuracy for group in everything):
        return Scenario(setting, tuple(everything), None, {})
    if len(sizes) <= 1:
        return Scenario(setting, tuple(everything), _bars(everything, styles), {})
    used = {name: style for name, style in styles.items() if any(group.title == name for group in everything)}
    return Scenario(setting, tuple(everything), _lines(everything, sizes, used, rows_axis(setting)), used)


def _reading_order(group: Group) -> tuple[int, bool, float]:
    return group.batch_size or 0, group.is_baseline, -group.accuracy.mean if group.accuracy else 0.0


def _bars(groups: Sequence[Group], styles: Mapping[str, Style]) -> Markup:
    baseline = next((group.accuracy for group in groups if group.is_baseline), None)
    bars = [Bar(group.title, group.accuracy, styles[group.title]) for group in groups if group.accuracy is not None]
    return bar_chart("Share of cells recovered by each attack, with 95% intervals", bars, baseline)


def _lines(groups: Sequence[Group], sizes: Sequence[int], styles: Mapping[str, Style], axis: str) -> Markup:
    """Batch sizes stand at even distances: they are usually powers of two."""
    place = dict(zip(sizes, spread([float(index) for index in range(len(sizes))], margin=0.08), strict=True))
    series = []
    for title, style in styles.items():
        found = [
            (place[group.batch_size], group.accuracy)
            for group in groups
            if group.title == title and group.batch_size is not None and group.accuracy is not None
        ]
        series.append(Series(title, tuple(found), style))
    ticks = [(place[size], str(size)) for size in sizes]
    name = f"Share of cells recovered by each attack over the {axis}, with 95% intervals"
    return line_chart(name, series, ticks, axis)
