"""Defense frontiers: all points of one setting, which of them help or protect, and the one to consider first."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.results import FrontierRow, read_row
from lightleak.report.budget import Budget, budget
from lightleak.report.compare import Group, fixed
from lightleak.report.format import listed
from lightleak.report.intervals import Estimate, bounded
from lightleak.report.kinds.frontier_points import Paired, Point, unit_of
from lightleak.report.kinds.frontier_standings import Standing, standings
from lightleak.report.kinds.updates_groups import BASELINE

SETTING = ("dataset", "target", "protocol", "batch_size", "training", "label_setting")
"""Fields that all points of a frontier share."""

ENOUGH = 0.5
"""Share of the leakage that the recommended defense takes away, if any does."""

MOST_NAMED = 2
"""Points that are listed by name."""


@dataclass(frozen=True)
class Frontier:
    """All points of one setting, the undefended one first and each curve by its strength.

    Attributes:
        points: one per defense and strength.
        guesses: share of cells that guessing gets right, by client.
    """

    points: tuple[Point, ...]
    guesses: Paired = field(repr=False)

    @property
    def first(self) -> FrontierRow:
        """A row, for what all points have in common."""
        return self.points[0].first

    @property
    def none(self) -> Point | None:
        """The point without a defense."""
        return next((point for point in self.points if point.first.is_undefended), None)

    @cached_property
    def guess(self) -> Estimate | None:
        """Share of cells that guessing gets right, over clients."""
        return bounded(self.guesses.values())

    @cached_property
    def budget(self) -> Budget:
        """What the attacks could spend."""
        return budget(row for point in self.points for row in point.rows)

    @cached_property
    def measured(self) -> tuple[Point, ...]:
        """The points whose cost and leakage are known."""
        return tuple(point for point in self.points if point.is_measured)

    @property
    def tried(self) -> tuple[Point, ...]:
        """The defenses that were measured."""
        return tuple(point for point in self.measured if not point.first.is_undefended)

    @property
    def guaranteed(self) -> tuple[Point, ...]:
        """The measured points with an epsilon, the weakest guarantee first."""
        known = [(epsilon, point) for point in self.measured if (epsilon := point.granted("epsilon")) is not None]
        return tuple(point for _, point in sorted(known, key=lambda pair: -pair[0]))

    @property
    def helping(self) -> tuple[Point, ...]:
        """The defenses that leak measurably less than none (`Point.helps`)."""
        return tuple(point for point in self.tried if point.helps)

    @cached_property
    def protecting(self) -> tuple[Point, ...]:
        """The defenses that protect, the most accurate first; of equals the smaller epsilon, then the smaller leak.

        Accuracies are compared on the trainings that all of them share, if there are any.
        """
        found = [point for point in self.tried if point.protection == "protects"]
        shared = set.intersection(*(set(point.accuracies) for point in found)) if found else set()

        def accuracy(point: Point) -> float:
            return fmean(point.accuracies[key] for key in shared) if shared else point.place[0]

        return tuple(sorted(found, key=lambda one: (-accuracy(one), one.granted("epsilon") or math.inf, one.place[1])))

    @property
    def halving(self) -> tuple[Point, ...]:
        """Those of them that leave at most the rest of `ENOUGH`, in the mean."""
        return tuple(
            point for point in self.helping if self.none and point.place[1] <= (1 - ENOUGH) * self.none.place[1]
        )

    @cached_property
    def choice(self) -> Point | None:
        """The cheapest defense that protects, else that takes away half of the leakage, else the one that takes most.

        None where no defense was shown to leak less than none, or none was shown to leak.
        """
        if self.none is None or not self.helping or not self.none.shows_leakage:
            return None
        if self.protecting:
            return self.protecting[0]
        return most_accurate(self.halving) if self.halving else most_protective(self.helping)

    @cached_property
    def merits(self) -> list[tuple[Point, str]]:
        """The defenses to consider, and why; none where attacks had too small a budget."""
        if self.budget.is_weak or self.choice is None:
            return []
        found = [(self.choice, "first to consider"), (most_accurate(self.helping), "costs least of those that help")]
        safest = most_protective(self.helping)
        if safest.place[1] < self.choice.place[1] or (safest is self.choice and safest.place[1]):
            found.append((safest, "gives least away"))
        return found + [(point, "the strongest guarantee") for point in self.guaranteed[-1:]]

    @staticmethod
    def named(points: Sequence[Point]) -> str:
        """A few points by name, and how many more there are.

        >>> Frontier.named([Point((FrontierRow(attack="none", defense=name),)) for name in ("sign", "clipping", "x")])
        'Sign, Clipping and 1 more'
        """
        more = len(points) - MOST_NAMED
        known = [point.name for point in points[:MOST_NAMED]]
        return f"{', '.join(known)} and {more} more" if more > 0 else listed(known)

    @property
    def is_single(self) -> bool:
        """Whether no point was measured with several trainings or clients."""
        return all(len(point.accuracies) < 2 and len(point.gains) < 2 for point in self.measured)

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        """How each measured point compares with the others."""
        return standings(self.measured)

    def standing(self, point: Point) -> Standing | None:
        """How a point compares; None where it is not measured."""
        return next((one for one in self.standings if one.point is point), None)


def compare(rows: Iterable[FrontierRow]) -> tuple[Frontier, ...]:
    """Group rows into frontiers, runs together, in the order of the rows."""
    return tuple(_frontier(same) for same in by_key(rows, lambda row: fixed(row, SETTING)).values())


def compare_raw(rows: Iterable[Mapping[str, Any]], run: str = "") -> tuple[Frontier, ...]:
    """The same of rows as ``results.json`` contains them."""
    found = (read_row(row, f"row {i}", run) for i, row in enumerate(rows))
    return compare(row for row in found if isinstance(row, FrontierRow))


def fullest(frontiers: Sequence[Frontier]) -> Frontier | None:
    """The frontier with most points measured, which the summary is about; None where there is no point at all."""
    return max(frontiers, key=lambda one: len(one.measured), default=None)


def most_accurate(points: Sequence[Point]) -> Point:
    """The cheapest; of equals the one that leaks least."""
    return max(points, key=lambda point: (point.place[0], -point.place[1]))


def most_protective(points: Sequence[Point]) -> Point:
    """The one that leaks least; of equals, such as those that leak nothing, the most accurate."""
    return min(points, key=lambda point: (point.place[1], -point.place[0]))


def _frontier(rows: Sequence[FrontierRow]) -> Frontier:
    guesses = Group(tuple(row for row in rows if row.attack == BASELINE)).by(unit_of, "cell_accuracy")
    same = by_key(
        rows, lambda row: (row.curve, row.is_undefended or row.defense, row.defense_strength, row.defense_option)
    )
    # The first row of a point is one that says what the defense is, where any does.
    points = [
        Point(tuple(sorted(found, key=lambda row: not row.defense_words)), guesses=guesses) for found in same.values()
    ]
    curves = list(dict.fromkeys(point.first.curve for point in points))

    def order(point: Point) -> tuple[bool, int, float]:
        row = point.first
        return not row.is_undefended, curves.index(row.curve), row.defense_strength or 0.0

    points.sort(key=order)
    none = next((point for point in points if point.first.is_undefended), None)
    return Frontier(tuple(one if one is none else replace(one, baseline=none) for one in points), guesses)
