"""Joint inversion of chains with a smooth activation."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.gauss_newton import gauss_newton
from lightleak.attacks.gradient_inversion.joint.pruned import PrunedConfig, PrunedInversion
from lightleak.attacks.gradient_inversion.network.activation import Activation
from lightleak.attacks.gradient_inversion.network.chain import SmoothChain
from lightleak.attacks.gradient_inversion.network.of_update import names_of_layers, row_network
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


def observed(batch: Any, activation: str, raised: float = 0.0) -> Any:
    """The update of the same rows by another network, the hidden layers' biases raised."""
    encoder = batch.encoder
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [40, 40], "activation": activation})
    marginals, network = batch.update.marginals, build_network(spec, 0)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter += raised if name.endswith("bias") and "2" not in name else 0.0
    update, _ = client_update(network, spec, encoder, batch.truth.inputs, batch.truth.labels, share_labels=False)
    return replace(update, marginals=marginals)


def noised(update: Any, scale: float) -> Any:
    draws = generator(0, "noise")
    sent = {name: value + scale * torch.randn(value.shape, generator=draws) for name, value in update.update.items()}
    return replace(update, update=sent, state="noised")


def test_a_noised_batch_behind_gelu_is_found_and_proven(make_batch: Any) -> None:
    batch = make_batch(n=4)
    found = JointInversion(JointConfig(noised_steps=400)).run(noised(observed(batch, "gelu"), 1e-5), 0)
    assert found.certificate is not None and set(found.certificate.status) == {"certified"}
    order = [int((found.encoded - row).abs().sum(1).argmin()) for row in batch.truth.inputs]
    assert sorted(order) == [0, 1, 2, 3]
    codes = [batch.encoder.project(rows.double())[0] for rows in (found.encoded[order], batch.truth.inputs)]
    assert torch.equal(*codes) and torch.equal(found.labels[order], batch.truth.labels)


def test_a_pruned_batch_behind_gelu_is_found_and_proven(make_batch: Any, cut_off: Any) -> None:
    batch = make_batch(n=4)
    sent = cut_off(observed(batch, "gelu"))
    found = PrunedInversion(PrunedConfig(restarts=1, steps=80)).run(sent, 0)
    assert found.certificate is not None and set(found.certificate.status) == {"certified"}
    for own, other in ((found.encoded, batch.truth.inputs), (batch.truth.inputs, found.encoded)):
        codes = [batch.encoder.project(rows.double())[0] for rows in (own, other)]
        assert (codes[0].unsqueeze(1) == codes[1]).all(-1).any(1).all()


@pytest.mark.parametrize("scale", [0.0, 1e-5])
def test_layers_that_test_no_rows_are_left_out_of_the_proof(make_batch: Any, scale: float) -> None:
    """Where every unit is on, ELU changes nothing, and what enters the second layer is affine in the row."""
    batch = make_batch(n=4)
    update = noised(observed(batch, "elu", raised=8.0), scale)
    assert names_of_layers(update, row_network(update)) == ("linears.0", "linears.2")
    settings = JointConfig(noised_steps=50, noised_restarts=1, steps=50, round_steps=50, rounds=1)
    found = JointInversion(settings).run(update, 0)
    assert found.certificate is not None and found.certificate.certified == 0  # all rows have one direction alike


def test_kinks_other_than_those_of_relu_are_refused(make_batch: Any) -> None:
    with pytest.raises(UnsupportedError, match="leaky_relu"):
        JointInversion(JointConfig()).check(observed(make_batch(n=4), "leaky_relu"))
