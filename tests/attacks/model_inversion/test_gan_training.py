"""Training the GAN: repeats bit for bit, resumes, learns, and leaves the target as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.attacks.model_inversion.attack import Workplace
from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.gan import EPOCH, LOSSES, ConditionalGAN
from lightleak.attacks.model_inversion.gan_training import train_gan
from lightleak.core.errors import UsageError
from lightleak.targets.checkpoints import LastCheckpoint

Make = Callable[..., ConditionalGAN]


def test_the_same_seed_gives_the_same_bits_whatever_the_global_generator_holds(make_gan: Make) -> None:
    first, second, other = make_gan(iterations=30), make_gan(iterations=30), make_gan(iterations=30, seed=4)
    train_gan(first, Workplace())
    torch.rand(7)
    train_gan(second, Workplace())
    train_gan(other, Workplace())
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    assert not torch.equal(first.history, other.history)


def test_an_interrupted_training_goes_on_to_the_same_bits(make_gan: Make, tmp_path: Path) -> None:
    whole = make_gan()
    train_gan(whole, Workplace())

    class Killed(Exception):
        pass

    told: list[float] = []

    def kill(done: float) -> None:
        told.append(done)
        if len(told) > EPOCH + 20:
            raise Killed

    with pytest.raises(Killed):
        train_gan(make_gan(), Workplace(folder=tmp_path, progress=kill))
    assert LastCheckpoint(tmp_path).file.is_file()
    resumed = make_gan()
    told.clear()
    train_gan(resumed, Workplace(folder=tmp_path, progress=told.append))
    assert resumed.done == whole.done == 250
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert len(told) == 150 and sum(told) == pytest.approx(1)  # the first tells what was done before, too
    again = make_gan()
    train_gan(again, Workplace(folder=tmp_path))  # finished: nothing is trained anew
    assert torch.equal(again.history, whole.history)


def test_a_checkpoint_holds_neither_rows_nor_target(make_gan: Make, tmp_path: Path) -> None:
    train_gan(make_gan(iterations=EPOCH), Workplace(folder=tmp_path))
    state = torch.load(LastCheckpoint(tmp_path).file, weights_only=True)
    assert {name.split(".")[0] for name in state["state_dict"]} == {"generator", "critic", "history"}


def test_the_inversion_loss_falls_and_without_its_weight_it_is_not_computed(make_gan: Make) -> None:
    # A target that the pseudo-labels say nothing about: only alpha1 leads the generator to it.
    with_target = make_gan(generator_learning_rate=0.01, inversion_weight=5.0)
    without = make_gan(with_target=False, inversion_weight=0.0)
    train_gan(with_target, Workplace())
    train_gan(without, Workplace())
    curve = with_target.history[:, LOSSES.index("inversion")]
    assert curve[-50:].mean() < curve[:50].mean() - 0.3
    assert (without.history[:, LOSSES.index("inversion")] == 0).all()


def test_the_conditioning_loss_teaches_the_generator_its_label(make_gan: Make) -> None:
    gan = make_gan(generator_learning_rate=0.01, inversion_weight=0.0)
    train_gan(gan, Workplace())
    curve = gan.history[:, LOSSES.index("conditioning")]
    assert curve[:20].mean() > 0.7  # log(3) = 1.1 before it has learned anything
    assert curve[-20:].mean() < 0.2


def test_the_target_does_not_change(make_gan: Make) -> None:
    gan = make_gan(iterations=20)
    classify = gan._given[1]
    assert classify is not None
    before = [value.clone() for value in classify.parameters()]
    train_gan(gan, Workplace())
    assert all(torch.equal(a, b) for a, b in zip(before, classify.parameters(), strict=True))
    assert not any(value.requires_grad for value in classify.parameters())
    assert not gan.generator.training


def test_losses_are_those_of_the_iterations_done(make_gan: Make) -> None:
    gan = make_gan(iterations=15)
    train_gan(gan, Workplace())
    losses = gan.losses()
    assert losses["iteration"] == list(range(1, 16))
    assert losses["generator"] == gan.history[:, 0].tolist()


def test_an_inversion_loss_needs_a_target(make_gan: Make) -> None:
    with pytest.raises(UsageError, match="needs a target"):
        make_gan(with_target=False)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("batch_size", 21, "multiple of pac"),
        ("iterations", 0, "at least 1"),
        ("generator_learning_rate", 0.0, "above 0"),
        ("inversion_weight", -1.0, "at least 0"),
        ("beta1", 1.0, "below 1"),
        ("generator_dim", (), "widths"),
        ("balance", "odd", "one of log, uniform, empirical"),
    ],
)
def test_a_value_out_of_range_is_named(make_gan: Make, setting: str, value: object, said: str) -> None:
    with pytest.raises(UsageError, match=f"{setting}.*{said}"):
        make_gan(**{setting: value})


@pytest.mark.parametrize(
    "changed",
    [
        {"generator_learning_rate": 0.0002},
        {"discriminator_learning_rate": 0.0002},
        {"generator_decay": 0.1},
        {"discriminator_decay": 0.1},
        {"beta1": 0.1},
        {"beta2": 0.5},
        {"discriminator_steps": 1},
        {"inversion_weight": 0.5},
        {"conditioning_weight": 0.0},
        {"gradient_penalty": 1.0},
        {"dropout": 0.1},
        {"temperature": 0.5},
        {"balance": "uniform"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_setting_acts(make_gan: Make, changed: dict[str, Any], labeled_rows: tuple[Tensor, Tensor]) -> None:
    plain, other = make_gan(iterations=8), make_gan(iterations=8, **changed)
    for gan in (plain, other):
        rows, labels = labeled_rows
        kept = labels < 2 if "balance" in changed else labels < 3
        uneven = torch.cat([kept.nonzero()[:, 0], (labels == 2).nonzero()[:3, 0]])
        sampler = ClassSampler(rows[uneven], labels[uneven], 3, gan.config.balance)
        gan._given = (sampler, gan._given[1])
        train_gan(gan, Workplace())
    weights = [torch.cat([value.flatten() for value in gan.generator.parameters()]) for gan in (plain, other)]
    assert not torch.equal(*weights)
