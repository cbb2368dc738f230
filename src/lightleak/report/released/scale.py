"""Linear and logarithmic scales with round ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

DECADES = 4
"""Most ticks of a logarithmic scale, one more: more would crowd it."""


@dataclass(frozen=True)
class Scale:
    """From values to heights in [0, 1]; ``ticks`` are values with their labels.

    ``linear_below`` is None for a linear scale, else the magnitude from which the scale is logarithmic, of either sign;
    0 for a plain logarithm.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    linear_below: float | None = None

    @classmethod
    def linear(cls, values: Sequence[float]) -> "Scale":
        """Round ends around the values.

        >>> [label for _, label in Scale.linear([0.3, 4.2]).ticks]
        ['0', '2', '4', '6']
        """
        low, high = min(values), max(values)
        span = high - low or abs(high) or 1.0
        step = _round_step(span / 3)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        last = max(last, first + 1)
        ticks = tuple((number * step, _short(number * step)) for number in range(first, last + 1))
        return cls(ticks[0][0], ticks[-1][0], ticks)

    @classmethod
    def logarithmic(cls, values: Sequence[float]) -> "Scale":
        """Powers of ten around the values; where some are not positive, linear between the two powers next to zero.

        >>> [label for _, label in Scale.logarithmic([0.03, 4.2]).ticks]
        ['0.01', '0.1', '1', '10']
        >>> [label for _, label in Scale.logarithmic([-3.0, 0.5]).ticks]
        ['−10', '−1', '0', '1']
        """
        positive = [value for value in values if value > 0]
        if len(positive) == len(values):
            first = math.floor(math.log10(min(positive)) + 1e-9)
            last = max(math.ceil(math.log10(max(positive)) - 1e-9), first + 1)
            every = -(-(last - first) // DECADES)
            ticks = tuple((10.0**power, _short(10.0**power)) for power in range(first, last + 1, every))
            return cls(10.0**first, 10.0**last, ticks, 0.0)
        ends = []
        for end in (min(values), max(values)):
            size = 10.0 ** max(math.ceil(math.log10(abs(end)) - 1e-9), 0) if end else 0.0
            ends.append(math.copysign(size, end))
        ends[1] = max(ends[1], ends[0] + 1.0)
        marks = sorted({ends[0], *(sign * 1.0 for sign in (-1, 1) if ends[0] <= sign <= ends[1]), 0.0, ends[1]})
        return cls(marks[0], marks[-1], tuple((value, _short(value)) for value in marks), 1.0)

    def at(self, value: float) -> float:
        """Height of a value, 0 at the bottom."""
        low, high = self._moved(self.low), self._moved(self.high)
        return (self._moved(value) - low) / (high - low or 1.0)

    def _moved(self, value: float) -> float:
        if self.linear_below is None:
            return value
        if self.linear_below == 0:
            return math.log10(value)
        return math.copysign(math.log10(1 + abs(value) / self.linear_below), value)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _short(value: float) -> str:
    return f"{value:,.6g}".replace("-", "−") if abs(value) > 1e-12 else "0"
