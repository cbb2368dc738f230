"""DP-SGD's settings, its accounting, and the gradient of one client, which is opacus' own for the same batch."""

import json
import logging
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.seeds import generator
from lightleak.data.layout import EncodedLayout
from lightleak.defenses.horizontal import DPSGD, TRAINING_DEFENSES, TrainingDefense, UpdateDefense
from lightleak.defenses.horizontal.optional_opacus import import_opacus
from lightleak.targets import NetworkSpec, build_network
from lightleak.targets.functional import gradients

pytest.importorskip("opacus", reason="the extra dp brings it")

RATE, STEPS = 32 / 30_000, 9_420  # batches of 32 from 30,000 rows for ten epochs


@pytest.mark.parametrize("options", [{"noise_multiplier": 1.0}, {"target_epsilon": 2.0, "accountant": "prv"}])
def test_options_make_the_same_defense_again(options: dict[str, Any]) -> None:
    defense = DPSGD(**options)
    assert TRAINING_DEFENSES.get("dp_sgd")(**json.loads(json.dumps(defense.options()))) == defense
    assert isinstance(defense, TrainingDefense) and not isinstance(defense, UpdateDefense)
    assert defense.strength in options.values()
    assert "DP-SGD" in defense.describe()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either noise_multiplier or target_epsilon, got None and None"),
        ({"noise_multiplier": 1.0, "target_epsilon": 1.0}, "give either"),
        ({"noise_multiplier": -0.1}, "dp_sgd: noise_multiplier .* at least 0, got -0.1"),
        ({"target_epsilon": 0.0}, "dp_sgd: target_epsilon .* above 0"),
        ({"noise_multiplier": 1.0, "max_grad_norm": 0.0}, "dp_sgd: max_grad_norm .* above 0"),
        ({"noise_multiplier": 1.0, "delta": 0.0}, "dp_sgd: delta .* above 0"),
        ({"noise_multiplier": 1.0, "accountant": "gdp"}, "accountant must be one of rdp, prv, got 'gdp'"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        DPSGD(**options)


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_epsilon_of_one_unsampled_step_is_that_of_the_gaussian_mechanism() -> None:
    """Against the exact bound: the smallest epsilon whose delta (Balle and Wang 2018, Theorem 8) is small enough."""
    sigma, delta = 2.0, 1e-5

    def normal(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    def delta_of(epsilon: float) -> float:
        low, high = 0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma
        return normal(low) - math.exp(epsilon) * normal(high)

    low, high = 0.0, 50.0
    for _ in range(100):
        low, high = (low, (low + high) / 2) if delta_of((low + high) / 2) <= delta else ((low + high) / 2, high)
    exact = high
    rdp, prv = (DPSGD(noise_multiplier=sigma, delta=delta, accountant=kind).epsilon(1.0, 1) for kind in ("rdp", "prv"))
    assert exact <= prv <= exact + 0.03  # opacus lets PRV err by 0.01
    assert prv < rdp < 1.3 * exact


def test_epsilon_grows_with_steps_and_rate_and_falls_with_noise() -> None:
    weak, strong = DPSGD(noise_multiplier=0.8), DPSGD(noise_multiplier=2.0)
    assert weak.epsilon(RATE, STEPS) > strong.epsilon(RATE, STEPS) > 0
    assert weak.epsilon(RATE, 2 * STEPS) > weak.epsilon(RATE, STEPS)
    assert weak.epsilon(2 * RATE, STEPS) > weak.epsilon(RATE, STEPS)
    assert weak.epsilon(RATE, 0) == 0.0
    assert DPSGD(noise_multiplier=0.0).epsilon(RATE, 1) == math.inf


@pytest.mark.parametrize("target", [0.5, 3.0])
def test_a_target_epsilon_is_met_and_hardly_missed(target: float) -> None:
    asked = DPSGD(target_epsilon=target)
    with pytest.raises(UsageError, match=r"call resolved\(sample_rate, steps\) first"):
        asked.epsilon(RATE, STEPS)
    found = asked.resolved(RATE, STEPS)
    assert 0.98 * target <= found.epsilon(RATE, STEPS) <= target
    assert found.resolved(RATE, 1) is found


def test_a_target_that_no_noise_meets_is_refused() -> None:
    with pytest.raises(UsageError, match="no noise gives target_epsilon 1e-12"):
        DPSGD(target_epsilon=1e-12).resolved(1.0, 10**6)


@pytest.mark.parametrize(("noise", "stands"), [(0.05, "rdp"), (0.1, "rdp"), (0.3, "prv"), (1.0, "prv")])
def test_with_little_noise_the_epsilon_of_rdp_stands(noise: float, stands: str) -> None:
    """PRV knows no finite epsilon at 0.05, of which RDP grants 2,093."""
    rdp, prv = (DPSGD(noise_multiplier=noise, delta=1e-3, accountant=kind).spent(0.208, 10) for kind in ("rdp", "prv"))
    assert rdp[1] == "rdp" and prv[1] == stands
    assert prv[0] == rdp[0] < math.inf if stands == "rdp" else prv[0] < rdp[0]


@pytest.mark.parametrize("target", [45.0, 1e3])
def test_a_target_of_prv_is_met_with_no_more_noise_than_by_rdp(target: float) -> None:
    """45 lies between the epsilon of PRV where RDP says 50, and 50: there PRV is not asked for more."""
    asked = (DPSGD(target_epsilon=target, delta=1e-3, accountant=kind) for kind in ("rdp", "prv"))
    rdp, prv = (defense.resolved(0.208, 10) for defense in asked)
    assert prv.noise() <= rdp.noise()
    assert 0.9 * target < prv.epsilon(0.208, 10) <= target


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_where_prv_fails_the_epsilon_of_rdp_stands(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **settings: Any) -> float:
        raise error

    monkeypatch.setattr(import_opacus().accountants.prv.PRVAccountant, "get_epsilon", fail)
    assert DPSGD(noise_multiplier=1.0, accountant="prv").spent(RATE, STEPS)[1] == "rdp"


@pytest.mark.filterwarnings("ignore:Optimal order")
def test_opacus_finds_the_same_noise() -> None:
    found = import_opacus().accountants.utils.get_noise_multiplier(
        target_epsilon=3.0, target_delta=1e-5, sample_rate=RATE, steps=STEPS, accountant="rdp"
    )
    assert DPSGD(target_epsilon=3.0).resolved(RATE, STEPS).noise() == found


def small() -> tuple[nn.Module, dict[str, Tensor], Tensor, Tensor]:
    network = build_network(NetworkSpec("mlp", 3, EncodedLayout.of_numerical(4), {"hidden": [6], "norm": "layer"}), 0)
    draws = torch.Generator().manual_seed(0)
    return network, dict(network.named_parameters()), torch.randn(16, 4, generator=draws), torch.arange(16) % 3


def opacus_gradient(defense: DPSGD, seed: int = 0) -> dict[str, Tensor]:
    """What opacus' own wrappers put into ``.grad`` for the batch of `small`."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    network, parameters, inputs, labels = small()
    hooked = GradSampleModule(network)
    optimizer = DPOptimizer(
        torch.optim.SGD(network.parameters(), 0.1),
        noise_multiplier=defense.noise_multiplier,
        max_grad_norm=defense.max_grad_norm,
        expected_batch_size=len(inputs),
        generator=torch.Generator().manual_seed(seed),
    )
    nn.functional.cross_entropy(hooked(inputs), labels).backward()
    optimizer.pre_step()
    return {name: parameter.grad.clone() for name, parameter in parameters.items()}


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("max_grad_norm", [0.05, 0.7, 1e6])
def test_without_noise_a_client_sends_what_opacus_makes_of_its_batch(max_grad_norm: float) -> None:
    defense = DPSGD(noise_multiplier=0.0, max_grad_norm=max_grad_norm)
    network, parameters, inputs, labels = small()
    sent = defense.client_gradient(network, parameters, {}, inputs, labels, generator(0))
    for name, expected in opacus_gradient(defense).items():
        torch.testing.assert_close(sent[name], expected, rtol=1e-4, atol=1e-7)
    whole = torch.cat([value.flatten() for value in sent.values()])
    assert float(whole.norm()) <= max_grad_norm * (1 + 1e-6)
    if max_grad_norm == 1e6:
        for name, expected in gradients(network, parameters, {}, inputs, labels).items():
            torch.testing.assert_close(sent[name], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_a_clients_noise_has_the_scale_of_opacus() -> None:
    noisy, bare = (DPSGD(noise_multiplier=noise, max_grad_norm=0.5) for noise in (3.0, 0.0))
    network, parameters, inputs, labels = small()
    clean = bare.client_gradient(network, parameters, {}, inputs, labels, generator(0))
    expected = 3.0 * 0.5 / 16
    draws = generator(1)
    mine = [noisy.client_gradient(network, parameters, {}, inputs, labels, draws) for _ in range(100)]
    theirs = [opacus_gradient(noisy, seed) for seed in range(100)]
    for sent in (mine, theirs):
        noise = torch.cat([(one[name] - clean[name]).flatten() for one in sent for name in clean])
        # Relative standard error of a deviation from n normal draws: 1 / sqrt(2n).
        assert float(noise.std()) == pytest.approx(expected, rel=4 / math.sqrt(2 * len(noise)))
        assert abs(float(noise.mean())) < 4 * expected / math.sqrt(len(noise))


def test_importing_opacus_leaves_logging_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opacus"]:
        monkeypatch.delitem(sys.modules, name)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    import_opacus()
    assert "opacus" in sys.modules
    assert root.handlers == []


def test_without_opacus_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(UnsupportedError, match=r"dp_sgd needs opacus .*: pip install .*\.\[dp\]"):
        DPSGD(noise_multiplier=1.0).epsilon(0.01, 10)


@pytest.mark.parametrize(("noise", "delta"), [(0.3, 1e-5), (1.0, 1e-5), (1.0, 1e-2), (4.0, 1e-6), (50.0, 0.4)])
def test_the_epsilon_of_one_release_is_that_of_the_gaussian_mechanism(noise: float, delta: float) -> None:
    """Beside the integral of how far the densities of both neighbors are apart beyond a factor of e^epsilon."""
    epsilon = DPSGD(noise_multiplier=noise, delta=delta).release_epsilon()
    x = np.linspace(-12 * noise, 1 + 12 * noise, 400_001)
    with_row, without = norm.pdf(x, 1, noise), norm.pdf(x, 0, noise)
    excess = float(np.trapezoid(np.maximum(with_row - np.exp(epsilon) * without, 0), x))
    if epsilon == 0.0:
        assert excess <= delta
    else:
        assert excess == pytest.approx(delta, rel=1e-3)


def test_one_release_to_a_server_that_knows_the_batch_may_cost_more_than_a_sampled_training() -> None:
    defense = DPSGD(noise_multiplier=1.0)
    assert defense.release_epsilon() > defense.epsilon(sample_rate=0.01, steps=50)
    assert defense.release_epsilon() <= defense.epsilon(sample_rate=1.0, steps=1)  # an accountant's bound is looser
    assert math.isinf(DPSGD(noise_multiplier=0.0).release_epsilon())
    with pytest.raises(UsageError, match="call resolved"):
        DPSGD(target_epsilon=1.0).release_epsilon()


@pytest.mark.parametrize(("epsilon", "steps"), [(8.0, 1), (8.0, 35), (1.0, 35), (0.1, 4), (50.0, 2)])
def test_noise_for_steps_that_count_on_no_sampling(epsilon: float, steps: int) -> None:
    private = DPSGD(target_epsilon=epsilon).resolved_for(steps)
    assert private.release_epsilon(steps) == pytest.approx(epsilon) and private.release_epsilon(0) == 0
    # Opacus' accountant bounds the same composition from above.
    assert epsilon <= private.epsilon(1.0, steps) * (1 + 1e-6)
    assert private.resolved_for(3) is private
