"""The engine: its step is Adam's, restarts keep to themselves, and what has converged stays where it is."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.optimize import engine
from lightleak.attacks.gradient_inversion.optimize.engine import CHECK_EVERY, initial_candidates, invert
from lightleak.attacks.gradient_inversion.optimize.matcher import NetworkMatcher
from lightleak.attacks.gradient_inversion.optimize.objective import OBJECTIVES
from lightleak.data.encoder import TableEncoder
from lightleak.data.relaxation import Relaxation


@dataclass
class Bowl:
    """A matcher whose loss is the mean squared distance to a center; it counts the calls."""

    center: Tensor
    calls: int = 0

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        difference = x - self.center
        return difference.square().mean((-1, -2)), 2 * difference / difference[0, 0].numel()


@pytest.fixture
def relaxation(encoder: TableEncoder) -> Relaxation:
    """TabLeak's relaxation of the table, in double precision."""
    return encoder.relaxation(dtype=torch.float64)


def start_of(encoder: TableEncoder, updates: int = 2, restarts: int = 3, rows: int = 4) -> Tensor:
    """Double-precision starts."""
    return initial_candidates(list(range(updates)), range(restarts), rows, encoder.width).double()


def center_of(encoder: TableEncoder) -> Tensor:
    """A point that relaxed rows can reach."""
    return encoder.relax(torch.randn(4, encoder.width, dtype=torch.float64))


def adam(start: Tensor, relaxation: Relaxation, bowl: Bowl, config: InversionConfig) -> tuple[Tensor, Tensor]:
    """Kingma and Ba's Algorithm 1 with its defaults, derivatives by autograd."""
    z, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    loss = torch.empty(0)
    for t in range(1, config.steps + 1):
        leaf = z.clone().requires_grad_()
        loss = (relaxation(leaf) - bowl.center).square().mean((-1, -2))
        (g,) = torch.autograd.grad(loss.sum(), leaf)
        g = g.sign() if config.sign else g
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g * g
        z = z - config.learning_rate * (first / (1 - 0.9**t)) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
    return relaxation(z), loss.detach()


@pytest.mark.parametrize("sign", [True, False])
@pytest.mark.parametrize("relaxed", [("softmax", "sigmoid"), ("none", "none")], ids=str)
def test_a_step_is_adams(encoder: TableEncoder, sign: bool, relaxed: tuple[str, str]) -> None:
    config = InversionConfig(steps=17, sign=sign, learning_rate=0.03)
    relaxation = encoder.relaxation(*relaxed, dtype=torch.float64)
    start, bowl = start_of(encoder), Bowl(center_of(encoder))
    before = start.clone()
    found = invert(start, relaxation, bowl, config)
    x, loss = adam(start, relaxation, bowl, config)
    torch.testing.assert_close(found.x, x)
    torch.testing.assert_close(found.loss, loss)
    assert torch.equal(start, before) and found.steps == bowl.calls == 17


def test_it_descends_to_what_can_be_reached(encoder: TableEncoder, relaxation: Relaxation) -> None:
    bowl = Bowl(center_of(encoder))
    start = start_of(encoder)
    found = invert(start, relaxation, bowl, InversionConfig(steps=400, learning_rate=0.05, sign=False))
    assert (found.loss < 0.01 * bowl.value_and_grad(relaxation(start))[0]).all()


def test_starts_depend_on_seed_and_restart_alone() -> None:
    whole = initial_candidates([5, 9], range(4), rows=3, width=6)
    assert whole.shape == (2, 4, 3, 6)
    assert ((whole >= 0) & (whole <= 1)).all() and whole.unique().numel() == whole.numel()
    assert torch.equal(initial_candidates([9], [2, 3], 3, 6)[0], whole[1, 2:])
    torch.manual_seed(99)
    assert torch.equal(initial_candidates([5, 9], range(4), 3, 6), whole)


@pytest.mark.parametrize("network", ["mlp", "resnet"])
@pytest.mark.parametrize("sign", [True, False])
def test_restarts_do_not_interact(
    encoder: TableEncoder, relaxation: Relaxation, make_update: object, stack: object, network: str, sign: bool
) -> None:
    updates = [make_update(4, network, seed, hidden=[9, 8], dtype=torch.float64)[0] for seed in range(2)]
    config = InversionConfig(steps=25, sign=sign, learning_rate=0.02)

    def matcher(chosen: list[object]) -> NetworkMatcher:
        groups = (stack(chosen, name) for name in ("parameters", "buffers", "update"))
        labels = torch.stack([update.labels for update in chosen])
        return NetworkMatcher(client_network(chosen[0]).double(), *groups, labels, OBJECTIVES["cosine"])

    start = start_of(encoder)
    together = invert(start, relaxation, matcher(updates), config)
    for u, update in enumerate(updates):
        for r in range(start.shape[1]):
            alone = invert(start[u : u + 1, r : r + 1], relaxation, matcher([update]), config)
            torch.testing.assert_close(alone.x[0, 0], together.x[u, r], rtol=0, atol=1e-6)
            torch.testing.assert_close(alone.loss[0, 0], together.loss[u, r], rtol=0, atol=1e-8)


def test_an_early_stop_freezes_what_has_converged_and_nothing_else(
    encoder: TableEncoder, relaxation: Relaxation
) -> None:
    start, bowl = start_of(encoder), Bowl(center_of(encoder))
    endless = InversionConfig(steps=CHECK_EVERY + 10, learning_rate=0.05, sign=False)
    histories = [invert(start, relaxation, bowl, endless.with_options(steps=k)) for k in range(1, endless.steps + 1)]
    losses = torch.stack([found.loss for found in histories])
    # The second quickest restart sets the threshold, so that some restarts stop and others go on.
    threshold = float(losses.min(0).values.flatten().sort().values[1]) * 1.0001
    stopped = invert(start, relaxation, bowl, endless.with_options(stop_below=threshold))
    assert stopped.steps == endless.steps
    moved = 0
    for u in range(start.shape[0]):
        for r in range(start.shape[1]):
            below = (losses[:, u, r] < threshold).nonzero()
            if len(below):  # it stays where it was when its loss fell below
                step = int(below[0])
                x = relaxation(start)[u, r] if step == 0 else histories[step - 1].x[u, r]
                torch.testing.assert_close(stopped.x[u, r], x)
                assert stopped.loss[u, r] < threshold
            else:
                moved += 1
                assert torch.equal(stopped.x[u, r], histories[-1].x[u, r])
    assert 0 < moved < start.shape[0] * start.shape[1]


def test_when_all_have_converged_no_further_step_is_taken(encoder: TableEncoder, relaxation: Relaxation) -> None:
    bowl, told = Bowl(center_of(encoder)), []
    config = InversionConfig(steps=1000, stop_below=1e9)
    start = start_of(encoder)
    found = invert(start, relaxation, bowl, config, told.append)
    assert found.steps == bowl.calls == CHECK_EVERY
    torch.testing.assert_close(found.x, relaxation(start))
    assert sum(told) == 1000


@pytest.mark.parametrize("steps", [1, CHECK_EVERY - 1, CHECK_EVERY, 2 * CHECK_EVERY, 2 * CHECK_EVERY + 7])
def test_progress_sums_to_the_steps(encoder: TableEncoder, relaxation: Relaxation, steps: int) -> None:
    told: list[int] = []
    invert(start_of(encoder), relaxation, Bowl(center_of(encoder)), InversionConfig(steps=steps), told.append)
    assert sum(told) == steps and min(told) >= 0


def test_slow_steps_are_reported_one_by_one(
    encoder: TableEncoder, relaxation: Relaxation, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(engine, "REPORT_EVERY", -1.0)
    invert(start_of(encoder), relaxation, Bowl(center_of(encoder)), InversionConfig(steps=3), told.append)
    assert told == [1, 1, 1, 0]


@dataclass
class Course(Bowl):
    """A bowl that notes the shares of the steps it is asked at."""

    shares: list[float] = field(default_factory=list)

    def at(self, share: float) -> "Course":
        self.shares.append(share)
        return self


def test_a_matcher_that_changes_is_told_how_far_the_work_is(encoder: TableEncoder, relaxation: Relaxation) -> None:
    course = Course(center_of(encoder))
    invert(start_of(encoder), relaxation, course, InversionConfig(steps=4))
    assert course.shares == [0.0, 0.25, 0.5, 0.75]


def test_the_temperature_falls_to_its_end(encoder: TableEncoder) -> None:
    constants = encoder.shift, encoder.scale, *encoder.encoded_bounds()
    cooling = Relaxation(encoder.layout, *constants, temperature_end=0.1)
    start, bowl, config = start_of(encoder), Bowl(center_of(encoder)), InversionConfig(steps=1, learning_rate=1e-12)
    torch.testing.assert_close(invert(start, cooling, bowl, config).x, cooling.at(1.0)(start))
    torch.testing.assert_close(invert(start, cooling, bowl, config).loss, bowl.value_and_grad(cooling(start))[0])


def test_a_cosine_takes_the_rate_down_to_nearly_nothing(encoder: TableEncoder, relaxation: Relaxation) -> None:
    start, bowl = start_of(encoder), Bowl(center_of(encoder))
    free = encoder.relaxation("none", "none", dtype=torch.float64)
    steps = 8
    cosine = InversionConfig(steps=steps, learning_rate=1e-6, schedule="cosine", categorical="softmax")
    moved = invert(start, free, bowl, cosine).x - start
    # So small a step never turns, so that Adam on signs moves by the rate itself.
    factors = [0.5 * (1 + torch.cos(torch.tensor(torch.pi * k / steps))) + 2e-3 for k in range(steps)]
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, 1e-6 * float(sum(factors))), rtol=1e-3, atol=0)


def test_numbers_have_their_own_rate(encoder: TableEncoder) -> None:
    start, bowl = start_of(encoder), Bowl(center_of(encoder))
    free = encoder.relaxation("none", "none", dtype=torch.float64)
    settings = {"steps": 20, "learning_rate": 0.04, "sign": False}
    found = invert(start, free, bowl, InversionConfig(**settings, numerical_learning_rate=0.01)).x
    at, expected = encoder.numerical_positions, invert(start, free, bowl, InversionConfig(**settings)).x
    slow = invert(start, free, bowl, InversionConfig(**(settings | {"learning_rate": 0.01}))).x
    expected[..., at] = slow[..., at]
    torch.testing.assert_close(found, expected)


def test_clamped_numbers_never_leave_their_bounds(encoder: TableEncoder) -> None:
    constants = encoder.shift, encoder.scale, *encoder.encoded_bounds()
    relax = Relaxation(encoder.layout, *constants, numerical="clamp")
    assert relax.bounds is not None
    outside = torch.full((4, encoder.width), 50.0, dtype=torch.float64)
    found = invert(start_of(encoder), relax, Bowl(outside), InversionConfig(steps=60, learning_rate=0.5, sign=False))
    at, (_, upper) = encoder.numerical_positions, relax.bounds
    torch.testing.assert_close(found.x[..., at], upper[at].expand_as(found.x[..., at]))
