"""Epochs are brought into the order of the first and averaged."""

import torch

from lightleak.attacks.gradient_inversion.optimize.pooling import match_epochs


def near(reference: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    return -torch.cdist(reference, candidates)


def test_shuffled_epochs_of_the_same_rows_give_the_rows() -> None:
    rows = torch.randn(2, 3, 6, 4)
    epochs = torch.stack([rows, *(rows[:, :, torch.randperm(6)] for _ in range(3))], 2)
    torch.testing.assert_close(match_epochs(near, epochs), rows)


def test_averaging_takes_noise_off() -> None:
    rows = 5 * torch.randn(8, 4)
    noise = torch.randn(25, 8, 4)
    found = match_epochs(near, torch.stack([rows] * 25) + 0.3 * noise)
    assert (found - rows).square().mean() < 0.1 * (0.3 * noise).square().mean()


def test_one_epoch_is_left_as_it_is() -> None:
    rows = torch.randn(2, 1, 3, 4)
    assert torch.equal(match_epochs(near, rows), rows[:, 0])
