"""The augmentations of the latent search, made of the public rows the attacker holds."""

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
import torch

from lightleak.attacks.model_inversion.augmentation import TableAugmentation
from lightleak.attacks.model_inversion.table_transform import ModeTransform
from lightleak.attacks.settings import AttackSettings
from lightleak.data.encoder import TableEncoder


@dataclass(frozen=True)
class AugmentationConfig(AttackSettings):
    """What Algorithm 5's f_aug does to a table row; the thesis names it and does not say.

    Attributes:
        share: probability that a column is exchanged for that of a public row; 0 exchanges none.
        noise: numbers move by this many deviations of their mode; 0 moves none.
    """

    owner: ClassVar[str] = "the augmentation of the search"

    share: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        super().__post_init__()
        self.below_one("share")
        self.at_least(0, "noise")


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
