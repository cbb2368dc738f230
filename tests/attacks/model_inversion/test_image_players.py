"""Generator and critic of images: each image for itself, and the penalty as it is defined."""

import pytest
import torch

from lightleak.attacks.model_inversion.image_critic import ImageCritic
from lightleak.attacks.model_inversion.image_generator import ImageGenerator
from lightleak.core.errors import UsageError

SHAPE, CLASSES, LATENT = (2, 8, 4), 3, 6


@pytest.fixture
def generator() -> ImageGenerator:
    return ImageGenerator(SHAPE, CLASSES, LATENT, widths=(16, 8)).double()


@pytest.fixture
def critic() -> ImageCritic:
    return ImageCritic(SHAPE, CLASSES, widths=(4, 6)).double()


def images(n: int) -> torch.Tensor:
    return torch.rand(n, *SHAPE, dtype=torch.float64) * 2 - 1


@pytest.mark.parametrize("training", [True, False])
def test_an_image_depends_on_its_own_latent_vector_and_class_alone(generator: ImageGenerator, training: bool) -> None:
    generator.train(training)
    z, labels = torch.randn(7, LATENT, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    whole = generator(z, labels)
    assert whole.shape == (7, *SHAPE) and whole.abs().max() <= 1
    torch.testing.assert_close(generator(z[2:4], labels[2:4]), whole[2:4])
    assert generator.draw_noise(7, torch.Generator()) is None and generator.label_logits(whole) is None


def test_classes_part_once_their_scales_do(generator: ImageGenerator) -> None:
    z = torch.randn(1, LATENT, dtype=torch.float64).expand(CLASSES, -1)
    labels = torch.arange(CLASSES)
    before = generator(z, labels)
    assert torch.allclose(before[0], before[1])  # every class begins alike
    with torch.no_grad():
        generator.norms[0].shift[1] += 1.0  # type: ignore[operator,index]
    after = generator(z, labels)
    assert not torch.allclose(after[1], before[1]) and torch.equal(after[[0, 2]], before[[0, 2]])


def test_a_score_is_of_one_image_and_its_class(critic: ImageCritic) -> None:
    x, labels = images(5), torch.tensor([0, 1, 2, 0, 1])
    whole = critic.score(x, labels)
    assert whole.shape == (5,)
    torch.testing.assert_close(critic.score(x[1:3], labels[1:3]), whole[1:3])
    assert not torch.isclose(critic.score(x, (labels + 1) % CLASSES), whole).any()


def test_the_penalty_is_that_of_one_gradient_after_the_other(critic: ImageCritic) -> None:
    fake, real, mix = images(4), images(4), torch.rand(4, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 2])  # of both, so that the class between them is the class
    expected = []
    for i in range(4):
        point = (fake[i] + mix[i] * (real[i] - fake[i])).unsqueeze(0).requires_grad_()
        (gradient,) = torch.autograd.grad(critic.score(point, labels[i : i + 1]).sum(), point)
        expected.append((gradient.norm() - 1) ** 2)
    found = critic.penalty(fake, labels, real, labels, mix, ())
    torch.testing.assert_close(found, torch.stack(expected).mean())


def test_losses_of_parts_of_a_batch_average_to_that_of_the_whole(critic: ImageCritic) -> None:
    # So the ranks of a distributed training, which each hold a part, train as one process would.
    fake, real, mix = images(6), images(6), torch.rand(6, dtype=torch.float64)
    labels, others = torch.tensor([0, 1, 2, 2, 1, 0]), torch.tensor([1, 1, 0, 2, 2, 0])
    parts = [critic.penalty(fake[p], labels[p], real[p], others[p], mix[p], ()) for p in (slice(3), slice(3, 6))]
    torch.testing.assert_close(torch.stack(parts).mean(), critic.penalty(fake, labels, real, others, mix, ()))


def test_at_the_ends_the_class_is_that_of_the_end(critic: ImageCritic) -> None:
    fake, real = images(3), images(3)
    labels, others = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    for mix, ends, own in ((torch.zeros(3), fake, labels), (torch.ones(3), real, others)):
        found = critic.penalty(fake, labels, real, others, mix.double(), ())
        torch.testing.assert_close(found, critic.penalty(ends, own, ends, own, mix.double(), ()))


def test_the_penalty_s_gradient_by_the_weights_is_right(critic: ImageCritic) -> None:
    fake, real, mix = images(4), images(4), torch.rand(4, dtype=torch.float64)
    labels, others = torch.tensor([0, 1, 2, 2]), torch.tensor([1, 1, 0, 2])

    def penalty() -> torch.Tensor:
        return critic.penalty(fake, labels, real, others, mix, ())

    weights = (critic.convolutions[0].weight, critic.last.weight, critic.linear.weight, critic.embedding.weight)
    gradients = torch.autograd.grad(penalty(), weights)  # type: ignore[arg-type]
    step = 1e-6
    for weight, gradient in zip(weights, gradients, strict=True):
        direction = torch.randn_like(gradient)
        with torch.no_grad():
            weight.add_(direction, alpha=step)  # type: ignore[union-attr,operator]
        above = penalty()
        with torch.no_grad():
            weight.sub_(direction, alpha=2 * step)  # type: ignore[union-attr,operator]
        below = penalty()
        with torch.no_grad():
            weight.add_(direction, alpha=step)  # type: ignore[union-attr,operator]
        assert float((gradient * direction).sum()) == pytest.approx(
            (above.item() - below.item()) / (2 * step), rel=1e-4
        )
        assert gradient.abs().max() > 0


def test_images_that_cannot_be_halved_are_refused() -> None:
    with pytest.raises(UsageError, match="8 x 4 pixels cannot be halved 3 times"):
        ImageGenerator(SHAPE, CLASSES, LATENT, widths=(8, 8, 8, 8))
    with pytest.raises(UsageError, match="8 x 4 pixels cannot be halved 3 times"):
        ImageCritic(SHAPE, CLASSES, widths=(8, 8, 8))
