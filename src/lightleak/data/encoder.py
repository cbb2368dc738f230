"""Encode a table as tensors and decode it: one-hot categories, scaled numbers, and the statistics a server knows."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from lightleak.core.errors import DataError, ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.released_model import ReleasedModel
from lightleak.core.remembered import Remembered
from lightleak.data.binary_table import bit_blocks, holds_bits, is_binary
from lightleak.data.cells import category_codes
from lightleak.data.layout import Block, EncodedLayout
from lightleak.data.quantiles import rank_of, value_at
from lightleak.data.relaxation import CategoricalRelaxation, NumericalRelaxation, Relaxation
from lightleak.data.schema import ColumnKind, TableSchema

Encoding = Literal["standardized", "onehot", "minmax", "quantile"]

ROUNDING = 1e-4
"""Share of a bound by which a number may miss it: an encoded value has the 24 bits of float32."""

_STATISTICS = ("shift", "scale", "lower", "upper", "deviation")
_KNOTS = "knots."


_READ: "Remembered[TableEncoder]" = Remembered(most=256)
"""Encoders of observations."""


class TableEncoder(nn.Module):
    """Encode rows of a schema as vectors of width d, and decode them again.

    Encodings: ``standardized`` scales every encoded column, one-hot ones included, to mean 0 and deviation 1 (what
    TabLeak does); ``onehot`` keeps 0/1 and standardizes numbers; ``minmax`` keeps 0/1 and maps numbers to [0, 1] by
    their bounds; ``quantile`` keeps 0/1 and maps numbers to their rank in [0, 1].

    Decoding gives back every valid row: categories exactly, whole numbers exactly as long as they lie within 8 million
    (2**23) of their mean or, under ``minmax``, of their lower bound (an encoded value has the 24 bits of float32),
    other numbers to 24 bits. ``quantile`` gives back exactly the numbers it was fitted on; one that falls between two
    of them to the 24 bits of its rank. Numbers beyond the bounds come back as the bound unless ``clamp`` is off;
    ``quantile`` has no number beyond the bounds.

    Statistics are float64 buffers:

    * ``shift``, ``scale`` ``[d]``: ``x = (raw - shift) / scale``;
    * ``lower``, ``upper`` ``[m]``: bounds of the m numerical columns, in the table's units;
    * ``deviation`` ``[m]``: their standard deviations, in the table's units (the tolerance of Eq. 6 is 0.319 of it).

    Attributes:
        schema: the columns.
        encoding: how they are encoded.
        layout: where each column lies in the encoded vector.
        numerical_positions: encoded positions of the numerical columns.
        includes_attacked: whether statistics and bounds were counted on rows that include those under attack; None
            where that is not known.

    Raises:
        DataError: an unknown encoding.

    >>> from lightleak.data.column import Column
    >>> columns = (Column.integer("age"), Column.categorical("sex", ["F", "M"]))
    >>> schema = TableSchema(columns, label=Column.categorical("ill", ["0", "1"]))
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
            raise DataError(f"encoding must be one of {', '.join(get_args(Encoding))}, got {encoding!r}")
        self.schema = schema
        self.encoding = encoding
        blocks, start = [], 0
        for column in schema.columns:
            blocks.append(Block(column.name, start, start + column.width, not column.is_numerical))
            start += column.width
        self.layout = EncodedLayout(tuple(blocks))
        self.numerical_positions = [block.start for block in self.layout.numerical]
        for name in _STATISTICS:
            width = start if name in ("shift", "scale") else len(schema.numerical)
            self.register_buffer(name, torch.full((width,), float("nan"), dtype=torch.float64))
        self._knots: dict[str, Tensor] = {}
        self.includes_attacked: bool | None = None

    @property
    def width(self) -> int:
        """Encoded features d."""
        return self.layout.width

    @property
    def column_slices(self) -> dict[str, slice]:
        """Encoded positions of each column."""
        return {block.name: block.slice for block in self.layout.blocks}

    def fit(self, frame: pd.DataFrame, includes_attacked: bool | None = None) -> "TableEncoder":
        """Take the statistics from ``frame``; bounds the schema declares win over those seen.

        Args:
            frame: rows.
            includes_attacked: whether rows that will be attacked are among them, or behind the declared bounds; threat
                models state it.

        Raises:
            DataError: the frame does not fit the schema, has fewer than two rows, or numbers past 1e150.
        """
        self.includes_attacked = includes_attacked
        if len(frame) < 2:
            raise DataError(f"an encoder needs at least 2 rows to take statistics from, got {len(frame)}")
        if is_binary(self.schema) and holds_bits(self.schema, frame):  # without a copy of the table
            numbers = torch.tensor([0.0, 1.0], dtype=torch.float64).unsqueeze(1).expand(2, self.width)
            mean, spread = self._moments_of_bits(frame)
        else:
            codes, numbers = table_cells(self.schema, self.schema.validate(frame, require_label=False))
            mean, spread = self._moments(codes, numbers)
        at, columns = self.numerical_positions, self.schema.numerical
        self.lower = _declared([column.lower for column in columns], numbers.amin(0))
        self.upper = _declared([column.upper for column in columns], numbers.amax(0))
        self.deviation = spread[at]
        self.shift, self.scale = torch.zeros_like(mean), torch.ones_like(mean)
        if self.encoding == "standardized":
            self.shift, self.scale = mean, spread
        elif self.encoding == "onehot":
            self.shift[at], self.scale[at] = mean[at], spread[at]
        elif self.encoding == "minmax":
            span = self.upper - self.lower
            self.shift[at], self.scale[at] = self.lower, torch.where(span > 0, span, torch.ones_like(span))
        else:
            known = torch.cat([numbers, self.lower.unsqueeze(0), self.upper.unsqueeze(0)])
            self._knots = {column.name: torch.unique(known[:, i]) for i, column in enumerate(columns)}
        return self

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """Rows as float32 ``[n, d]``, on the CPU.

        Raises:
            DataError: the frame does not fit the schema, or the encoder is not fitted.
        """
        self._require_fitted()
        codes, numbers = table_cells(self.schema, self.schema.validate(frame, require_label=False))
        return self.assemble(codes.to(self.shift.device), numbers.to(self.shift.device)).cpu()

    def encode_bits(self, frame: pd.DataFrame) -> Tensor:
        """Return the rows of a table of 0/1 columns, uint8 ``[n, d]``, without a wider copy of the table.

        Whatever the encoding, nothing is standardized and no statistics are needed: `encode` gives the same numbers
        under ``minmax``.

        Raises:
            UnsupportedError: the schema has a column that is not whole numbers with the bounds 0 and 1.
            DataError: the frame does not fit the schema or holds something else than 0 and 1.
        """
        bits = torch.empty(len(frame), self.width, dtype=torch.uint8)
        for at, block in bit_blocks(self.schema, frame):
            bits[:, at] = torch.from_numpy(block)
        return bits

    def encode_labels(self, frame: pd.DataFrame) -> Tensor:
        """Class indices, LongTensor ``[n]``.

        Raises:
            DataError: the label column is missing or holds an unknown class.
        """
        return torch.from_numpy(category_codes(self.schema.label, self.schema.validate_label(frame)))

    def decode(self, x: Tensor, clamp: bool = True) -> pd.DataFrame:
        """Project encoded rows ``[n, d]`` to the table: largest category, whole numbers for integer columns.

        Args:
            x: encoded rows, exact or fuzzy.
            clamp: keep numbers inside their bounds (TabLeak App. B does so before measuring).

        Raises:
            DataError: rows of another width, or the encoder is not fitted.
        """
        return table_of_cells(self.schema, *self.project(x, clamp))

    def project(self, x: Tensor, clamp: bool = True, whole: bool = True) -> tuple[Tensor, Tensor]:
        """Decode without a table: any leading dimensions, any device.

        Args:
            x: encoded rows ``[..., d]``, exact or fuzzy.
            clamp: keep numbers inside their bounds.
            whole: round the numbers of columns of whole numbers.

        Returns:
            Category indices, LongTensor ``[..., K]``, and numbers in the table's units, float64 ``[..., m]``.

        Raises:
            DataError: rows of another width, or the encoder is not fitted.
        """
        self._require_fitted()
        if x.shape[-1:] != (self.width,):
            raise DataError(f"encoded rows must have width {self.width}, got shape {tuple(x.shape)}")
        raw = x.double() * self.scale + self.shift
        codes = [raw[..., block.slice].argmax(-1) for block in self.layout.categorical]
        numbers = raw[..., self.numerical_positions]
        if self.encoding == "quantile":
            numbers = self._scaled(numbers, value_at)
        if clamp:
            numbers = numbers.clamp(self.lower, self.upper)
        if whole:
            rounded = [i for i, column in enumerate(self.schema.numerical) if column.kind is ColumnKind.INTEGER]
            numbers[..., rounded] = numbers[..., rounded].round()
        empty = torch.empty(*x.shape[:-1], 0, dtype=torch.long, device=x.device)
        return torch.stack(codes, -1) if codes else empty, numbers

    def assemble(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Encode what `project` returned: float32 ``[..., d]`` with exact one-hot blocks.

        Args:
            codes: category indices, LongTensor ``[..., K]``.
            numbers: numbers in the table's units, float64 ``[..., m]``.
        """
        absent, present = ((raw - self.shift) / self.scale for raw in (0.0, 1.0))
        x = absent.float().expand(*codes.shape[:-1], self.width).clone()
        starts = torch.tensor([block.start for block in self.layout.categorical], dtype=torch.long, device=codes.device)
        x.scatter_(-1, codes + starts, present.float()[codes + starts])
        at = self.numerical_positions
        raw = self._scaled(numbers, rank_of) if self.encoding == "quantile" else numbers
        x[..., at] = ((raw - self.shift[at]) / self.scale[at]).float()
        return x

    def spread_rows(self, n: int) -> Tensor:
        """Encode ``n`` valid rows from first to last category and from lowest to highest number: float32 ``[n, d]``.

        Raises:
            DataError: the encoder is not fitted.
        """
        self._require_fitted()
        share = torch.linspace(0, 1, n, dtype=torch.float64).unsqueeze(-1).to(self.lower.device)
        numbers = self.lower + (self.upper - self.lower) * share
        whole = [i for i, column in enumerate(self.schema.numerical) if column.kind is ColumnKind.INTEGER]
        numbers[:, whole] = numbers[:, whole].round()
        last = torch.tensor([block.width - 1 for block in self.layout.categorical], dtype=torch.float64)
        return self.assemble((share * last.to(share.device)).round().long(), numbers)

    def relaxation(
        self,
        categorical: CategoricalRelaxation = "softmax",
        numerical: NumericalRelaxation = "sigmoid",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Relaxation:
        """The relaxation of this table's rows, with its constants on one device and in one precision.

        Raises:
            DataError: the encoder is not fitted.
        """
        self._require_fitted()
        constants = (self.shift, self.scale, *self.encoded_bounds())
        shift, scale, lower, upper = (value.to(device=device, dtype=dtype) for value in constants)
        return Relaxation(self.layout, shift, scale, lower, upper, categorical, numerical)

    def relax(self, z: Tensor) -> Tensor:
        """TabLeak's relaxation of ``[..., d]``: softmax per categorical block, sigmoid into the bounds per number.

        Raises:
            DataError: the encoder is not fitted.
        """
        return self.relaxation(dtype=z.dtype, device=z.device)(z)

    def encoded_bounds(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest encoded value of every position, ``[d]`` each; a one-hot position spans 0 to 1."""
        lower, upper = torch.zeros_like(self.shift), torch.ones_like(self.shift)
        if self.encoding != "quantile":
            lower[self.numerical_positions], upper[self.numerical_positions] = self.lower, self.upper
        return (lower - self.shift) / self.scale, (upper - self.shift) / self.scale

    def to_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Facts (JSON-ready) and statistics (tensors).

        Raises:
            DataError: the encoder is not fitted.
        """
        self._require_fitted()
        tensors = {name: getattr(self, name) for name in _STATISTICS}
        knots = {_KNOTS + name: values for name, values in self._knots.items()}
        facts: dict[str, Any] = {"encoding": self.encoding, "schema": self.schema.to_dict()}
        if self.includes_attacked is not None:
            facts["includes_attacked"] = self.includes_attacked
        return facts, tensors | knots

    @classmethod
    def of(cls, observation: ClientUpdate | ReleasedModel, device: torch.device | str = "cpu") -> "TableEncoder":
        """Return the encoder that an observation carries; errors as for `from_state`.

        It is built once for each device, shared by all who read the same observation or one that was made of it by
        `dataclasses.replace`, and must not be changed.
        """
        parts = observation.encoder, observation.encoder_tensors
        return _READ.get(parts, lambda: cls.from_state(*parts).to(device), str(device))

    @classmethod
    def from_state(cls, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Inverse of `to_state`.

        Raises:
            ObservationError: schema or encoding is missing, or a statistic is missing, of the wrong shape or of
                values that no table has.
            DataError: the schema or the encoding has no meaning.
        """
        for key in ("schema", "encoding"):
            if key not in state:
                raise ObservationError(f"the encoder of an observation needs {key!r}, got only {sorted(state)}")
        encoder = cls(TableSchema.from_dict(state["schema"]), state["encoding"])
        includes_attacked = state.get("includes_attacked")
        encoder.includes_attacked = includes_attacked if isinstance(includes_attacked, bool) else None
        for name in _STATISTICS:
            value, expected = _finite(name, tensors), tuple(getattr(encoder, name).shape)
            if tuple(value.shape) != expected:
                raise ObservationError(
                    f"encoder statistic {name!r} must have shape {expected}, got {tuple(value.shape)}"
                )
            if name in ("scale", "deviation") and not (value > 0).all():
                raise ObservationError(f"encoder statistic {name!r} must be above 0, got {float(value.min())}")
            setattr(encoder, name, value)
        encoder._require_bounds()
        for column in encoder.schema.numerical if encoder.encoding == "quantile" else ():
            encoder._knots[column.name] = knots = _finite(_KNOTS + column.name, tensors)
            if knots.dim() != 1 or len(knots) < 1 or not (knots.diff() > 0).all():
                raise ObservationError(f"encoder statistic {_KNOTS + column.name!r} must be ascending numbers")
        return encoder

    def _require_bounds(self) -> None:
        """Raise `ObservationError` where bounds are no range, others than the schema declares, or exclude the mean."""
        has_mean = self.encoding in ("standardized", "onehot")
        means = self.shift[self.numerical_positions] if has_mean else self.lower
        slack = ROUNDING * torch.maximum(self.lower.abs(), self.upper.abs())
        for i, column in enumerate(self.schema.numerical):
            lower, upper, mean = float(self.lower[i]), float(self.upper[i]), float(means[i])
            if lower > upper:
                raise ObservationError(f"bounds of column {column.name!r} must ascend, got {lower} and {upper}")
            for declared, stored in ((column.lower, lower), (column.upper, upper)):
                if declared is not None and abs(declared - stored) > float(slack[i]):
                    raise ObservationError(
                        f"column {column.name!r} has the bound {declared:g} in the schema, {stored:g} in the statistics"
                    )
            if not lower - float(slack[i]) <= mean <= upper + float(slack[i]):
                raise ObservationError(
                    f"column {column.name!r} has the mean {mean:g}, outside of its bounds {lower:g} to {upper:g}"
                )

    def require_within_bounds(self, x: Tensor) -> None:
        """Refuse encoded rows ``[n, d]`` with numbers beyond the bounds, which decoding would clamp.

        Raises:
            ObservationError: naming the first such column.
        """
        _, numbers = self.project(x, clamp=False)
        slack = ROUNDING * (self.upper - self.lower + self.lower.abs() + self.upper.abs())
        beyond = (numbers < self.lower - slack) | (numbers > self.upper + slack)
        for i in beyond.any(0).nonzero().flatten().tolist()[:1]:
            column, n = self.schema.numerical[i], int(beyond[:, i].sum())
            bounds = " to ".join(column.number_text(float(bound[i])) for bound in (self.lower, self.upper))
            raise ObservationError(
                f"{n} of {len(x)} rows hold numbers in column {column.name!r} beyond the bounds {bounds} that the "
                "update states"
            )

    def _require_fitted(self) -> None:
        if bool(self.scale.isnan().any()):
            raise DataError("this encoder has no statistics yet; call fit(frame) first")

    def _moments(self, codes: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of every encoded position before scaling, ``[d]`` each.

        A constant column carries nothing; dividing by 1 keeps it finite (the reference implementation does the same).
        """
        mean, variance = (torch.zeros(self.width, dtype=torch.float64) for _ in range(2))
        constant = torch.zeros(self.width, dtype=torch.bool)  # by value: a mean rounds, so a deviation may miss 0
        n = len(codes)
        for block, of_column in zip(self.layout.categorical, codes.unbind(-1), strict=True):
            share = torch.bincount(of_column, minlength=block.width).double() / n
            mean[block.slice], variance[block.slice] = share, share * (1 - share) * n / (n - 1)
            constant[block.slice] = (share == 0) | (share == 1)
        at = self.numerical_positions
        mean[at] = numbers.mean(0)
        variance[at] = (numbers - mean[at]).square().sum(0) / (n - 1)
        constant[at] = numbers.amin(0) == numbers.amax(0)
        for block in self.layout.numerical:
            if not variance[block.start].isfinite():
                raise DataError(f"column {block.name!r}: numbers too large for their variance to be a float64")
        return mean, torch.where(constant | (variance == 0), torch.ones_like(variance), variance.sqrt())

    def _moments_of_bits(self, frame: pd.DataFrame) -> tuple[Tensor, Tensor]:
        """As `_moments`, from the number of ones per column."""
        n, share = len(frame), torch.empty(self.width, dtype=torch.float64)
        for at, block in bit_blocks(self.schema, frame):
            share[at] = torch.from_numpy(block.sum(0, dtype=np.int64)).double() / n
        variance = share * (1 - share) * n / (n - 1)
        return share, torch.where(variance == 0, torch.ones_like(variance), variance.sqrt())

    def _scaled(self, numbers: Tensor, scale: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Every column of ``[..., m]`` through ``scale`` with its knots."""
        knots = [self._knots[column.name].to(numbers.device) for column in self.schema.numerical]
        each = [scale(of_column, of_knots) for of_column, of_knots in zip(numbers.unbind(-1), knots, strict=True)]
        return torch.stack(each, -1) if each else numbers


def table_cells(schema: TableSchema, frame: pd.DataFrame) -> tuple[Tensor, Tensor]:
    """Category indices ``[n, K]`` and numbers ``[n, m]`` (float64) of a validated frame."""
    codes = torch.empty(len(frame), len(schema.categorical), dtype=torch.long)
    for at, column in enumerate(schema.categorical):
        codes[:, at] = torch.from_numpy(category_codes(column, frame[column.name]))
    numbers = frame[[column.name for column in schema.numerical]].to_numpy("float64", copy=True)
    return codes, torch.as_tensor(numbers)


def table_of_cells(schema: TableSchema, codes: Tensor, numbers: Tensor) -> pd.DataFrame:
    """Table rows of category indices ``[n, K]`` and numbers ``[n, m]``: the inverse of `table_cells`."""
    columns: dict[str, Any] = {}
    categorical, numerical = iter(codes.cpu().unbind(-1)), iter(numbers.cpu().unbind(-1))
    for column in schema.columns:
        if column.is_numerical:
            values = next(numerical).numpy()
            columns[column.name] = values.astype("int64") if column.kind is ColumnKind.INTEGER else values
        else:
            columns[column.name] = np.asarray(column.categories, dtype=object)[next(categorical).numpy()]
    return pd.DataFrame(columns)


def _declared(bounds: list[float | None], seen: Tensor) -> Tensor:
    """Bounds ``[m]``: the declared one of each column, or what was seen."""
    values = [s if bound is None else bound for bound, s in zip(bounds, seen.tolist(), strict=True)]
    return torch.tensor(values, dtype=torch.float64)


def _finite(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    """A statistic in float64."""
    if name not in tensors:
        raise ObservationError(f"encoder statistic {name!r} is missing; got {sorted(tensors)}")
    value = tensors[name].double()
    if not value.isfinite().all():
        raise ObservationError(f"encoder statistic {name!r} must be finite, got NaN or infinity")
    return value
