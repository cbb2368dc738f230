"""Loss of candidate rows under a simulated local training, and its derivative: the matcher of every FedAvg attack."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.simulation import SimulatedTraining
from lightleak.attacks.gradient_inversion.optimize.matcher import Targets, compare
from lightleak.attacks.gradient_inversion.optimize.objective import Objective
from lightleak.attacks.gradient_inversion.optimize.whitening import Whitening

RowPrior = Callable[[Tensor], Tensor]
"""From ``x [updates, restarts, clients, copies, rows, d]`` to a penalty ``[updates, restarts]``; differentiable, the
same operations in every step, and none that needs the host."""


class UpdateMatcher:
    """Compares the averaged update of simulated clients with the observed one (FedAvg paper, Algorithm 2).

    Both are scaled alike, to a mean gradient ``(theta_s - theta_c) / (eta U)`` or to a sum of gradients. An aggregate
    is simulated client by client and averaged (App. C.5).

    Args:
        training: builds the simulation of ``restarts`` candidates.
        weights: before the training, ``[updates, ...]`` each.
        deltas: observed weight deltas, ``[updates, ...]`` each.
        scale: what makes gradients of weights before minus weights after.
        clients: behind every update.
        copies: variables per row (`Schedule.copies`).
        objective: distance of updates.
        weight: of that distance.
        priors: added to the loss.
        whitening: compares updates in place of the objective, weight and bias of a layer together.
    """

    def __init__(
        self,
        training: Callable[[int], SimulatedTraining],
        weights: Sequence[Tensor],
        deltas: Sequence[Tensor],
        scale: float,
        clients: int,
        copies: int,
        objective: Objective,
        weight: float = 1.0,
        priors: Sequence[RowPrior] = (),
        whitening: Whitening | None = None,
    ) -> None:
        self.training, self.weights = training, list(weights)
        self.targets, self.scale = Targets([delta * -scale for delta in deltas]), scale
        self.clients, self.copies, self.priors = clients, copies, tuple(priors)
        self.objective, self.weight, self.whitening = objective, weight, whitening
        self._share = 0.0
        self._simulations: dict[int, SimulatedTraining] = {}

    @property
    def repeats(self) -> bool:
        """See `Repeating`, of the simulations that the first step has built."""
        simulations = self._simulations.values()
        return self.whitening is None and len(simulations) > 0 and all(one.repeats for one in simulations)

    def at(self, share: float) -> "UpdateMatcher":
        """This matcher after that share of the optimization; see `Annealed`."""
        moved = copy.copy(self)
        moved._share = share
        return moved

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Matcher`, for ``x`` ``[updates, restarts, clients * copies * rows, d]``."""
        updates, restarts, _, d = x.shape
        shape = (updates, restarts, self.clients, self.copies, -1, d)
        if restarts not in self._simulations:
            self._simulations[restarts] = self.training(restarts)
        simulation = self._simulations[restarts].at(self._share)
        with torch.no_grad():
            start = [
                w.unsqueeze(1).expand(updates, restarts * self.clients, *w.shape[1:]).flatten(0, 1)
                for w in self.weights
            ]
            end, back = simulation.run(start, x.reshape(updates * restarts * self.clients, self.copies, -1, d))
            found = [self._mean((w - v) * self.scale, updates) for w, v in zip(start, end, strict=True)]
            distance, by_update = self._compare(found)
            factor = -self.weight * self.scale / self.clients
            by_weights = [(factor * g).repeat_interleave(self.clients, 1).flatten(0, 1) for g in by_update]
            value, by_x = self.weight * distance, back(by_weights).reshape(x.shape)
        if self.priors:
            leaf = x.detach().requires_grad_()
            with torch.enable_grad():
                penalty = torch.stack([prior(leaf.reshape(shape)) for prior in self.priors]).sum(0)
                (by_prior,) = torch.autograd.grad(penalty.sum(), leaf)
            value, by_x = value + penalty.detach(), by_x + by_prior
        return value, by_x

    def _compare(self, found: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Distance to the observed update, and its derivative by every parameter's."""
        if self.whitening is None:
            return compare(found, self.targets, self.objective)
        pairs = zip(found[0::2], found[1::2], strict=True)
        distance, by_layer = self.whitening([torch.cat([w, b.unsqueeze(-1)], -1) for w, b in pairs])
        return distance, [part for layer in by_layer for part in (layer[..., :-1], layer[..., -1])]

    def _mean(self, update: Tensor, updates: int) -> Tensor:
        """``[updates * restarts * clients, ...]`` averaged over clients: ``[updates, restarts, ...]``."""
        return update.unflatten(0, (updates, -1, self.clients)).mean(2)
