"""What the full attack reconstructs in every local epoch, before the epochs are averaged (Fig. 3 and 8 to 11)."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.attacks.gradient_inversion.fedavg.simulate.problem import schedule_of
from lightleak.attacks.gradient_inversion.optimize.pooling import align_rows
from lightleak.attacks.gradient_inversion.optimize.shell import Posed
from lightleak.attacks.gradient_inversion.tables.codec import RowCodec
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction


class EpochInversion(FedAvgInversion):
    """`FedAvgInversion` of one client that returns the rows of every local epoch, one epoch after the other."""

    def pose(
        self, pairs: Sequence[tuple[ClientUpdate, int]], codec: RowCodec, device: torch.device, dtype: torch.dtype
    ) -> Posed:
        """The same problem; rows are its variables."""
        posed = super().pose(pairs, codec, device, dtype)
        copies = schedule_of(pairs[0][0], self.config).copies
        return replace(posed, labels=posed.labels.repeat(1, copies), rows=_unchanged, variables_of=_unchanged)


def epochs_of(codec: RowCodec, found: Reconstruction, n_rows: int) -> Tensor:
    """What an `EpochInversion` found, ``[epochs, n, d]``; their mean is what `FedAvgInversion` finds (Algorithm 3).

    Args:
        codec: of the update.
        found: with the rows of all epochs.
        n_rows: rows of an epoch.
    """
    epochs = found.encoded.unflatten(0, (-1, n_rows))
    return align_rows(codec.similarity, epochs[:1], epochs)


def _unchanged(rows: Tensor) -> Tensor:
    return rows
