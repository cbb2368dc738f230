"""The truth behind an update of another framework, where the auditor owns the client's rows: with it, scores exist."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.core.arguments import require_kind
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.records import RecordedClient
from lightleak.protocols.replay import check_rows, network_of, require_replay
from lightleak.targets.functional import drops_units


@dataclass(frozen=True)
class PrivateRows:
    """A client's rows in one round.

    Attributes:
        inputs: ``[n, d]`` encoded rows, in the encoding of the view.
        labels: class indices ``[n]``.
        order: LongTensor ``[epochs, n]``, the order in which each local epoch took the rows; needed for weights or a
            delta after more than one batch an epoch.
        training: the clients' SGD, where the server does not know it; None: as the update states.

    Raises:
        UsageError: rows that are no tensors.
    """

    inputs: Tensor
    labels: Tensor
    order: Tensor | None = None
    training: LocalTraining | None = None

    def __post_init__(self) -> None:
        require_kind("inputs", self.inputs, Tensor, "a tensor [n, d] of encoded rows, such as encoder.encode(frame)")
        require_kind(
            "labels", self.labels, Tensor, "a tensor [n] of class indices, such as encoder.encode_labels(frame)"
        )
        if self.order is not None:
            require_kind("order", self.order, Tensor, "an int64 tensor [epochs, rows], or None")


def ground_truth(update: ClientUpdate, rows: PrivateRows) -> GroundTruth:
    """The truth behind ``update``, once the rows are seen to reproduce it: against other rows no score means anything.

    Raises:
        ObservationError: rows that do not reproduce the update (`require_replay`), or whose order is needed and absent.
        UnsupportedError: a weight update of a network with dropout, whose draws another framework does not record.
        UsageError: rows that the network cannot take.
    """
    inputs, labels = rows.inputs.detach().cpu().clone(), rows.labels.detach().cpu().clone()
    truth = GroundTruth(inputs, labels)
    check_rows(update, truth)
    if update.kind == "delta":
        truth = _recorded(update, truth, rows)
    if update.state != "noised":
        require_replay(update, truth)
    return truth


def _recorded(update: ClientUpdate, truth: GroundTruth, rows: PrivateRows) -> RecordedClient:
    if update.training_mode and drops_units(network_of(update, truth)):
        raise UnsupportedError(
            "a weight update of a network with dropout cannot be repeated from its rows, so they cannot be checked; "
            "capture it without them"
        )
    training, n = rows.training or _training(update), len(truth.labels)
    order = rows.order
    if order is None and training.batch_size < n:
        raise ObservationError(
            f"the rows' order is needed: {training.epochs} epochs took {n} rows in batches of {training.batch_size}; "
            "give order, int64 [epochs, rows]"
        )
    if order is None:
        order = torch.arange(n).expand(training.epochs, n)
    return RecordedClient(truth.inputs, truth.labels, order=order.clone(), training=training, buffers=update.buffers)


def _training(update: ClientUpdate) -> LocalTraining:
    facts = update.facts
    if facts.epochs is None or facts.batch_size is None or facts.learning_rate is None:
        raise ObservationError(
            "the server does not know epochs, batch_size or learning_rate; give the rows' training to check them"
        )
    return LocalTraining(facts.epochs, facts.batch_size, facts.learning_rate, facts.momentum, facts.weight_decay)
