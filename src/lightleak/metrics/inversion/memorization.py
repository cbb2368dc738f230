"""Are reconstructed rows nearer to the rows a model was trained on than to private rows it never saw?

A generator that only knows what a class looks like comes near to rows of either kind; one that repeats what the model
has memorized comes nearer to training rows. The thesis has no such comparison.

Every sample votes for its nearest private row of its class, among training and held-out rows together; rows at the same
distance share its vote. The share of votes that go to training rows is set against the share of training rows: what is
reported is ``odds / (1 + odds)``, with ``odds`` the votes per training row over those per held-out row and classes
combined as Mantel and Haenszel (1959) do. With as many training rows as held-out ones it is the share of samples nearer
to a training row. Drawing as many training rows as there are held-out ones would find the same where the two are alike;
but of R times as many training rows, all but one of R draws miss the one that was copied.

Interval: the unit is the row, since one row may be the nearest of many samples. If nothing was memorized, training and
held-out rows are exchangeable whatever the samples are, so the votes of a class that go to training rows vary as those
of a random choice among its rows: a variance known from the votes alone. Over that of independent samples it is the
design effect (Kish 1965), and Wilson's interval is taken for n over it. It says how far the held-out rows bear a
conclusion. It does not cover rows that hang together (two visits of one patient) nor another training of the model.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from lightleak.core.seeds import generator
from lightleak.core.summary import wilson
from lightleak.data.schema import TableSchema
from lightleak.metrics.cells import Cells, Rows
from lightleak.metrics.inversion.gower import SAME_DISTANCE, GowerSpace
from lightleak.metrics.inversion.table import as_cells, checked_labels, some_cells, take


@dataclass(frozen=True)
class Nearness:
    """How near samples come to training rows and to held-out rows.

    Attributes:
        train_mean: mean Gower distance to the nearest of as many training rows as there are held-out rows in the class
            (or the other way round), mean over disjoint draws that use every row; NaN without samples.
        heldout_mean: the same for held-out rows.
        share: see the module; 0.5 where nothing was memorized, 1 where only training rows are repeated.
        low: lower end of its 95% interval.
        high: upper end.
        n: samples.
        effective_n: number of independent samples with the same information.
        distinct_rows: effective number of distinct nearest private rows of a class: ``(sum v)**2 / sum v**2`` over the
            votes ``v`` of its rows, the inverse of Simpson's index (Hill 1973), mean over classes. It is at most the
            number of samples of a class: compare it at equal numbers alone. NaN without samples.
    """

    train_mean: float
    heldout_mean: float
    share: float
    low: float
    high: float
    n: int
    effective_n: float
    distinct_rows: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, ``None`` for NaN; the share is named ``share_nearer_to_train``."""
        return {
            "share_nearer_to_train" if name == "share" else name: None if value != value else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Memorization:
    """`Nearness` over all classes that have training and held-out rows and samples, and of each class."""

    overall: Nearness
    per_class: tuple[Nearness, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form: that of ``overall``."""
        return self.overall.to_dict()


def memorization(
    samples: Rows,
    labels: Tensor,
    train: Rows,
    train_labels: Tensor,
    held_out: Rows,
    held_out_labels: Tensor,
    schema: TableSchema,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Memorization:
    """Compare samples with training and held-out rows of their own class; ranges are those of both together.

    Training and held-out rows must be a random split of one table, and rows that chose when training stopped are
    neither.

    Args:
        samples: n reconstructed rows.
        labels: classes they were made for ``[n]``.
        train: private rows that the model was trained on.
        train_labels: their classes.
        held_out: private rows that it never saw.
        held_out_labels: their classes.
        schema: the columns; its label has the classes.
        seed: of the draws behind the mean distances; the share needs none.
        device: where the work is done.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: labels do not fit the rows or the classes, or no training or no held-out rows.
    """
    known_rows = (some_cells(train, schema, "training rows"), some_cells(held_out, schema, "held-out rows"))
    tables = [as_cells(samples, schema), *known_rows]
    classes = [
        checked_labels(of_rows, len(cells.codes), schema.n_classes)
        for of_rows, cells in zip((labels, train_labels, held_out_labels), tables, strict=True)
    ]
    space = GowerSpace.of(Cells(*(torch.cat(parts) for parts in zip(*known_rows, strict=True))), schema)
    found = []
    for label in range(schema.n_classes):
        made, *known = ((of_rows == label).nonzero()[:, 0] for of_rows in classes)
        shuffled = (
            rows[torch.randperm(len(rows), generator=generator(seed, "memorisation", kind, label))]
            for kind, rows in zip(("train", "held_out"), known, strict=True)
        )
        parts = [take(cells, rows) for cells, rows in zip(tables, (made, *shuffled), strict=True)]
        found.append(_count(space, parts[0], parts[1], parts[2], device))
    return Memorization(_nearness(found), tuple(_nearness([one]) for one in found))


@dataclass(frozen=True)
class _Counts:
    """Votes of one class: what its share, its interval and its mean distances are made of."""

    n: int = 0
    n_train: int = 0
    n_held_out: int = 0
    to_train: float = 0.0
    to_held_out: float = 0.0
    variance: float = 0.0
    train_distance: float = 0.0
    held_out_distance: float = 0.0
    distinct_rows: float = 0.0

    @property
    def share_of_rows(self) -> float:
        """Training rows among all rows of the class."""
        return self.n_train / (self.n_train + self.n_held_out)


def _count(space: GowerSpace, samples: Cells, train: Cells, held_out: Cells, device: torch.device | str) -> _Counts:
    """Compare the samples of one class with its rows, which stand in random order."""
    n, n_train, n_held_out = (len(cells.codes) for cells in (samples, train, held_out))
    if not (n and n_train and n_held_out):
        return _Counts()
    rows = Cells(*(torch.cat(parts) for parts in zip(train, held_out, strict=True)))
    votes = torch.zeros(n_train + n_held_out, dtype=torch.float64)
    sums = torch.zeros(2, dtype=torch.float64)
    for _, distances in space.compare(samples, rows, device=device):
        nearest = distances <= distances.amin(1, keepdim=True) + SAME_DISTANCE
        votes += ((1 / nearest.sum(1, dtype=torch.float32)) @ nearest.float()).cpu()
        sums += torch.stack([part.sum() for part in _block_minima(distances, n_train)]).double().cpu()
    total = n_train + n_held_out
    # Variance of the sum over n_train rows chosen at random among all, without replacement.
    variance = n_train * n_held_out / total * float(votes.var()) if total > 1 else 0.0
    to_train, to_held_out = float(votes[:n_train].sum()), float(votes[n_train:].sum())
    distinct = n**2 / float(votes.square().sum())
    near = (sums / space.columns).tolist()
    return _Counts(n, n_train, n_held_out, to_train, to_held_out, variance, near[0], near[1], distinct)


def _block_minima(distances: Tensor, n_train: int) -> Iterator[Tensor]:
    """Mean distance ``[q]`` to the nearest of equally many training rows, then held-out rows, over disjoint blocks."""
    size = min(n_train, distances.shape[1] - n_train)
    for part in (distances[:, :n_train], distances[:, n_train:]):
        # The last block borrows rows of the one before it, so that no row is left out.
        starts = [min(start, part.shape[1] - size) for start in range(0, part.shape[1], size)]
        yield torch.stack([part[:, start : start + size].amin(1) for start in starts]).mean(0)


def _nearness(classes: list[_Counts]) -> Nearness:
    """Classes combined; those without samples, training or held-out rows do not count."""
    known = [one for one in classes if one.n]
    n, nan = sum(one.n for one in known), float("nan")
    if not n:
        return Nearness(nan, nan, nan, nan, nan, 0, nan, nan)
    chance = sum(one.n * one.share_of_rows for one in known) / n
    to_train = sum(one.to_train * (1 - one.share_of_rows) for one in known)
    to_held_out = sum(one.to_held_out * one.share_of_rows for one in known)
    share = to_train / (to_train + to_held_out)
    independent = sum(one.n * one.share_of_rows * (1 - one.share_of_rows) for one in known)
    effective_n = n / max(1.0, sum(one.variance for one in known) / independent)
    # Wilson's interval belongs to the share of votes at the proportion of rows that there is, not to the even one.
    votes = _at_odds(share, chance / (1 - chance))
    ends = (min(max(end, 0.0), 1.0) for end in wilson(votes, effective_n))
    low, high = (_at_odds(end, (1 - chance) / chance) for end in ends)
    train_mean = sum(one.train_distance for one in known) / n
    held_out_mean = sum(one.held_out_distance for one in known) / n
    distinct = sum(one.distinct_rows for one in known) / len(known)
    return Nearness(train_mean, held_out_mean, share, low, high, n, effective_n, distinct)


def _at_odds(share: float, factor: float) -> float:
    """The share whose odds are ``factor`` times those of ``share``."""
    return share * factor / (share * factor + 1 - share)
