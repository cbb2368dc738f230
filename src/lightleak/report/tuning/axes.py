"""Axes with round ticks, linear or logarithmic, for values of any size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.tuning.wording import number_words

MOST_TICKS = 6
PADDING = 0.06
"""Share of the range that is left free at each end, so that no mark is cut."""

LEADING = (1.0, 2.0, 5.0)
SAME = 1e-9
"""Relative difference below which two numbers are one."""


@dataclass(frozen=True)
class NumberAxis:
    """A range of numbers along a plot.

    Attributes:
        low: number at the start.
        high: number at the end.
        ticks: (position in [0, 1], label).
        log: whether equal ratios are equally far apart.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def at(self, value: float) -> float:
        """Position of a value, held inside the plot.

        >>> NumberAxis(1, 100, (), log=True).at(10), NumberAxis(0, 4, ()).at(9)
        (0.5, 1.0)
        """
        return _position(value, self.low, self.high, self.log)


def number_axis(values: Sequence[float], log: bool = False, whole: bool = False, percent: bool = False) -> NumberAxis:
    """An axis that ends close to the values.

    Args:
        values: at least one; where one of them is not above 0 the axis is linear.
        log: logarithmic scale.
        whole: ticks at whole numbers alone.
        percent: values are fractions and labels percentages.

    >>> [label for _, label in number_axis([0, 39], whole=True).ticks]
    ['0', '10', '20', '30', '40']
    >>> [label for _, label in number_axis([0.005, 0.3], log=True).ticks]
    ['0.005', '0.01', '0.02', '0.05', '0.1', '0.2']
    >>> [label for _, label in number_axis([0.801, 0.807], percent=True).ticks]
    ['80.2%', '80.4%', '80.6%']
    """
    low, high = min(values), max(values)
    if log and low > 0:
        return _log_axis(low, high)
    is_one_value = high - low <= SAME * max(abs(low), abs(high))
    room = (PADDING * abs(high) or PADDING) if is_one_value else PADDING * (high - low)
    low, high = low - room, high + room
    step = _step(high - low, whole)
    numbers = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    decimals = max(0, -math.floor(math.log10(step) + SAME) - 2)

    def label(value: float) -> str:
        return _minus(f"{100 * value + 0.0:.{decimals}f}%") if percent else number_words(value)

    return NumberAxis(low, high, tuple((_position(one, low, high, False), label(one)) for one in numbers))


def _step(length: float, whole: bool) -> float:
    power = 10.0 ** math.floor(math.log10(length / MOST_TICKS))
    steps = [leading * power * scale for scale in (1.0, 10.0) for leading in LEADING]
    found = next(step for step in steps if length / step <= MOST_TICKS * (1 + SAME))
    return max(1.0, found) if whole else found


def _log_axis(low: float, high: float) -> NumberAxis:
    room = max((high / low) ** PADDING, 1 + SAME) if high > low * (1 + SAME) else 1 + PADDING
    least, greatest = low / room, high * room
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(greatest)) + 1)
    choices = [[leading * 10.0**power for power in powers for leading in LEADING]]
    choices += [[10.0**power for power in powers[::every]] for every in (1, 2, 3, 5, 10, 100)]
    inside = [[one for one in numbers if least <= one <= greatest] for numbers in choices]
    numbers = next(found for found in inside if len(found) <= MOST_TICKS)
    if len(numbers) < 2:  # a range too short for round numbers
        numbers = sorted({low, high})
    ticks = tuple((_position(one, least, greatest, True), number_words(one)) for one in numbers)
    return NumberAxis(least, greatest, ticks, log=True)


def _position(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _minus(label: str) -> str:
    return label.replace("-", "−")
