"""Defense frontiers: all points of one setting, and which of them protect."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.people import People
from lightleak.core.results import NONE, ClientRow, FrontierRow, UpdateRow, flat, read_row
from lightleak.report.budget import Budget, budget
from lightleak.report.compare import Group, fixed
from lightleak.report.format import listed
from lightleak.report.intervals import Estimate, bounded
from lightleak.report.kinds.frontier_points import Point, unit_of, whole_rows
from lightleak.report.kinds.frontier_standings import Standing, cheapest_first, standings
from lightleak.report.kinds.updates_groups import BASELINE
from lightleak.report.read import Run

SETTING = ("dataset", "target", "protocol", "batch_size", "training", "label_setting")
"""Fields that all points of a frontier share."""

Training = tuple[UpdateRow, Mapping[str, Any], People, bool]
"""A row of a training, the defense of its config, what an attack revealed of its people, and whether it was weak."""

MOST_NAMED = 2
"""Points that are listed by name."""


@dataclass(frozen=True)
class Frontier:
    """All points of one setting, one per defense and strength: the undefended one first, each curve by its strength."""

    points: tuple[Point, ...]

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
        return bounded(self.points[0].guesses.values())

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

    @cached_property
    def protecting(self) -> tuple[Point, ...]:
        """The defenses that protect, `cheapest_first`."""
        return cheapest_first([point for point in self.tried if point.protection == "protects"])

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


def compare(rows: Iterable[FrontierRow], trainings: Sequence[Run] = ()) -> tuple[Frontier, ...]:
    """Group rows into frontiers, runs together, in the order of the rows.

    Args:
        rows: of frontiers.
        trainings: runs on updates, whose people count for the points under the same defense.
    """
    found = [
        (run.of(UpdateRow)[0], run.settings.get("defense") or {}, one, _is_weak(run, one.attack))
        for run in trainings
        if run.rows and run.config
        for one in run.people
    ]
    return tuple(_frontier(_merged(same), found) for same in by_key(rows, lambda row: fixed(row, SETTING)).values())


def _merged(rows: Sequence[FrontierRow]) -> list[FrontierRow]:
    """The rows without those that repeat one of an earlier run, as the undefended trainings of two runs may.

    A run that repeats another has its trainings and clients: its other rows are paired with those of the other.
    """
    owners: dict[Hashable, str] = {}
    same_as: dict[str, str] = {}
    kept = []
    for row in rows:
        owner = owners.setdefault(_measurement(row), row.run) if _scores(row) else row.run
        if owner == row.run:
            kept.append(row)
        else:
            same_as.setdefault(row.run, same_as.get(owner, owner))
    return [replace(row, run=same_as.get(row.run, row.run)) for row in kept]


def _scores(row: FrontierRow) -> tuple[tuple[str, float], ...]:
    known = {**row.metrics, "accuracy": row.accuracy, "auroc": row.auroc}
    return tuple((name, value) for name, value in sorted(known.items()) if value is not None)


def _measurement(row: FrontierRow) -> Hashable:
    """The point, the attack with its settings, the seed, the client, and the scores."""
    attack = row.attack, tuple(sorted(row.settings.items()))
    return _of_point(row), attack, str(row.seed), str(row.batch_index), _scores(row)


def _is_weak(run: Run, attack: str) -> bool:
    rows = [row for row in run.rows if row.attack == attack]
    return not rows or budget(rows).is_weak


def _place(row: ClientRow, defense: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a training's people and a point have in common: table, network, protocol and defense."""
    return row.dataset, row.target, row.protocol, defense.get("name", NONE), defense.get("point", "update")


def _could_be(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether options that a config left out, which have defaults, are all that two defenses differ in."""
    return all(one[name] == other[name] or str(one[name]) == str(other[name]) for name in set(one) & set(other))


def _people_of(point: FrontierRow, trained: Sequence[Training]) -> Iterator[tuple[People, bool]]:
    """People of trainings under a point's defense, and whether nothing follows from nobody found among them.

    They count as exposed where its settings could be the same; only of equal ones, in batches of one size, is it said
    that nobody was.
    """
    defense = point.defense_settings
    options = defense.get("options") or {}
    for row, other, people, is_weak in trained:
        theirs = other.get("options") or {}
        if defense and _place(row, other) == _place(point, defense) and _could_be(options, theirs):
            yield people, is_weak or options != theirs or row.batch_size != point.batch_size


def compare_raw(rows: Iterable[Mapping[str, Any]], run: str = "") -> tuple[Frontier, ...]:
    """The same of rows as ``results.json`` contains them."""
    found = (read_row(row, f"row {i}", run) for i, row in enumerate(rows))
    return compare(row for row in found if isinstance(row, FrontierRow))


def fullest(frontiers: Sequence[Frontier]) -> Frontier | None:
    """The frontier with most points measured, which the summary is about; None where there is no point at all."""
    return max(frontiers, key=lambda one: len(one.measured), default=None)


def _other_settings(point: Point) -> str:
    options = point.first.defense_settings.get("options") or {}
    others = (f"{name} {value}" for name, value in options.items() if name != point.first.defense_option)
    return f" ({', '.join(others) or 'other settings by default'})"


def _of_point(row: FrontierRow) -> tuple[object, ...]:
    """What rows of one point have in common; of two runs, the settings besides the strength may differ."""
    others = frozenset() if row.is_undefended else frozenset(flat(row.defense_settings).items())
    return row.curve, row.is_undefended or row.defense, row.defense_strength, row.defense_option, others


def _frontier(rows: Sequence[FrontierRow], trained: Sequence[Training]) -> Frontier:
    guessing = Group(tuple(row for row in rows if row.attack == BASELINE))
    guesses, whole = guessing.by(unit_of, "cell_accuracy"), guessing.by(unit_of, whole_rows)
    same = by_key(rows, _of_point)
    # The first row of a point is one that says what the defense is, where any does.
    points = []
    for found in same.values():
        stated = tuple(sorted(found, key=lambda row: not row.defense_words))
        people = tuple(_people_of(found[0], trained))
        points.append(Point(stated, guesses=guesses, whole_guesses=whole, people=people))
    names = Counter(point.name for point in points)
    points = [replace(one, settings_named=_other_settings(one)) if names[one.name] > 1 else one for one in points]
    curves = list(dict.fromkeys(point.first.curve for point in points))

    def order(point: Point) -> tuple[bool, int, float]:
        row = point.first
        return not row.is_undefended, curves.index(row.curve), row.defense_strength or 0.0

    points.sort(key=order)
    none = next((point for point in points if point.first.is_undefended), None)
    return Frontier(tuple(one if one is none else replace(one, baseline=none) for one in points))
