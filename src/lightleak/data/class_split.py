"""Private and public rows by class; rows of one group (one patient) are never on both sides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightleak.core.errors import DataError, UsageError
from lightleak.core.seeds import numpy_generator
from lightleak.data.task_config import TaskConfig

_PRIVATE = ("private_train", "private_validation", "private_test", "private_judge")
_PARTS = (*_PRIVATE, "public")
_PUBLIC = _PARTS.index("public")


@dataclass(frozen=True)
class ClassSplit:
    """Row positions of the five parts, ascending int64 arrays; no group has rows in two of them.

    Attributes:
        classes: indices of the private classes, the most frequent first.
        private_train: rows to train on.
        private_validation: rows for the scores of the models, for permutation importance, and to stop boosted trees.
        private_test: rows held out.
        private_judge: rows that only the second evaluation model is trained on.
        public: rows of the attacker.
        dropped: rows of no private class that belong to no part: their group is private, or no such row is public.
        facts: rows and groups of every part, classes of the public rows, rows per private class; JSON-ready.
    """

    classes: np.ndarray
    private_train: np.ndarray
    private_validation: np.ndarray
    private_test: np.ndarray
    private_judge: np.ndarray
    public: np.ndarray
    dropped: np.ndarray
    facts: Mapping[str, Any]


def split_by_class(labels: np.ndarray, groups: np.ndarray, config: TaskConfig, seed: int) -> ClassSplit:
    """The most frequent classes are private; each group goes to one side, and to one part of it.

    A group with any row of a private class is private, and its rows of other classes are dropped. The parts are
    stratified: the groups of each class are distributed by their rows, a group of several classes with the rarest of
    them, and every part gets a group of every class as far as its groups go. With named groups the parts are the same
    sets of rows whatever the order of the rows.

    Args:
        labels: ``[n]`` class index of each row; of equally frequent classes the lower index comes first.
        groups: ``[n]`` name of each row's group.
        config: number of private classes, rule and shares.
        seed: root seed.

    Raises:
        UsageError: more private classes than there are.
        DataError: a part stays empty, or lacks a private class.
    """
    rows_of = np.bincount(labels)
    n_private = config.private_classes
    most = int((rows_of > 0).sum()) - (config.split == "class")
    if n_private > most:
        rule = "classes with rows, one of them left for the public side" if config.split == "class" else "with rows"
        raise UsageError(f"task.private_classes must be at most {most} ({rule}), got {n_private}")
    classes = np.argsort(-rows_of, kind="stable")[:n_private]
    rank_of = np.full(len(rows_of), -1)
    rank_of[classes] = np.arange(n_private)
    ranks = rank_of[labels]  # 0: the most frequent class; -1: a class that is not private
    names, codes = np.unique(groups, return_inverse=True)
    rarest = np.full(len(names), -1)  # private class of each group, -1 where it has none
    np.maximum.at(rarest, codes, ranks)

    shares = np.asarray((*config.private_shares, 0.0))
    if config.split == "in_distribution":
        shares = shares * (1.0 - config.public_fraction)
        shares[_PUBLIC] = config.public_fraction
    used = np.flatnonzero(shares)
    held = np.flatnonzero(rarest >= 0)
    weight = np.bincount(codes[(ranks >= 0) & (ranks == rarest[codes])], minlength=len(names))
    # A permutation of sorted names, not of rows: the order of the rows changes nothing.
    order = numpy_generator(seed, "class-split", config.split).permutation(len(held))
    part_of = np.full(len(names), _PUBLIC)
    part_of[held] = used[deal_out(rarest[held], weight[held], order, shares[used])]

    kept = ranks >= 0
    if config.split == "class":
        kept |= rarest[codes] < 0
    rows = {name: np.flatnonzero(kept & (part_of[codes] == index)) for index, name in enumerate(_PARTS)}
    _require_rows(rows, ranks, rows_of[classes])
    rows["dropped"] = np.flatnonzero(~kept)
    facts = {
        "rows": {name: len(of_part) for name, of_part in rows.items()},
        "groups": {name: len(np.unique(codes[of_part])) for name, of_part in rows.items()},
        "public_classes": len(np.unique(labels[rows["public"]])),
        "rows_per_class": {name: np.bincount(ranks[rows[name]], minlength=n_private).tolist() for name in _PRIVATE},
    }
    return ClassSplit(classes, **rows, facts=facts)


def deal_out(
    stratum: np.ndarray, weight: np.ndarray, order: np.ndarray, shares: Sequence[float] | np.ndarray
) -> np.ndarray:
    """Part of each unit, so that within every stratum the parts have about ``shares`` of the weight.

    The units of a stratum lie in a line in the given order, each as long as its weight, and the line is cut at the
    shares; a unit belongs to the part that holds its middle. Every part gets one unit at least, as far as they go.

    Args:
        stratum: ``[n]`` stratum of each unit, from 0.
        weight: ``[n]`` weight of each unit, above 0.
        order: ``[n]`` place of each unit in line.
        shares: share of each part; they sum to 1.

    Returns:
        ``[n]`` index of the part.

    >>> deal_out(np.zeros(10, int), np.ones(10), np.arange(10), [0.5, 0.3, 0.2]).tolist()
    [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]
    """
    line = np.lexsort((order, stratum))
    of_stratum, length = stratum[line], weight[line].astype(np.float64)
    sizes, totals = np.bincount(of_stratum), np.bincount(of_stratum, weights=length)
    first = np.cumsum(sizes) - sizes
    middle = (np.cumsum(length) - length / 2 - (np.cumsum(totals) - totals)[of_stratum]) / totals[of_stratum]
    place = np.arange(len(line)) - first[of_stratum]
    parts, end = np.zeros(len(line), dtype=np.int64), np.zeros(len(sizes), dtype=np.int64)
    for index, cut in enumerate(np.cumsum(shares)[:-1]):
        within = np.bincount(of_stratum[middle < cut], minlength=len(sizes))
        left_for_later = sizes - (len(shares) - 1 - index)
        end = np.maximum(np.minimum(within, left_for_later), end + 1)
        parts += place >= end[of_stratum]
    result = np.empty_like(parts)
    result[line] = parts
    return result


def _require_rows(rows: Mapping[str, np.ndarray], ranks: np.ndarray, sizes: np.ndarray) -> None:
    """Raise `DataError` where the public part is empty or a private one lacks a class."""
    if not len(rows["public"]):
        raise DataError("the split leaves no public row: every group has rows of private classes")
    for name in _PRIVATE:
        counts = np.bincount(ranks[rows[name]], minlength=len(sizes))
        if not counts.all():
            poor = int(np.flatnonzero(counts == 0)[0])
            raise DataError(
                f"the split leaves no {name} row of the private class number {poor + 1}, which has {sizes[poor]} rows; "
                f"lower task.private_classes (now {len(sizes)}), or choose larger shares"
            )
