"""Games about a row of a DP-SGD release: the best attack wins no more often than the guarantee allows."""

import math

import pytest
import torch
from scipy.special import ndtr
from torch import Tensor, nn

from lightleak.core.guarantee import success_bound
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.dp_sgd import DPSGD
from lightleak.defenses.horizontal.per_sample import clipped_mean, per_sample_gradients
from lightleak.metrics.dp_game import best_prior, coordinates, exceeds, guess, play

SIGMAS = (0.5, 1.0, 2.0, 4.0, 8.0)
PRIORS = {
    "two": torch.tensor([0.5, 0.5]),
    "ten": torch.full((10,), 0.1),
    "skewed": torch.tensor([0.85, 0.1, 0.03, 0.02, 0.0]),
}
TRIALS = 20_000


def spread(k: int, p: int = 40) -> Tensor:
    """Gradients of the clipping norm in directions of their own."""
    rows = torch.randn(k, p, generator=generator(0, "rows"))
    return rows / rows.norm(dim=1, keepdim=True)


def wins(candidates: Tensor, noise: float, prior: Tensor, trials: int = TRIALS) -> int:
    return int(play(candidates, noise, prior, trials, generator(1)).sum())


@pytest.mark.parametrize("noise", SIGMAS)
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_no_more_is_won_than_the_bound_allows_and_no_less_than_by_the_prior(noise: float, prior: Tensor) -> None:
    won = wins(spread(len(prior)), noise, prior)
    assert not exceeds(won, TRIALS, success_bound(noise, float(prior.max())))
    assert not exceeds(TRIALS - won, TRIALS, 1 - float(prior.max()))


@pytest.mark.parametrize("noise", SIGMAS)
def test_two_opposite_gradients_reach_the_bound_so_that_a_lower_one_is_caught(noise: float) -> None:
    opposite, prior = spread(1).repeat(2, 1) * torch.tensor([[1.0], [-1.0]]), PRIORS["two"]
    bound, won = success_bound(noise, float(prior.max())), wins(opposite, noise, prior, 100_000)
    assert won / 100_000 == pytest.approx(bound, abs=4 * math.sqrt(bound * (1 - bound) / 100_000))
    assert not exceeds(won, 100_000, bound)
    assert exceeds(won, 100_000, success_bound(2 * noise, float(prior.max())))  # noise of half the claimed size
    assert exceeds(wins(2 * opposite, noise, prior, 100_000), 100_000, bound)  # rows that were not clipped


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_without_noise_the_game_is_always_won(prior: Tensor) -> None:
    assert wins(1e-3 * spread(len(prior)), 0.0, prior) == TRIALS
    assert success_bound(0.0, float(prior.max())) == 1.0


def test_equal_gradients_leave_the_prior() -> None:
    prior = torch.tensor([0.7, 0.2, 0.1])
    assert wins(spread(1).repeat(3, 1), 1.0, prior) / TRIALS == pytest.approx(0.7, abs=0.015)
    assert success_bound(1.0, float(prior.max()), reach=0.0) == pytest.approx(0.7)


def test_equal_gradients_leave_the_prior_without_noise_too() -> None:
    one, other = spread(2)
    prior = torch.tensor([0.1, 0.6, 0.3])
    assert wins(torch.stack([one, one, other]), 0.0, prior) / TRIALS == pytest.approx(0.9, abs=0.015)
    assert wins(one.repeat(3, 1), 0.0, prior) / TRIALS == pytest.approx(0.6, abs=0.015)
    near = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 1]]).bool()  # the first and the last count as one
    alike = torch.zeros(3, 1)
    assert guess(alike[:1], alike, 0.0, torch.tensor([0.3, 0.4, 0.3]), near).item() == 0


def test_two_candidates_are_told_apart_as_their_distance_says() -> None:
    candidates, noise = spread(2), 0.8
    expected = float(ndtr(float((candidates[0] - candidates[1]).norm()) / (2 * noise)))
    assert wins(candidates, noise, PRIORS["two"], 100_000) / 100_000 == pytest.approx(expected, abs=0.006)


def test_coordinates_keep_the_guess_of_the_whole_release() -> None:
    candidates, prior, noise = spread(6).double(), torch.tensor([0.3, 0.2, 0.2, 0.1, 0.1, 0.1]), 0.7
    released = candidates[torch.arange(600) % 6] + noise * torch.randn(600, 40, generator=generator(2)).double()
    points = coordinates(candidates)
    torch.testing.assert_close(torch.cdist(points, points), torch.cdist(candidates, candidates))
    basis = torch.linalg.qr((candidates - candidates[0]).T).Q
    inside = (released - candidates[0]) @ basis
    assert torch.equal(guess(inside, points, noise, prior), guess(released, candidates, noise, prior))


def test_releases_of_the_defense_itself_are_won_as_often_as_the_game_says() -> None:
    network = nn.Linear(4, 2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(3)))
    parameters, defense = dict(network.named_parameters()), DPSGD(noise_multiplier=0.5, max_grad_norm=0.3)
    known, candidates = torch.randn(7, 4, generator=generator(4)), torch.randn(2, 4, generator=generator(5))
    labels = torch.zeros(8, dtype=torch.long)

    def clipped(row: Tensor) -> Tensor:
        gradients = per_sample_gradients(network, parameters, {}, row[None], labels[:1])
        return torch.cat([part.flatten() for part in clipped_mean(gradients, 0.3).values()]) / 0.3

    rows = torch.stack([clipped(row) for row in candidates])
    others = torch.stack([clipped(row) for row in known]).sum(dim=0)
    won = 0
    for trial in range(400):
        batch = torch.cat([known, candidates[trial % 2 :][:1]])
        sent = defense.client_gradient(network, parameters, {}, batch, labels, generator(trial))
        left = torch.cat([part.flatten() for part in sent.values()]) * len(batch) / 0.3 - others
        won += int(guess(left[None].detach(), rows.detach(), 0.5, PRIORS["two"])) == trial % 2
    expected = float(ndtr(float((rows[0] - rows[1]).norm().detach()) / (2 * 0.5)))
    assert won / 400 == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 400))
    assert 0.55 < expected < 0.98  # neither certain nor guessing


@pytest.mark.parametrize("noise", SIGMAS)
def test_a_guess_near_the_truth_may_count_and_its_bound_follows(noise: float) -> None:
    """Candidates in pairs that count for one another: the prior and the bound are those of a pair."""
    prior, hits = PRIORS["ten"], torch.block_diag(*[torch.ones(2, 2)] * 5).bool()
    assert best_prior(prior, hits) == pytest.approx(0.2)
    candidates = spread(10)
    won = int(play(candidates, noise, prior, TRIALS, generator(1), hits).sum())
    assert won >= wins(candidates, noise, prior)
    assert not exceeds(won, TRIALS, success_bound(noise, 0.2))
    assert exceeds(won, TRIALS, success_bound(4 * noise, 0.2)) or noise > 2


def test_the_guess_with_most_probability_nearby_beats_the_most_likely_one() -> None:
    """0.4 on one candidate, 0.3 on each of two that count for one another."""
    near = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]]).bool()
    prior, same = torch.tensor([0.3, 0.3, 0.4]), spread(1).repeat(3, 1)
    won = play(same, 1.0, prior, TRIALS, generator(1), near)
    assert float(won.double().mean()) == pytest.approx(0.6, abs=0.015)
    assert wins(same, 1.0, prior) / TRIALS == pytest.approx(0.4, abs=0.015)
