"""The client's local training, simulated for many candidates at once, and the way back through it.

Weights are never part of an autograd graph: the way back carries the derivative by the weights from the last step to
the first, through each step's own adjoint, so memory is one copy of the weights per step. Where even that is too much,
only the weights at the start of each segment of steps are kept and the steps inside are run a second time.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.local_step import LocalStep, Weights
from lightleak.attacks.gradient_inversion.fedavg.simulate.schedule import Schedule
from lightleak.attacks.gradient_inversion.optimize.matcher import Annealed, Repeating


@dataclass(frozen=True)
class LocalSGD:
    """How the client's optimizer moves the weights, besides its learning rate."""

    momentum: float = 0.0
    weight_decay: float = 0.0


@dataclass
class _State:
    weights: Weights
    velocity: Weights | None


class SimulatedTraining:
    """SimUpdate of the FedAvg paper (Sec. 4.3) with its derivative.

    Args:
        step: gradient of a batch and its adjoint.
        schedule: the steps.
        sgd: momentum and weight decay.
        labels: LongTensor ``[clients, epochs, rows]``, in the order in which the batches take them.
        positions: LongTensor ``[clients, epochs, rows]``: which variable stands at each place of an epoch, where one
            variable per row serves all epochs; None: in order.
        segment: steps whose traces are held at once.
    """

    def __init__(
        self,
        step: LocalStep,
        schedule: Schedule,
        sgd: LocalSGD,
        labels: Tensor,
        positions: Tensor | None = None,
        segment: int | None = None,
    ) -> None:
        self.step, self.schedule, self.sgd = step, schedule, sgd
        self.labels, self.positions = labels, positions
        self.segment = segment or schedule.steps
        self._places = [(epoch, part) for epoch in range(schedule.epochs) for part in schedule.slices()]

    @property
    def repeats(self) -> bool:
        """See `Repeating`."""
        return isinstance(self.step, Repeating) and self.step.repeats

    def at(self, share: float) -> "SimulatedTraining":
        """This training after that share of the optimization; see `Annealed`."""
        if not isinstance(self.step, Annealed):
            return self
        moved = copy.copy(self)
        moved.step = self.step.at(share)
        return moved

    def run(self, weights: Weights, x: Tensor) -> tuple[Weights, Callable[[Weights], Tensor]]:
        """Weights after the training, and the map from a derivative by them to the derivative by ``x``.

        Args:
            weights: before, ``[clients, ...]`` each.
            x: variables ``[clients, copies, rows, d]``.

        Returns:
            The weights, and the map, which serves once and changes the derivatives it is given.
        """
        starts = range(0, self.schedule.steps, self.segment)
        state = _State(weights, None)
        kept: list[_State] = []
        traces: list[Any] = []
        for start in starts:
            kept.append(state)
            traces = []  # only those of the last segment are needed first
            state, traces = self._forward(state, x, start)

        def back(by_weights: Weights) -> Tensor:
            by_x = torch.zeros_like(x)
            by_velocity: Weights | None = None
            held = traces
            for start, begin in zip(reversed(starts), reversed(kept), strict=True):
                if start != starts[-1]:
                    _, held = self._forward(begin, x, start)
                by_velocity = self._backward(held, by_weights, by_velocity, by_x, start)
            return by_x

        return state.weights, back

    def _forward(self, state: _State, x: Tensor, start: int) -> tuple[_State, list[Any]]:
        traces: list[Any] = []
        for index in range(start, min(start + self.segment, self.schedule.steps)):
            trace = self.step.run(state.weights, self._rows(x, index), self._labels(index))
            traces.append(trace)
            state = self._moved(state, trace)
        return state, traces

    def _moved(self, state: _State, trace: Any) -> _State:
        """PyTorch's SGD."""
        rate, sgd = self.schedule.learning_rate, self.sgd
        if not (sgd.momentum or sgd.weight_decay):
            return _State(self.step.descended(trace, rate), None)
        change = self.step.gradient(trace)
        change = [g.add_(w, alpha=sgd.weight_decay) for g, w in zip(change, state.weights, strict=True)]
        if state.velocity is not None:
            change = [g.add_(v, alpha=sgd.momentum) for g, v in zip(change, state.velocity, strict=True)]
        weights = [torch.sub(w, g, alpha=rate) for w, g in zip(state.weights, change, strict=True)]
        return _State(weights, change if sgd.momentum else None)

    def _backward(
        self, traces: list[Any], by_weights: Weights, by_velocity: Weights | None, by_x: Tensor, start: int
    ) -> Weights | None:
        rate, sgd = self.schedule.learning_rate, self.sgd
        plain = not (sgd.momentum or sgd.weight_decay)
        for offset in range(len(traces) - 1, -1, -1):
            if plain:
                by_rows = self.step.pullback(traces[offset], by_weights, by_weights, -rate)
            else:
                by_gradient = [w * -rate for w in by_weights]
                if by_velocity is not None:
                    by_gradient = [g.add_(v) for g, v in zip(by_gradient, by_velocity, strict=True)]
                for w, g in zip(by_weights, by_gradient, strict=True):
                    w.add_(g, alpha=sgd.weight_decay)
                by_rows = self.step.pullback(traces[offset], by_gradient, by_weights, 1.0)
                by_velocity = [g.mul_(sgd.momentum) for g in by_gradient] if sgd.momentum else None
            traces[offset] = None
            self._add_rows(by_x, start + offset, by_rows)
        return by_velocity

    def _labels(self, index: int) -> Tensor:
        epoch, part = self._places[index]
        return self.labels[:, epoch, part]

    def _rows(self, x: Tensor, index: int) -> Tensor:
        epoch, part = self._places[index]
        if self.schedule.copies > 1 or self.positions is None:
            return x[:, epoch if self.schedule.copies > 1 else 0, part]
        return x[:, 0].gather(1, self._where(index, x))

    def _add_rows(self, by_x: Tensor, index: int, by_rows: Tensor) -> None:
        epoch, part = self._places[index]
        if self.schedule.copies > 1 or self.positions is None:
            by_x[:, epoch if self.schedule.copies > 1 else 0, part] += by_rows
        else:
            by_x[:, 0].scatter_add_(1, self._where(index, by_x), by_rows)

    def _where(self, index: int, x: Tensor) -> Tensor:
        assert self.positions is not None  # callers know
        epoch, part = self._places[index]
        return self.positions[:, epoch, part].unsqueeze(-1).expand(-1, -1, x.shape[-1])
