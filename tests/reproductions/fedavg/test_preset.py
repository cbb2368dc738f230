"""The paper's settings by dataset, as App. B.2 and its scripts print them."""

from dataclasses import replace

import pytest

from lightleak.attacks import ATTACKS
from lightleak.core.errors import UsageError
from lightleak.reproductions.fedavg.setting import PRESETS, FedAvgPreset
from lightleak.targets.spec import build_network

DIGITS, FEMNIST, CIFAR100 = (PRESETS[name] for name in ("digits", "femnist", "cifar100"))


def test_hyperparameters_are_those_of_appendix_b2() -> None:
    femnist = FEMNIST.attack_options("fedavg_prior", 10, 10)
    assert (femnist["total_variation"], femnist["clip"], femnist["epoch_prior"]) == (0.001, 2, 1000)
    assert (femnist["learning_rate"], femnist["learning_rate_decay"], femnist["decay_every"]) == (0.4, 0.995, 10)
    cifar = CIFAR100.attack_options("fedavg_prior", 10, 10)
    assert (cifar["total_variation"], cifar["clip"], cifar["epoch_prior"]) == (0.0002, 10, 6.075)
    assert (cifar["learning_rate"], cifar["learning_rate_decay"], cifar["decay_every"]) == (0.1, 0.997, 20)
    assert (cifar["prior_statistic"], cifar["prior_distance"]) == ("conv_max", "l2")
    for preset in (FEMNIST, CIFAR100):
        assert (preset.steps, preset.learning_rate, preset.rows) == (200, 0.004, 50)
    assert (FEMNIST.threshold, CIFAR100.threshold) == (20, 19)


def test_every_attack_takes_its_settings_and_keeps_its_own() -> None:
    for preset in PRESETS.values():
        for name, simulation in (
            ("fedavg_prior", "full"),
            ("fedavg_no_prior", "full"),
            ("fedavg_shared", "shared"),
            ("fedavg_epoch", "epoch"),
            ("fedavg_fedsgd", "fedsgd"),
        ):
            made = ATTACKS.get(name)(**preset.attack_options(name, 5, 10)).options()
            assert made["simulation"] == simulation and made["restarts"] == 1 and made["sign"] is False
            assert (made["epoch_prior"] > 0) == (name == "fedavg_prior")


def test_distance_is_divided_by_the_batches_that_have_variables() -> None:
    # In the published code: all local batches for the methods with variables per epoch, else those of one epoch.
    for name, weight in (("fedavg_prior", 2 / 50), ("fedavg_no_prior", 2 / 50), ("fedavg_shared", 2 / 10)):
        assert DIGITS.attack_options(name, 5, 10)["matching_weight"] == weight


def test_priors_of_table_4_have_the_scripts_weights() -> None:
    for preset in (FEMNIST, CIFAR100):
        assert sum(map(len, preset.prior_weights.values())) == 8
    assert FEMNIST.prior_options("max", "l1")["epoch_prior"] == 77.298
    assert CIFAR100.prior_options("conv_max", "l1")["epoch_prior"] == 5
    with pytest.raises(UsageError, match="no prior with g 'median' and D 'l2'"):
        FEMNIST.prior_options("median", "l2")


def test_stand_in_has_femnists_settings_on_its_own_images() -> None:
    own = ("dataset", "network", "n_classes", "rounds", "attack", "prior_weights")
    assert replace(FEMNIST, **{name: getattr(DIGITS, name) for name in own}) == DIGITS
    assert DIGITS.network == {**FEMNIST.network, "shape": [1, 8, 8]}
    assert DIGITS.attack == {**FEMNIST.attack, "learning_rate": 0.1}
    for distance, weights in FEMNIST.prior_weights.items():
        assert DIGITS.prior_weights[distance] == pytest.approx({name: one / 100 for name, one in weights.items()})
    framed = PRESETS["framed_digits"]
    assert framed == replace(FEMNIST, dataset="framed_digits", n_classes=10, rounds=50)
    assert all(text in " ".join(framed.stand_in_notes) for text in ("28 x 28", "10 x 10", "16.5 dB"))
    assert DIGITS.stand_in and not FEMNIST.stand_in and not CIFAR100.stand_in


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.dataset)
def test_network_takes_the_images(preset: object) -> None:
    assert isinstance(preset, type(DIGITS))
    network = build_network(preset.spec, seed=0)
    assert network.image_shape == tuple(preset.network["shape"])  # type: ignore[comparison-overlap]
    # Flax draws no biases; PyTorch does.
    assert all(not bool(p.any()) for name, p in network.named_parameters() if name.endswith("bias"))


def test_presets_by_name() -> None:
    assert FedAvgPreset.of(None) is PRESETS["framed_digits"]
    assert FedAvgPreset.of("femnist", steps=7) == replace(FEMNIST, steps=7)
    with pytest.raises(
        UsageError, match="dataset must be one of digits, framed_digits, mnist, femnist, cifar100, got 'emnist'"
    ):
        FedAvgPreset.of("emnist")
