"""Build an encoder for inputs that are already encoded, from a description of their columns."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lightleak.core.arguments import require_kind
from lightleak.core.errors import DataError
from lightleak.data.column import Column
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import TableSchema


def describe_inputs(
    inputs: Tensor,
    n_classes: int = 2,
    names: Sequence[str] | None = None,
    one_hot: Mapping[str, Sequence[str]] | None = None,
) -> TableEncoder:
    """Return an encoder whose encoded rows are the inputs themselves; values keep the units of the inputs.

    Bounds and deviations, which a server is assumed to know, are those of the given rows.

    Args:
        inputs: training inputs ``[n, d]`` of the network.
        n_classes: classes of the label.
        names: of the d positions; left out: ``x0``, ``x1``, ...
        one_hot: columns that take several positions, one per category, by name: the names of their positions, which
            must follow each other. Each position holds two values, such as 0 and 1, or these after standardization.
            All other positions are numbers.

    Raises:
        DataError: inputs that are no finite ``[n, d]``, names that do not fit, or a one-hot position without exactly
            two values.
        UsageError: inputs that are no tensor.

    >>> rows = torch.tensor([[0.5, 1.0, 0.0], [1.5, 0.0, 1.0]])
    >>> encoder = describe_inputs(rows, names=["age", "f", "m"], one_hot={"sex": ["f", "m"]})
    >>> encoder.decode(rows)["sex"].tolist()
    ['f', 'm']
    """
    require_kind("inputs", inputs, Tensor, "a tensor [n, d] of encoded rows (a DataFrame is for lightleak.prepare)")
    names = list(names) if names is not None else [f"x{i}" for i in range(inputs.shape[-1])]
    _check(inputs, names)
    values = inputs.detach().cpu().double()
    blocks = _blocks(names, one_hot or {})
    shift, scale = (make(len(names), dtype=torch.float64) for make in (torch.zeros, torch.ones))
    columns, numbers = [], []
    for column, positions in blocks:
        if len(positions) == 1 and column == names[positions[0]] and column not in (one_hot or {}):
            of_column = values[:, positions[0]]
            columns.append(_number(column, of_column))
            numbers.append(of_column)
        else:
            columns.append(Column.categorical(column, [names[i] for i in positions]))
            for i in positions:
                shift[i], scale[i] = _two_values(names[i], values[:, i])
    schema = TableSchema(tuple(columns), Column.categorical("label", [str(i) for i in range(n_classes)]))
    held = torch.stack(numbers) if numbers else torch.empty(0, len(values), dtype=torch.float64)
    deviation = held.std(-1)
    statistics = {
        "shift": shift,
        "scale": scale,
        "lower": held.amin(-1),
        "upper": held.amax(-1),
        "deviation": torch.where(deviation > 0, deviation, torch.ones_like(deviation)),
    }
    # "onehot" says that numbers have mean 0, which those that lie on one side of it have not.
    centered = bool(((statistics["lower"] <= 0) & (statistics["upper"] >= 0)).all())
    state = {"encoding": "onehot" if centered else "minmax", "schema": schema.to_dict()}
    return TableEncoder.from_state(state, statistics)


def _check(inputs: Tensor, names: Sequence[str]) -> None:
    if inputs.dim() != 2 or len(inputs) < 2 or not torch.isfinite(inputs).all():
        raise DataError(f"inputs must be finite numbers [n, d] of at least 2 rows, got {list(inputs.shape)}")
    if len(names) != inputs.shape[1] or len(set(names)) != len(names):
        raise DataError(f"names must be {inputs.shape[1]} different ones, one per position, got {len(names)}")


def _blocks(names: Sequence[str], one_hot: Mapping[str, Sequence[str]]) -> list[tuple[str, list[int]]]:
    """Columns and their positions, in the order of the positions."""
    blocks: list[tuple[str, list[int]]] = []
    taken: dict[int, str] = {}
    for column, categories in one_hot.items():
        if unknown := [name for name in categories if name not in names]:
            raise DataError(f"one_hot column {column!r} names positions that are not there: {unknown[:5]}")
        at = [names.index(name) for name in categories]
        if len(at) < 2 or at != list(range(at[0], at[0] + len(at))):
            raise DataError(f"one_hot column {column!r} needs at least 2 positions that follow each other, got {at}")
        if double := [names[i] for i in at if i in taken]:
            raise DataError(f"one_hot columns {taken[at[0]]!r} and {column!r} share positions: {double[:5]}")
        taken |= dict.fromkeys(at, column)
        blocks.append((column, at))
    blocks += [(name, [i]) for i, name in enumerate(names) if i not in taken]
    return sorted(blocks, key=lambda block: block[1][0])


def _number(name: str, values: Tensor) -> Column:
    low, high = float(values.min()), float(values.max())
    if low == high:
        raise DataError(f"position {name!r} is constant ({low:g}): leave it out, or give rows that differ")
    return Column.continuous(name, low, high)


def _two_values(name: str, values: Tensor) -> tuple[float, float]:
    """Shift and scale that make 0 and 1 of the two values."""
    found = values.unique()
    if len(found) != 2:
        raise DataError(f"one-hot position {name!r} must hold exactly 2 distinct values, got {len(found)}")
    scale = 1.0 / float(found[1] - found[0])
    return -float(found[0]) * scale, scale
