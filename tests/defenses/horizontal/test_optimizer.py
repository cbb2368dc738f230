"""The wrapping optimizer: the same steps by hand, the same bits without strength, and what it refuses."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal import DefendedOptimizer, UpdateDefense
from lightleak.defenses.horizontal.defense import NoDefense
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.defenses.horizontal.rounding import Clipping, Sign

MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda network: torch.optim.SGD(network.parameters(), 0.1),
    "momentum": lambda network: torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda network: torch.optim.Adam(network.parameters(), 0.1),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> dict[str, Tensor]:
    """Train on random batches, each of which depends on the number of its step alone."""
    for step in steps:
        draws = generator(7, step)
        inputs, labels = torch.randn(6, 5, generator=draws), torch.randint(2, (6,), generator=draws)

        def closure(inputs: Tensor = inputs, labels: Tensor = labels) -> Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            return loss

        assert optimizer.step(closure) > 0
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("defense", [GaussianNoise(0.3), Clipping(0.05), Sign()])
def test_a_step_uses_the_defended_gradient(defense: UpdateDefense) -> None:
    model, reference = network(), network()
    optimizer = DefendedOptimizer(OPTIMIZERS["sgd"](model), model, defense, seed=3)
    plain = OPTIMIZERS["sgd"](reference)
    for step in range(3):
        before = {name: value.detach().clone() for name, value in reference.named_parameters()}
        take_steps(reference, plain, range(step, step + 1))
        # One process is rank 0.
        raw = {name: value.grad for name, value in reference.named_parameters()}
        sent = defense.apply(raw, generator(3, "defense", 0, step))
        after = take_steps(model, optimizer, range(step, step + 1))
        for name, value in before.items():
            torch.testing.assert_close(after[name], value - 0.1 * sent[name])
        reference.load_state_dict(after)


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
@pytest.mark.parametrize("defense", [GaussianNoise(0.0), NoDefense(), Clipping(1e6)])
def test_without_strength_training_is_the_same_to_the_bit(kind: str, defense: UpdateDefense) -> None:
    model, reference = network(), network()
    defended = take_steps(model, DefendedOptimizer(OPTIMIZERS[kind](model), model, defense, seed=0), range(5))
    assert same(defended, take_steps(reference, OPTIMIZERS[kind](reference), range(5)))


def test_noise_follows_seed_and_step() -> None:
    def run(seed: int) -> dict[str, Tensor]:
        model = network()
        torch.manual_seed(seed)  # no global generator is asked
        return take_steps(
            model, DefendedOptimizer(OPTIMIZERS["sgd"](model), model, GaussianNoise(0.1), seed // 2), range(3)
        )

    assert same(run(0), run(1))
    assert not same(run(0), run(2))


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_a_resumed_training_repeats_to_the_bit(kind: str) -> None:
    whole = network()
    expected = take_steps(whole, DefendedOptimizer(OPTIMIZERS[kind](whole), whole, GaussianNoise(0.1), 0), range(5))
    first = network()
    optimizer = DefendedOptimizer(OPTIMIZERS[kind](first), first, GaussianNoise(0.1), 0)
    take_steps(first, optimizer, range(2))
    second = network()
    second.load_state_dict(first.state_dict())
    resumed = DefendedOptimizer(OPTIMIZERS[kind](second), second, GaussianNoise(0.1), 0)
    resumed.load_state_dict(optimizer.state_dict())
    assert same(take_steps(second, resumed, range(2, 5)), expected)


def test_both_optimizers_share_groups_and_state() -> None:
    model = network()
    optimizer = DefendedOptimizer(OPTIMIZERS["momentum"](model), model, NoDefense(), 0)
    for _ in range(2):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        take_steps(model, optimizer, range(1))
        before = optimizer.original_optimizer.param_groups[0]["lr"]
        scheduler.step()
        assert optimizer.original_optimizer.param_groups[0]["lr"] == before / 2
        assert len(optimizer.state) == 4
        optimizer.load_state_dict(optimizer.state_dict())


def test_a_parameter_without_gradient_stays() -> None:
    model = network()
    frozen = model[0].weight.requires_grad_(False).clone()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    take_steps(model, DefendedOptimizer(optimizer, model, GaussianNoise(1.0), 0), range(2))
    assert torch.equal(model[0].weight, frozen)
    DefendedOptimizer(optimizer, model, GaussianNoise(1.0), 0).zero_grad()
    other = DefendedOptimizer(optimizer, model, GaussianNoise(1.0), 0)
    held = {name: value.detach().clone() for name, value in model.named_parameters()}
    other.step()  # no gradient anywhere: there is no step to defend
    assert same(held, dict(model.named_parameters()))


def test_what_cannot_be_defended_is_refused() -> None:
    model = network()
    with pytest.raises(UsageError, match="LBFGS computes several"):
        DefendedOptimizer(torch.optim.LBFGS(model.parameters()), model, NoDefense(), 0)
    with pytest.raises(UsageError, match="parameters of the network and nothing else"):
        DefendedOptimizer(
            torch.optim.SGD([*model.parameters(), nn.Parameter(torch.zeros(1))], 0.1), model, NoDefense(), 0
        )
    plain = OPTIMIZERS["sgd"](model)
    with pytest.raises(UsageError, match="undefended training"):
        DefendedOptimizer(plain, model, NoDefense(), 0).load_state_dict(plain.state_dict())
