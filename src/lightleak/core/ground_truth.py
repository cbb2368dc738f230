"""The private truth behind observations. Metrics and audits hold it; attacks never import this module."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from lightleak.core.errors import ObservationError
from lightleak.core.stored import read_tensors


@dataclass(frozen=True)
class GroundTruth:
    """The private batch behind an observation; only metrics and audits hold it.

    Attributes:
        inputs: ``[n, d]`` encoded rows as the network saw them.
        labels: LongTensor ``[n]``.
        loss: training loss on the batch.
        ids: LongTensor ``[n]``, whose rows these are: their numbers in the training part of the table; None where
            that was not recorded.
    """

    inputs: Tensor
    labels: Tensor
    loss: float | None = None
    ids: Tensor | None = None

    def save(self, folder: Path) -> None:
        """Write ``truth.safetensors`` into ``folder`` (created)."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"inputs": self.inputs.detach().cpu().contiguous(), "labels": self.labels.detach().cpu().contiguous()}
        if self.loss is not None:
            tensors["loss"] = torch.tensor(self.loss, dtype=torch.float64)
        if self.ids is not None:
            tensors["ids"] = self.ids.detach().cpu().contiguous()
        save_file(tensors, folder / "truth.safetensors")

    @classmethod
    def load(cls, folder: Path) -> "GroundTruth":
        """Read what `save` wrote.

        Raises:
            ObservationError: the file is missing or damaged.
        """
        tensors = read_tensors(folder / "truth.safetensors")
        loss = float(tensors["loss"]) if "loss" in tensors else None
        if missing := {"inputs", "labels"} - tensors.keys():
            raise ObservationError(f"{folder / 'truth.safetensors'} lacks {', '.join(sorted(missing))}")
        if tensors["labels"].shape != tensors["inputs"].shape[:1]:
            got = f"{tuple(tensors['inputs'].shape)} and {tuple(tensors['labels'].shape)}"
            raise ObservationError(f"inputs must be [n, d] and labels [n], got {got}")
        ids = tensors.get("ids")
        if ids is not None and (ids.dtype != torch.long or ids.shape != tensors["labels"].shape):
            got = f"{ids.dtype} {tuple(ids.shape)}"
            raise ObservationError(
                f"ids must be int64 [n], one for each of the {len(tensors['labels'])} rows, got {got}"
            )
        return cls(tensors["inputs"], tensors["labels"], loss, ids)


@dataclass(frozen=True)
class PropertyTruth:
    """The private fraction behind an observation; only metrics and audits hold it.

    Attributes:
        property_name: the property, as ``column=value``.
        fraction: share of the victim's records that have it; under a defense that withdraws rows, of the records before
            the withdrawal.
        has_property: BoolTensor ``[n]`` over the observation's ids.
    """

    property_name: str
    fraction: float
    has_property: Tensor

    @property
    def trained_fraction(self) -> float:
        """Share of the records that were trained on; below `fraction` where a defense withdraws rows."""
        return float(self.has_property.float().mean())
