"""PLG-MI on images: the loop and the searches of tables, on a target that goes by brightness."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks.model_inversion.attack import Workplace
from lightleak.attacks.model_inversion.image_augmentation import ImageAugmentation
from lightleak.attacks.model_inversion.image_inversion import (
    ImageInversionConfig,
    image_gan_config,
    image_logits,
    invert_images,
)
from lightleak.attacks.model_inversion.latent_search import GradientSearchConfig
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig
from lightleak.core.errors import ObservationError, UsageError
from lightleak.data.images import to_pixels

CLASSES = 3


class Brightness(nn.Module):
    """Class 0 is bright above, class 1 bright below, class 2 nothing in particular."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(6.0))

    def forward(self, x: Tensor) -> Tensor:
        above, below = x[:, :, :4].mean((1, 2, 3)), x[:, :, 4:].mean((1, 2, 3))
        return self.factor * torch.stack([above, below, torch.full_like(above, -0.05)], 1)


@pytest.fixture
def public() -> Tensor:
    """Dull images: halves that differ a little from gray."""
    random = torch.Generator().manual_seed(0)
    halves = 0.3 * (torch.rand(120, 1, 2, 1, generator=random) * 2 - 1)
    noise = 0.05 * torch.randn(120, 1, 8, 8, generator=random)
    return (halves.repeat_interleave(4, 2).expand(-1, -1, -1, 8) + noise).clamp(-1, 1)


def config(**gan: object) -> ImageInversionConfig:
    small = {"iterations": 40, "batch_size": 24, "discriminator_steps": 1, "latent_dim": 8, "inversion_weight": 1.0}
    rates = {"generator_learning_rate": 0.02, "discriminator_learning_rate": 0.005}
    return ImageInversionConfig(
        image_gan_config(**{**small, **rates, **gan}),
        PseudoLabelConfig(top_n=20, minimum=5),
        GradientSearchConfig(steps=15, learning_rate=0.1),
        ImageAugmentation(),
        generator_widths=(16, 8),
        critic_widths=(8,),
    )


def test_the_same_seed_gives_the_same_images_whatever_the_kind_of_the_public_ones(public: Tensor) -> None:
    labels = torch.tensor([0, 0, 1, 2])
    bytes_ = to_pixels(public)
    first = invert_images(Brightness(), bytes_, CLASSES, config(iterations=3), seed=1)
    torch.rand(5)
    again = invert_images(Brightness(), bytes_.float() / 127.5 - 1, CLASSES, config(iterations=3), seed=1)
    other = invert_images(Brightness(), bytes_, CLASSES, config(iterations=3), seed=2)
    made = first.generate(labels, seed=3)
    assert made.images.shape == (4, 1, 8, 8) and made.images.abs().max() <= 1
    assert torch.equal(made.images, again.generate(labels, seed=3).images)
    assert not torch.equal(made.images, first.generate(labels, seed=4).images)
    assert not torch.equal(made.images, other.generate(labels, seed=3).images)


def test_the_target_leads_the_generator_and_the_search_goes_on_from_there(public: Tensor) -> None:
    target = Brightness()
    led = invert_images(target, public, CLASSES, config(inversion_weight=5.0), seed=0)
    free = invert_images(target, public, CLASSES, config(inversion_weight=0.0), seed=0)
    labels = torch.arange(2).repeat_interleave(20)
    random, unled = led.generate(labels, 1), free.generate(labels, 1)
    searched = led.generate(labels, 1, "gradient")
    assert random.loss.mean() < unled.loss.mean() / 2
    assert torch.equal(searched.before, random.loss)
    assert (searched.loss <= searched.before).all() and searched.loss.mean() < 0.9 * random.loss.mean()
    for made in (random, searched):  # the loss is the target's of the images that come out
        logits = image_logits(target, made.images)
        torch.testing.assert_close(made.loss, nn.functional.cross_entropy(logits, labels, reduction="none"))
    assert target.factor == 6.0 and not target.factor.requires_grad
    assert (free.gan.history[:, 2] == 0).all() and (led.gan.history[:, 2] != 0).all()


def test_every_look_of_the_target_is_through_changed_copies(public: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two copies per image: in each step of the training (Algorithm 2) and of the search (Algorithm 3).
    seen: list[int] = []
    plain = ImageAugmentation.apply

    def count(self: ImageAugmentation, images: Tensor, *drawn: Tensor) -> Tensor:
        seen.append(len(images))
        return plain(self, images, *drawn)

    monkeypatch.setattr(ImageAugmentation, "apply", count)
    fitted = invert_images(Brightness(), public, CLASSES, config(iterations=3))
    assert seen == [24] * 2 * 3
    seen.clear()
    fitted.generate(torch.tensor([0, 1, 2]), search="gradient")
    assert seen == [3] * 2 * 15
    seen.clear()
    fitted.generate(torch.tensor([0, 1, 2]))
    assert seen == []


def test_an_interrupted_training_goes_on(public: Tensor, tmp_path: Path) -> None:
    settings = config(iterations=4)
    whole = invert_images(Brightness(), public, CLASSES, settings, at=Workplace(folder=tmp_path))
    again = invert_images(Brightness(), public, CLASSES, settings, at=Workplace(folder=tmp_path))  # nothing is left
    assert torch.equal(whole.gan.history, again.gan.history)
    labels = torch.tensor([0, 1])
    assert torch.equal(whole.generate(labels).images, again.generate(labels).images)


def test_a_class_without_public_images_is_left_out(public: Tensor) -> None:
    dark = public[(Brightness()(public).argmax(1) != 1).nonzero().squeeze(1)]
    fitted = invert_images(Brightness(), dark, CLASSES, config(iterations=2))
    assert fitted.classes == (0, 2)
    with pytest.raises(UsageError, match=r"among \[0, 2\], got \[1\]: .*at least 5"):
        fitted.generate(torch.tensor([0, 1]))
    with pytest.raises(UsageError, match="search must be one of random, gradient, got 'tpe'"):
        fitted.generate(torch.tensor([0]), search="tpe")


def test_what_cannot_be_served_is_named(public: Tensor) -> None:
    with pytest.raises(UsageError, match="uint8 or float"):
        invert_images(Brightness(), public[0], CLASSES)
    with pytest.raises(UsageError, match="uint8 or float"):
        invert_images(Brightness(), public.long(), CLASSES)
    with pytest.raises(ObservationError, match="no class can be attacked"):
        invert_images(Brightness(), public[:4], CLASSES, config())
    with pytest.raises(UsageError, match="pac must be 1"):
        replace(config(), gan=image_gan_config(pac=2))
    with pytest.raises(UsageError, match="augmentations must be at least 1"):
        replace(config(), augmentations=0)


def test_the_defaults_are_table_4_1() -> None:
    settings = ImageInversionConfig()
    gan = settings.gan
    assert (settings.pseudo_labels.top_n, gan.iterations, gan.batch_size, gan.discriminator_steps) == (
        30,
        30_000,
        64,
        5,
    )
    assert (gan.generator_learning_rate, gan.discriminator_learning_rate) == (2e-4, 2e-4)
    assert (gan.beta1, gan.beta2, gan.latent_dim, gan.inversion_weight) == (0.0, 0.9, 128, 0.2)
