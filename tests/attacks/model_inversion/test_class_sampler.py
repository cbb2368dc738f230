"""Rows by class, without leaving the device."""

import pytest
import torch

from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.core.errors import DataError

LABELS = torch.tensor([2, 0, 2, 2, 0, 4])
ROWS = torch.arange(6.0).unsqueeze(1)


@pytest.mark.parametrize(
    ("balance", "share"),
    [
        ("uniform", torch.tensor([1 / 3, 0, 1 / 3, 0, 1 / 3])),
        ("empirical", torch.tensor([2 / 6, 0, 3 / 6, 0, 1 / 6])),
        ("log", torch.tensor([3.0, 1, 4, 1, 2]).log() / torch.tensor(24.0).log()),
    ],
)
def test_classes_come_as_often_as_asked_and_never_without_rows(balance: str, share: torch.Tensor) -> None:
    sampler = ClassSampler(ROWS, LABELS, 5, balance)  # type: ignore[arg-type]
    torch.testing.assert_close(sampler.share.float(), share)
    drawn = sampler.draw_labels(20_000, torch.Generator().manual_seed(0))
    found = torch.bincount(drawn, minlength=5) / 20_000
    assert found[1] == found[3] == 0
    torch.testing.assert_close(found, share, atol=0.02, rtol=0)  # five standard deviations


def test_a_row_is_of_the_class_and_every_row_of_it_is_drawn() -> None:
    sampler, random = ClassSampler(ROWS, LABELS, 5), torch.Generator().manual_seed(0)
    for label in (0, 2, 4):
        drawn = sampler.draw_rows(torch.full((500,), label), random).squeeze(1).unique().tolist()
        assert drawn == [float(i) for i in range(6) if LABELS[i] == label]


def test_no_rows_are_refused() -> None:
    with pytest.raises(DataError, match="at least one pseudo-labeled"):
        ClassSampler(ROWS[:0], LABELS[:0], 5)
