"""Federated SGD (McMahan et al. 2017, FedSGD): a client sends the gradient of its mean loss on one batch.

`client_update` makes such an update; `replay` and `require_replay` hold any recorded one against its own batch.
"""

from torch import Tensor, nn

from lightleak.core.observations import ClientUpdate, ProtocolFacts
from lightleak.core.seeds import fresh_generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.protocols.local_pass import check_batch, generator_state, in_mode, local_pass
from lightleak.protocols.records import RecordedBatch
from lightleak.protocols.replay import replay, require_replay
from lightleak.targets.spec import NetworkSpec

__all__ = ["client_update", "replay", "require_replay"]


def client_update(
    network: nn.Module,
    spec: NetworkSpec,
    encoder: TableEncoder,
    inputs: Tensor,
    labels: Tensor,
    *,
    share_labels: bool,
    share_statistics: bool = False,
    share_buffers: bool = True,
    marginals: Marginals | None = None,
    training_mode: bool = True,
    epoch: int = 0,
    step: int = 0,
    seed: int | None = None,
) -> tuple[ClientUpdate, RecordedBatch]:
    """What one client sends for one batch, and the truth behind it.

    The network keeps its weights, buffers and mode.

    Args:
        network: the client's network, which ``spec`` describes.
        spec: its specification.
        encoder: the fitted encoder that made ``inputs``.
        inputs: ``[n, d]``.
        labels: class indices ``[n]``.
        share_labels: the update carries the labels.
        share_statistics: it carries mean and variance of every BatchNorm layer on this batch.
        share_buffers: it carries the network's buffers.
        marginals: one-way marginals that the server knows.
        training_mode: compute in train mode (batch statistics, dropout) rather than in eval mode.
        epoch: global epoch, for the record.
        step: global step, for the record.
        seed: dropout depends on nothing else, and torch's global generator is left alone; None draws from it, as any
            forward does.

    Raises:
        UsageError: inputs or labels that the network cannot take.
        ObservationError: a gradient that is not finite.
    """
    check_batch(spec, inputs, labels)
    parameters = dict(network.named_parameters())
    device = next(iter(parameters.values())).device
    buffers = {name: buffer.detach().cpu().clone() for name, buffer in network.named_buffers()}
    with fresh_generator(seed, device), in_mode(network, training_mode):
        state = generator_state(device)
        result = local_pass(network, parameters, {}, inputs.to(device), labels.to(device))
    n = len(inputs)
    facts, tensors = encoder.to_state()
    update = ClientUpdate(
        network=spec.to_dict(),
        parameters={name: parameter.detach().cpu().clone() for name, parameter in parameters.items()},
        update={name: gradient.cpu() for name, gradient in result.gradient.items()},
        encoder=facts,
        encoder_tensors={name: tensor.cpu() for name, tensor in tensors.items()},
        facts=ProtocolFacts(n_rows=n, batch_size=n, epoch=epoch, step=step),
        training_mode=training_mode,
        buffers=buffers if share_buffers else {},
        labels=labels.cpu().clone() if share_labels else None,
        marginals=None if marginals is None else marginals.to_dict(),
        batch_statistics=result.statistics if share_statistics else {},
    )
    truth = RecordedBatch(
        inputs.detach().cpu().clone(),
        labels.cpu().clone(),
        result.loss,
        generator_states=state.unsqueeze(0),
        buffers=buffers,
        device=device.type,
    )
    return update, truth
