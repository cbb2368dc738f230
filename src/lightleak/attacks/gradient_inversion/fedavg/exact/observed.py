"""What the first layer's weight update says, and how exactly it says it.

Local SGD moves the first layer by ``-lr sum_t sum_i e_1(x_i; W_t) (x_i, 1)^T / b``: whatever the epochs, batches, order
and labels are, it is ``sum_i D_i (x_i, 1)^T`` with one vector D_i per row.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, layer_names, observed_gradient
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.observations import ClientUpdate, ProtocolFacts

UNIFORM = 12.0
"""Variance of an even draw from an interval of length 1 is 1 / 12: rounding to the nearest."""

CAUTION = 1.5
"""Noise is taken this much greater than rounding to the nearest makes it: the optimizer rounds its products as well."""

ENCODED_TO = 2**-24
"""Relative rounding of encoded rows: they are float32 whatever the precision of a client's weights."""


@dataclass(frozen=True)
class WeightUpdate:
    """An observed weight update in the scale of a gradient.

    Attributes:
        start: the network before local training.
        end: the network after it.
        gradient: the update divided by minus learning rate and steps, ``[out, in + 1]`` per layer, float64.
        steps: local steps; 1 where they are not known (the scale is then theirs).
        last: where on the straight line from start to end the last step's gradient was taken.
        noise: deviation of the errors in the first layer's elements: each step rounds every weight, and
            encoding rounds every row to float32.
        fit_scale: learning rate or steps are not known, or momentum or a defense changes the scale.
        may_be_rescaled: a defense may have divided the whole update, so that ``end`` is not where training ended.
        scale: what the update that was sent has been multiplied by.
    """

    start: ReLUChain
    end: ReLUChain
    gradient: tuple[Tensor, ...]
    steps: int
    last: float
    noise: float
    fit_scale: bool = False
    uneven: bool = False
    may_be_rescaled: bool = False
    scale: float = 1.0

    @classmethod
    def of(cls, update: ClientUpdate, device: torch.device | str = "cpu") -> "WeightUpdate":
        """Read an observation that `require_weight_update` let pass."""
        start, delta = ReLUChain.of(update, device), observed_gradient(update, device)
        end = ReLUChain(
            tuple(w + d[:, :-1] for w, d in zip(start.weights, delta, strict=True)),
            tuple(b + d[:, -1] for b, d in zip(start.biases, delta, strict=True)),
        )
        known, rate = local_steps(update.facts), update.facts.learning_rate
        gradient = tuple(-d / ((rate or 1.0) * (known or 1)) for d in delta)
        noise = first_layer_noise(update, layer_names(update)[0], gradient[0])
        is_defended = update.state != "raw"
        last = 1.0 if known is None else (known - 1) / known
        fit_scale = known is None or rate is None or update.facts.momentum > 0 or is_defended
        return cls(start, end, gradient, known or 1, last, noise, fit_scale, weighs_unevenly(update.facts), is_defended)

    def rescaled(self, factor: float) -> "WeightUpdate":
        """The update as it was before a defense divided it by a factor, which divided its noise as well."""
        return replace(
            self,
            end=self.between(factor),
            gradient=tuple(layer * factor for layer in self.gradient),
            noise=self.noise * factor,
            scale=self.scale * factor,
        )

    def between(self, share: float) -> ReLUChain:
        """The network on the straight line from start to end."""
        return ReLUChain(
            tuple(a + share * (b - a) for a, b in zip(self.start.weights, self.end.weights, strict=True)),
            tuple(a + share * (b - a) for a, b in zip(self.start.biases, self.end.biases, strict=True)),
        )


def weighs_unevenly(facts: ProtocolFacts) -> bool:
    """Whether rows may count differently in an update: in a smaller last batch, or of clients with other steps."""
    if len(set(facts.client_rows)) > 1:
        return True
    if local_steps(facts) == 1:
        return False
    rows = facts.client_rows[0] if facts.client_rows else facts.n_rows // (facts.n_clients or 1)
    return not facts.batch_size or rows % facts.batch_size > 0


def local_steps(facts: ProtocolFacts) -> int | None:
    """Optimizer steps of each client; None where the facts leave them open."""
    if facts.local_steps is not None:
        return facts.local_steps
    if facts.epochs is None or facts.batch_size is None:
        return None
    rows = max(facts.client_rows, default=-(-facts.n_rows // (facts.n_clients or 1)))
    return facts.epochs * -(-rows // facts.batch_size)


def as_gradient(update: ClientUpdate) -> ClientUpdate:
    """A weight update as the mean gradient of its local steps; its scale is arbitrary where facts are not known."""
    scale = (update.facts.learning_rate or 1.0) * (local_steps(update.facts) or 1)
    return replace(update, kind="gradient", update={name: -d.double() / scale for name, d in update.update.items()})


def first_layer_noise(update: ClientUpdate, layer: str, gradient: Tensor) -> float:
    """Deviation of the errors in a first layer's elements, as `as_gradient` scales them: rounding of weights and rows.

    Args:
        update: the weight update.
        layer: name of the first layer.
        gradient: `as_gradient` of the layer ``[out, in + 1]``.
    """
    facts, steps = update.facts, local_steps(update.facts)
    if steps is None or update.state != "raw":  # a defense changes the rounding of weights with the update
        return CAUTION * max(beyond_rank(gradient, facts.n_rows), encoding_of(gradient))
    once = rounding_of(update.parameters[f"{layer}.weight"], update.parameters[f"{layer}.bias"], update)
    noise = once * (steps / (facts.n_clients or 1)) ** 0.5 / ((facts.learning_rate or 1.0) * steps)
    return CAUTION * max(noise, encoding_of(gradient))


def require_weight_update(name: str, update: ClientUpdate) -> None:
    """Check that an update is one of local SGD in which the first layer's rows can be seen.

    Raises:
        ObservationError: it is a gradient, or nothing moved.
        UnsupportedError: another loss or optimizer, weight decay, or a defense where learning rate or steps are not
            known or the clients have momentum.
    """
    facts = update.facts
    if update.kind != "delta":
        raise ObservationError(f"{name} inverts weight updates (FedAvg); this update is one FedSGD gradient")
    if facts.loss != "cross_entropy":
        raise UnsupportedError(f"{name} needs the loss 'cross_entropy', got {facts.loss!r}")
    if facts.optimizer != "sgd":
        raise UnsupportedError(f"{name} inverts local SGD; the clients trained with {facts.optimizer!r}")
    if facts.weight_decay:
        raise UnsupportedError(
            f"{name} needs an update that is a sum of the rows' gradients; weight decay ({facts.weight_decay}) adds "
            "the weights themselves"
        )
    if not any(bool(tensor.any()) for tensor in update.update.values()):
        raise ObservationError(f"{name} needs weights that moved; every element of this update is zero")
    if update.state != "raw" and (local_steps(facts) is None or facts.learning_rate is None or facts.momentum):
        raise UnsupportedError(
            f"{name} needs the learning rate and the number of local steps, and clients without momentum, where a "
            f"defense changed the update ({facts.defense}): it may have rescaled it, as these do; got learning rate "
            f"{facts.learning_rate}, {local_steps(facts)} steps, momentum {facts.momentum}"
        )


def rounding_of(weight: Tensor, bias: Tensor, update: ClientUpdate) -> float:
    """Root mean square of one rounding of a layer's weights, in the precision in which the client held them."""
    dtype = next(iter(update.parameters.values())).dtype
    magnitudes = torch.cat([weight.flatten(), bias]).abs().to(dtype)
    spacing = torch.nextafter(magnitudes, torch.full_like(magnitudes, float("inf"))) - magnitudes
    return float((spacing.double().square().mean() / UNIFORM).sqrt())


def encoding_of(gradient: Tensor) -> float:
    """Deviation that the rounding of encoded rows gives the elements of units that they reach."""
    reached = gradient[gradient.any(1)]
    return ENCODED_TO * float(reached.square().mean().sqrt()) if len(reached) else 0.0


def beyond_rank(gradient: Tensor, n_rows: int) -> float:
    """Deviation of the elements of what no ``n_rows`` rows explain; of the least singular value where they all could.

    >>> noise = torch.randn(60, 80, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> 0.8 < beyond_rank(noise + 1e3, n_rows=1) < 1.1
    True
    """
    singular = torch.linalg.svdvals(gradient)
    rank = min(n_rows, len(singular) - 1)
    free = (gradient.shape[0] - rank) * (gradient.shape[1] - rank)
    return float((singular[rank:].square().sum() / free).sqrt())
