"""GradInversion's priors: the BatchNorm prior fires on BatchNorm1d, moves the derivative, and vanishes at the truth."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.network.client import batch_norms, client_network
from lightleak.attacks.gradient_inversion.optimize.matcher import NetworkMatcher
from lightleak.attacks.gradient_inversion.optimize.mlp_matcher import MLPMatcher
from lightleak.attacks.gradient_inversion.optimize.priors import batch_norm_distance, inversion_penalty
from lightleak.attacks.gradient_inversion.optimize.problem import build_matcher
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder

MakeUpdate = Callable[..., tuple[ClientUpdate, object]]
CPU, DOUBLE = torch.device("cpu"), torch.float64
WITH_BATCH_NORM = {
    "resnet": {"hidden": [9, 8]},
    "resnet_preact": {"width": 6},
    "cnn": {"channels": 3, "hidden": [6]},
    "mlp": {"hidden": [9], "norm": "batch"},
}


def matcher(updates: list[ClientUpdate], **options: object) -> MLPMatcher | NetworkMatcher:
    """The matcher of an attack with these settings."""
    labels = torch.stack([update.labels for update in updates])
    return build_matcher(updates, labels, InversionConfig(**options), CPU, DOUBLE)


def candidates(encoder: TableEncoder, updates: int, n: int) -> Tensor:
    """Random rows ``[updates, 2, n, d]``."""
    return torch.randn(updates, 2, n, encoder.width, dtype=DOUBLE)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("network", WITH_BATCH_NORM)
def test_the_batch_norm_prior_fires(
    encoder: TableEncoder, make_update: MakeUpdate, network: str, training: bool
) -> None:
    options = WITH_BATCH_NORM[network]
    pairs = [make_update(5, network, seed, dtype=DOUBLE, training_mode=training, **options) for seed in range(2)]
    updates = [update for update, _ in pairs]
    assert len(updates[0].batch_statistics) == 2 * len(batch_norms(client_network(updates[0]))) > 0
    plain, prior = matcher(updates), matcher(updates, batch_norm_prior=0.5)
    x = candidates(encoder, 2, 5)
    (loss, by_x), (with_prior, by_x_prior) = plain.value_and_grad(x), prior.value_and_grad(x)
    assert (with_prior > loss + 1e-3).all()
    difference = by_x_prior - by_x
    assert (difference.flatten(2).norm(dim=-1) > 1e-4).all()
    # What the prior adds is the derivative of what it adds to the loss.
    direction, step = torch.randn_like(x), 1e-6
    around = x + step * direction, x - step * direction
    up, down = (prior.value_and_grad(at)[0] - plain.value_and_grad(at)[0] for at in around)
    slope = (up - down).sum() / (2 * step)
    torch.testing.assert_close(slope, (difference * direction).sum(), rtol=1e-4, atol=1e-7)
    # At the true batch, in any order of its rows, nothing is added.
    truth = torch.stack([t.inputs for _, t in pairs]).double()
    true = torch.stack([truth, truth.flip(1)], 1)
    torch.testing.assert_close(prior.value_and_grad(true)[0], plain.value_and_grad(true)[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(prior.value_and_grad(true)[1], plain.value_and_grad(true)[1], rtol=0, atol=1e-6)


def test_the_distance_is_summed_over_layers_and_channels() -> None:
    measured = {"a": (torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 3.0]]])), "b": (torch.ones(1, 1, 1),) * 2}
    true = {"a": (torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 1.0]])), "b": (torch.zeros(1, 1), torch.ones(1, 1))}
    assert batch_norm_distance(measured, true).tolist() == [[1 + 4 + 0 + 4 + 1 + 0]]


def test_each_update_is_held_against_its_own_statistics(encoder: TableEncoder, make_update: MakeUpdate) -> None:
    pairs = [make_update(5, "resnet", seed, dtype=DOUBLE, hidden=[9, 8]) for seed in range(2)]
    crossed = [replace(pairs[i][0], batch_statistics=pairs[1 - i][0].batch_statistics) for i in range(2)]
    truth = torch.stack([t.inputs for _, t in pairs]).double().unsqueeze(1)
    assert (matcher(crossed, batch_norm_prior=1.0).value_and_grad(truth)[0] > 1e-3).all()


def test_the_norm_prior_is_the_squared_norm_of_the_batch(encoder: TableEncoder, make_update: MakeUpdate) -> None:
    update, _ = make_update(5, dtype=DOUBLE, hidden=[9, 8])
    plain, prior = matcher([update]), matcher([update], l2_prior=0.01)
    assert isinstance(plain, MLPMatcher) and isinstance(prior, NetworkMatcher)
    x = candidates(encoder, 1, 5)
    (loss, by_x), (with_prior, by_x_prior) = plain.value_and_grad(x), prior.value_and_grad(x)
    torch.testing.assert_close(with_prior, loss + 0.01 * x.square().sum((-1, -2)))
    torch.testing.assert_close(by_x_prior, by_x + 0.02 * x, rtol=1e-6, atol=1e-9)


def test_without_batch_norm_there_is_no_prior(make_update: MakeUpdate) -> None:
    update, _ = make_update(5, hidden=[9, 8])
    assert not update.batch_statistics and not batch_norms(client_network(update))
    assert inversion_penalty([update], InversionConfig(batch_norm_prior=1.0), CPU, DOUBLE) is None
    assert isinstance(matcher([update], batch_norm_prior=1.0), MLPMatcher)
    with_norm, _ = make_update(5, "resnet", hidden=[9, 8])
    assert inversion_penalty([with_norm], InversionConfig(), CPU, DOUBLE) is None


def test_one_row_in_eval_mode_needs_no_statistics(encoder: TableEncoder, make_update: MakeUpdate) -> None:
    two, _ = make_update(2, "resnet", dtype=DOUBLE, training_mode=False, hidden=[9, 8])
    one = replace(two, labels=two.labels[:1], facts=replace(two.facts, n_rows=1), batch_statistics={})
    value, derivative = matcher([one]).value_and_grad(candidates(encoder, 1, 1))
    assert value.isfinite().all() and derivative.isfinite().all()
