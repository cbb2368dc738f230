"""f_inv: from generator space to the target's input, differentiable and exact (thesis Algorithm 5)."""

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lightleak.attacks.model_inversion.mode_normalizer import DEVIATIONS
from lightleak.attacks.model_inversion.segments import BlockArgmax
from lightleak.attacks.model_inversion.shared_transform import SharedTransform
from lightleak.attacks.model_inversion.table_transform import ModeTransform, TableTransform
from lightleak.core.bounds import require_one_of
from lightleak.core.errors import DataError, UnsupportedError
from lightleak.data.encoder import TableEncoder

Categories = Literal["soft", "straight_through"]
Numbers = Literal["straight_through", "soft"]


class Bridge(nn.Module, ABC):
    """Maps points of generator space ``[..., w]`` to the target's input ``[..., d]``."""

    @abstractmethod
    def forward(self, h: Tensor) -> Tensor:
        """The target's input for ``h``."""


class IdentityBridge(Bridge):
    """Generator space is the target's input space (thesis Sec. 6.7.5)."""

    def forward(self, h: Tensor) -> Tensor:
        """``h`` itself."""
        return h


class HardBridge(Bridge):
    """The same, with the likeliest category of each block in place of the block; its derivative stays the identity's.

    Args:
        transform: the shared transform.
    """

    low: Tensor
    high: Tensor
    shift: Tensor
    scale: Tensor
    categorical: Tensor

    def __init__(self, transform: SharedTransform) -> None:
        super().__init__()
        self.choose = BlockArgmax([block for block in transform.segments.blocks if block.kind == "softmax"])
        encoder = transform.encoder
        low, high = encoder.encoded_bounds()
        categorical = torch.zeros(transform.width, dtype=torch.bool)
        categorical[transform.segments.positions("softmax")] = True
        buffers = {"low": low, "high": high, "shift": encoder.shift, "scale": encoder.scale, "categorical": categorical}
        for name, value in buffers.items():
            self.register_buffer(name, value.clone().cpu(), persistent=False)

    def forward(self, h: Tensor) -> Tensor:
        """The target's input ``[..., d]`` for ``h [..., d]``."""
        # The likeliest category is that of the probabilities: a standardized rare one may lie above it.
        at = self.choose.starts + self.choose(h.detach().double() * self.scale + self.shift)
        low, high = self.low.to(h.dtype), self.high.to(h.dtype)
        hard = low.expand(h.shape).scatter(-1, at, high[at])
        return torch.where(self.categorical, hard, h.detach()) + (h - h.detach())


class ModeBridge(Bridge):
    """Between mode-specific normalization and any encoding of the target; columns and categories are matched by name.

    Numbers are exactly what decoding to a table and encoding again gives: the likeliest mode, whole numbers rounded,
    clamped to the bounds. Their derivative is that of the expected value ``sum_k p_k (4 s_k a + m_k)`` over the modes,
    with a the tanh, p the softmax, s and m deviations and means (straight-through, Bengio et al. 2013).

    Categories are carried over as probabilities, exact at one-hot blocks; or as the likeliest one, with the
    probabilities' derivative. One that the transform's schema lacks is never there.

    Args:
        transform: f_G, whose generator space is read.
        encoder: f_T, fitted.
        categories: ``soft`` or ``straight_through``.
        numbers: ``straight_through``; or ``soft``, the expected value itself.

    Raises:
        UsageError: an unknown option.
        DataError: the target has a column that the transform lacks, or a column is not of the same kind or has a
            category that the target does not know.
    """

    source: Tensor
    absent: Tensor
    present: Tensor
    at: Tensor
    order: Tensor
    expectation: Tensor

    def __init__(
        self,
        transform: ModeTransform,
        encoder: TableEncoder,
        categories: Categories = "soft",
        numbers: Numbers = "straight_through",
    ) -> None:
        super().__init__()
        _check_options(categories, numbers)
        _check_columns(transform, encoder)
        self.hard_categories, self.exact_numbers = categories == "straight_through", numbers == "straight_through"
        # A copy: the bridge moves to the target's device, the transform stays where tables are.
        self.transform = deepcopy(transform).cpu()
        self.scale = NumberScale(encoder)
        sources, known = _sources(transform, encoder)
        absent, present = ((raw - encoder.shift.cpu()) / encoder.scale.cpu() for raw in (0.0, 1.0))
        numerical = [column.name for column in transform.schema.numerical]
        at, offset, unit = encoder.numerical_positions, self.scale.offset, self.scale.unit
        # Expected deviation and mean of a column's mode are sums over positions: a product with a matrix that is 0
        # outside its modes. They are taken in units near the encoded ones, where float32 is exact enough.
        expectation = torch.zeros(2, len(at), transform.width, dtype=torch.float64)
        for i, column in enumerate(encoder.schema.numerical):
            positions, modes = transform.segments.columns[column.name], transform.modes[column.name]
            soft = slice(positions.start + 1, positions.stop)
            expectation[0, i, soft] = torch.from_numpy(DEVIATIONS * modes.deviations) / unit[i]
            expectation[1, i, soft] = (torch.from_numpy(modes.means) - offset[i]) / unit[i]
        buffers = {
            "source": torch.tensor(sources),
            "absent": absent,
            "present": torch.where(torch.tensor(known), present, absent),
            "at": torch.tensor(at, dtype=torch.long),
            "order": torch.tensor([numerical.index(column.name) for column in encoder.schema.numerical]).long(),
            "expectation": expectation.flatten(0, 1).t(),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value.clone(), persistent=False)

    def forward(self, h: Tensor) -> Tensor:
        """The target's input ``[..., d]`` for ``h [..., w]``, in the precision of ``h``."""
        shares = h.index_select(-1, self.source)
        if self.hard_categories:
            shares = _straight_through(self._hard(h).index_select(-1, self.source), shares)
        # A lerp is exact at both ends, whatever the scale of the encoding.
        x = torch.lerp(self.absent.to(h.dtype), self.present.to(h.dtype), shares)
        if not len(self.at):
            return x
        return x.index_copy(-1, self.at, self._numbers(h))

    @torch.no_grad()
    def _hard(self, h: Tensor) -> Tensor:
        """``[..., w]``: 1 at the likeliest category of each column, else 0."""
        block = self.transform.choose_category
        return torch.zeros_like(h).scatter_(-1, block.starts + block(h), 1.0)

    def _numbers(self, h: Tensor) -> Tensor:
        """Encoded numbers ``[..., m]``."""
        scaled = h.index_select(-1, self.transform.tanh_positions).index_select(-1, self.order)
        spread, center = (h @ self.expectation.to(h.dtype)).chunk(2, -1)
        expected = self.scale.encode_relative(scaled * spread + center)
        if not self.exact_numbers:
            return expected
        with torch.no_grad():
            exact = self.scale.encode(self.transform.numbers(h)[..., self.order]).to(h.dtype)
        return _straight_through(exact, expected)


class NumberScale(nn.Module):
    """An encoder's map of numbers: affine, or ranks among its knots by linear interpolation, for all columns at once.

    Args:
        encoder: fitted.

    Attributes:
        offset: ``[m]`` float64; with ``unit`` the scale that `encode_relative` reads: the encoded one, or that of
            deviations from the middle of the bounds where numbers are encoded as ranks.
        unit: ``[m]`` float64.
    """

    offset: Tensor
    unit: Tensor
    knots: Tensor
    last: Tensor

    def __init__(self, encoder: TableEncoder) -> None:
        super().__init__()
        at, tensors = encoder.numerical_positions, encoder.to_state()[1]
        self.ranks = encoder.encoding == "quantile"
        offset, unit = tensors["shift"][at], tensors["scale"][at]
        if self.ranks:
            offset, unit = (tensors["lower"] + tensors["upper"]) / 2, tensors["deviation"]
        # Each column ends with infinity, so that the last knot has a right neighbor, infinitely far.
        infinite = torch.full((1,), float("inf"), dtype=torch.float64)
        named = [tensors[f"knots.{column.name}"].cpu() for column in encoder.schema.numerical] if self.ranks else []
        padded = [torch.cat([knots, infinite]) for knots in named] or [infinite]
        buffers = {
            "offset": offset,
            "unit": unit,
            "knots": pad_sequence(padded, batch_first=True, padding_value=float("inf")),
            "last": torch.tensor([[len(knots) - 1] for knots in named], dtype=torch.long).reshape(-1, 1),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value.cpu().clone(), persistent=False)

    def encode(self, numbers: Tensor) -> Tensor:
        """Encoded numbers ``[..., m]`` of float64 ``[..., m]`` in the table's units; differentiable."""
        return self._rank(numbers) if self.ranks else (numbers - self.offset) / self.unit

    def encode_relative(self, relative: Tensor) -> Tensor:
        """Encoded numbers of ``(numbers - offset) / unit``, in the precision that came."""
        if not self.ranks:
            return relative
        return self._rank(self.offset + self.unit * relative.double()).to(relative.dtype)

    def _rank(self, numbers: Tensor) -> Tensor:
        """`lightleak.data.quantiles.rank_of` with the knots of each column."""
        columns = numbers.reshape(-1, numbers.shape[-1]).t()
        inside = columns.clamp(self.knots[:, :1], self.knots.gather(1, self.last)).contiguous()
        left = torch.searchsorted(self.knots, inside.detach(), right=True) - 1
        below, above = self.knots.gather(1, left), self.knots.gather(1, left + 1)
        ranks = (left + (inside - below) / (above - below)) / self.last.clamp_min(1)
        return ranks.t().reshape(numbers.shape)


def make_bridge(
    transform: TableTransform,
    encoder: TableEncoder,
    categories: Categories = "soft",
    numbers: Numbers = "straight_through",
) -> Bridge:
    """The bridge from ``transform`` to the target's ``encoder``.

    With a `SharedTransform` it is the identity, whole numbers not rounded; with ``categories="straight_through"`` all
    but for the likeliest categories.

    Raises:
        UsageError: an unknown option.
        UnsupportedError: a shared transform of another encoder, or an unknown kind of transform.
        DataError: columns do not fit; see `ModeBridge`.
    """
    _check_options(categories, numbers)
    if isinstance(transform, ModeTransform):
        return ModeBridge(transform, encoder, categories, numbers)
    if not isinstance(transform, SharedTransform):
        raise UnsupportedError(f"no bridge is known from {type(transform).__name__}; write a Bridge for it")
    if transform.encoder is not encoder and not _same(transform.encoder, encoder):
        raise UnsupportedError(
            "a shared transform must be made of the target's own encoder; take ModeTransform otherwise"
        )
    return IdentityBridge() if categories == "soft" else HardBridge(transform)


def _straight_through(value: Tensor, gradient: Tensor) -> Tensor:
    """``value`` with the derivative of ``gradient``; exact, as the difference added is 0."""
    return value + (gradient - gradient.detach())


def _check_options(categories: str, numbers: str) -> None:
    require_one_of("categories of a bridge", categories, get_args(Categories))
    require_one_of("numbers of a bridge", numbers, get_args(Numbers))


def _check_columns(transform: ModeTransform, encoder: TableEncoder) -> None:
    for wanted in encoder.schema.columns:
        column = transform.schema.column(wanted.name)
        if column.kind is not wanted.kind:
            raise DataError(f"{column} is {column.kind} for the generator and {wanted.kind} for the target")
        unknown = [category for category in column.categories if category not in wanted.categories]
        if unknown:
            raise DataError(f"{column}: the target does not know the categories {unknown[:5]}")


def _sources(transform: ModeTransform, encoder: TableEncoder) -> tuple[list[int], list[bool]]:
    """Position of generator space for each of the target's, and whether it is a category (else unused)."""
    sources, known = [], []
    for wanted in encoder.schema.columns:
        start = transform.segments.columns[wanted.name].start
        place = {name: start + i for i, name in enumerate(transform.schema.column(wanted.name).categories)}
        for name in wanted.categories or ("",):
            sources.append(place.get(name, start))
            known.append(name in place)
    return sources, known


def _same(one: TableEncoder, other: TableEncoder) -> bool:
    (facts, tensors), (other_facts, others) = one.to_state(), other.to_state()
    if facts != other_facts or tensors.keys() != others.keys():
        return False
    return all(torch.equal(tensor.cpu(), others[name].cpu()) for name, tensor in tensors.items())
