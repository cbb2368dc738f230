"""Values and gradients of our steps are those of ctgan's own modules and formulas, on the same numbers."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from ctgan.synthesizers import ctgan
from torch import Tensor, nn

from lightleak.attacks.model_inversion.gan import ConditionalGAN
from lightleak.attacks.model_inversion.segments import Segments
from lightleak.attacks.model_inversion.tabular_generator import TabularGenerator

CLASSES = 3
Make = Callable[..., ConditionalGAN]


@pytest.fixture
def draw(make_gan: Make):  # type: ignore[no-untyped-def]
    """Our GAN in float64 without dropout, and the random numbers of one critic step and one generator step."""
    gan = make_gan(batch_size=40, dropout=0.0).double()
    gan._given[0].rows = gan._given[0].rows.double()
    gan._given[1].double()
    random = torch.Generator().manual_seed(9)
    critic, own = gan.draw_critic(random), gan.draw(random)
    return gan, critic, own


def theirs(gan: ConditionalGAN) -> tuple[nn.Module, nn.Module]:
    """ctgan's generator and discriminator with our weights; the discriminator in eval mode, where it drops nothing."""
    config, width = gan.config, gan.generator.segments.width  # type: ignore[union-attr]
    generator = ctgan.Generator(config.latent_dim + CLASSES, config.generator_dim, width).double()
    discriminator = ctgan.Discriminator(width + CLASSES, config.discriminator_dim, config.pac).double().eval()
    for theirs, ours in ((generator, gan.generator), (discriminator, gan.critic)):
        values = [value.detach().clone() for value in ours.state_dict().values()]
        names = list(theirs.state_dict())
        theirs.load_state_dict(dict(zip(names, values, strict=True)))
    return generator, discriminator


def activated(raw: Tensor, noise: Tensor, segments: Segments) -> Tensor:
    """ctgan's activation, column by column, with the noise given."""
    parts = []
    for block in segments.blocks:
        piece = raw[:, block.start : block.stop]
        if block.kind == "tanh":
            parts.append(torch.tanh(piece))
        else:
            parts.append(F.softmax((piece + noise[:, block.start : block.stop]) / 0.2, dim=1))
    return torch.cat(parts, dim=1)


def one_hot(labels: Tensor) -> Tensor:
    return F.one_hot(labels, CLASSES).double()


def test_the_critic_step_is_ctgans(draw) -> None:  # type: ignore[no-untyped-def]
    gan, d, _ = draw
    assert isinstance(gan.generator, TabularGenerator)
    loss, shown = gan.critic_loss(d)
    gradients = torch.autograd.grad(loss, list(gan.critic.parameters()))

    gan2_generator, discriminator = theirs(gan)
    fake = activated(
        gan2_generator(torch.cat([d.fake.z, one_hot(d.fake.labels)], 1)), d.fake.noise, gan.generator.segments
    )
    fake = torch.cat([fake, one_hot(d.fake.labels)], 1)
    real = torch.cat([d.real, one_hot(d.real_labels)], 1)
    # calc_gradient_penalty with its uniform numbers replaced by ours.
    alpha = d.mix.view(-1, 1, 1).repeat(1, gan.config.pac, real.shape[1]).view(-1, real.shape[1])
    between = (alpha * real + (1 - alpha) * fake).detach().requires_grad_()
    scores = discriminator(between)
    slope = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)[0]
    penalty = ((slope.view(-1, gan.config.pac * real.shape[1]).norm(2, dim=1) - 1) ** 2).mean() * 10
    expected = -(discriminator(real).mean() - discriminator(fake).mean())
    torch.testing.assert_close(shown, expected)
    torch.testing.assert_close(loss, expected + penalty)
    # The last bias drops out of both terms: ctgan's autograd gives zero or nothing for it.
    reference = torch.autograd.grad(expected + penalty, list(discriminator.parameters()))
    for ours, other in zip(gradients, reference, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-7, atol=1e-10)


def test_the_generator_step_is_ctgans_with_the_inversion_loss(draw) -> None:  # type: ignore[no-untyped-def]
    gan, _, d = draw
    classify = gan._given[1]
    assert isinstance(gan.generator, TabularGenerator) and classify is not None
    losses = gan.generator_losses(d, torch.Generator())
    total = losses["generator"] + losses["inversion"] + losses["conditioning"]
    gradients = torch.autograd.grad(total, list(gan.generator.parameters()))

    generator, discriminator = theirs(gan)
    raw = generator(torch.cat([d.z, one_hot(d.labels)], 1))
    sample = activated(raw, d.noise, gan.generator.segments)
    logits = classify(sample)
    margins = [
        max(float(row[k]) for k in range(CLASSES) if k != y) - float(row[y])
        for row, y in zip(logits.detach(), d.labels, strict=True)
    ]
    others = logits.masked_fill(one_hot(d.labels).bool(), -torch.inf).max(1).values
    inversion = (others - logits.gather(1, d.labels.unsqueeze(1)).squeeze(1)).mean()
    assert float(inversion.detach()) == pytest.approx(sum(margins) / len(margins))
    adversarial = -discriminator(torch.cat([sample, one_hot(d.labels)], 1)).mean()
    conditioning = F.cross_entropy(raw[:, -CLASSES:], d.labels)
    torch.testing.assert_close(losses["generator"], adversarial)
    torch.testing.assert_close(losses["inversion"], inversion)
    torch.testing.assert_close(losses["conditioning"], conditioning)
    reference = torch.autograd.grad(adversarial + inversion + conditioning, list(generator.parameters()))
    for ours, other in zip(gradients, reference, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-7, atol=1e-10)


def test_dropout_masks_keep_half_and_scale_the_rest(make_gan: Make) -> None:
    masks = make_gan(dropout=0.5).critic.draw_masks(4000, torch.Generator().manual_seed(0))
    assert {tuple(mask.shape) for mask in masks} == {(4000, 12)}
    for mask in masks:
        assert set(mask.unique().tolist()) == {0.0, 2.0}
        assert float(mask.mean()) == pytest.approx(1, abs=0.03)  # 48,000 draws: a deviation of 0.005


def test_a_step_has_the_recorded_loss_and_gradients(make_gan: Make) -> None:
    """Numbers of the modules that LightLeak had in place of ctgan's, in float32."""
    gan = make_gan(dropout=0.5)
    random = torch.Generator().manual_seed(9)
    critic, own = gan.draw_critic(random), gan.draw(random)
    loss, _ = gan.critic_loss(critic)
    total = sum(gan.generator_losses(own, random).values(), torch.zeros(()))
    assert (float(loss.detach()), float(total.detach())) == pytest.approx(
        (7.090181350708008, 2.3079280853271484), rel=1e-6
    )
    by_critic = torch.autograd.grad(loss, list(gan.critic.parameters()))
    by_generator = torch.autograd.grad(total, list(gan.generator.parameters()))
    norms = [float(gradient.norm()) for gradient in (*by_critic, *by_generator)]
    recorded = [3.0127079, 0.2545066, 7.4433994, 0.4163411, 7.0049791, 0.0]
    recorded += [0.7404983, 0.0, 0.1799424, 0.1952778, 1.8299376, 0.5476243]
    assert norms == pytest.approx(recorded, rel=1e-6, abs=1e-6)


def test_generator_and_critic_are_ctgans_modules(make_gan: Make) -> None:
    gan = make_gan()
    assert isinstance(gan.generator.network, ctgan.Generator) and isinstance(gan.critic.network, ctgan.Discriminator)
    assert sum(isinstance(layer, ctgan.Residual) for layer in gan.generator.modules()) == 1
