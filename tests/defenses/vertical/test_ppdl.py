"""D2 against the procedure as Shokri and Shmatikov state it, one entry after another."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from lightleak.defenses.vertical.ppdl import PpdlDefense, selective_noisy_gradients

GRADIENTS = np.array([0.0, 0.0002, -0.0004, 0.0006, -0.0008, 0.001, -0.002, 0.0001, 0.0005, -0.0001])
REPEATS = 6000

# c = 4 of 10 entries, bounded by 0.001. The noise of the threshold: 10 times the bound at 900, a tenth of it at 9e4.
NOISY = PpdlDefense(ratio=0.4, epsilon=900.0)
MIXED = PpdlDefense(ratio=0.4, epsilon=9e3)
SHARP = PpdlDefense(ratio=0.4, epsilon=9e4)


def one_by_one(gradients: np.ndarray, defense: PpdlDefense, rng: np.random.Generator) -> np.ndarray:
    """What travels, decided entry by entry (Shokri and Shmatikov 2015, Fig. 6)."""
    bound, count = defense.bound, int(defense.ratio * len(gradients))
    scale = 2 * count * defense.sensitivity / (defense.epsilon * 8 / 9)
    travels = np.zeros_like(gradients)
    chosen = 0
    noisy_threshold = defense.threshold + rng.laplace(0, scale)
    for entry in rng.permutation(len(gradients)):
        value = gradients[entry]
        if min(abs(value), bound) + rng.laplace(0, 2 * scale) < noisy_threshold:
            continue
        noise = rng.laplace(0, 2 * count * defense.sensitivity / (defense.epsilon * 2 / 9))
        travels[entry] = np.clip(value + noise, -bound, bound)
        chosen += 1
        if chosen == count:
            return travels
        noisy_threshold = defense.threshold + rng.laplace(0, scale)
    if defense.as_published:
        travels[travels == 0] = gradients[travels == 0]
    return travels


def both(defense: PpdlDefense) -> tuple[np.ndarray, np.ndarray]:
    """What travels in many batches, ``[repeats, n]``: the tensor form (repeats as parties) and entry by entry."""
    many = torch.from_numpy(GRADIENTS).repeat(REPEATS, 1)
    ours = selective_noisy_gradients(many, defense, torch.Generator().manual_seed(0)).numpy()
    rng = np.random.default_rng(1)
    return ours, np.stack([one_by_one(GRADIENTS, defense, rng) for _ in range(REPEATS)])


def close(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two frequencies of events agree within 4.5 standard errors."""
    error = np.sqrt((first.var(0) + second.var(0)) / REPEATS) + 1e-12
    return bool((np.abs(first.mean(0) - second.mean(0)) <= 4.5 * error).all())


@pytest.mark.parametrize("defense", [NOISY, MIXED, SHARP], ids=["noisy", "mixed", "sharp"])
def test_equal_in_distribution_to_one_by_one(defense: PpdlDefense) -> None:
    ours, reference = (travels != 0 for travels in both(defense))
    assert close(ours, reference)  # how often each entry is chosen
    pairs = np.triu_indices(len(GRADIENTS), 1)
    assert close(ours[:, pairs[0]] & ours[:, pairs[1]], reference[:, pairs[0]] & reference[:, pairs[1]])
    counts = np.arange(5)
    assert close(ours.sum(1)[:, None] == counts, reference.sum(1)[:, None] == counts)
    assert (ours.sum(1) < 4).any() and (ours.sum(1) == 4).any()


@pytest.mark.parametrize("defense", [NOISY, SHARP], ids=["noisy", "sharp"])
def test_what_travels_is_bounded_and_distributed_as_one_by_one(defense: PpdlDefense) -> None:
    ours, reference = both(defense)
    assert np.abs(ours).max() <= defense.bound * (1 + 1e-6)
    for entry in (0, 4, 6):
        values, expected = (travels[:, entry][travels[:, entry] != 0] for travels in (ours, reference))
        assert stats.ks_2samp(values, expected).pvalue > 0.001


def test_as_published_lets_the_rest_travel_where_entries_run_out() -> None:
    published = replace(NOISY, as_published=True)
    ours, reference = both(published)
    exact = np.isclose(ours, GRADIENTS, rtol=1e-9) & (GRADIENTS != 0)
    assert close(exact, np.isclose(reference, GRADIENTS, rtol=1e-9) & (GRADIENTS != 0))
    assert exact[:, 6].any(), "-0.002 is above the bound: it travels unbounded"
    mended = both(NOISY)[0]
    assert not np.isclose(mended, GRADIENTS, rtol=1e-9)[:, 6].any()


def test_published_settings_choose_blindly_and_send_signs() -> None:
    gradients = torch.linspace(-1e-3, 1e-3, 1024).repeat(400, 1)
    travels = selective_noisy_gradients(gradients, PpdlDefense(ratio=0.1), torch.Generator().manual_seed(0))
    chosen = travels != 0
    # 102 choices of 2.77 visits on average are far from using 1,024 entries up, were it not for the heavy tail.
    assert float((chosen.sum(1) == 102).double().mean()) > 0.95
    middle = chosen[:, 256:768].double().mean() / chosen.double().mean()
    assert abs(float(middle) - 1) < 0.02, "small gradients are chosen as often as large ones"
    assert float((travels[chosen].abs() > 0.999e-3).double().mean()) > 0.99
    assert abs(float((travels[chosen] > 0).double().mean()) - 0.5) < 0.01


def test_parties_and_shapes_are_kept() -> None:
    gradients = torch.zeros(2, 7, 3)
    gradients[1] = 1e-3
    travels = PpdlDefense(ratio=0.2).transform(0).gradients(gradients, gradients)
    assert travels.shape == gradients.shape
    assert ((travels != 0).flatten(1).sum(1) <= 4).all()  # int(0.2 * 21)
    assert torch.equal(gradients[0], torch.zeros(7, 3))


def test_at_least_one_entry_is_wanted() -> None:
    gradients = torch.full((1, 40, 5), 1e-3)
    travels = PpdlDefense(ratio=0.001).transform(0).gradients(gradients, gradients)
    assert int((travels != 0).sum()) == 1
