"""What split training cannot serve is refused before its first step."""

from collections.abc import Iterable
from typing import Any

import lightning
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from lightleak.core.errors import DataError, UnsupportedError, UsageError
from lightleak.data.vertical import VerticalLoader
from lightleak.targets.split.network import SplitSpec

PRECISIONS = ("32-true", "64-true")


def check_trainer(trainer: lightning.Trainer) -> None:
    """Refuse a Trainer whose steps would not be those of the protocol.

    Lightning itself refuses gradient clipping and accumulation, which have no meaning under manual optimization.

    Raises:
        UnsupportedError: reduced precision, or a strategy that cuts parameters into shards.
    """
    if trainer.precision not in PRECISIONS:
        raise UnsupportedError(
            f"split training computes its gradients in full precision: precision must be one of "
            f"{', '.join(PRECISIONS)}, got {trainer.precision!r}"
        )
    if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
        raise UnsupportedError(
            f"split training needs whole parameters on every rank: strategy must be one device or 'ddp', "
            f"got {type(trainer.strategy).__name__}"
        )


def check_loaders(loaders: Iterable[Any], spec: SplitSpec, world_size: int) -> None:
    """Refuse rows that are another split's, or that every rank would see; other loaders than ours are taken as given.

    Raises:
        DataError: widths or labels that are not those of ``spec``.
        UsageError: the loader does not know its rank.
    """
    for loader in loaders:
        if not isinstance(loader, VerticalLoader):
            continue
        if loader.rows.widths != spec.widths:
            raise DataError(f"the parties' widths must be {spec.widths} as in the network, got {loader.rows.widths}")
        if (largest := int(loader.rows.labels.max())) >= spec.n_classes:
            raise DataError(f"labels must be below {spec.n_classes}, the network's classes; got {largest}")
        if loader.world_size != world_size:
            raise UsageError(
                f"the loader deals rows out to {loader.world_size} rank(s), the Trainer has {world_size}: hand the "
                "Trainer the VerticalDataModule itself (datamodule=...)"
            )
