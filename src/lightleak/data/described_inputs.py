"""Build an encoder for inputs that are already encoded, from a description of their columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lightleak.core.arguments import require_kind
from lightleak.core.errors import DataError
from lightleak.data.column import Column
from lightleak.data.encoder import TableEncoder
from lightleak.data.input_form import LEAST_CATEGORIES, InputForm, InputPart, Path, split_batch
from lightleak.data.layout import Block
from lightleak.data.marginals import Marginals
from lightleak.data.schema import TableSchema

MOST_CODES = 100_000
"""Categories of a column of codes; more are an identifier, and a one-hot block of them fills the memory."""


class DescribedInputs(TableEncoder):
    """Encoder of a user's own inputs.

    Attributes:
        form: how a batch holds the rows; None for one tensor of encoded rows.
        marginals: one-way marginals of the described rows.
    """

    form: InputForm | None = None
    marginals: Marginals | None = None


def describe_inputs(
    inputs: Tensor | Mapping[str, Any] | Sequence[Any] | DataLoader[Any],
    n_classes: int | None = None,
    names: Sequence[str] | None = None,
    one_hot: Mapping[str, Sequence[str]] | None = None,
    codes: Mapping[str, int | Sequence[str]] | Sequence[str] = (),
    label: str | None = None,
) -> DescribedInputs:
    """Return an encoder whose encoded rows are the inputs themselves; values keep the units of the inputs.

    Bounds, deviations and marginals, which a server is assumed to know, are those of the given rows. Where these are
    the training rows, guessing from the marginals is stronger than it would be for a server that knows other rows:
    describe rows that are not attacked, or give the callback ``marginals`` of such rows. Integer codes of categories,
    as ``nn.Embedding`` takes them, become one-hot blocks.

    Args:
        inputs: training inputs ``[n, d]`` of the network; or a batch as the training step gets it, a dictionary or a
            tuple of tensors with the labels among them; or a DataLoader or list of such batches. Integers are codes.
        n_classes: classes of the label; left out, those of the labels, or 2.
        names: of the d positions; left out: ``x0``, ``x1``, ..., or the names of a dictionary's tensors.
        one_hot: columns that take several positions, one per category, by name: the names of their positions, which
            must follow each other. Each position holds two values, such as 0 and 1, or these after standardization.
        codes: names of positions that hold integer codes in a tensor of numbers; as a mapping, the number of categories
            or their names in the order of their codes. Left out, codes go up to the largest in the rows.
        label: key of the labels in a dictionary; left out: ``target``, ``y``, ``label``, ``labels`` or ``targets``.

    Raises:
        DataError: inputs that are no finite ``[n, d]``, names that do not fit, a one-hot position without exactly
            two values, or codes that are no whole numbers from 0.
        UsageError: inputs that are no tensor, batch or batches, or a batch without labels, one for each row.

    >>> rows = torch.tensor([[0.5, 1.0, 0.0], [1.5, 0.0, 1.0]])
    >>> encoder = describe_inputs(rows, names=["age", "f", "m"], one_hot={"sex": ["f", "m"]})
    >>> encoder.decode(rows)["sex"].tolist()
    ['f', 'm']
    >>> batch = {"number": torch.tensor([[0.5], [1.5]]), "sex": torch.tensor([0, 1]), "y": torch.tensor([1, 0])}
    >>> encoder = describe_inputs(batch)
    >>> encoder.form.read(batch)[0].tolist()
    [[0.5, 1.0, 0.0], [1.5, 0.0, 1.0]]
    """
    tensors, labels = _gathered(inputs, label)
    names = list(names) if names is not None else _names(tensors)
    _check(tensors, names)
    values = torch.cat([_columns(tensor) for tensor in tensors.values()], -1)
    blocks = _blocks(names, one_hot or {})
    alone = {names[positions[0]] for _, positions in blocks if len(positions) == 1}
    of_integers = [name for name, is_integer in zip(names, _are_integers(tensors), strict=True) if is_integer]
    sizes = _sizes(codes, [name for name in of_integers if name in alone], names)
    if shared := [name for name in sizes if name not in alone]:
        raise DataError(f"codes and one_hot share positions: {shared[:5]}")
    columns, shift, scale, numbers = [], [], [], []
    for column, positions in blocks:
        of_column = values[:, positions[0]]
        if column in sizes and len(positions) == 1:
            columns.append(_coded(column, of_column, sizes[column]))
            shift += [0.0] * columns[-1].width
            scale += [1.0] * columns[-1].width
        elif len(positions) == 1 and column == names[positions[0]] and column not in (one_hot or {}):
            columns.append(_number(column, of_column))
            numbers.append(of_column)
            shift.append(0.0)
            scale.append(1.0)
        else:
            columns.append(Column.categorical(column, [names[i] for i in positions]))
            pairs = [_two_values(names[i], values[:, i]) for i in positions]
            shift += [pair[0] for pair in pairs]
            scale += [pair[1] for pair in pairs]
    classes = n_classes or (2 if labels is None else max(2, int(labels.max()) + 1))
    schema = TableSchema(tuple(columns), Column.categorical("label", [str(i) for i in range(classes)]))
    held = torch.stack(numbers) if numbers else torch.empty(0, len(values), dtype=torch.float64)
    deviation = held.std(-1)
    statistics = {
        "shift": torch.tensor(shift, dtype=torch.float64),
        "scale": torch.tensor(scale, dtype=torch.float64),
        "lower": held.amin(-1),
        "upper": held.amax(-1),
        "deviation": torch.where(deviation > 0, deviation, torch.ones_like(deviation)),
    }
    # "onehot" says that numbers have mean 0, which those that lie on one side of it have not.
    centered = bool(((statistics["lower"] <= 0) & (statistics["upper"] >= 0)).all())
    state = {"encoding": "onehot" if centered else "minmax", "schema": schema.to_dict(), "includes_attacked": True}
    encoder = DescribedInputs.from_state(state, statistics)
    form = _form(tensors, names, set(sizes), encoder, label)
    rows = torch.cat([part.encode(tensor.cpu()) for part, tensor in zip(form.parts, tensors.values(), strict=True)], -1)
    encoder.marginals = Marginals.of(schema, encoder.decode(rows))
    encoder.form = form if form.coded or not isinstance(inputs, Tensor) else None
    return encoder


def _gathered(inputs: Any, label: str | None) -> tuple[dict[Path, Tensor], Tensor | None]:
    """Tensors by path, and labels, of a batch or of all batches of an iterable; one tensor has no labels."""
    if isinstance(inputs, Tensor):
        return {(): inputs}, None
    expected = "a tensor [n, d] (a DataFrame is for lightleak.prepare), a batch, or a DataLoader or list of batches"
    require_kind("inputs", inputs, (Mapping, list, tuple, DataLoader), expected)
    is_tuple = isinstance(inputs, list | tuple) and bool(inputs) and isinstance(inputs[-1], Tensor)
    if isinstance(inputs, Mapping) or is_tuple:
        return _split(inputs, label)
    # A loader that shuffles draws from its own generator, or from the global one.
    samplers = (getattr(inputs, "sampler", None), getattr(getattr(inputs, "batch_sampler", None), "sampler", None))
    own = [getattr(one, "generator", None) for one in (inputs, *samplers)]
    states = [(one, one.get_state()) for one in own if isinstance(one, torch.Generator)]
    with torch.random.fork_rng(devices=[]):
        batches = [_split(batch, label) for batch in inputs]
    for one, state in states:
        one.set_state(state)
    if not batches:
        raise DataError("inputs must hold at least one batch, got none")
    forms = [{path: list(tensor.shape[1:]) for path, tensor in of_batch.items()} for of_batch, _ in batches]
    if odd := [index for index, form in enumerate(forms) if form != forms[0]]:
        raise DataError(
            f"batches must hold the same tensors: batch 0 has {_in_words(batches[0][0])}, batch {odd[0]} has "
            f"{_in_words(batches[odd[0]][0])}"
        )
    tensors = {path: torch.cat([of_batch[path] for of_batch, _ in batches]) for path in forms[0]}
    return tensors, torch.cat([labels for _, labels in batches])


def _split(batch: Any, label: str | None) -> tuple[dict[Path, Tensor], Tensor]:
    """Tensors and labels of one batch, whose rows are equally many."""
    tensors, labels = split_batch(batch, label)
    if not tensors:
        raise DataError("a batch must hold inputs and labels, got labels alone")
    if len({len(tensor) for tensor in tensors.values()}) > 1:
        raise DataError(f"tensors of a batch must have equally many rows, got {_in_words(tensors)}")
    if any(labels.shape != (len(tensor),) for tensor in tensors.values()):
        raise DataError(
            f"labels of a batch must be class indices, one for each row of {_in_words(tensors)}, "
            f"got {list(labels.shape)}"
        )
    return tensors, labels


def _in_words(tensors: Mapping[Path, Tensor]) -> str:
    return ", ".join(f"{'.'.join(map(str, path))} {list(tensor.shape)}" for path, tensor in tensors.items())


def _columns(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double().reshape(len(tensor), -1)


def _are_integers(tensors: Mapping[Path, Tensor]) -> list[bool]:
    """Of every position, whether its tensor has an integer type."""
    return [not one.is_floating_point() for one in tensors.values() for _ in range(_width(one))]


def _width(tensor: Tensor) -> int:
    return tensor.shape[1] if tensor.dim() == 2 else 1


def _names(tensors: Mapping[Path, Tensor]) -> list[str]:
    names: list[str] = []
    for path, tensor in tensors.items():
        key, width = path[-1] if path else 0, _width(tensor)
        if isinstance(key, str):
            names += [key] if width == 1 else [f"{key}_{i}" for i in range(width)]
        else:
            names += [f"x{len(names) + i}" for i in range(width)]
    return names


def _sizes(
    codes: Mapping[str, int | Sequence[str]] | Sequence[str], of_integers: Sequence[str], names: Sequence[str]
) -> dict[str, int | Sequence[str] | None]:
    """By name of every column of codes: the number of its categories, their names, or None where neither is given."""
    given = dict(codes) if isinstance(codes, Mapping) else dict.fromkeys(codes)
    if unknown := [name for name in given if name not in names]:
        raise DataError(f"codes names positions that are not there: {unknown[:5]}")
    return dict.fromkeys(of_integers) | given


def _coded(name: str, values: Tensor, size: int | Sequence[str] | None) -> Column:
    largest = int(values.max())
    if bool((values != values.round()).any()) or int(values.min()) < 0 or largest >= MOST_CODES:
        raise DataError(
            f"codes of position {name!r} must be whole numbers from 0 to {MOST_CODES - 1}, got "
            f"{float(values.min()):g} to {float(values.max()):g}"
        )
    size = max(largest + 1, LEAST_CATEGORIES) if size is None else size
    categories = [str(i) for i in range(size)] if isinstance(size, int) else list(size)
    if largest >= len(categories):
        raise DataError(f"codes of position {name!r} must be below {len(categories)}, got {largest}")
    return Column.categorical(name, categories)


def _form(
    tensors: Mapping[Path, Tensor], names: Sequence[str], coded: set[str], encoder: TableEncoder, label: str | None
) -> InputForm:
    """Where each tensor's columns are in the encoded rows; a one-hot column has several of them."""
    blocks: list[Block] = []
    for block in encoder.layout.blocks:
        is_wide = block.categorical and block.name not in coded
        blocks += (
            [replace(block, start=at, stop=at + 1) for at in range(block.start, block.stop)] if is_wide else [block]
        )
    parts, at = [], 0
    for path, tensor in tensors.items():
        width = _width(tensor)
        is_coded = tuple(name in coded for name in names[at : at + width])
        parts.append(
            InputPart(path, tuple(blocks[at : at + width]), is_coded, not tensor.is_floating_point(), tensor.dim() == 1)
        )
        at += width
    return InputForm(tuple(parts), label)


def _check(tensors: Mapping[Path, Tensor], names: Sequence[str]) -> None:
    for inputs in tensors.values():
        if (inputs.dim() != 2 and () in tensors) or len(inputs) < 2 or not torch.isfinite(inputs).all():
            raise DataError(f"inputs must be finite numbers [n, d] of at least 2 rows, got {list(inputs.shape)}")
    width = sum(map(_width, tensors.values()))
    if len(names) != width or len(set(names)) != len(names):
        raise DataError(f"names must be {width} different ones, one per position, got {len(names)}")


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
            raise DataError(
                f"one_hot columns {taken[names.index(double[0])]!r} and {column!r} share positions: {double[:5]}"
            )
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
