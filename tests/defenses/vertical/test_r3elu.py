"""D3 keeps its promise: what travels of one record is epsilon-differentially private in each direction."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightleak.defenses.vertical.r3elu import R3eluDefense, clip_largest, randomize, response_probability

WIDTH = 6


@st.composite
def records(draw: st.DrawFn) -> tuple[Tensor, Tensor, int]:
    """Two records of 6 values each, and how many of their values are kept."""
    values = st.lists(st.sampled_from([0.0, 0.3, -1.0, 2.0, -4.0, 50.0]), min_size=WIDTH, max_size=WIDTH)
    first, second = (torch.tensor(draw(values), dtype=torch.float64) for _ in range(2))
    return first, second, draw(st.integers(1, WIDTH))


def log_likelihoods(values: Tensor, epsilon: float, kept: int) -> Tensor:
    """Log-probability of every set of responding values, ``[2^width]``."""
    p = response_probability(clip_largest(values, kept, 10.0).abs(), epsilon / 2, kept)
    answers = torch.tensor(list(itertools.product([False, True], repeat=values.numel())))
    return torch.where(answers, p, 1 - p).log().sum(1)


@given(records(), st.floats(0.1, 20.0))
def test_who_responds_costs_at_most_half_the_budget(pair: tuple[Tensor, Tensor, int], epsilon: float) -> None:
    first, second, kept = pair
    ratios = log_likelihoods(first, epsilon, kept) - log_likelihoods(second, epsilon, kept)
    assert float(ratios.abs().max()) <= epsilon / 2 + 1e-9


def test_the_worst_records_use_the_whole_half() -> None:
    first, second = torch.tensor([1.0, 1, 1, 0, 0, 0]).double(), torch.tensor([0.0, 0, 0, 1, 1, 1]).double()
    ratios = log_likelihoods(first, 3.0, kept=3) - log_likelihoods(second, 3.0, kept=3)
    assert float(ratios.max()) == pytest.approx(1.5)


@given(records())
def test_kept_values_are_within_the_sensitivity(pair: tuple[Tensor, Tensor, int]) -> None:
    first, second, kept = pair
    one, other = clip_largest(first, kept, 10.0), clip_largest(second, kept, 10.0)
    assert int((one != 0).sum()) <= kept and float(one.abs().max()) <= 10
    assert float((one - other).abs().sum()) <= 2 * kept * 10
    assert bool(((one == 0) | (one == first.clamp(-10, 10))).all())
    left_out = first[one == 0].abs()
    assert not len(left_out) or not (one != 0).any() or left_out.max() <= first[one != 0].abs().min()


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("first", "second"),
    [([1.0, 0.0], [0.0, 1.0]), ([1.0, 0.0], [0.0, 0.0]), ([5.0, 0.0], [-5.0, 0.0]), ([0.7, 0.6], [0.0, 0.1])],
)
def test_measured_odds_stay_within_the_budget(direction: str, first: list[float], second: list[float]) -> None:
    """Histograms of what travels of two records: no cell tells them apart by more than e^epsilon."""
    n, epsilon = 400_000, 2.0
    # The gradient bound is that of the record's own loss; a batch of n divides it by n.
    defense = R3eluDefense(epsilon, kept=1, output_bound=1.0, gradient_bound=float(n))
    edges = torch.tensor([-6.0, -3.0, -1.0, -1e-9, 1e-9, 0.5, 1.0, 2.0, 4.0, 8.0])

    def histogram(record: list[float], seed: int) -> Tensor:
        values, transform = torch.tensor(record).repeat(1, n, 1), defense.transform(seed)
        forward = direction == "forward"
        sent = transform.outputs(values.relu(), True) if forward else transform.gradients(values, values)
        cells = torch.bucketize(sent[0], edges)
        return (cells[:, 0] * 11 + cells[:, 1]).bincount(minlength=121).double()

    one, other = histogram(first, 0), histogram(second, 1)
    filled = (one > 200) & (other > 200)
    assert int(filled.sum()) >= 9
    odds, error = (one / other).log()[filled], (1 / one + 1 / other).sqrt()[filled]
    assert bool((odds.abs() <= epsilon + 4.5 * error).all())


def test_budget_is_split_and_noise_has_the_stated_scale() -> None:
    values = torch.zeros(200_000, 4, dtype=torch.float64)
    values[:, 0], values[:, 1] = 3.0, 1.5
    clipped, responds, noise = randomize(values, 4.0, 2, 10.0, torch.Generator().manual_seed(0))
    highest = math.e / (1 + math.e)  # epsilon / 2 / kept = 1
    expected = torch.tensor([highest, 0.5 + (highest - 0.5) / 2, 0.5, 0.5])
    assert torch.allclose(responds.double().mean(0), expected.double(), atol=0.006)
    assert float(noise.abs().mean()) == pytest.approx(20.0, rel=0.01)  # 2 K C / (epsilon / 2)
    assert torch.equal(clipped, values)


def test_outputs_are_differentiable_where_they_responded() -> None:
    outputs = torch.tensor([[[0.5, 3.0, 0.2, 0.1]]]).repeat(1, 500, 1).requires_grad_()
    sent = R3eluDefense(8.0, kept=2, output_bound=1.0).transform(0).outputs(outputs, training=True)
    sent.sum().backward()
    assert outputs.grad is not None
    assert torch.equal(outputs.grad[..., 0], (sent[..., 0] > 0).float()), "a kept value passes its gradient on"
    assert not outputs.grad[..., 1:].any(), "clipped and dropped values do not"
    assert float((sent == 0).float().mean()) > 0.25 and float(sent.detach().min()) == 0


def test_gradients_of_silent_values_are_noise_alone() -> None:
    gradients = torch.full((1, 1000, 4), 2.0)
    sent = R3eluDefense(1e6, gradient_bound=4000.0).transform(0).gradients(gradients, gradients)
    # At such a budget there is no noise to speak of: two of four are kept, and kept ones respond for sure.
    assert torch.allclose(sent.sort(-1).values, torch.tensor([0.0, 0, 2, 2]), atol=0.5)
    assert bool((sent != 0).all()), "who is silent cannot be read off"


def test_gradient_bound_is_in_units_of_the_records_own_loss() -> None:
    small, large = (torch.zeros(1, batch, 4) for batch in (1000, 4000))
    defense = R3eluDefense(1.0)
    spread = [defense.transform(0).gradients(g, g).abs().mean() * g.shape[1] for g in (small, large)]
    assert float(spread[0] / spread[1]) == pytest.approx(1.0, rel=0.1)


def test_testing_is_randomized_and_does_not_change_training() -> None:
    outputs = torch.rand(2, 8, 4)
    defense = R3eluDefense()
    plain, tested = defense.transform(0), defense.transform(0)
    evaluated = tested.outputs(outputs, training=False)
    assert not torch.equal(evaluated, outputs)
    assert torch.equal(tested.outputs(outputs, training=True), plain.outputs(outputs, training=True))
    assert R3eluDefense(at_test=False).transform(0).outputs(outputs, training=False) is outputs


def test_kept_defaults_to_half_the_width_and_never_exceeds_it() -> None:
    # At such a budget noise is negligible, and the largest value responds for sure, the kept others all but half.
    outputs = torch.rand(1, 500, 6) + 1
    for kept, most in ((None, 3), (2, 2), (99, 6)):
        sent = R3eluDefense(1e6, kept=kept).transform(0).outputs(outputs, True)
        assert int((sent > 0.5).sum(-1).max()) == most


def test_a_budget_per_value_is_that_many_per_record() -> None:
    outputs = torch.rand(1, 50, 6)
    per_value = R3eluDefense(1.0, per="value").transform(0)
    per_record = R3eluDefense(3.0).transform(0)  # three of six values are kept
    assert torch.equal(per_value.outputs(outputs, True), per_record.outputs(outputs, True))
    assert torch.equal(per_value.gradients(outputs, outputs), per_record.gradients(outputs, outputs))
    assert R3eluDefense(1.0, per="value").describe().endswith("epsilon 1 per value")
