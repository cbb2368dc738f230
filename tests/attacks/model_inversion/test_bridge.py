"""f_inv against the road it shortens: decode to a table, then encode for the target."""

from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lightleak.attacks.model_inversion.bridge import HardBridge, IdentityBridge, ModeBridge, make_bridge
from lightleak.attacks.model_inversion.shared_transform import SharedTransform
from lightleak.attacks.model_inversion.table_transform import ModeTransform, TableTransform
from lightleak.core.errors import DataError, UnsupportedError, UsageError
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.schema import Column, ColumnKind, TableSchema

ENCODINGS = get_args(Encoding)
LABEL = Column.categorical("ill", ["no", "yes"])
WORLDS = st.tuples(
    st.lists(st.sampled_from(list(ColumnKind)), min_size=1, max_size=6),
    st.sampled_from(ENCODINGS),
    st.integers(0, 10_000),
)


def world(kinds: list[ColumnKind], encoding: Encoding, seed: int) -> tuple[ModeTransform, TableEncoder, pd.DataFrame]:
    """The attacker's transform of public rows, the target's encoder of other rows, and the public rows.

    The target's columns and categories lie in another order, and it knows a category that the public rows lack.
    """
    rng = np.random.default_rng(seed)
    columns, numbers = [], {}
    for i, kind in enumerate(kinds):
        name = f"{kind}{i}"
        if kind is ColumnKind.CATEGORICAL:
            columns.append(Column.categorical(name, [f"v{j}" for j in range(rng.integers(2, 6))]))
            continue
        columns.append(Column(name, kind))
        center, spread = rng.normal(0, 50, 3), rng.uniform(0.01, 20, 3)
        part = rng.choice(3, 120, p=[0.6, 0.3, 0.1])
        values = rng.normal(center[part], spread[part]) * 10.0 ** rng.integers(-2, 4)
        numbers[name] = values.round().astype("int64") if kind is ColumnKind.INTEGER else values
    schema = TableSchema(tuple(columns), label=LABEL)
    frame = pd.DataFrame(
        {c.name: numbers[c.name] if c.is_numerical else rng.choice(c.categories, 120) for c in columns}
    )
    public, private = frame[:80].reset_index(drop=True), frame[80:].reset_index(drop=True)
    theirs = [
        c if c.is_numerical else Column.categorical(c.name, [*rng.permutation(c.categories).tolist(), "unseen"])
        for c in columns
    ]
    theirs = [theirs[i] for i in rng.permutation(len(theirs))]
    encoder = TableEncoder(TableSchema(tuple(theirs), label=LABEL), encoding).fit(private)
    return ModeTransform.fit(public, schema, seed), encoder, public


def generated(transform: TableTransform, seed: int, n: int = 30) -> Tensor:
    """What a generator makes: from undecided to nearly one-hot."""
    random = torch.Generator().manual_seed(seed)
    sharpness = 10 ** torch.empty(n, 1).uniform_(-1, 1.5, generator=random)
    return transform.segments.activate(sharpness * torch.randn(n, transform.width, generator=random))


def the_long_way(h: Tensor, transform: TableTransform, encoder: TableEncoder) -> Tensor:
    return encoder.encode(transform.decode(h))


@settings(max_examples=25)
@given(WORLDS)
def test_the_bridge_is_decoding_and_encoding(kinds: Any) -> None:
    transform, encoder, public = world(*kinds)
    bridge, hard = make_bridge(transform, encoder), make_bridge(transform, encoder, categories="straight_through")
    h, at = generated(transform, kinds[-1]), encoder.numerical_positions
    x, expected = bridge(h), the_long_way(h, transform, encoder)
    assert x.dtype == torch.float32 and x.shape == (30, encoder.width)
    # Numbers at any point; everything at any point where categories are straight-through, else at one-hot points.
    torch.testing.assert_close(x[:, at], expected[:, at], rtol=0, atol=1e-5)
    torch.testing.assert_close(hard(h), expected, rtol=0, atol=1e-5)
    rows = transform.encode(public, seed=1)
    for exact in (bridge, hard):
        torch.testing.assert_close(exact(rows), the_long_way(rows, transform, encoder), rtol=0, atol=1e-5)


@settings(max_examples=25)
@given(WORLDS)
def test_the_gradient_is_that_of_shares_and_expected_values(kinds: Any) -> None:
    """The formula of the thesis, column by column in float64, with the factor 4 and valid modes only."""
    transform, encoder, _ = world(*kinds)
    raw = torch.randn(6, transform.width, dtype=torch.float64, requires_grad=True)
    h = transform.segments.activate(raw)
    cells: list[Tensor] = []
    for column in encoder.schema.columns:
        at = transform.segments.columns[column.name]
        if column.is_numerical:
            a, p = h[:, at.start], h[:, at.start + 1 : at.stop]
            means, deviations = (
                torch.from_numpy(getattr(transform.modes[column.name], what)) for what in ("means", "deviations")
            )
            cells.append((p * (4 * deviations * a[:, None] + means)).sum(-1))
        else:
            known = transform.schema.column(column.name).categories
            shares = dict(zip(known, h[:, at].unbind(-1), strict=True))
            cells += [shares.get(category, torch.zeros(6)) for category in column.categories]
    soft = (torch.stack(cells, -1) - encoder.shift) / encoder.scale
    at = encoder.numerical_positions
    if encoder.encoding == "quantile" and at:
        soft = soft.clone()
        soft[:, at] = interpolated(encoder, soft[:, at])
    torch.testing.assert_close(make_bridge(transform, encoder, numbers="soft")(h), soft, rtol=1e-6, atol=1e-6)
    weight = torch.randn(6, encoder.width, dtype=torch.float64)
    (expected,) = torch.autograd.grad((weight * soft).sum(), raw, retain_graph=True)
    for options in ({}, {"numbers": "soft"}, {"categories": "straight_through"}):
        x = make_bridge(transform, encoder, **options)(h)  # type: ignore[arg-type]
        (found,) = torch.autograd.grad((weight * x).sum(), raw, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8 * float(expected.abs().max()) + 1e-12)


def interpolated(encoder: TableEncoder, numbers: Tensor) -> Tensor:
    """Ranks of ``[n, m]``: how many of the gaps between knots are passed, the last one in part."""
    columns = []
    for column, of_column in zip(encoder.schema.numerical, numbers.unbind(-1), strict=True):
        knots = encoder.to_state()[1][f"knots.{column.name}"]
        passed = ((of_column[:, None] - knots[:-1]) / knots.diff()).clamp(0, 1)
        columns.append(passed.sum(-1) / max(len(knots) - 1, 1))
    return torch.stack(columns, -1)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_gradcheck_of_the_soft_bridge(encoding: Encoding) -> None:
    transform, encoder, _ = world([ColumnKind.CONTINUOUS, ColumnKind.CATEGORICAL, ColumnKind.INTEGER], encoding, 3)
    bridge = make_bridge(transform, encoder, numbers="soft")
    raw = torch.randn(3, transform.width, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda raw: bridge(transform.segments.activate(raw)), (raw,), atol=1e-4)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_descending_the_bridge_lowers_the_targets_loss_of_the_decoded_rows(encoding: Encoding, shared: bool) -> None:
    transform: TableTransform
    transform, encoder, _ = world([ColumnKind.INTEGER, ColumnKind.CATEGORICAL, ColumnKind.CONTINUOUS] * 2, encoding, 7)
    if shared:
        transform = SharedTransform(encoder)
    bridge = make_bridge(transform, encoder)
    torch.manual_seed(0)
    target = nn.Sequential(nn.Linear(encoder.width, 32), nn.ReLU(), nn.Linear(32, 5)).requires_grad_(False)
    target[2].weight *= 4  # a target that is sure of itself
    wanted = torch.arange(5).repeat(8)
    raw = torch.randn(40, transform.width, requires_grad=True)

    def decoded_loss() -> float:
        h = transform.segments.activate(raw.detach())
        return float(F.cross_entropy(target(the_long_way(h, transform, encoder)), wanted))

    before, optimizer = decoded_loss(), torch.optim.Adam([raw], lr=0.05)
    for _ in range(40):
        loss = F.cross_entropy(target(bridge(transform.segments.activate(raw))), wanted)
        optimizer.zero_grad()
        loss.backward()
        assert raw.grad is not None and bool(raw.grad.any(1).all())  # every row is led
        optimizer.step()
    assert decoded_loss() < 0.9 * before


class OperationCount(TorchDispatchMode):
    """Counts the tensor operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_work_does_not_grow_with_the_columns(encoding: Encoding) -> None:
    # Constant columns have one mode each, so that the widths of the blocks are the same.
    def count(columns: int) -> int:
        both = [Column.integer(f"n{i}") for i in range(columns)]
        both += [Column.categorical(f"c{i}", ["a", "b"]) for i in range(columns)]
        frame = pd.DataFrame({c.name: [1, 1, 1] if c.is_numerical else ["a", "b", "a"] for c in both})
        schema = TableSchema(tuple(both), label=LABEL)
        transform, encoder = ModeTransform.fit(frame, schema), TableEncoder(schema, encoding).fit(frame)
        bridge = make_bridge(transform, encoder, categories="straight_through")
        h = torch.rand(4, transform.width, requires_grad=True)
        with OperationCount() as operations:
            bridge(h).sum().backward()
        return operations.count

    assert count(2) == count(20)


def test_any_leading_dimensions_and_the_precision_that_comes() -> None:
    transform, encoder, _ = world(list(ColumnKind), "quantile", 0)
    h = generated(transform, 0).double()
    for categories in ("soft", "straight_through"):
        bridge = make_bridge(transform, encoder, categories)  # type: ignore[arg-type]
        assert bridge(h).dtype == torch.float64
        assert torch.equal(bridge(h.view(5, 3, 2, -1)).view(30, -1), bridge(h))


def test_moving_the_bridge_leaves_the_transform_where_it_is() -> None:
    transform, encoder, _ = world(list(ColumnKind), "onehot", 0)
    make_bridge(transform, encoder).to("meta")
    assert transform.decode(generated(transform, 0)).shape == (30, 3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_gpu_gives_what_the_cpu_gives(encoding: Encoding) -> None:
    transform, encoder, _ = world(list(ColumnKind), encoding, 0)
    raw = torch.randn(30, transform.width)
    h = transform.segments.activate(raw)
    torch.testing.assert_close(transform.segments.activate(raw.cuda()).cpu(), h)
    for of in (transform, SharedTransform(encoder)):
        for categories in ("soft", "straight_through"):
            bridge = make_bridge(of, encoder, categories)  # type: ignore[arg-type]
            points = generated(of, 1)
            expected = bridge(points)
            torch.testing.assert_close(bridge.cuda()(points.cuda()).cpu(), expected, rtol=0, atol=1e-5)
            assert of.decode(points.cuda()).equals(of.decode(points))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_shared_transform_needs_no_bridge(encoding: Encoding) -> None:
    _, encoder, public = world([ColumnKind.INTEGER, ColumnKind.CATEGORICAL], encoding, 1)
    transform = SharedTransform(encoder)
    bridge = make_bridge(transform, TableEncoder.from_state(*encoder.to_state()))
    h = generated(transform, 0)
    assert isinstance(bridge, IdentityBridge) and bridge(h) is h
    rows = transform.encode(public)
    torch.testing.assert_close(bridge(rows), the_long_way(rows, transform, encoder), rtol=0, atol=1e-5)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_shared_transform_with_straight_through_categories_shows_the_likeliest(encoding: Encoding) -> None:
    _, encoder, _ = world(list(ColumnKind), encoding, 5)
    transform = SharedTransform(encoder)
    h = generated(transform, 0).requires_grad_()
    bridge = make_bridge(transform, encoder, categories="straight_through")
    x = bridge(h)
    numbers = encoder.numerical_positions
    cells = [at for at in range(encoder.width) if at not in numbers]
    assert isinstance(bridge, HardBridge)
    torch.testing.assert_close(x[:, cells], the_long_way(h.detach(), transform, encoder)[:, cells], rtol=0, atol=1e-5)
    assert torch.equal(x[:, numbers], h[:, numbers])
    weight = torch.randn_like(x)
    assert torch.equal(torch.autograd.grad((weight * x).sum(), h)[0], weight)


def test_errors_name_what_does_not_fit() -> None:
    transform, encoder, public = world(list(ColumnKind), "onehot", 0)
    other = world(list(ColumnKind), "onehot", 1)[1]
    schema = transform.schema
    with pytest.raises(UsageError, match="categories of a bridge must be one of soft, straight_through, got 'hard'"):
        make_bridge(transform, encoder, categories="hard")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="numbers of a bridge must be one of straight_through, soft, got 'hard'"):
        ModeBridge(transform, encoder, numbers="hard")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="the target's own encoder"):
        make_bridge(SharedTransform(encoder), other)
    with pytest.raises(UnsupportedError, match="no bridge is known from Linear"):
        make_bridge(nn.Linear(1, 1), encoder)  # type: ignore[arg-type]
    fewer = TableSchema(schema.columns[:1], label=LABEL)
    with pytest.raises(DataError, match="no column"):
        make_bridge(ModeTransform.fit(public, fewer), encoder)
    as_real = TableSchema(
        tuple(Column.continuous(c.name) if c.kind is ColumnKind.INTEGER else c for c in schema.columns), label=LABEL
    )
    with pytest.raises(DataError, match="'integer1' is continuous for the generator and integer for the target"):
        make_bridge(ModeTransform.fit(public, as_real), encoder)
    more = TableSchema(
        tuple(c if c.is_numerical else Column.categorical(c.name, [*c.categories, "new"]) for c in schema.columns),
        label=LABEL,
    )
    with pytest.raises(DataError, match=r"the target does not know the categories \['new'\]"):
        make_bridge(ModeTransform.fit(public, more), encoder)
