"""Two stochastic augmentations for table rows, in place of the crops and rotations of images (thesis Sec. 4.2).

A number is moved within its noise, and a column's cells are now and then exchanged for those of a public row, that is
for a draw from the public marginal. A search that averages over them cannot lean on the exact value of one cell.
"""

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
import torch
from torch import Tensor

from lightleak.attacks.model_inversion.table_transform import ModeTransform
from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded
from lightleak.core.errors import UsageError
from lightleak.data.encoder import TableEncoder
from lightleak.data.layout import EncodedLayout


def add_noise(x: Tensor, deviation: Tensor, noise: Tensor) -> Tensor:
    """Move cells within their noise: ``x + deviation * noise``.

    Args:
        x: ``[n, d]``.
        deviation: ``[d]`` or ``[n, d]``, 0 where a cell keeps its value.
        noise: standard normal, ``[n, d]``.
    """
    return torch.addcmul(x, deviation, noise)


def mask_columns(x: Tensor, column: Tensor, masked: Tensor, donors: Tensor, public: Tensor) -> Tensor:
    """Give masked columns the value they have in public rows; no gradient passes through those.

    Args:
        x: ``[n, d]``.
        column: ``[d]`` index of the column of each position, so that the positions of a category go together.
        masked: ``[n, columns]`` which cells are exchanged.
        donors: ``[n, columns]`` the public row that gives each, whether it is used or not.
        public: ``[m, d]``.

    >>> x, public = torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 5.0], [0.0, 1.0, 7.0]])
    >>> column = torch.tensor([0, 0, 1])
    >>> mask_columns(x, column, torch.tensor([[False, True]]), torch.tensor([[0, 1]]), public)
    tensor([[0., 0., 7.]])
    """
    return torch.where(masked[:, column], public[donors[:, column], torch.arange(len(column), device=x.device)], x)


class TableAugmentation:
    """Both augmentations at once, for `gradient_search`.

    The space is that of ``layout``, be it the target's input or the generator's. In the space of mode-specific
    normalization a number is ``(value - mean) / (4 deviation)`` of its mode, so the noise of any mode is 1/4 there.

    Args:
        layout: the columns; one that has several positions is masked as a whole.
        public: ``[m, d]`` public rows in that space.
        deviation: ``[d]`` noise of each position; None moves nothing.
        share: probability that a cell is masked.

    Raises:
        UsageError: shapes that do not fit, or values out of range.

    >>> augment = TableAugmentation(EncodedLayout.of_numerical(2), torch.ones(5, 2), share=0.5)
    >>> augment(torch.zeros(3, 2), torch.Generator().manual_seed(0)).unique()
    tensor([0., 1.])
    """

    def __init__(
        self, layout: EncodedLayout, public: Tensor, deviation: Tensor | None = None, share: float = 0.1
    ) -> None:
        width = layout.width
        if public.ndim != 2 or public.shape[1] != width or not len(public):
            raise UsageError(f"public must hold encoded rows [m, {width}], got {list(public.shape)}")
        if deviation is None:
            deviation = public.new_zeros(width)
        if deviation.shape != (width,) or not (torch.isfinite(deviation) & (deviation >= 0)).all():
            raise UsageError(f"deviation must be {width} numbers of at least 0, got {list(deviation.shape)}")
        if not 0 <= share < 1:
            raise UsageError(f"share must be at least 0 and below 1, got {share!r}")
        widths = torch.tensor([block.width for block in layout.blocks])
        self.column = torch.arange(len(layout.blocks)).repeat_interleave(widths).to(public.device)
        self.public, self.deviation, self.share = public, deviation.to(public), share
        self.moved = torch.nonzero(self.deviation).squeeze(1)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """`apply` what is drawn for ``x [n, d]``."""
        return self.apply(x, *self.draw(len(x), generator))

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Noise of the moved positions ``[n, moved]``, masked cells and their donors ``[n, columns]``."""
        shape = (n, int(self.column[-1]) + 1)
        noise = torch.randn(n, len(self.moved), generator=generator)
        masked = torch.rand(shape, generator=generator) < self.share
        donors = torch.randint(len(self.public), shape, generator=generator)
        return noise.to(self.public), masked.to(self.public.device), donors.to(self.public.device)

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        """The changed rows ``[n, d]``, differentiable by the cells that are not masked."""
        noise, masked, donors = drawn
        moved = add_noise(x, self.deviation, torch.zeros_like(x).index_copy(1, self.moved, noise.to(x)))
        return mask_columns(moved, self.column, masked, donors, self.public)


@dataclass(frozen=True)
class AugmentationConfig(AttackSettings):
    """What Algorithm 5's f_aug does to a table row; the thesis names it and does not say.

    Attributes:
        share: probability that a column is exchanged for that of a public row; 0 exchanges none.
        noise: numbers move by this many deviations of their mode; 0 moves none.
    """

    owner: ClassVar[str] = "the augmentation of the search"

    share: float = bounded(0.0, ge=0, lt=1)
    noise: float = bounded(0.0, ge=0)


def make_augmentation(
    config: AugmentationConfig, encoder: TableEncoder, public: pd.DataFrame, seed: int, device: torch.device | str
) -> TableAugmentation | None:
    """The augmentation of rows in the target's input space; None where it would do nothing.

    Args:
        config: how much.
        encoder: the target's.
        public: public rows; numbers move within the modes they have here, columns are exchanged for those of these.
        seed: of the modes.
        device: where rows are augmented.
    """
    if not config.share and not config.noise:
        return None
    deviation = torch.zeros(encoder.width)
    if config.noise:
        modes = ModeTransform.fit(public, encoder.schema, seed)
        h = modes.encode(public, seed)
        mode, column = modes.choose_mode(h), torch.arange(len(modes.lower))
        within = (h[:, modes.tanh_positions].double() * 4 * modes.deviations[column, mode]).square().mean(0).sqrt()
        middle = modes.numbers(h).median(0).values
        # The encoder's own slope at the median: its scale, or what a rank makes of it.
        moved = [
            encoder.assemble(modes.choose_category(h)[:1], number.unsqueeze(0)) for number in (middle, middle + within)
        ]
        at = encoder.numerical_positions
        deviation[at] = config.noise * (moved[1] - moved[0])[0, at].abs()
    return TableAugmentation(encoder.layout, encoder.encode(public).to(device), deviation.to(device), config.share)
