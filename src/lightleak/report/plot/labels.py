"""Places for the labels of a scatter plot whose width is that of the page, where none covers a mark or another label.

A label that fits at every width is always shown; one that fits only on a wide screen is hidden on a phone; one that
fits nowhere is left out, since the table and the text on hover have it too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

NARROW = (250.0, 300.0, 350.0, 420.0, 505.0)
WIDE = (490.0, 560.0, 660.0, 760.0, 870.0)
"""Widths of the plot in pixels in windows up to 640 pixels wide, and in wider ones and on paper."""

CHARACTER = 6.9
LINE = 13.0
MARK = 9.0
BEYOND = 4.0
"""Pixels of a character, of a line of text, around the center of a mark, and how far a label may leave the plot."""

Mark = tuple[float, float, str]
"""Position along the plot in [0, 1], pixels from its top, and label."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""


@dataclass(frozen=True)
class Place:
    """Where a label goes, relative to its mark.

    Attributes:
        anchor: ``start``, ``middle`` or ``end``.
        dx: pixels to the right.
        dy: pixels down to the base line.
        wide_only: whether it fits only on a wide screen.
    """

    anchor: str
    dx: float
    dy: float
    wide_only: bool = False


SPOTS = (
    Place("start", 9, -7),
    Place("end", -9, -7),
    Place("start", 9, 15),
    Place("end", -9, 15),
    Place("start", 11, 4),
    Place("end", -11, 4),
    Place("middle", 0, -13),
    Place("middle", 0, 21),
)


def place_labels(marks: Sequence[Mark], height: float) -> list[Place | None]:
    """A place for each mark's label, the first marks first; None where there is none or the label is empty.

    Args:
        marks: all marks of the plot.
        height: of the plot in pixels.

    >>> [place.anchor if place else None for place in place_labels([(0.5, 50, "0.1"), (0.5, 50, "0.2")], 100)]
    ['start', 'end']
    """
    taken: list[tuple[Mark, Place]] = []

    def is_free(mark: Mark, place: Place, width: float, on_phone: bool) -> bool:
        box = label_box(mark, place, width)
        if box[0] < -BEYOND or box[2] > width + BEYOND or box[1] < -LINE or box[3] > height:
            return False
        if any(_overlap(box, _mark_box(other, width)) for other in marks):
            return False
        shown = [(other, there) for other, there in taken if not (on_phone and there.wide_only)]
        return not any(_overlap(box, label_box(other, there, width)) for other, there in shown)

    def first_free(mark: Mark) -> Place | None:
        for wide_only, spot in product((False, True), SPOTS):
            place = replace(spot, wide_only=wide_only)
            fits_phones = wide_only or all(is_free(mark, place, width, True) for width in NARROW)
            if fits_phones and all(is_free(mark, place, width, False) for width in WIDE):
                taken.append((mark, place))
                return place
        return None

    return [first_free(mark) if mark[2] else None for mark in marks]


def label_box(mark: Mark, place: Place, width: float) -> Box:
    """The area that the label of a mark covers in a plot of some width."""
    x, y, label = mark
    long = CHARACTER * len(label)
    start = x * width + place.dx - {"start": 0.0, "middle": long / 2, "end": long}[place.anchor]
    return start, y + place.dy - LINE + 2, start + long, y + place.dy + 3


def _mark_box(mark: Mark, width: float) -> Box:
    x, y = mark[0] * width, mark[1]
    return x - MARK, y - MARK, x + MARK, y + MARK


def _overlap(first: Box, second: Box) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]
