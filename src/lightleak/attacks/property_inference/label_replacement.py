"""Label replacement: an active adversary trains the split network on its property (ProVFL Sec. V-C.1).

Known rows get their property for a label, so that what the parties exchange says more about it. Three things can be
chosen:

* which rows: the auxiliary rows (text), or all rows of the first batches of each epoch (published code), whose property
  nobody but the victim knows;
* which loss the recorded gradients are of: the true labels', so that auxiliary rows stay comparable with all others, or
  the one that trains (published code), under which the auxiliary rows' gradients are of another kind than those of the
  rows they stand for;
* which label stands for the property. In the paper it is 1. Where rows with the property have label 1 less often than
  others, so few replaced rows undo what the network learns of the property from the task, and leave less to see than
  there was. ``agreeing`` takes the label that goes with the property by itself, which an active party can look up.
"""

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import lightning
import torch
from torch import Tensor

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.vertical import VerticalLoader
from lightleak.targets.split import SplitClassifier

Rows = Literal["auxiliary", "first_batches"]
Orientation = Literal["agreeing", "printed"]


@dataclass(frozen=True)
class LabelReplacementConfig:
    """How labels are replaced.

    Attributes:
        rows: ``auxiliary``: labels of the auxiliary rows. ``first_batches``: of as many batches, from the first of each
            epoch, as the auxiliary rows would fill. It needs the property of every row, so no adversary can do it; it
            is what the published code does.
        query_relabelled: recorded gradients are of the loss with replaced labels.
        orientation: ``printed``: label 1 for rows with the property. ``agreeing``: the label that these rows have more
            often than the other known rows.

    Raises:
        UsageError: unknown rows or orientation.
    """

    rows: Rows = "auxiliary"
    query_relabelled: bool = False
    orientation: Orientation = "agreeing"

    def __post_init__(self) -> None:
        for name, allowed in (("rows", get_args(Rows)), ("orientation", get_args(Orientation))):
            if (value := getattr(self, name)) not in allowed:
                raise UsageError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")

    @classmethod
    def as_published(cls) -> "LabelReplacementConfig":
        """What the published code does."""
        return cls("first_batches", query_relabelled=True, orientation="printed")


class LabelReplacement(lightning.Callback):
    """Trains known rows on their property; the labels themselves, and every test, stay as they are.

    Attributes:
        inverted: label 0 stands for the property; known once training has started.
    """

    def __init__(
        self, config: LabelReplacementConfig, ids: Tensor, has_property: Tensor, n_auxiliary: int | None = None
    ) -> None:
        """Choose the rows.

        Args:
            config: how.
            ids: LongTensor ``[m]`` of the rows whose property is known; of a repeated one the first counts.
            has_property: BoolTensor ``[m]``.
            n_auxiliary: auxiliary rows, which say how many batches ``first_batches`` replaces; default: m.

        Raises:
            UsageError: ids and property do not have one shape ``[m]``.
        """
        super().__init__()
        if ids.shape != has_property.shape or ids.ndim != 1 or not len(ids):
            raise UsageError(
                f"ids and has_property must both have shape [m], got {tuple(ids.shape)} and {tuple(has_property.shape)}"
            )
        self.config = config
        self.n_auxiliary = len(ids) if n_auxiliary is None else n_auxiliary
        order = ids.argsort(stable=True)  # of equal ids, searchsorted finds the first
        self._ids, self._has_property = ids[order], has_property[order]
        self.inverted = False
        self._active = True

    def relabel(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Property for known rows, ``labels`` for all others; ``[batch]``."""
        if not self._active:
            return labels
        at = torch.searchsorted(self._ids, ids).clamp_(max=len(self._ids) - 1)
        return torch.where(self._ids[at] == ids, (self._has_property[at] != self.inverted).to(labels), labels)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Take the labels' place.

        Raises:
            UsageError: no `SplitClassifier`, its labels are already replaced, or ``agreeing`` finds no labels.
            UnsupportedError: more than two classes.
        """
        if not isinstance(pl_module, SplitClassifier):
            raise UsageError(f"label replacement needs a SplitClassifier, got {type(pl_module).__name__}")
        if (n_classes := pl_module.network.spec.n_classes) != 2:
            raise UnsupportedError(
                f"label replacement puts a property in the place of one of two classes; the task has {n_classes}"
            )
        if pl_module.relabel is not None:
            raise UsageError("the module's labels are already replaced by another callback")
        if self.config.orientation == "agreeing":
            self.inverted = self._goes_with_label_0(trainer.train_dataloader)
        self._ids, self._has_property = self._ids.to(pl_module.device), self._has_property.to(pl_module.device)
        pl_module.relabel, pl_module.query_relabeled = self.relabel, self.config.query_relabelled

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Under ``first_batches``, leave the later ones alone."""
        if self.config.rows == "first_batches":
            self._active = batch_idx * batch_rows(trainer, batch) < self.n_auxiliary

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Give the labels back."""
        self._release(pl_module)

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        """Give the labels back."""
        self._release(pl_module)

    def _goes_with_label_0(self, loader: Any) -> bool:
        if not isinstance(loader, VerticalLoader):
            raise UsageError(
                f"orientation 'agreeing' reads labels from a VerticalLoader, got {type(loader).__name__}; use 'printed'"
            )
        known = torch.isin(loader.rows.ids, self._ids.cpu())
        at = torch.searchsorted(self._ids.cpu(), loader.rows.ids[known])
        has, labels = self._has_property.cpu()[at], loader.rows.labels[known].double()
        return bool(labels[has].mean() < labels[~has].mean())

    def _release(self, pl_module: lightning.LightningModule) -> None:
        module = cast(SplitClassifier, pl_module)
        if getattr(module, "relabel", None) == self.relabel:
            module.relabel, module.query_relabeled = None, False


def batch_rows(trainer: lightning.Trainer, batch: Any) -> int:
    """Rows of a full training batch over all ranks, which every party knows."""
    loader_size = getattr(trainer.train_dataloader, "batch_size", None)
    return loader_size if isinstance(loader_size, int) else len(batch[-1]) * trainer.world_size
