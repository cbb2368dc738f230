"""Table 5: the layers of the attacked networks, read off the built ones."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lightleak.metrics.summary import Summary
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.fedavg_study.notes import stand_in
from lightleak.reproductions.fedavg_study.preset import CIFAR100, FEMNIST, FedAvgPreset, preset_of
from lightleak.reproductions.fedavg_study.study import beside
from lightleak.reproductions.paper.values import PaperTable
from lightleak.reproductions.settings import Selection
from lightleak.targets.spec import build_network

Result = tuple[list[Compared], list[dict[str, Any]], list[str]]


def network_facts(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Sizes of every layer of the paper's two networks, or of the digits' beside FEMNIST's; as printed or as coded."""
    chosen = [FEMNIST, CIFAR100] if selection.dataset is None else [preset_of(selection.dataset)]
    compared, rows = [], []
    for preset in chosen:
        layers = layers_of(preset, 3 if selection.as_published else 1)
        for cell in (cell for cell in table.cells if cell.dataset == preset.stands_for):
            value = float(layers[str(cell.column)][cell.metric])
            one = beside(cell, preset, Summary(value, math.nan, 1, math.nan, math.nan))
            compared.append(replace(one, is_fact=True))
            rows.append({"dataset": preset.dataset, "column": cell.column, "metric": cell.metric, "value": value})
    which = "the published code's, which is attacked" if selection.as_published else "the printed one"
    notes = [f"The network is {which}; --as-published shows that of the code, whose second kernel is 3 x 3."]
    return compared, rows, [*(stand_in(preset) for preset in chosen if preset.is_stand_in), *notes]


def layers_of(preset: FedAvgPreset, second_kernel: int) -> dict[str, Mapping[str, int]]:
    """Sizes by layer, as Table 5 names them.

    Args:
        preset: settings of the dataset.
        second_kernel: side of the second convolution's kernel.

    >>> from lightleak.reproductions.fedavg_study.preset import FEMNIST
    >>> layers_of(FEMNIST, second_kernel=1)["linear1"]
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
