"""Two values of each of many things, such as columns or classes: a reference and what was reached."""

from collections.abc import Mapping

from lightleak.report.blocks import Block, Figure, Legend
from lightleak.report.charts import END_STYLE, START_STYLE, Pair, pair_chart
from lightleak.report.format import points

MOST_DRAWN = 60
"""Lines of the chart; a table of thousands of columns keeps those with the largest difference."""


MOST_NAMED = 3
"""Names in a sentence."""


def pair_legend(start: str, end: str) -> Legend:
    """Name the two marks of each line."""
    return Legend([(START_STYLE, start), (END_STYLE, end), ("", "right: difference in points")])


def gains(reached: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float | None]:
    """Difference to the reference by name, the largest first; without a reference the highest value first.

    >>> gains({"age": 0.5, "sex": 0.9}, {"age": 0.1, "sex": 0.8})
    {'age': 0.4, 'sex': 0.09999999999999998}
    """
    names = sorted(reached, key=lambda name: reached[name] - reference.get(name, 0.0), reverse=True)
    return {name: reached[name] - reference[name] if name in reference else None for name in names}


def most_gained(reached: Mapping[str, float], reference: Mapping[str, float]) -> list[str]:
    """Return the names that a sentence mentions: those with the largest positive differences to the reference."""
    return [name for name, gain in list(gains(reached, reference).items())[:MOST_NAMED] if gain and gain > 0]


def pairs_by_name(
    label: str, reached: Mapping[str, float], reference: Mapping[str, float], start: str, end: str
) -> tuple[Block, ...]:
    """Draw every name as a line from the reference to what was reached, the largest difference first."""
    found = gains(reached, reference)
    pairs = [
        Pair(name, reference.get(name), reached[name], points(gain) if gain is not None else "")
        for name, gain in found.items()
    ]
    drawing = pair_chart(label, pairs[:MOST_DRAWN], start, end)
    legend = (pair_legend(start, end),) if reference else ()
    return (*legend, Figure(drawing, plot="labelled"))
