"""Filters of frameworks change an update as the framework changes what a client sends."""

import logging
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal import shipped
from lightleak.defenses.horizontal.defense import UpdateDefense
from lightleak.defenses.horizontal.rounding import Transport
from lightleak.defenses.horizontal.shipped import (
    FlowerClipping,
    FlowerLocalDP,
    NVFlareExclude,
    NVFlarePercentile,
    NVFlareSVT,
)
from lightleak.protocols.client_training import Defend, LocalTraining, run_client

flare = pytest.importorskip("nvflare", reason="NVFlare (nvflare) is not installed")
flower = pytest.importorskip("flwr", reason="Flower (flwr) is not installed")

ENDS = torch.tensor([[30.0, 40.0], [-30.0, -40.0]])


def flat(named: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten().double() for value in named.values()])


def test_the_smallest_entries_become_zero_and_the_largest_are_cut_off(gradient: dict[str, Tensor]) -> None:
    values, sent = flat(gradient), flat(NVFlarePercentile(percentile=60, gamma=0.5).apply(gradient, generator(0)))
    cut = float(np.percentile(values.abs().numpy(), 60))
    expected = values.clamp(-0.5, 0.5) * (values.abs() >= cut)
    torch.testing.assert_close(sent, expected, rtol=1e-5, atol=1e-7)


def test_bounds_are_those_of_the_change_of_weights(gradient: dict[str, Tensor]) -> None:
    """A client that takes steps of 0.01 sends a hundredth of the gradient: a bound of 0.005 on it is one of 0.5."""
    by_change = NVFlarePercentile(percentile=0, gamma=0.005, scale=0.01).apply(gradient, generator(0))
    torch.testing.assert_close(flat(by_change), flat(gradient).clamp(-0.5, 0.5), rtol=1e-5, atol=1e-7)


def test_zeros_of_one_hot_columns_make_the_default_percentile_harmless() -> None:
    given = {"weight": torch.cat([torch.zeros(41), torch.linspace(1e-6, 9e-3, 59)])}
    assert torch.allclose(NVFlarePercentile().apply(given, generator(0))["weight"], given["weight"])


def test_svt_spends_what_the_filter_accounts_for(gradient: dict[str, Tensor]) -> None:
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    made, n = SVTPrivacy(fraction=0.3), sum(part.numel() for part in gradient.values())
    data = {name: part.float().numpy() for name, part in gradient.items()}
    made.process_dxo(DXO(DataKind.WEIGHT_DIFF, data=data), Shareable(), FLContext())
    assert NVFlareSVT(fraction=0.3).spent(n) == pytest.approx(made.get_privacy_spent())
    release = NVFlareSVT(fraction=0.3).release_privacy(n)
    assert release == {"release_epsilon": NVFlareSVT(fraction=0.3).spent(n), "delta": 0.0, "privacy_unit": "client"}
    sent = flat(NVFlareSVT(fraction=0.3).apply(gradient, generator(0)))
    assert 0 < int((sent != 0).sum()) <= math.ceil(0.3 * n)


def test_svt_tells_attacks_where_it_cuts_off_and_how_it_adds_noise(gradient: dict[str, Tensor]) -> None:
    made = NVFlareSVT(scale=0.05, gamma=1e-3, noise_var=10)
    given = {name: torch.randn(value.shape, generator=generator(1)) for name, value in gradient.items()}
    sent, whole = flat(made.apply(given, generator(0))), flat(given)
    told = made.knowledge["exact_signs"]
    of_noise = (sent - whole.clamp(-told["cut"], told["cut"]))[sent != 0]
    assert told["cut"] == pytest.approx(0.02) and len(of_noise) > 100
    assert float(of_noise.abs().mean()) == pytest.approx(told["noise"], rel=5 / len(of_noise) ** 0.5)


def test_what_is_excluded_is_zero_and_the_rest_exact(gradient: dict[str, Tensor]) -> None:
    sent = NVFlareExclude("bias").apply(gradient, generator(0))
    assert all((sent[name] == 0).all() if "bias" in name else torch.equal(sent[name], gradient[name]) for name in sent)
    assert any("bias" in name for name in sent)


def test_flower_clips_the_whole_update(gradient: dict[str, Tensor]) -> None:
    sent, given = flat(FlowerClipping(0.5).apply(gradient, generator(0))), flat(gradient)
    torch.testing.assert_close(sent, given * 0.5 / given.norm(), rtol=1e-5, atol=1e-8)


def change_sent(training: LocalTraining, defense: UpdateDefense | None, defend: Defend = "update") -> dict[str, Tensor]:
    """Change of weights that a FedAvg client with 8 rows sends."""
    network, inputs = torch.nn.Linear(3, 2), torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for value in network.parameters():
            value.fill_(0.5)
    labels = torch.arange(8) % 2
    weights = dict(network.named_parameters())
    run = run_client(network, weights, {}, inputs, labels, training, seed=0, defense=defense, defend=defend)
    return run.trained.delta


def norm_sent(training: LocalTraining, defense: UpdateDefense, defend: Defend = "update") -> float:
    return float(flat(change_sent(training, defense, defend)).norm())


def test_a_fedavg_client_clips_the_weights_that_it_sends() -> None:
    """Six local steps at 0.1; a scale that is given states the bound in weights of that training."""
    six_steps = LocalTraining(3, 4, 0.1)
    assert norm_sent(six_steps, FlowerClipping(0.01)) == pytest.approx(0.01, rel=1e-4)
    assert norm_sent(six_steps, FlowerClipping(0.01, scale=1.2)) == pytest.approx(0.005, rel=1e-4)
    assert norm_sent(LocalTraining(1, 8, 0.1), FlowerClipping(0.01), "steps") == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("defense", [NVFlarePercentile(60, 0.005), NVFlareSVT(fraction=0.5, gamma=1e-3)])
def test_a_fedavg_client_of_nvflare_sends_its_number_of_steps(defense: NVFlarePercentile | NVFlareSVT) -> None:
    """Its filters bound the mean change of a step; NVFlare's Lightning client sends the number of steps by itself."""
    from nvflare.apis.dxo import DXO, DataKind, MetaKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    six_steps = LocalTraining(3, 4, 0.1)
    data = {name: value.numpy() for name, value in sorted(change_sent(six_steps, None).items())}
    dxo = DXO(DataKind.WEIGHT_DIFF, data=data, meta={MetaKey.NUM_STEPS_CURRENT_ROUND: 6})
    made = PercentilePrivacy if isinstance(defense, NVFlarePercentile) else SVTPrivacy
    with shipped._numpy_draws(generator(0, "defense")):
        made(**defense.arguments()).process_dxo(dxo, Shareable(), FLContext())
    sent = change_sent(six_steps, defense)
    for name, value in dxo.data.items():
        torch.testing.assert_close(sent[name], torch.as_tensor(value), rtol=1e-5, atol=1e-8)
    assert float(flat(change_sent(six_steps, NVFlarePercentile(0, 0.005, scale=0.6))).abs().max()) <= 0.005 * (1 + 1e-6)


def test_local_dp_adds_the_noise_of_its_formula() -> None:
    given = {"weight": torch.zeros(20_000) + 1e-9}
    defense = FlowerLocalDP(epsilon=2.0, clipping_norm=0.1, sensitivity=0.3, delta=1e-4, scale=0.5)
    deviation = float(defense.apply(given, generator(0))["weight"].std())
    assert deviation == pytest.approx(0.3 * math.sqrt(2 * math.log(1.25 / 1e-4)) / 2.0 / 0.5, rel=0.03)


@pytest.mark.parametrize(("epsilon", "norm"), [(0.5, 1.0), (1.0, 3.0), (10.0, 0.5)])
def test_local_dp_is_accounted_for_any_two_clipped_updates(epsilon: float, norm: float) -> None:
    """Delta of the mod's Gaussian noise at the accounted epsilon, integrated over two updates at opposite ends."""
    defense = FlowerLocalDP(epsilon=epsilon, clipping_norm=norm, delta=1e-5)
    one, other = (FlowerLocalDP(clipping_norm=norm, epsilon=1e12).apply({"w": way}, generator(0))["w"] for way in ENDS)
    noise = math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    apart = float((one - other).norm())
    assert apart == pytest.approx(2 * norm, rel=1e-4)
    x = np.linspace(-12 * noise, apart + 12 * noise, 400_001)
    accounted = defense.release_privacy(2)
    gain = stats.norm.pdf(x, apart, noise) - np.exp(accounted["release_epsilon"]) * stats.norm.pdf(x, 0, noise)
    assert np.trapezoid(gain.clip(min=0), x) == pytest.approx(1e-5, rel=1e-3)
    assert (accounted["delta"], accounted["privacy_unit"]) == (1e-5, "client")


def test_what_gives_no_guarantee_is_not_accounted() -> None:
    assert not any(one.release_privacy(100) for one in (NVFlarePercentile(), NVFlareExclude(), FlowerClipping()))


def test_numpy_and_loggers_are_left_as_they_were(gradient: dict[str, Tensor]) -> None:
    np.random.seed(3)
    expected = np.random.RandomState(3).rand()
    before = logging.getLogger("flwr").level
    FlowerLocalDP().apply(gradient, generator(0))
    assert np.random.rand() == expected and logging.getLogger("flwr").level == before


def test_a_missing_framework_is_named(monkeypatch: pytest.MonkeyPatch, gradient: dict[str, Tensor]) -> None:
    monkeypatch.setitem(__import__("sys").modules, "nvflare", None)
    with pytest.raises(UnsupportedError, match=r"nvflare_svt runs the framework's own code: pip install .*\.\[n"):
        NVFlareSVT().apply(gradient, generator(0))
    assert shipped.NVFlareSVT().describe()


@pytest.mark.parametrize(("form", "digits"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_short_types_round_to_their_digits(form: str, digits: float, gradient: dict[str, Tensor]) -> None:
    for name, sent in Transport(form).apply(gradient, generator(0)).items():
        given = gradient[name]
        normal = given.abs() > 1e-4
        assert ((sent - given).abs()[normal] <= digits * given.abs()[normal]).all()
        assert torch.equal(sent, given) is not bool(given.any())


def test_eight_bits_have_255_levels(gradient: dict[str, Tensor]) -> None:
    for name, sent in Transport("int8").apply(gradient, generator(0)).items():
        step = float(gradient[name].abs().max()) / 127
        assert float((sent - gradient[name]).abs().max()) <= 0.5 * step * (1 + 1e-5)
        assert step == 0 or float(((sent / step) - (sent / step).round()).abs().max()) < 1e-3
