"""Joint inversion of chains with a smooth activation."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.gauss_newton import gauss_newton
from lightleak.attacks.gradient_inversion.network.activation import Activation
from lightleak.attacks.gradient_inversion.network.chain import SmoothChain
from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.protocols.fedsgd import client_update
from lightleak.targets import NetworkSpec, build_network


@pytest.mark.parametrize("function", [torch.nn.GELU(), torch.nn.Tanh()], ids=str)
def test_numbers_that_are_slightly_off_are_mended(posed: Any, function: torch.nn.Module) -> None:
    """Newton's step is exact only with what slopes change: without it the distance falls far less."""
    problem, truth = posed(whitened=True, n=6)
    chain = problem.nodes.chains[0]
    nodes = Nodes.of([SmoothChain(chain.weights, chain.biases, Activation(function))])
    smooth = replace(problem, nodes=nodes)
    smooth = replace(smooth, target=tuple(t - r for t, r in zip(smooth.target, smooth.residual(truth), strict=True)))
    noise = 1e-2 * torch.randn(truth.numbers.shape, generator=generator(4), dtype=torch.float64)
    start = replace(truth, numbers=smooth.space.clamp(truth.numbers + noise))
    found, value = gauss_newton(smooth, start, 6)
    assert value < 1e-6 * smooth.value(start)
    torch.testing.assert_close(found.numbers, truth.numbers, atol=1e-6, rtol=0)


def observed(batch: Any, activation: str) -> Any:
    """The update of the same rows by another network."""
    encoder = batch.encoder
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [40, 40], "activation": activation})
    marginals = batch.update.marginals
    update, _ = client_update(
        build_network(spec, 0), spec, encoder, batch.truth.inputs, batch.truth.labels, share_labels=False
    )
    return replace(update, marginals=marginals)


def test_a_noised_batch_behind_gelu_is_found_and_proven(make_batch: Any) -> None:
    batch = make_batch(n=4)
    update = observed(batch, "gelu")
    draws = generator(0, "noise")
    noised = {name: value + 1e-5 * torch.randn(value.shape, generator=draws) for name, value in update.update.items()}
    found = JointInversion(JointConfig(noised_steps=400)).run(replace(update, update=noised, state="noised"), 0)
    assert found.certificate is not None and set(found.certificate.status) == {"certified"}
    order = [int((found.encoded - row).abs().sum(1).argmin()) for row in batch.truth.inputs]
    assert sorted(order) == [0, 1, 2, 3]
    codes = [batch.encoder.project(rows.double())[0] for rows in (found.encoded[order], batch.truth.inputs)]
    assert torch.equal(*codes) and torch.equal(found.labels[order], batch.truth.labels)


def test_kinks_other_than_those_of_relu_are_refused(make_batch: Any) -> None:
    with pytest.raises(UnsupportedError, match="leaky_relu"):
        JointInversion(JointConfig()).check(observed(make_batch(n=4), "leaky_relu"))
