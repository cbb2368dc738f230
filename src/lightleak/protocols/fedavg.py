"""Federated averaging (McMahan et al. 2017): a client trains on its own rows and sends how far its weights moved.

`client_update` makes such an update (Dimitrov et al. 2022, Algorithm 1), `aggregate_updates` the mean of several
clients' (App. C.5); `replay` and `require_replay` hold an update against the rows said to be behind it.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.core.observations import ClientUpdate, ProtocolFacts
from lightleak.data.marginals import Marginals
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.client_training import (
    LOSS,
    ClientDefense,
    ClientRun,
    Defend,
    LocalTraining,
    acting_defense,
    check_smallest_batch,
    run_client,
)
from lightleak.protocols.local_pass import check_batch
from lightleak.protocols.records import RecordedClient
from lightleak.protocols.replay import replay, require_replay
from lightleak.targets.spec import NetworkSpec

__all__ = ["Sharing", "aggregate_updates", "client_update", "observe", "replay", "require_replay"]

ShareLabels = Literal["none", "counts", "batches"]


class Encoding(Protocol):
    """What made the rows, as far as the server knows it: a `TableEncoder`, or an image's scale."""

    def to_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Facts (JSON-ready) and tensors."""


@dataclass(frozen=True)
class Sharing:
    """What an update reveals to the server in addition to the weights.

    Attributes:
        encoder: the encoding of the rows.
        labels: ``none``; ``counts``: the labels sorted by class, so that their order reveals nothing; ``batches``: also
            the labels in the order in which the local batches took them.
        buffers: the network's buffers before local training. Those after it are never part of an update.
        marginals: one-way marginals that the server knows.

    Raises:
        UsageError: another way to share labels.
    """

    encoder: Encoding
    labels: ShareLabels = "none"
    buffers: bool = True
    marginals: Marginals | None = None

    def __post_init__(self) -> None:
        if self.labels not in get_args(ShareLabels):
            raise UsageError(f"share_labels must be one of {', '.join(get_args(ShareLabels))}, got {self.labels!r}")


def client_update(
    network: nn.Module,
    spec: NetworkSpec,
    encoder: Encoding,
    inputs: Tensor,
    labels: Tensor,
    training: LocalTraining,
    *,
    share_labels: ShareLabels,
    share_buffers: bool = True,
    marginals: Marginals | None = None,
    training_mode: bool = True,
    epoch: int = 0,
    seed: int,
    defense: ClientDefense | None = None,
    defend: Defend = "update",
) -> tuple[ClientUpdate, RecordedClient]:
    """What one client sends after its local training, and the truth behind it.

    The network keeps its weights, buffers and mode. The client's momentum starts at zero; its BatchNorm layers use the
    statistics of each local batch, and their running statistics are no part of the update.

    Args:
        network: the network that the server sent, which ``spec`` describes.
        spec: its specification.
        encoder: the fitted encoder that made ``inputs``, or what else knows its state.
        inputs: ``[n, d]``, all rows of the client.
        labels: class indices ``[n]``.
        training: settings of the local SGD.
        share_labels: see `Sharing`.
        share_buffers: see `Sharing`.
        marginals: see `Sharing`.
        training_mode: train mode (batch statistics, dropout) rather than eval mode.
        epoch: communication round, for the record.
        seed: order of the rows, dropout and defense depend on nothing else; global generators are left alone.
        defense: what the client does before anything leaves it.
        defend: the defense is applied to the finished ``update`` in the scale of a gradient
            (``-delta / (learning rate * steps)``), or to the mean gradient of each of the local ``steps``. A
            `TrainingDefense` makes the gradient of ``steps``.

    Raises:
        UsageError: rows or settings that the network cannot take.
        ObservationError: an update that is not finite.
    """
    sharing = Sharing(encoder, share_labels, share_buffers, marginals)
    check_batch(spec, inputs, labels)
    defense = acting_defense(defense, defend)
    check_smallest_batch(network, spec.layout.width, len(inputs), training, training_mode)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    device = next(iter(parameters.values())).device
    run = run_client(
        network,
        parameters,
        dict(network.named_buffers()),
        inputs.to(device),
        labels.to(device),
        training,
        seed=seed,
        training_mode=training_mode,
        defense=defense,
        defend=defend,
    )
    return observe(run, spec, sharing, epoch=epoch)


def observe(
    run: ClientRun, spec: NetworkSpec, sharing: Sharing, epoch: int = 0, step: int = 0
) -> tuple[ClientUpdate, RecordedClient]:
    """What the server sees of a client's run, and the truth behind it; both on the CPU, sharing nothing with the run.

    Args:
        run: the client's run.
        spec: specification of the network.
        sharing: what the update reveals in addition to the weights.
        epoch: communication round.
        step: server step.

    Raises:
        ObservationError: an update that is not finite.
    """
    training, labels = run.training, _copy(run.labels)
    facts, tensors = sharing.encoder.to_state()
    buffers = {name: _copy(value) for name, value in run.buffers.items()}
    update = ClientUpdate(
        network=spec.to_dict(),
        parameters={name: _copy(value) for name, value in run.parameters.items()},
        update={name: _copy(value) for name, value in run.trained.delta.items()},
        encoder=facts,
        encoder_tensors={name: tensor.cpu() for name, tensor in tensors.items()},
        facts=ProtocolFacts(
            n_rows=len(labels),
            epochs=training.epochs,
            batch_size=training.batch_size,
            local_steps=training.steps(len(labels)),
            learning_rate=training.learning_rate,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
            loss=LOSS,
            step=step,
            epoch=epoch,
            defense="none" if run.defense is None else run.defense.describe(),
        ),
        kind="delta",
        state="raw" if run.defense is None else "noised",
        training_mode=run.training_mode,
        buffers=buffers if sharing.buffers else {},
        labels=None if sharing.labels == "none" else labels.sort().values,
        batch_labels=labels[run.order].unsqueeze(0) if sharing.labels == "batches" else None,
        marginals=None if sharing.marginals is None else sharing.marginals.to_dict(),
    )
    truth = RecordedClient(
        _copy(run.inputs),
        labels,
        run.trained.loss,
        order=run.order,
        training=training,
        dropout=run.dropout,
        buffers=buffers,
        device=run.inputs.device.type,
    )
    return update, truth


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
