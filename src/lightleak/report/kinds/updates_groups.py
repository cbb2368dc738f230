"""Rows of updates grouped by what was fixed, attack and batch size, each measured against guessing."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lightleak.core.results import UpdateRow
from lightleak.report.compare import Group, fixed, group_rows, paired, ranked, with_baseline
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.updates_words import FIXED
from lightleak.report.read import Run

BASELINE = "random"
"""The attack that guesses from one-way marginals and never reads the update."""

UpdateGroup = Group[UpdateRow]

_WITHOUT_LABELS = tuple(name for name in FIXED if name != "labels")


def compare(runs: Iterable[Run]) -> tuple[UpdateGroup, ...]:
    """Group the rows of all runs, and set each group against the guessing baseline, in the order of the rows."""
    rows = [_without_local(row) for run in runs for row in run.of(UpdateRow)]
    groups = group_rows(rows, lambda row: (fixed(row, FIXED), row.attack, row.batch_size))
    # The baseline does not read labels, so one with another label setting serves as well.
    return with_baseline(groups, is_baseline, place_without_labels, lambda row: row.labels)


def is_baseline(group: UpdateGroup) -> bool:
    """Whether this is guessing itself."""
    return group.attack == BASELINE


def place_without_labels(row: UpdateRow) -> tuple[object, ...]:
    """What is fixed, and the batch size; the labels may differ."""
    return (*fixed(row, _WITHOUT_LABELS), row.batch_size)


def batch_of(row: UpdateRow) -> tuple[object, object]:
    """What attacks on the same batch share."""
    return (row.seed, row.batch_index)


def update_of(row: UpdateRow) -> tuple[object, ...]:
    """What names an update within its run; equal runs name equal updates equally."""
    local = (row.local_epochs, row.local_batches, row.n_clients) if row.on_fedavg else ()
    return (row.dataset, row.epoch, *local, row.batch_size, *batch_of(row))


def leakage(group: UpdateGroup) -> Estimate | None:
    """Cell accuracy over that of guessing on the same batch."""
    return paired(group, group.baseline, "cell_accuracy", batch_of)


def proven_share(group: UpdateGroup) -> float:
    """Mean share of rows that the attack has certified; 0 where it certifies none."""
    share = group.mean("certified_share")
    return 0.0 if share is None else share.mean


def attacks(groups: Iterable[UpdateGroup]) -> tuple[UpdateGroup, ...]:
    """The groups that read the update."""
    return tuple(group for group in groups if not is_baseline(group))


def at_start(groups: Sequence[UpdateGroup]) -> tuple[UpdateGroup, ...]:
    """The groups attacked before training; all of them where every one was captured during training."""
    return tuple(group for group in groups if group.first.source != "training") or tuple(groups)


def strongest_first(groups: Iterable[UpdateGroup]) -> list[UpdateGroup]:
    """Attacks with a measured accuracy, most leakage first."""

    def order(group: UpdateGroup) -> tuple[bool, float]:
        over, accuracy = leakage(group), group.mean("cell_accuracy")
        return over is not None, over.mean if over else accuracy.mean if accuracy else 0.0

    return ranked(attacks(groups), "cell_accuracy", order)


def _without_local(row: UpdateRow) -> UpdateRow:
    """Under FedSGD nothing is trained locally: what such rows say of it must not tell settings apart."""
    return row if row.on_fedavg else replace(row, local_epochs=None, local_batches=None, n_clients=None)
