"""The table augmentations: a slow reference, their distribution, and where their gradient passes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.attacks.model_inversion.augmentation import TableAugmentation, add_noise, mask_columns
from lightleak.core.errors import UsageError
from lightleak.core.seeds import generator as seeded
from lightleak.data.layout import Block, EncodedLayout

ROWS, PUBLIC, SHARE = 4000, 50, 0.3
LAYOUT = EncodedLayout(
    (Block("age", 0, 1, False), Block("sex", 1, 3, True), Block("code", 3, 6, True), Block("dose", 6, 7, False))
)
DEVIATION = torch.tensor([0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0])


def encoded(n: int, seed: int) -> Tensor:
    """One-hot rows with codes of unequal frequency."""
    draw = seeded(seed)
    sex = torch.randint(2, (n,), generator=draw)
    code = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), n, replacement=True, generator=draw)
    numbers = torch.randn(n, 2, generator=draw)
    one_hot = torch.nn.functional.one_hot
    return torch.cat([numbers[:, :1], one_hot(sex, 2), one_hot(code, 3), numbers[:, 1:]], 1)


@pytest.fixture(scope="module")
def public() -> Tensor:
    return encoded(PUBLIC, 0)


def test_equals_a_loop_over_the_cells(public: Tensor) -> None:
    augment = TableAugmentation(LAYOUT, public, DEVIATION, SHARE)
    x = encoded(40, 1)
    noise, masked, donors = augment.draw(40, seeded(2))
    expected = x.clone()
    for i in range(40):
        expected[i, 0] += 0.5 * noise[i, 0]
        expected[i, 6] += 2.0 * noise[i, 1]
        for k, block in enumerate(LAYOUT.blocks):
            if masked[i, k]:
                expected[i, block.slice] = public[donors[i, k], block.slice]
    torch.testing.assert_close(augment.apply(x, noise, masked, donors), expected)
    assert torch.equal(augment(x, seeded(2)), augment.apply(x, noise, masked, donors))


def test_noise_has_the_deviation_of_its_position(public: Tensor) -> None:
    """5 standard errors of a mean and of a deviation over 4,000 rows."""
    changed = TableAugmentation(LAYOUT, public, DEVIATION, share=0)(torch.zeros(ROWS, 7), seeded(3))
    assert (changed[:, 1:6] == 0).all()
    for position in (0, 6):
        scale = float(DEVIATION[position])
        assert changed[:, position].mean() == pytest.approx(0, abs=5 * scale / ROWS**0.5)
        assert changed[:, position].std() == pytest.approx(scale, abs=5 * scale / (2 * ROWS) ** 0.5)


def test_masked_cells_follow_the_public_marginals(public: Tensor) -> None:
    """Rows that no public row looks like, so that an exchange shows; 5 standard errors of a frequency."""
    changed = TableAugmentation(LAYOUT, public, share=SHARE)(torch.full((ROWS, 7), 9.0), seeded(4))
    exchanged = torch.stack([(changed[:, block.slice] != 9).all(1) for block in LAYOUT.blocks], 1).float()
    touched = torch.stack([(changed[:, block.slice] != 9).any(1) for block in LAYOUT.blocks], 1).float()
    assert torch.equal(exchanged, touched)  # a category is exchanged as a whole
    torch.testing.assert_close(exchanged.mean(0), torch.full((4,), SHARE), rtol=0, atol=5 * (0.21 / ROWS) ** 0.5)
    joint = exchanged.T @ exchanged / ROWS  # columns are masked independently of each other
    off_diagonal = joint[~torch.eye(4, dtype=torch.bool)]
    assert off_diagonal.sub(SHARE**2).abs().max() < 5 * (SHARE**2 * (1 - SHARE**2) / ROWS) ** 0.5
    for block, taken in zip(LAYOUT.blocks, exchanged.T.bool(), strict=True):
        cells, source = changed[taken][:, block.slice], public[:, block.slice]
        error = 5 * source.std(0) / len(cells) ** 0.5
        assert ((cells.mean(0) - source.mean(0)).abs() < error + 1e-6).all()
        assert {tuple(row) for row in cells.tolist()} <= {tuple(row) for row in source.tolist()}


def test_cells_of_a_row_come_from_different_public_rows(public: Tensor) -> None:
    """Marginals, not copies of public rows."""
    masked = torch.ones(ROWS, 4, dtype=torch.bool)
    _, _, donors = TableAugmentation(LAYOUT, public).draw(ROWS, seeded(5))
    changed = mask_columns(torch.zeros(ROWS, 7), torch.tensor([0, 1, 1, 2, 2, 2, 3]), masked, donors, public)
    whole = (changed.unsqueeze(1) == public.unsqueeze(0)).all(2).any(1).float().mean()
    assert whole < 0.05


def test_gradient_passes_through_the_cells_that_are_kept(public: Tensor) -> None:
    augment = TableAugmentation(LAYOUT, public, DEVIATION, SHARE)
    x = encoded(100, 6).requires_grad_()
    drawn = augment.draw(100, seeded(6))
    weight = torch.randn(100, 7, generator=seeded(7))
    gradient = torch.autograd.grad((augment.apply(x, *drawn) * weight).sum(), x)[0]
    kept = ~drawn[1].repeat_interleave(torch.tensor([1, 2, 3, 1]), 1)
    assert torch.equal(gradient, weight * kept)


def test_slices_of_a_draw_change_slices_of_the_rows(public: Tensor) -> None:
    augment = TableAugmentation(LAYOUT, public, DEVIATION, SHARE)
    x, drawn = encoded(30, 8), augment.draw(30, seeded(8))
    parts = [augment.apply(x[part], *(each[part] for each in drawn)) for part in (slice(0, 11), slice(11, 30))]
    assert torch.equal(torch.cat(parts), augment.apply(x, *drawn))


def test_the_seed_decides(public: Tensor) -> None:
    augment, x = TableAugmentation(LAYOUT, public, DEVIATION, SHARE), encoded(20, 9)
    assert torch.equal(augment(x, seeded(1)), augment(x, seeded(1)))
    assert not torch.equal(augment(x, seeded(1)), augment(x, seeded(2)))


def test_noise_may_differ_from_row_to_row() -> None:
    x, noise = torch.zeros(2, 2), torch.ones(2, 2)
    deviation = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    assert torch.equal(add_noise(x, deviation, noise), deviation)
    assert torch.equal(add_noise(x, deviation[1], noise), torch.tensor([[2.0, 3.0], [2.0, 3.0]]))


def test_leaves_rows_in_their_precision(public: Tensor) -> None:
    augment = TableAugmentation(LAYOUT, public.double(), DEVIATION, SHARE)
    assert augment(encoded(3, 1).double(), seeded(0)).dtype == torch.float64


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"public": torch.zeros(3, 6)}, r"public must hold encoded rows \[m, 7\], got \[3, 6\]"),
        ({"public": torch.zeros(0, 7)}, r"public must hold encoded rows \[m, 7\], got \[0, 7\]"),
        ({"deviation": torch.zeros(3)}, "deviation must be 7 numbers of at least 0"),
        ({"deviation": -torch.ones(7)}, "deviation must be 7 numbers of at least 0"),
        ({"share": 1.0}, "share must be at least 0 and below 1, got 1.0"),
    ],
)
def test_wrong_use_is_named(public: Tensor, change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TableAugmentation(**{"layout": LAYOUT, "public": public, **change})
