"""Which clients and attack stand behind a cell."""

import math

import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.defenses.horizontal.sparsification import RandomPruning
from lightleak.reproductions.fedavg.setting import PRESETS, AttackSetting, ClientSetting, EachImage
from lightleak.reproductions.paper.values import PaperCell, load_paper_table


def settings(number: int, attack: str, **coordinates: object) -> set[AttackSetting]:
    """Experiments of a FEMNIST attack with these coordinates."""
    cells = [c for c in load_paper_table(f"fedavg-table{number}").cells if (c.attack, c.dataset) == (attack, "femnist")]
    kept = [c for c in cells if all(getattr(c, key) == value for key, value in coordinates.items())]
    assert kept
    return {AttackSetting.of(cell, PRESETS["femnist"]) for cell in kept}


def test_both_metrics_of_a_cell_are_one_experiment() -> None:
    for number, experiments in ((1, 5), (3, 5), (4, 8), (6, 7), (7, 3), (8, 4), (9, 4), (10, 3)):
        assert len(settings(number, "fedavg_prior")) == experiments, number
    names = [setting.name for number in (1, 3, 4, 6, 7, 8, 9, 10) for setting in settings(number, "fedavg_prior")]
    # Table 1's 10x5 comes again in Tables 6, 8 and 10, and nothing else.
    assert len(set(names)) == len(names) - 3


def test_restored_labels_are_not_shared() -> None:
    [setting] = settings(3, "fedavg_shared", local_epochs=10, local_batch_size=10)
    assert setting.clients == ClientSetting(10, 10, share_labels="none")
    assert setting.changed == (("labels", "interpolated"),)


def test_labels_of_batches_go_to_the_attacks_that_know_batches() -> None:
    [known] = settings(8, "fedavg_shared", known_batch_counts=True, random_batches=False)
    assert known.clients == ClientSetting(10, 5, share_labels="batches", reshuffle=False)
    assert known.options(PRESETS["femnist"])["label_order"] == "batches"
    [unaware] = settings(8, "fedavg_epoch", random_batches=False)  # one run for both
    assert unaware.clients == ClientSetting(10, 5, reshuffle=False) and unaware.changed == ()


def test_attack_without_knowledge_of_epochs() -> None:
    [setting] = settings(9, "fedavg_prior", assumed_epochs=25)
    assert setting.clients == ClientSetting(5, 5, states_epochs=False)
    options = setting.options(PRESETS["femnist"])
    assert options["assumed_epochs"] == 25 and options["matching_weight"] == 2 / 50
    [shared] = settings(9, "fedavg_shared", assumed_epochs=25)
    assert shared.options(PRESETS["femnist"])["matching_weight"] == 2 / 2  # two batches an epoch


def test_priors_rounds_and_aggregates() -> None:
    [prior] = settings(4, "fedavg_prior", prior_statistic="conv_max", prior_distance="l1")
    assert prior.options(PRESETS["femnist"])["epoch_prior"] == 81.365
    assert {setting.clients.round for setting in settings(7, "fedavg_prior")} == {1, 6, 11}
    assert {setting.clients.n_clients for setting in settings(10, "fedavg_prior")} == {1, 2, 4}


@pytest.mark.parametrize("name", ["gaussian_noise", "laplacian_noise", "random_pruning"])
def test_defenses_have_the_strength_of_the_cell(name: str) -> None:
    cells = [c for c in load_paper_table("fedavg-table6").cells if c.defense == name]
    assert {c.strength for c in cells} == {ClientSetting.of(c).make_defense().strength for c in cells}  # type: ignore[union-attr]
    one = ClientSetting.of(cells[0]).make_defense()
    assert type(one) is UPDATE_DEFENSES.get(name)
    assert ClientSetting.of(cells[0], each_image=True).make_defense() == EachImage(one, images=5)  # type: ignore[arg-type]


def test_undefended_cells_have_no_defense() -> None:
    cell = load_paper_table("fedavg-table6").cells[0]
    assert cell.defense == "none" and ClientSetting.of(cell, each_image=True) == ClientSetting(10, 5)
    assert ClientSetting(10, 5).make_defense() is None


@pytest.mark.parametrize(("name", "strength"), [("sign", None), ("gaussian_noise", None), ("atlantis", 1.0)])
def test_other_defenses_are_refused(name: str, strength: float | None) -> None:
    with pytest.raises(UsageError, match="the paper's defenses are gaussian_noise, laplacian_noise, random_pruning"):
        ClientSetting(10, 5, defense=name, strength=strength).make_defense()


def test_names_tell_settings_apart() -> None:
    cell = PaperCell("psnr", "dB", 1.0, dataset="femnist", attack="fedavg_prior", local_epochs=2, local_batch_size=3)
    base = ClientSetting.of(cell)
    others = [
        ClientSetting(3, 3),
        ClientSetting(2, 4),
        ClientSetting(2, 3, share_labels="none"),
        ClientSetting(2, 3, share_labels="batches"),
        ClientSetting(2, 3, reshuffle=False),
        ClientSetting(2, 3, defense="gaussian_noise", strength=0.1),
        ClientSetting(2, 3, defense="gaussian_noise", strength=0.1, each_image=True),
        ClientSetting(2, 3, round=1),
        ClientSetting(2, 3, n_clients=2),
        ClientSetting(2, 3, states_epochs=False),
    ]
    assert len({setting.name for setting in [base, *others]}) == 11


def test_noise_shrinks_by_the_root_of_the_images() -> None:
    zero = {"w": torch.zeros(40_000)}
    noisy = EachImage(GaussianNoise(0.3), images=9).apply(zero, generator(0))["w"]
    # Nine draws of deviation 0.3, averaged: 0.1, known to 0.4% (one deviation of 40,000 values).
    assert float(noisy.std()) == pytest.approx(0.1, rel=0.02)
    assert not bool(zero["w"].any())


def test_pruning_keeps_the_same_share_on_average() -> None:
    ones = {"w": torch.ones(40_000)}
    pruned = EachImage(RandomPruning(0.25), images=4).apply(ones, generator(0))["w"]
    assert set(pruned.unique().tolist()) == {0, 0.25, 0.5, 0.75, 1}
    assert float(pruned.mean()) == pytest.approx(0.75, abs=3 * math.sqrt(0.75 * 0.25 / 4 / 40_000))


def test_one_image_is_the_inner_defense() -> None:
    gradient, inner = {"w": torch.arange(5.0)}, GaussianNoise(0.1)
    assert torch.equal(EachImage(inner, 1).apply(gradient, generator(1))["w"], inner.apply(gradient, generator(1))["w"])
    assert EachImage(inner, 5).strength == 0.1
    assert "each image (5 per step)" in EachImage(inner, 5).describe()


def test_no_image_is_refused() -> None:
    with pytest.raises(UsageError, match="images must be at least 1, got 0"):
        EachImage(GaussianNoise(0.1), 0)
