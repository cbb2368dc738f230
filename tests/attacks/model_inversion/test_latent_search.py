"""Latent searches on a generator and a target of a few weights, in float64 so that equality means equality."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks.model_inversion.generator import ConditionalGenerator
from lightleak.attacks.model_inversion.inversion_loss import max_margin
from lightleak.attacks.model_inversion.latent_search import (
    GradientSearchConfig,
    LatentProblem,
    gradient_search,
    keep_lower,
    random_search,
)
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.seeds import generator as seeded

LATENT, WIDTH, INPUTS, CLASSES, ROWS = 6, 8, 5, 4, 24
SHORT = GradientSearchConfig(steps=25, learning_rate=0.1, chunk=7)


class Toy(ConditionalGenerator):
    """A hidden layer with batch normalization, softmax over the sample."""

    latent_dim, n_classes = LATENT, CLASSES

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(LATENT + CLASSES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, WIDTH)
        )

    def raw(self, z: Tensor, labels: Tensor) -> Tensor:
        condition = nn.functional.one_hot(labels, CLASSES).to(z)
        output: Tensor = self.hidden(torch.cat([z, condition], 1))
        return output

    def activate(self, raw: Tensor, noise: Tensor | None = None) -> Tensor:
        return (raw if noise is None else raw + noise).softmax(1)


class Shift:
    """Adds noise to the target's input."""

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randn(n, INPUTS, generator=generator, dtype=torch.float64) / 10,)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        return x + drawn[0]


@pytest.fixture
def problem() -> LatentProblem:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        bridge = nn.Linear(WIDTH, INPUTS)
        target = nn.Sequential(nn.Linear(INPUTS, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES))
        toy = Toy()
        toy(torch.randn(64, LATENT) * 2, torch.arange(64) % CLASSES)  # batch statistics that are not the initial ones
    with torch.no_grad():
        for layer in (toy.hidden[3], bridge, target[3]):  # steep enough for the target to be sure of some samples
            layer.weight.mul_(6)  # type: ignore[operator]
    return LatentProblem(toy.double(), bridge.double(), target.double())


@pytest.fixture
def labels() -> Tensor:
    return torch.arange(ROWS) % CLASSES


def one_by_one(problem: LatentProblem, labels: Tensor, start: Tensor, steps: int, learning_rate: float) -> Tensor:
    """Algorithm 5 as it stands: a loop over samples, each with its own Adam; the last vector."""
    problem.generator.eval(), problem.target.eval()  # type: ignore[attr-defined]
    found = []
    for z, label in zip(start, labels, strict=True):
        leaf = z.clone().unsqueeze(0).requires_grad_()
        optimizer = torch.optim.Adam([leaf], lr=learning_rate)
        for _ in range(steps):
            logits = problem.target(problem.bridge(problem.generator(leaf, label.unsqueeze(0))))
            leaf.grad = torch.autograd.grad(nn.functional.cross_entropy(logits, label.unsqueeze(0)), leaf)[0]
            optimizer.step()
        found.append(leaf.detach()[0])
    return torch.stack(found)


def test_gradient_search_is_algorithm_5(problem: LatentProblem, labels: Tensor) -> None:
    config = dataclasses.replace(SHORT, keep_best=False)
    found = gradient_search(problem, labels, seeded(1), config)
    start = problem.draw(ROWS, seeded(1))
    torch.testing.assert_close(found.z, one_by_one(problem, labels, start, config.steps, config.learning_rate))
    assert found.evaluations == config.steps


@pytest.mark.parametrize("augment", [None, Shift()], ids=["plain", "augmented"])
@pytest.mark.parametrize("change", [{}, {"keep_best": False}, {"keep_norm": True}], ids=str)
def test_chunks_and_neighbors_change_nothing(
    problem: LatentProblem, labels: Tensor, augment: Shift | None, change: dict[str, Any]
) -> None:
    config = dataclasses.replace(SHORT, **change)
    parts = gradient_search(problem, labels, seeded(1), config, augment)
    whole = gradient_search(problem, labels, seeded(1), dataclasses.replace(config, chunk=ROWS), augment)
    torch.testing.assert_close(parts.z, whole.z, rtol=0, atol=1e-9)
    other = labels.clone()
    other[5:] = (other[5:] + 1) % CLASSES
    beside = gradient_search(problem, other, seeded(1), config, augment)
    torch.testing.assert_close(beside.z[:5], parts.z[:5], rtol=0, atol=1e-9)
    assert (beside.z[5:] - parts.z[5:]).abs().amax(1).min() > 1e-3


def test_gradient_search_lowers_the_loss_of_each_sample(problem: LatentProblem, labels: Tensor) -> None:
    found = gradient_search(problem, labels, seeded(1), SHORT)
    assert (found.after <= found.before).all()
    assert found.after.mean() < found.before.mean() - 0.3
    torch.testing.assert_close(found.after, problem.losses(found.z, labels))
    torch.testing.assert_close(found.before, problem.losses(problem.draw(ROWS, seeded(1)), labels))


def test_best_seen_is_the_lowest_loss_of_the_way(problem: LatentProblem, labels: Tensor) -> None:
    """Steps far too large, so that the last vector is not the best; every prefix of the way is a shorter search."""
    large = dataclasses.replace(SHORT, steps=6, learning_rate=3.0, keep_best=False)
    way = [gradient_search(problem, labels, seeded(1), dataclasses.replace(large, steps=k)).after for k in range(1, 7)]
    way.append(problem.losses(problem.draw(ROWS, seeded(1)), labels))
    best = gradient_search(problem, labels, seeded(1), dataclasses.replace(large, keep_best=True))
    torch.testing.assert_close(best.after, torch.stack(way).amin(0))
    assert best.after.sum() < way[5].sum()


def test_best_seen_is_judged_without_augmentation(problem: LatentProblem, labels: Tensor) -> None:
    found = gradient_search(problem, labels, seeded(1), dataclasses.replace(SHORT, learning_rate=2.0), Shift())
    torch.testing.assert_close(found.after, problem.losses(found.z, labels))
    assert (found.after <= found.before).all()


def test_augmented_loss_is_the_mean_over_the_copies(problem: LatentProblem, labels: Tensor) -> None:
    """One step of Adam has the sign of the gradient, here of the mean loss of two shifted inputs."""
    config = GradientSearchConfig(steps=1, learning_rate=0.5, keep_best=False)
    found = gradient_search(problem, labels, seeded(1), config, Shift())
    draw = seeded(1)
    start = problem.draw(ROWS, draw).requires_grad_()
    shifts = [Shift().draw(ROWS, draw)[0] for _ in range(2)]
    with problem.evaluating():
        losses = [problem.measure(problem.target(problem.inputs(start, labels) + shift), labels) for shift in shifts]
    gradient = torch.autograd.grad((sum(losses) / 2).sum(), start)[0]  # type: ignore[union-attr]
    expected = start.detach() - 0.5 * gradient / (gradient.abs() + 1e-8)
    torch.testing.assert_close(found.z, expected)
    assert found.evaluations == 2


def test_keep_norm_stays_on_the_shell_that_free_descent_leaves(problem: LatentProblem, labels: Tensor) -> None:
    start = problem.draw(ROWS, seeded(1)).norm(dim=1)
    free = dataclasses.replace(SHORT, steps=60, keep_best=False)
    held = gradient_search(problem, labels, seeded(1), dataclasses.replace(free, keep_norm=True))
    torch.testing.assert_close(held.z.norm(dim=1), start)
    assert held.after.mean() < held.before.mean()
    assert gradient_search(problem, labels, seeded(1), free).z.norm(dim=1).mean() > 1.2 * start.mean()


def test_random_search_is_the_best_of_its_tries(problem: LatentProblem, labels: Tensor) -> None:
    one, five = (random_search(problem, labels, seeded(2), tries) for tries in (1, 5))
    assert torch.equal(one.z, problem.draw(ROWS, seeded(2)))
    assert torch.equal(one.before, one.after)
    draw = seeded(2)
    losses = torch.stack([problem.losses(problem.draw(ROWS, draw), labels) for _ in range(5)])
    torch.testing.assert_close(five.after, losses.amin(0))
    torch.testing.assert_close(problem.losses(five.z, labels), five.after)
    torch.testing.assert_close(five.before, one.after)
    assert (one.evaluations, five.evaluations) == (1, 5)


def test_a_loss_that_is_no_number_counts_as_the_highest() -> None:
    nan = torch.nan
    z, loss = keep_lower(
        torch.zeros(5, 1),
        torch.tensor([1.0, 1.0, nan, 1.0, nan]),
        torch.ones(5, 1),
        torch.tensor([nan, 0.5, 0.5, 2.0, nan]),
    )
    assert z.squeeze(1).tolist() == [0, 1, 1, 0, 0]
    torch.testing.assert_close(loss, torch.tensor([1.0, 0.5, 0.5, 1.0, nan]), equal_nan=True)


def test_random_search_needs_values_only(problem: LatentProblem, labels: Tensor) -> None:
    def values(x: Tensor) -> Tensor:
        return torch.from_numpy(problem.target(x).numpy())

    black_box = dataclasses.replace(problem, target=values)
    with problem.evaluating():  # a plain function has no mode that the search could set
        found = random_search(black_box, labels, seeded(2), 3)
    torch.testing.assert_close(found.after, random_search(problem, labels, seeded(2), 3).after)


def test_gradient_search_refuses_a_target_without_gradient(problem: LatentProblem, labels: Tensor) -> None:
    blocked = dataclasses.replace(problem, target=lambda x: problem.target(x).detach())
    with pytest.raises(UnsupportedError, match="needs a target with gradients"):
        gradient_search(blocked, labels, seeded(1), SHORT)


def test_noise_and_measure_reach_the_loss(problem: LatentProblem, labels: Tensor) -> None:
    z, noise = problem.draw(ROWS, seeded(4)), torch.randn(ROWS, WIDTH, dtype=torch.float64)
    margin = dataclasses.replace(problem, measure=max_margin)
    with problem.evaluating(), torch.no_grad():
        logits = problem.target(problem.bridge(problem.generator(z, labels, noise)))
        torch.testing.assert_close(margin.loss(z, labels, noise), max_margin(logits, labels))
        assert not torch.allclose(margin.loss(z, labels, noise), margin.loss(z, labels))


def test_networks_get_their_modes_back_and_no_gradient(problem: LatentProblem, labels: Tensor) -> None:
    problem.generator.train()
    problem.generator.hidden[1].eval()
    before = {name: value.clone() for name, value in problem.generator.state_dict().items()}
    gradient_search(problem, labels, seeded(1), SHORT)
    assert problem.generator.training and not problem.generator.hidden[1].training
    assert all(torch.equal(value, before[name]) for name, value in problem.generator.state_dict().items())
    assert all(parameter.grad is None for parameter in problem.generator.parameters())


def test_works_where_gradients_are_switched_off(problem: LatentProblem, labels: Tensor) -> None:
    expected = gradient_search(problem, labels, seeded(1), SHORT)
    with torch.no_grad():
        torch.testing.assert_close(gradient_search(problem, labels, seeded(1), SHORT).z, expected.z)


@pytest.mark.gpu
def test_runs_where_the_generator_is(problem: LatentProblem, labels: Tensor) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    expected = gradient_search(problem, labels, seeded(1), SHORT, Shift())
    for part in (problem.generator, problem.bridge, problem.target):
        part.cuda()  # type: ignore[attr-defined]

    class There(Shift):
        def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
            return x + drawn[0].to(x.device)

    found = gradient_search(problem, labels, seeded(1), SHORT, There())
    for part in (problem.generator, problem.bridge, problem.target):
        part.cpu()  # type: ignore[attr-defined]
    assert found.z.is_cuda
    torch.testing.assert_close(found.z.cpu(), expected.z, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"augmentations": 1.5}, "augmentations must be a whole number, got 1.5"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number, got nan"),
    ],
)
def test_settings_are_checked(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        GradientSearchConfig(**setting)


@pytest.mark.parametrize("bad", [torch.tensor([CLASSES]), torch.tensor([-1]), torch.tensor([0.0]), torch.tensor([])])
def test_labels_are_checked(problem: LatentProblem, bad: Tensor) -> None:
    with pytest.raises(UsageError, match=r"labels must be class indices \[n\] from 0 to 3"):
        random_search(problem, bad, seeded(0))
