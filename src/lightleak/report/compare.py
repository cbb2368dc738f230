"""Rows grouped by what was fixed, each group set against a reference, and groups ranked: for rows of every kind."""

import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lightleak.core.grouping import by_key
from lightleak.core.results import Row
from lightleak.report.budget import BASELINES
from lightleak.report.format import attack_title
from lightleak.report.intervals import Estimate, bounded, estimate

R = TypeVar("R", bound=Row)
G = TypeVar("G", bound="Group[Any]")
K = TypeVar("K", bound=Hashable)

Key = Callable[[R], Hashable]
Score = str | Callable[[R], float | None]
"""A number of a row: its name (`Row.number`), or what computes it."""


@dataclass(frozen=True)
class Group(Generic[R]):
    """Rows that differ in nothing but what they are averaged over, such as batches or seeds.

    Attributes:
        rows: at least one; `first` has what all of them have in common.
        variant: how it differs from other groups of the same name; empty if there are none.
        baseline: the group that it is measured against; None where there is none.
    """

    rows: tuple[R, ...] = field(repr=False)
    variant: str = ""
    baseline: "Group[R] | None" = field(default=None, repr=False)

    @property
    def first(self) -> R:
        """A row of the group, for what all of them have in common."""
        return self.rows[0]

    @property
    def attack(self) -> str:
        """Name of the attack."""
        return self.first.attack

    @property
    def title(self) -> str:
        """The attack as a reader knows it, with its variant."""
        return attack_title(self.attack) + (f" ({self.variant})" if self.variant else "")

    @property
    def is_baseline(self) -> bool:
        """Whether it uses nothing of what was observed: what it finds has not leaked."""
        return self.attack in BASELINES

    @property
    def css(self) -> str:
        """Class of its line in a table."""
        return "baseline" if self.is_baseline else ""

    def values(self, score: Score[R]) -> list[float]:
        """One number of each row that has it."""
        return [value for row in self.rows if (value := number_of(row, score)) is not None]

    def mean(self, score: Score[R]) -> Estimate | None:
        """Mean of one number over the rows; None where no row has it.

        With the interval of `bounded` where the number is a score that has bounds, else with Student's.
        """
        low, high = type(self.first).METRICS.get(score, (None, None)) if isinstance(score, str) else (None, None)
        values = self.values(score)
        return estimate(values) if low is None or high is None else bounded(values, low, high)

    def by(self, key: Key[R], score: Score[R]) -> dict[Hashable, float]:
        """One number by what names the row; rows of one name are averaged first."""
        return means_by((key(row), value) for row in self.rows if (value := number_of(row, score)) is not None)

    def means(self, attribute: str) -> dict[str, float]:
        """Means of the entries of a mapping, such as an accuracy by column, in the order of its first row."""
        return means_by(entry for row in self.rows for entry in getattr(row, attribute).items())


def attacks(groups: Iterable[G]) -> tuple[G, ...]:
    """The groups that are no baselines."""
    return tuple(group for group in groups if not group.is_baseline)


def means_by(values: Iterable[tuple[K, float]]) -> dict[K, float]:
    """Mean of the values of each key, in the order of the keys.

    >>> means_by([("a", 0.5), ("b", 1.0), ("a", 1.0)])
    {'a': 0.75, 'b': 1.0}
    """
    by_name = by_key(values, lambda pair: pair[0])
    return {name: statistics.fmean(value for _, value in same) for name, same in by_name.items()}


def number_of(row: R, score: Score[R]) -> float | None:
    """A number of a row; None where it is unknown."""
    return row.number(score) if isinstance(score, str) else score(row)


def fixed(row: Row, names: Iterable[str]) -> tuple[Any, ...]:
    """The named fields of a row, as a key."""
    return tuple(getattr(row, name) for name in names)


def differing(rows: Iterable[Row], names: Iterable[str]) -> list[str]:
    """Names of the fields in which the rows differ."""
    known = list(rows)
    return [name for name in names if len({getattr(row, name) for row in known}) > 1]


def group_rows(
    rows: Iterable[R], key: Key[R], split: Callable[[Sequence[R]], Mapping[str, Sequence[R]]] | None = None
) -> tuple[Group[R], ...]:
    """Group rows by a key, in the order of the rows.

    Args:
        rows: rows of one kind.
        key: what rows of one group have in common.
        split: divides rows of one key by variant; `by_settings` where it is left out.
    """
    return tuple(
        Group(tuple(found), variant)
        for same in by_key(rows, key).values()
        for variant, found in (split or by_settings)(same).items()
    )


def by_settings(rows: Sequence[R], but: Iterable[str] = ()) -> dict[str, list[R]]:
    """Rows by the settings of the attack in which they differ, such as ``restarts 5``; one empty name if in none.

    Args:
        rows: rows of one attack.
        but: settings that do not count.
    """
    varying = [name for name in _varying(rows) if name not in but]
    return by_key(rows, lambda row: ", ".join(f"{name} {row.settings.get(name, 'unset')}" for name in varying))


def _varying(rows: Sequence[R]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row.settings)
    return [name for name in names if len({row.settings.get(name) for row in rows}) > 1]


def apart(rows: Sequence[R], key: Key[R]) -> dict[str, list[R]]:
    """Rows by the settings in which they differ, and by run where several then have one key, such as a seed."""
    runs = list(by_key(rows, lambda row: row.run).values())
    # What varies in one run that has each key once follows from the key, such as a seed of its own.
    follows = [] if any(_collide(same, key) for same in runs) else [name for same in runs for name in _varying(same)]
    found = by_settings(rows, follows)
    if not any(_collide(same, key) for same in found.values()):
        return found
    return {
        ", ".join(part for part in (variant, f"run {run}") if part): of_run
        for variant, same in found.items()
        for run, of_run in by_key(same, lambda row: row.run).items()
    }


def _collide(rows: Sequence[R], key: Key[R]) -> bool:
    return len({key(row) for row in rows}) < len(rows)
