"""The closest made-up and private row of each class side by side (thesis Table A.2)."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightleak.report.released.entries import Entry, Nearest
from lightleak.report.released.topics import Topic
from lightleak.report.row_values import number


@dataclass(frozen=True)
class Pairing:
    """One column of one pair of rows.

    Attributes:
        private: the private row's value as text; None where it has none.
        made: the made-up row's value.
        equal: whether they are equal; None where one is missing.
        difference: made-up minus private with its sign, where both are numbers and differ; else empty.
    """

    private: str | None
    made: str | None
    equal: bool | None
    difference: str = ""


@dataclass(frozen=True)
class PairRow:
    """The closest pair of one class; ``cells`` in the order of the columns."""

    class_name: str
    distance: float | None
    cells: tuple[Pairing, ...]


@dataclass(frozen=True)
class NearestSection:
    """Closest pairs of one attack.

    Attributes:
        title: attack and setting.
        seed: of the training.
        columns: columns in which some pair differs.
        same: columns in which every pair agrees.
        rows: one per class, the closest first.
        n_equal: pairs that agree in every column.
        mean: mean distance of the pairs.
        others: mean distance of the closest pairs that baselines reach, by title.
    """

    title: str
    seed: str
    columns: tuple[str, ...]
    same: tuple[str, ...]
    rows: tuple[PairRow, ...]
    n_equal: int
    mean: float | None
    others: tuple[tuple[str, float], ...]


def nearest_section(topics: Sequence[Topic]) -> NearestSection | None:
    """The pairs of the first attack that has some; None where none has."""
    shown = next(
        ((topic, entry) for topic in topics if not topic.is_baseline for entry in topic.entries if entry.nearest), None
    )
    if shown is None:
        return None
    topic, entry = shown
    pairs = sorted(entry.nearest, key=lambda pair: (pair.distance is None, pair.distance or 0.0))
    names = list(dict.fromkeys(name for pair in pairs for row in (pair.private, pair.reconstructed) for name in row))
    cells = [{name: _pairing(pair, name) for name in names} for pair in pairs]
    differing = tuple(name for name in names if not all(found[name].equal for found in cells))
    baselines = {other.title: _mean(other.entries) for other in topics if other.is_baseline}
    return NearestSection(
        title=topic.title,
        seed=str(entry.seed),
        columns=differing,
        same=tuple(name for name in names if name not in differing),
        rows=tuple(
            PairRow(pair.class_name, pair.distance, tuple(found[name] for name in differing))
            for pair, found in zip(pairs, cells, strict=True)
        ),
        n_equal=sum(all(one.equal for one in found.values()) for found in cells),
        mean=_mean([entry]),
        others=tuple((title, mean) for title, mean in baselines.items() if mean is not None),
    )


def _mean(entries: Sequence[Entry]) -> float | None:
    """Mean distance of the first entry's pairs."""
    pairs = next((entry.nearest for entry in entries if entry.nearest), ())
    known = [pair.distance for pair in pairs if pair.distance is not None]
    return statistics.fmean(known) if known else None


def _pairing(pair: Nearest, name: str) -> Pairing:
    private, made = _value(pair.private.get(name)), _value(pair.reconstructed.get(name))
    if private is None or made is None:
        return Pairing(private, made, None)
    first, second = number(pair.private[name]), number(pair.reconstructed[name])
    if first is None or second is None:
        return Pairing(private, made, private == made)
    difference = second - first
    return Pairing(private, made, difference == 0, f"{difference:+.3g}".replace("-", "−") if difference else "")


def _value(value: Any) -> str | None:
    """A value as text; None where it is missing or no finite number."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    known = number(value)
    return str(value) if known is None else f"{known:.6g}".replace("-", "−")
