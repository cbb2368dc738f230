"""Between table rows and generator space: f_G of thesis Algorithm 4, and CTGAN's choice of it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lightleak.attacks.model_inversion.mode_normalizer import DEVIATIONS, Modes
from lightleak.attacks.model_inversion.segments import Activation, BlockArgmax, Segments
from lightleak.core.errors import DataError
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.cells import category_codes
from lightleak.data.encoder import table_of_cells
from lightleak.data.schema import ColumnKind, TableSchema


class TableTransform(nn.Module, ABC):
    """Rows of a schema as points of generator space, and back.

    Attributes:
        schema: the columns.
        segments: the layout of generator space.
    """

    schema: TableSchema
    segments: Segments

    @property
    def width(self) -> int:
        """Positions w of generator space."""
        return self.segments.width

    @abstractmethod
    def encode(self, frame: pd.DataFrame, seed: int = 0) -> Tensor:
        """Rows as float32 ``[n, w]``, on the CPU; the same seed gives the same rows.

        Raises:
            DataError: the frame does not fit the schema.
        """

    @abstractmethod
    def project(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Cells of any point ``[..., w]``, as `lightleak.data.encoder.TableEncoder.project` gives them.

        Returns:
            Category indices, LongTensor ``[..., K]``, and numbers in the table's units, float64 ``[..., m]``, both in
            the schema's order; whole numbers are rounded, all are clamped to the bounds.

        Raises:
            DataError: points of another width.
        """

    def _require_width(self, h: Tensor) -> None:
        if h.shape[-1:] != (self.width,):
            raise DataError(f"points of generator space must have width {self.width}, got shape {tuple(h.shape)}")

    def decode(self, h: Tensor) -> pd.DataFrame:
        """Table rows of points ``[n, w]``.

        Raises:
            DataError: points of another width.
        """
        return table_of_cells(self.schema, *self.project(h))


class ModeTransform(TableTransform):
    """CTGAN's transform: mode-specific normalization of numbers, one-hot categories (thesis Sec. 3.4.1.1).

    A number takes 1 + k positions: its distance from the mean of one of its k modes in units of four deviations (tanh),
    and which mode (softmax). A category takes one position per category *of the schema*, in its order, whether or not
    the rows it is fitted on have it. Unlike CTGAN, decoded numbers stay within the bounds of those rows.

    Attributes:
        modes: the modes of each numerical column.
        lower: ``[m]`` lowest value of each numerical column in the rows it was fitted on.
        upper: ``[m]`` highest value.
        means: ``[m, most modes]`` means, filled up with 0.
        deviations: ``[m, most modes]`` standard deviations, filled up with 1.

    >>> from lightleak.data.schema import Column
    >>> schema = TableSchema((Column.integer("age"), Column.categorical("sex", ["F", "M"])),
    ...                      label=Column.categorical("ill", ["0", "1"]))
    >>> frame = pd.DataFrame({"age": [30, 31, 60, 61], "sex": ["F", "M", "M", "F"]})
    >>> transform = ModeTransform.fit(frame, schema)
    >>> transform.decode(transform.encode(frame)).equals(frame)
    True
    """

    lower: Tensor
    upper: Tensor
    means: Tensor
    deviations: Tensor
    tanh_positions: Tensor
    soft_starts: Tensor
    whole: Tensor

    def __init__(self, schema: TableSchema, modes: Mapping[str, Modes], lower: Tensor, upper: Tensor) -> None:
        super().__init__()
        self.schema, self.modes = schema, dict(modes)
        self.segments = Segments.of(_entries(schema, self.modes))
        numerical = [column.name for column in schema.numerical]
        soft = [block for block in self.segments.blocks if block.kind == "softmax"]
        self.choose_mode = BlockArgmax([block for block in soft if block.name in self.modes])
        self.choose_category = BlockArgmax([block for block in soft if block.name not in self.modes])

        def padded(what: str, filling: float) -> Tensor:
            each = [torch.from_numpy(getattr(self.modes[name], what)) for name in numerical]
            empty = torch.empty(0, 1, dtype=torch.float64)
            return pad_sequence(each, batch_first=True, padding_value=filling) if each else empty

        buffers = {
            "lower": lower.double(),
            "upper": upper.double(),
            "means": padded("means", 0.0),
            "deviations": padded("deviations", 1.0),
            "tanh_positions": torch.tensor(self.segments.positions("tanh"), dtype=torch.long),
            "soft_starts": torch.tensor([block.start for block in soft], dtype=torch.long),
            "whole": torch.tensor([column.kind is ColumnKind.INTEGER for column in schema.numerical], dtype=torch.bool),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)

    @classmethod
    def fit(cls, frame: pd.DataFrame, schema: TableSchema, seed: int = 0) -> "ModeTransform":
        """Take modes and bounds from ``frame``, which needs no label.

        Raises:
            DataError: the frame does not fit the schema, has fewer than two rows, or numbers too large for their
                variance.
        """
        frame = schema.validate(frame, require_label=False)
        numbers = frame[[column.name for column in schema.numerical]].astype("float64")
        modes = {}
        for name, values in numbers.items():
            try:
                modes[str(name)] = Modes.fit(values.to_numpy(), derive_seed(seed, str(name)))
            except DataError as error:
                raise DataError(f"column {name!r}: {error}") from error
        lower, upper = (
            torch.from_numpy(bound.to_numpy("float64", copy=True)) for bound in (numbers.min(), numbers.max())
        )
        return cls(schema, modes, lower, upper)

    def encode(self, frame: pd.DataFrame, seed: int = 0) -> Tensor:
        """See `TableTransform.encode`; the mode of each number is drawn from its posterior, as CTGAN does."""
        frame = self.schema.validate(frame, require_label=False)
        h = torch.zeros(len(frame), self.width)
        choices: dict[str, Tensor] = {}
        for column, at in zip(self.schema.numerical, self.tanh_positions.tolist(), strict=True):
            values, modes = frame[column.name].to_numpy("float64"), self.modes[column.name]
            uniform = torch.rand(len(frame), generator=generator(seed, "mode", column.name), dtype=torch.float64)
            mode = modes.draw(values, uniform.numpy())
            h[:, at] = torch.from_numpy(modes.normalize(values, mode))
            choices[column.name] = torch.from_numpy(mode)
        for column in self.schema.categorical:
            choices[column.name] = torch.from_numpy(category_codes(column, frame[column.name]))
        chosen = torch.stack([choices[name] for name in self.schema.names], -1)
        return h.scatter_(1, chosen + self.soft_starts.cpu(), 1.0)

    def project(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """See `TableTransform.project`; the largest mode and category count."""
        self._require_width(h)
        h = h.to(self.lower.device)
        return self.choose_category(h), self.numbers(h)

    def numbers(self, h: Tensor) -> Tensor:
        """Numbers of ``[..., w]`` in the table's units, float64 ``[..., m]``, as `project` gives them."""
        mode, column = self.choose_mode(h), torch.arange(len(self.lower), device=h.device)
        scaled = h.index_select(-1, self.tanh_positions).double()
        values = scaled * DEVIATIONS * self.deviations[column, mode] + self.means[column, mode]
        values = values.clamp(self.lower, self.upper)
        return torch.where(self.whole, values.round(), values)


def _entries(schema: TableSchema, modes: Mapping[str, Modes]) -> list[tuple[str, Activation, int, int]]:
    """Segments of all columns in the schema's order."""
    entries: list[tuple[str, Activation, int, int]] = []
    at = 0
    for column in schema.columns:
        if column.is_numerical:
            entries.append((column.name, "tanh", at, at + 1))
            at += 1
        width = len(modes[column.name].means) if column.is_numerical else column.width
        entries.append((column.name, "softmax", at, at + width))
        at += width
    return entries
