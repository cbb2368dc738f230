"""Table 5: the layers of the attacked networks, read off the built ones."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from torch import nn

from lightleak.reproductions.fedavg.preset import FedAvgPreset, preset_of
from lightleak.reproductions.fedavg.tables import stand_in_notes
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import FactTable, Row, Rows
from lightleak.targets.spec import build_network


class NetworkFacts(FactTable):
    """Sizes of every layer of the paper's two networks, or of a stand-in's network; as printed or as coded."""

    def choose(self) -> list[PaperCell]:
        """Cells of the chosen networks, one network after the other."""
        dataset = self.selection.dataset
        self.presets = [preset_of(name) for name in (("femnist", "cifar100") if dataset is None else (dataset,))]
        return [cell for preset in self.presets for cell in self.table.cells if cell.dataset == preset.stands_for]

    def fact(self, cell: PaperCell, rows: Rows) -> float:
        """See `FactTable.fact`."""
        layers = layers_of(self._preset(cell), 3 if self.selection.as_published else 1)
        return float(layers[str(cell.column)][cell.metric])

    def where(self, cell: PaperCell) -> Row:
        """See `FactTable.where`."""
        return super().where(cell) | {"dataset": self._preset(cell).dataset}

    def stand_in(self, cell: PaperCell) -> str | None:
        """See `Reproduction.stand_in`."""
        return self._preset(cell).stand_in

    def is_comparable(self, cell: PaperCell) -> bool:
        """Facts of a stand-in are not judged."""
        return self.stand_in(cell) is None

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """Which network it is."""
        is_published = self.selection.as_published
        return {"network": {"which": "the published code's, which is attacked" if is_published else "the printed one"}}

    def notes(self, rows: Rows) -> list[str]:
        """See `Reproduction.notes`; the note on the images comes first."""
        return [*(text for preset in self.presets for text in stand_in_notes(preset)), *super().notes(rows)]

    def _preset(self, cell: PaperCell) -> FedAvgPreset:
        return next(preset for preset in self.presets if preset.stands_for == cell.dataset)


@cache
def layers_of(preset: FedAvgPreset, second_kernel: int) -> dict[str, Mapping[str, int]]:
    """Return the sizes of a network by layer, as Table 5 names them.

    Args:
        preset: settings of the dataset.
        second_kernel: side of the second convolution's kernel.

    >>> layers_of(preset_of("femnist"), second_kernel=1)["linear1"]
    {'in_features': 4096, 'out_features': 100}
    """
    found: dict[str, Mapping[str, int]] = {}
    spec = replace(preset.spec, options={**preset.spec.options, "second_kernel": second_kernel})
    for module in build_network(spec, seed=0).modules():
        kind = {nn.Conv2d: "conv", nn.AvgPool2d: "pool", nn.Linear: "linear"}.get(type(module))
        if kind is not None:
            number = sum(name.startswith(kind) for name in found) + 1
            found[f"{kind}{number}"] = _sizes(module)
    return found


def _sizes(module: nn.Module) -> dict[str, int]:
    if isinstance(module, nn.Linear):
        return {"in_features": module.in_features, "out_features": module.out_features}
    if isinstance(module, nn.Conv2d):
        sides = {"kernel_size": module.kernel_size[0], "stride": module.stride[0], "padding": int(module.padding[0])}
        return {"in_channels": module.in_channels, "out_channels": module.out_channels, **sides}
    assert isinstance(module, nn.AvgPool2d)  # the caller passes no other
    return {"kernel_size": _one(module.kernel_size), "stride": _one(module.stride)}


def _one(size: Any) -> int:
    return int(size if isinstance(size, int) else size[0])
