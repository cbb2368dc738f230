"""Axes with round ticks: linear, logarithmic, or logarithmic around zero, for values of any size."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Scale = Literal["linear", "log", "symlog", "category"]
Ends = Literal["round", "padded", "exact"]

MOST_STEPS = 5
"""Most steps between ticks; more crowd a small plot."""

PADDING = 0.06
"""Share of the range left free at each end of a padded axis, so that no mark is cut."""

LEADING = (1.0, 2.0, 5.0)
SAME = 1e-9
"""Relative difference below which two numbers are equal."""

LARGEST = 1e100
"""Values beyond it are drawn there, so that no range overflows; those below its inverse count as zero."""

APART = 0.15
"""Least distance between ticks of a symmetric logarithmic axis, as a share of its length."""


@dataclass(frozen=True)
class Axis:
    """A range of values along a plot.

    Attributes:
        low: value at the start.
        high: value at the end.
        ticks: values with their labels.
        scale: ``symlog`` is logarithmic in both directions from 1 and -1 and linear between them.
        title: what is measured, written along the axis; empty for none.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    scale: Scale = "linear"
    title: str = ""

    def at(self, value: float) -> float:
        """Position of a value as a fraction of the axis; values outside stand at its ends.

        >>> Axis(1, 100, scale="log").at(10), Axis(0, 4).at(9)
        (0.5, 1.0)
        """
        low, high, here = (_moved(one, self.scale) for one in (self.low, self.high, value))
        return min(max((here - low) / (high - low or 1.0), 0.0), 1.0)


def axis(
    values: Iterable[float],
    scale: Scale = "linear",
    ends: Ends = "padded",
    percent: bool = False,
    whole: bool = False,
    title: str = "",
) -> Axis:
    """The axis of some values, with ticks at 1, 2 or 5 times a power of ten.

    Args:
        values: what is drawn; values that are not finite are ignored, and without any the axis runs from 0 to 1.
        scale: a logarithmic axis with values that are not positive becomes a symmetric one.
        ends: round numbers, a little room beyond the values, or the values themselves.
        percent: values are fractions and labels are percentages; fractions get no tick below 0% or above 100%.
        whole: ticks at whole numbers only.
        title: what is measured.

    >>> [label for _, label in axis([0.62, 0.84], ends="round", percent=True).ticks]
    ['60%', '65%', '70%', '75%', '80%', '85%']
    >>> [label for _, label in axis([0.005, 0.3], "log").ticks]
    ['0.005', '0.01', '0.02', '0.05', '0.1', '0.2']
    >>> [label for _, label in axis([-3, 0.5], "log").ticks]
    ['−10', '−1', '0', '1']
    """
    known = [min(max(value, -LARGEST), LARGEST) for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = (0.0 if abs(end) < 1 / LARGEST else float(end) for end in (min(known), max(known)))
    if scale == "linear":
        return _linear(low, high, ends, percent, whole, title)
    return _logarithmic(low, high, ends, title) if low > 0 else _symmetric(min(low, 0.0), max(high, 0.0), title)


def categories(labels: Sequence[str], title: str = "") -> Axis:
    """An axis on which the n-th label stands at n, in columns of equal width.

    >>> categories(["a", "b"]).at(0), categories(["a", "b"]).at(1)
    (0.25, 0.75)
    """
    return Axis(-0.5, len(labels) - 0.5, tuple(enumerate(labels)), "category", title)


def number_label(value: float, step: float) -> str:
    """A number with as many decimals as ticks at a distance of ``step`` need.

    >>> number_label(27450, 10), number_label(-0.5, 0.1), number_label(2e9, 1e9)
    ('27,450', '−0.5', '2e+09')
    """
    if max(abs(value), step) >= 1e7 or step < 1e-4:
        digits = 1 + max(0, math.ceil(math.log10(max(abs(value) / step, 1.0)) - SAME))
        label = f"{value:.{digits}g}"
    else:
        label = f"{value:,.{max(0, -math.floor(math.log10(step) + SAME))}f}"
    return label.replace("-", "−", 1) if value < 0 else label


def _linear(low: float, high: float, ends: Ends, percent: bool, whole: bool, title: str) -> Axis:
    are_fractions = percent and low >= 0 and high <= 1
    is_constant = high - low <= SAME * max(abs(low), abs(high))
    if ends == "padded" or is_constant:
        room = (PADDING * abs(high) or PADDING) if is_constant else PADDING * (high - low)
        low, high = low - room, high + room
    if ends == "round" and are_fractions:
        low, high = max(low, 0.0), min(high, 1.0)
    step, numbers = _steps(low, high, ends == "round", whole)
    ticks = [number * step for number in numbers]
    if ends == "round":
        low, high = min(low, ticks[0]), max(high, ticks[-1])
    if are_fractions:
        ticks = [value for value in ticks if -SAME <= value <= 1 + SAME]
    scaled = 100.0 if percent else 1.0
    labels = [number_label(scaled * value + 0.0, scaled * step) + "%" * percent for value in ticks]
    return Axis(low, high, tuple(zip(ticks, labels, strict=True)), title=title)


def _steps(low: float, high: float, outwards: bool, whole: bool) -> tuple[float, range]:
    """The smallest round step with few enough ticks, and the multiples of it at the ends or inside of a range."""
    power = 10.0 ** math.floor(math.log10((high - low) / MOST_STEPS))
    for step in (leading * power * more for more in (1, 10, 100) for leading in LEADING):
        step = max(step, 1.0) if whole else step
        first, last = math.ceil(low / step - SAME), math.floor(high / step + SAME)
        if outwards:
            first, last = math.floor(low / step + SAME), math.ceil(high / step - SAME)
        if last - first <= MOST_STEPS:
            break
    return step, range(first, last + 1)


def _logarithmic(low: float, high: float, ends: Ends, title: str) -> Axis:
    least, greatest = low, high
    if ends == "round":
        least = 10.0 ** math.floor(math.log10(low) + SAME)
        greatest = max(10.0 ** math.ceil(math.log10(high) - SAME), 10 * least)
    elif ends == "padded" or high <= low * (1 + SAME):
        room = (high / low) ** PADDING if high > low * (1 + SAME) else 1 + PADDING
        least, greatest = low / room, high * room
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(greatest)) + 1)
    choices = [[leading * 10.0**power for power in powers for leading in LEADING]]
    choices += [[10.0**power for power in powers if power % every == 0] for every in (1, 2, 3, 5, 10, 20, 50, 100)]
    inside = [[one for one in some if least * (1 - SAME) <= one <= greatest * (1 + SAME)] for some in choices]
    numbers = next(some for some in inside if len(some) <= MOST_STEPS + 1)
    if len(numbers) < 2:  # a range too short for round numbers
        numbers = sorted({low, high})
    return Axis(least, greatest, tuple((one, _short(one)) for one in numbers), "log", title)


def _symmetric(low: float, high: float, title: str) -> Axis:
    ends = [
        math.copysign(10.0 ** max(math.ceil(math.log10(abs(end)) - SAME), 0), end) if end else 0.0
        for end in (low, high)
    ]
    found = Axis(ends[0], max(ends[1], ends[0] + 1.0), scale="symlog", title=title)
    powers = range(math.ceil(math.log10(max(abs(found.low), abs(found.high)))), -1, -1)
    kept: list[float] = []
    for value in (0.0, found.high, found.low, *(sign * 10.0**power for power in powers for sign in (1, -1))):
        is_inside = found.low <= value <= found.high
        if is_inside and all(abs(found.at(value) - found.at(other)) >= APART for other in kept):
            kept.append(value)
    return Axis(found.low, found.high, tuple((one, _short(one)) for one in sorted(kept)), "symlog", title)


def _short(value: float) -> str:
    """A tick of a logarithmic axis, with four digits."""
    label = f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e7 else f"{value:.4g}"
    return label.replace("-", "−", 1) if value < 0 else label


def _moved(value: float, scale: Scale) -> float:
    if scale in ("linear", "category"):
        return value
    if scale == "symlog":
        return math.copysign(math.log10(1 + abs(value)), value)
    return math.log10(value) if value > 0 else -math.inf
