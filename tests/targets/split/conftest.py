"""A small split table, a Trainer without side effects, and the reference of a step of split training."""

from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor

from lightleak.data.vertical import VerticalDataModule, VerticalRows
from lightleak.targets.split import SplitNetwork, Transform
from lightleak.targets.split.loss import loss_sum
from lightleak.targets.split.step import StepLabels, StepResult

MakeRows = Callable[..., VerticalRows]
MakeTrainer = Callable[..., lightning.Trainer]


@pytest.fixture
def make_rows() -> MakeRows:
    """Rows whose label depends on their columns; sample ids are not row numbers."""

    def make(n: int = 50, widths: tuple[int, ...] = (5, 3), n_classes: int = 2, seed: int = 0) -> VerticalRows:
        draw = torch.Generator().manual_seed(seed)
        inputs = torch.randn(n, sum(widths), generator=draw)
        directions = torch.randn(sum(widths), n_classes, generator=torch.Generator().manual_seed(7))
        ids = 1000 + torch.randperm(n, generator=draw)
        return VerticalRows(inputs, (inputs @ directions).argmax(1), ids, widths)

    return make


@pytest.fixture
def make_data(make_rows: MakeRows) -> Callable[..., VerticalDataModule]:
    def make(n: int = 50, widths: tuple[int, ...] = (5, 3), n_classes: int = 2, **settings: Any) -> VerticalDataModule:
        train, test = make_rows(n, widths, n_classes), make_rows(60, widths, n_classes, seed=1)
        return VerticalDataModule(train, test, **({"batch_size": 8} | settings))

    return make


@pytest.fixture
def make_trainer() -> MakeTrainer:
    def make(**settings: Any) -> lightning.Trainer:
        silent = {
            "max_epochs": 2,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        return lightning.Trainer(**(silent | settings))

    return make


class StepByParty:
    """Computes a step as Algorithm 2 writes it: every party differentiates its own network on its own, by autograd.

    Args:
        network: the split network.
    """

    def __init__(self, network: SplitNetwork) -> None:
        self.network = network
        self.parties = [Party(network, party) for party in range(network.spec.n_parties)]

    @torch.enable_grad()
    def __call__(self, inputs: Tensor, labels: StepLabels, transform: Transform) -> StepResult:
        """As `Step`."""
        held = self.network.party_inputs(inputs)
        outputs = [party.send(own).requires_grad_() for party, own in zip(self.parties, held, strict=True)]  # l. 4, 5
        computed = torch.stack(outputs)
        transformed = transform.outputs(computed, training=True)
        sent = transformed.detach()
        received = sent.clone().requires_grad_()  # line 6: the active party's copy
        logits = self.network.logits(received)
        loss = loss_sum(logits, labels.trained) / labels.n_rows  # line 7
        top = list(self.network.top.parameters())
        gradients, *top_gradients = torch.autograd.grad(loss, [received, *top], retain_graph=True)  # line 8
        returned = torch.autograd.grad(transformed, outputs, transform.gradients(gradients, sent))
        for party, gradient in zip(self.parties, returned, strict=True):
            party.receive(gradient)  # line 9
        for parameter, gradient in zip(top, top_gradients, strict=True):
            parameter.grad = gradient  # line 10
        if labels.queried is not None:
            queried = loss_sum(logits, labels.queried) / labels.n_rows
            (gradients,) = torch.autograd.grad(queried, received)
        return StepResult(sent, computed.detach(), gradients, logits.detach())  # line 11


class Party:
    """One party of `StepByParty`: it knows its network, its columns, its output and the gradient that comes back."""

    def __init__(self, network: SplitNetwork, party: int) -> None:
        self._network, self._party = network, party
        self._output: Tensor

    def send(self, inputs: Tensor) -> Tensor:
        """Output ``[batch, width]`` for its own columns ``[batch, d_k]``, cut off from its graph."""
        self._output = self._network.party_output(self._party, inputs)
        return self._output.detach()

    def receive(self, gradient: Tensor) -> None:
        """Set ``.grad`` of its own parameters from the gradient ``[batch, width]`` of its output."""
        parameters = list(self._network.bottoms[self._party].parameters())
        for parameter, value in zip(parameters, torch.autograd.grad(self._output, parameters, gradient), strict=True):
            parameter.grad = value


@pytest.fixture
def step_by_party() -> type[StepByParty]:
    """What computes a step as `Step` does, two to three times slower."""
    return StepByParty
