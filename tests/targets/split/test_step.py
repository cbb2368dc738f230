"""All parties in one go equals Algorithm 2 party by party, and both equal plain autograd."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.targets.split import SplitNetwork, SplitSpec, Transform
from lightleak.targets.split.loss import loss_gradient, loss_sum
from lightleak.targets.split.step import Step, StepLabels, StepResult

SPECS = [
    SplitSpec((5, 3)),
    SplitSpec((2, 7, 1), n_classes=6),
    SplitSpec((4, 1, 6, 3, 2), 3, bottom_hidden=(8, 5), output_width=4, top_hidden=(9, 7)),
    SplitSpec((3, 3, 3, 3), bottom_hidden=(), output_width=2, top_hidden=()),
    SplitSpec((6,), n_classes=4),
]
PLAIN = Transform()


class Scaled(Transform):
    """Changes what is sent, non-linearly and across rows of the network's graph, and what comes back."""

    def outputs(self, outputs: Tensor, training: bool) -> Tensor:
        return torch.tanh(outputs) * 2 + outputs.mean(1, keepdim=True)

    def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
        return gradients * 0.5 + 0.01 * outputs


class Returned(Transform):
    """Changes only what comes back."""

    def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
        return gradients.sign()


def batch(spec: SplitSpec, n: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    inputs = torch.randn(n, sum(spec.widths), generator=draw, dtype=torch.float64)
    return inputs, *(torch.randint(spec.n_classes, (n,), generator=draw) for _ in range(2))


@pytest.fixture(params=["at once", "by party"])
def way(request: pytest.FixtureRequest, step_by_party: Any) -> Any:
    return Step if request.param == "at once" else step_by_party


def compute(way: Any, spec: SplitSpec, labels: StepLabels, transform: Transform) -> tuple[StepResult, list[Tensor]]:
    network = SplitNetwork(spec, seed=1).double()
    result = way(network)(batch(spec)[0], labels, transform)
    return result, [parameter.grad for parameter in network.parameters()]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: str(spec.widths))
@pytest.mark.parametrize("transform", [PLAIN, Scaled(), Returned()], ids=lambda transform: type(transform).__name__)
@pytest.mark.parametrize("asked", [False, True], ids=["trained", "queried"])
def test_both_ways_agree(step_by_party: Any, spec: SplitSpec, transform: Transform, asked: bool) -> None:
    _, trained, true = batch(spec)
    labels = StepLabels(trained, true if asked else None, n_rows=11)
    fast, fast_gradients = compute(Step, spec, labels, transform)
    slow, slow_gradients = compute(step_by_party, spec, labels, transform)
    torch.testing.assert_close(tuple(fast), tuple(slow), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(fast_gradients, slow_gradients, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: str(spec.widths))
def test_without_a_defense_the_parameters_get_the_gradient_of_the_mean_loss(way: Any, spec: SplitSpec) -> None:
    inputs, trained, _ = batch(spec)
    result, gradients = compute(way, spec, StepLabels(trained, None, len(trained)), PLAIN)
    network = SplitNetwork(spec, seed=1).double()
    outputs = network.outputs(inputs)
    logits = network.logits(outputs)
    loss = loss_sum(logits, trained) / len(trained)
    expected = torch.autograd.grad(loss, [outputs, *network.parameters()])
    torch.testing.assert_close((result.gradients, *gradients), expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close((result.sent, result.logits), (outputs, logits), rtol=1e-12, atol=1e-14)
    assert not result.sent.requires_grad
    assert not result.gradients.requires_grad


def test_the_queried_loss_changes_what_is_recorded_but_not_what_is_trained(way: Any) -> None:
    _, trained, true = batch(SPECS[0])
    assert not torch.equal(trained, true)
    plain, plain_gradients = compute(way, SPECS[0], StepLabels(trained, None, 9), PLAIN)
    asked, asked_gradients = compute(way, SPECS[0], StepLabels(trained, true, 9), PLAIN)
    on_true, _ = compute(way, SPECS[0], StepLabels(true, None, 9), PLAIN)
    assert all(map(torch.equal, plain_gradients, asked_gradients))
    torch.testing.assert_close(asked.gradients, on_true.gradients)
    assert not torch.allclose(asked.gradients, plain.gradients)


def test_a_batch_without_rows_gives_zero_gradients(way: Any) -> None:
    # The part of a rank in a last batch with fewer rows than ranks.
    network = SplitNetwork(SPECS[1], seed=1)
    nothing = torch.zeros(0, dtype=torch.long)
    way(network)(torch.zeros(0, 10), StepLabels(nothing, None, n_rows=1), PLAIN)
    assert all(not parameter.grad.any() for parameter in network.parameters())


@pytest.mark.parametrize("shape", [(6,), (6, 4)])
def test_the_gradient_of_the_loss_is_its_derivative(shape: tuple[int, ...]) -> None:
    logits = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(4 if len(shape) == 2 else 2, (6,))
    (expected,) = torch.autograd.grad(loss_sum(logits, labels) / 5, logits)
    torch.testing.assert_close(loss_gradient(logits.detach(), labels, 5), expected, rtol=1e-12, atol=1e-14)


def test_parties_are_cut_off_from_each_other(step_by_party: Any) -> None:
    # Line 9: a party's gradient reaches its own parameters through its own output, whatever the others hold.
    spec = SplitSpec((2, 2))
    network = SplitNetwork(spec, seed=0)
    step = step_by_party(network)
    first = step.parties[0].send(torch.randn(4, 2))
    assert not first.requires_grad
    step.parties[0].receive(torch.ones_like(first))
    assert all(parameter.grad is not None for parameter in network.bottoms[0].parameters())
    assert all(parameter.grad is None for parameter in network.bottoms[1].parameters())
    assert all(parameter.grad is None for parameter in network.top.parameters())
