"""From a table to tensors and back: one-hot categories, scaled numbers, and the statistics a server would know."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from lightleak.core.errors import DataError, ObservationError
from lightleak.data.layout import Block, EncodedLayout
from lightleak.data.relaxation import CategoricalRelaxation, NumericalRelaxation, Relaxation
from lightleak.data.schema import ColumnKind, TableSchema

Encoding = Literal["standardized", "onehot", "minmax", "quantile"]


class TableEncoder(nn.Module):
    """Encode rows of a schema as vectors of width d, and decode them again.

    Encodings: ``standardized`` scales every encoded column, one-hot ones included, to mean 0 and deviation 1 (what
    TabLeak does); ``onehot`` keeps 0/1 and standardises numbers; ``minmax`` keeps 0/1 and maps numbers to [0, 1] by their
    bounds; ``quantile`` keeps 0/1 and maps numbers to their rank in [0, 1].

    Statistics are buffers in float64, so that wide integers survive the round trip:

    * ``shift``, ``scale`` ``[d]``: ``x = (raw - shift) / scale``;
    * ``lower``, ``upper`` ``[m]``: bounds of the m numerical columns, in the table's units;
    * ``deviation`` ``[m]``: their standard deviations, in the table's units (the tolerance of Eq. 6 is 0.319 of it).

    >>> from lightleak.data.schema import Column
    >>> schema = TableSchema((Column.integer("age"), Column.categorical("sex", ["F", "M"])), Column.categorical("ill", ["0", "1"]))
    >>> frame = pd.DataFrame({"age": [30, 40], "sex": ["F", "M"], "ill": ["0", "1"]})
    >>> encoder = TableEncoder(schema).fit(frame)
    >>> encoder.decode(encoder.encode(frame))["age"].tolist()
    [30, 40]
    """

    shift: Tensor
    scale: Tensor
    lower: Tensor
    upper: Tensor
    deviation: Tensor

    def __init__(self, schema: TableSchema, encoding: Encoding = "standardized") -> None:
        super().__init__()
        if encoding not in get_args(Encoding):
            raise DataError(f"encoding must be one of {get_args(Encoding)}, got {encoding!r}")
        self.schema = schema
        self.encoding = encoding
        blocks, start = [], 0
        for column in schema.columns:
            blocks.append(Block(column.name, start, start + column.width, not column.is_numerical))
            start += column.width
        self.layout = EncodedLayout(tuple(blocks))
        self.numerical_positions = [block.start for block in self.layout.numerical]
        for name, width in (("shift", start), ("scale", start)):
            self.register_buffer(name, torch.full((width,), float("nan"), dtype=torch.float64))
        for name in ("lower", "upper", "deviation"):
            self.register_buffer(name, torch.full((len(schema.numerical),), float("nan"), dtype=torch.float64))
        self._knots: dict[str, Tensor] = {}

    @property
    def width(self) -> int:
        """Encoded features d."""
        return self.layout.width

    @property
    def column_slices(self) -> dict[str, slice]:
        """Encoded positions of each column."""
        return {block.name: block.slice for block in self.layout.blocks}

    def fit(self, frame: pd.DataFrame) -> "TableEncoder":
        """Take the statistics from ``frame``; bounds the schema declares win over those seen.

        Raises:
            DataError: the frame does not fit the schema or has fewer than two rows.
        """
        if len(frame) < 2:
            raise DataError(f"an encoder needs at least 2 rows to take statistics from, got {len(frame)}")
        frame = self.schema.validate(frame, require_label=False)
        raw = self._one_hot(frame)
        spread = raw.std(0)
        # A constant column carries nothing; dividing by 1 keeps it finite (the reference implementation does the same).
        spread[spread == 0] = 1.0
        numbers = raw[:, self.numerical_positions]
        self.lower = _declared([column.lower for column in self.schema.numerical], numbers.amin(0))
        self.upper = _declared([column.upper for column in self.schema.numerical], numbers.amax(0))
        self.deviation = spread[self.numerical_positions].clone()
        self.shift, self.scale = torch.zeros_like(spread), torch.ones_like(spread)
        at = self.numerical_positions
        if self.encoding == "standardized":
            self.shift, self.scale = raw.mean(0), spread
        elif self.encoding == "onehot":
            self.shift[at], self.scale[at] = raw.mean(0)[at], spread[at]
        elif self.encoding == "minmax":
            width = self.upper - self.lower
            self.shift[at], self.scale[at] = self.lower, torch.where(width > 0, width, torch.ones_like(width))
        else:
            self._knots = {c.name: torch.unique(numbers[:, i]) for i, c in enumerate(self.schema.numerical)}
        return self

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """Rows as float32 ``[n, d]``.

        Raises:
            DataError: the frame does not fit the schema, or the encoder is not fitted.
        """
        self._require_fitted()
        raw = self._one_hot(self.schema.validate(frame, require_label=False))
        if self.encoding == "quantile":
            raw[:, self.numerical_positions] = self._ranks(raw[:, self.numerical_positions])
        return ((raw - self.shift.cpu()) / self.scale.cpu()).float()

    def encode_labels(self, frame: pd.DataFrame) -> Tensor:
        """Class indices, LongTensor ``[n]``.

        Raises:
            DataError: the label column is missing or holds an unknown class.
        """
        labels = self.schema.validate(frame)[self.schema.label.name]
        return torch.as_tensor(pd.Categorical(labels, categories=list(self.schema.label.categories)).codes.astype("int64"))

    def decode(self, x: Tensor, clamp: bool = True) -> pd.DataFrame:
        """Project encoded rows ``[n, d]`` to the table: largest category, whole numbers for integer columns.

        Args:
            x: encoded rows, exact or fuzzy.
            clamp: keep numbers inside their bounds (TabLeak App. B does so before measuring).
        """
        codes, numbers = self.project(x, clamp)
        columns: dict[str, Any] = {}
        categorical, numerical = iter(codes.cpu().unbind(-1)), iter(numbers.cpu().unbind(-1))
        for column in self.schema.columns:
            if column.is_numerical:
                values = next(numerical).numpy()
                columns[column.name] = values.astype("int64") if column.kind is ColumnKind.INTEGER else values
            else:
                columns[column.name] = np.asarray(column.categories, dtype=object)[next(categorical).numpy()]
        return pd.DataFrame(columns)

    def project(self, x: Tensor, clamp: bool = True) -> tuple[Tensor, Tensor]:
        """Decode without a table: any leading dimensions, any device.

        Returns:
            Category indices, LongTensor ``[..., K]``, and numbers in the table's units, float64 ``[..., m]``.
        """
        self._require_fitted()
        raw = x.double() * self.scale + self.shift
        codes = [raw[..., block.slice].argmax(-1) for block in self.layout.categorical]
        numbers = raw[..., self.numerical_positions]
        if self.encoding == "quantile":
            numbers = self._values(numbers)
        if clamp:
            numbers = numbers.clamp(self.lower, self.upper)
        for i, column in enumerate(self.schema.numerical):
            if column.kind is ColumnKind.INTEGER:
                numbers[..., i] = numbers[..., i].round()
        empty = torch.empty(*x.shape[:-1], 0, dtype=torch.long, device=x.device)
        return torch.stack(codes, -1) if codes else empty, numbers

    def assemble(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Encode what `project` returned: float32 ``[..., d]`` with exact one-hot blocks."""
        raw = torch.zeros(*codes.shape[:-1], self.width, dtype=torch.float64, device=codes.device)
        starts = torch.tensor([block.start for block in self.layout.categorical], dtype=torch.long, device=codes.device)
        raw.scatter_(-1, codes + starts, 1.0)
        raw[..., self.numerical_positions] = self._ranks(numbers) if self.encoding == "quantile" else numbers
        return ((raw - self.shift) / self.scale).float()

    def relaxation(
        self,
        categorical: CategoricalRelaxation = "softmax",
        numerical: NumericalRelaxation = "sigmoid",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Relaxation:
        """The relaxation of this table's rows, with its constants on one device."""
        self._require_fitted()
        lower, upper = self.encoded_bounds()
        constants = (value.to(device=device, dtype=dtype) for value in (self.shift, self.scale, lower, upper))
        return Relaxation(self.layout, *constants, categorical=categorical, numerical=numerical)

    def relax(self, z: Tensor) -> Tensor:
        """TabLeak's relaxation of ``[..., d]``: softmax per categorical block, sigmoid into the bounds per number."""
        return self.relaxation(dtype=z.dtype, device=z.device)(z)

    def encoded_bounds(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest encoded value of every position, ``[d]`` each; a one-hot position spans 0 to 1."""
        lower, upper = torch.zeros_like(self.shift), torch.ones_like(self.shift)
        if self.encoding != "quantile":
            lower[self.numerical_positions], upper[self.numerical_positions] = self.lower, self.upper
        return (lower - self.shift) / self.scale, (upper - self.shift) / self.scale

    def to_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Facts (JSON-ready) and statistics (tensors)."""
        self._require_fitted()
        tensors = {name: getattr(self, name) for name in _STATISTICS}
        return {"encoding": self.encoding, "schema": self.schema.to_dict()}, tensors | {
            f"knots.{name}": knots for name, knots in self._knots.items()
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "TableEncoder":
        """Inverse of `to_state`.

        Raises:
            ObservationError: a statistic is missing or has the wrong shape.
        """
        encoder = cls(TableSchema.from_dict(state["schema"]), state["encoding"])
        for name in _STATISTICS:
            expected = getattr(encoder, name).shape
            if name not in tensors or tensors[name].shape != expected:
                got = tuple(tensors[name].shape) if name in tensors else "nothing"
                raise ObservationError(f"encoder statistic {name!r} must have shape {tuple(expected)}, got {got}")
            setattr(encoder, name, tensors[name].double())
        encoder._knots = {key.removeprefix("knots."): t.double() for key, t in tensors.items() if key.startswith("knots.")}
        return encoder

    def _require_fitted(self) -> None:
        if bool(self.scale.isnan().any()):
            raise DataError("this encoder has no statistics yet; call fit(frame) first")

    def _one_hot(self, frame: pd.DataFrame) -> Tensor:
        """Raw encoded rows, float64 ``[n, d]``: one-hot blocks of 0/1 and numbers in the table's units."""
        raw = torch.zeros(len(frame), self.width, dtype=torch.float64)
        rows = torch.arange(len(frame))
        for column, block in zip(self.schema.columns, self.layout.blocks, strict=True):
            if column.is_numerical:
                raw[:, block.start] = torch.as_tensor(frame[column.name].to_numpy("float64", copy=True))
            else:
                codes = pd.Categorical(frame[column.name], categories=list(column.categories)).codes.astype("int64")
                raw[rows, block.start + torch.as_tensor(codes)] = 1.0
        return raw

    def _ranks(self, numbers: Tensor) -> Tensor:
        return self._interpolate(numbers, inverse=False)

    def _values(self, ranks: Tensor) -> Tensor:
        return self._interpolate(ranks, inverse=True)

    def _interpolate(self, values: Tensor, inverse: bool) -> Tensor:
        """Between a number and its rank among the distinct values seen, linear in between, clamped at the ends."""
        out = torch.empty_like(values)
        for i, column in enumerate(self.schema.numerical):
            knots = self._knots[column.name].cpu().numpy()
            ranks = np.linspace(0.0, 1.0, len(knots)) if len(knots) > 1 else np.zeros(1)
            source, target = (ranks, knots) if inverse else (knots, ranks)
            flat = np.interp(values[..., i].reshape(-1).cpu().numpy(), source, target)
            out[..., i] = torch.as_tensor(flat, device=values.device).reshape(values.shape[:-1])
        return out


_STATISTICS = ("shift", "scale", "lower", "upper", "deviation")


def _declared(bounds: list[float | None], seen: Tensor) -> Tensor:
    return torch.stack([s if b is None else torch.tensor(b, dtype=seen.dtype) for b, s in zip(bounds, seen, strict=True)]) if bounds else seen
