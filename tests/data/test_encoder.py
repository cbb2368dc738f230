"""The encoder: rows come back, the statistics are the table's, and what it cannot take is refused by name."""

import json
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import DataError, ObservationError
from lightleak.data.column import MISSING_CATEGORY, Column, ColumnKind
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.quantiles import rank_of, value_at
from lightleak.data.schema import TableSchema

ENCODINGS = get_args(Encoding)
LABEL = Column.categorical("y", ["no", "yes"])
CELLS = {
    ColumnKind.INTEGER: st.integers(-1_490_400, 1_490_400),
    # Numbers whose spread has a square in float64.
    ColumnKind.CONTINUOUS: st.floats(-1e6, 1e6, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-100),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSchema, pd.DataFrame]:
    """A table of a few rows and columns, constant and repeated cells among them."""
    n = draw(st.integers(2, 10))
    columns, cells = [], {}
    for i, kind in enumerate(draw(st.lists(st.sampled_from(list(ColumnKind)), min_size=1, max_size=4))):
        name = f"x{i}"
        if kind is ColumnKind.CATEGORICAL:
            columns.append(Column.categorical(name, [f"c{j}" for j in range(draw(st.integers(2, 5)))]))
            values = st.sampled_from(columns[-1].categories)
        else:
            columns.append(Column(name, kind))
            values = CELLS[kind]
        cells[name] = draw(st.lists(values, min_size=n, max_size=n))
    cells["y"] = draw(st.lists(st.sampled_from(LABEL.categories), min_size=n, max_size=n))
    return TableSchema(tuple(columns), LABEL), pd.DataFrame(cells)


def assert_same_rows(
    schema: TableSchema, got: pd.DataFrame, expected: pd.DataFrame, relative: float = 2.0**-22
) -> None:
    """Categories and whole numbers are equal; other numbers to ``relative`` of their column's range."""
    assert list(got.columns) == list(schema.names)
    for column in schema.columns:
        one, other = got[column.name].to_numpy(), expected[column.name].to_numpy()
        if column.kind is ColumnKind.CONTINUOUS:
            largest = np.abs(other).max() * 2.0**-50
            np.testing.assert_allclose(one, other, rtol=0, atol=relative * np.ptp(other) + largest)
        else:
            assert one.tolist() == other.tolist()


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=40)
@given(tables())
def test_rows_come_back(encoding: Encoding, table: tuple[TableSchema, pd.DataFrame]) -> None:
    schema, frame = table
    encoder = TableEncoder(schema, encoding).fit(frame)
    encoded = encoder.encode(frame)
    assert encoded.dtype == torch.float32 and encoded.shape == (len(frame), encoder.width)
    assert encoded.isfinite().all()
    for clamp in (True, False):
        assert_same_rows(schema, encoder.decode(encoded, clamp), frame)
    # project and assemble are the same road without a table, over any leading dimensions.
    stacked = encoded.expand(2, 3, *encoded.shape)
    torch.testing.assert_close(encoder.assemble(*encoder.project(stacked)), stacked, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=25)
@given(tables())
def test_encoded_rows_are_what_a_cell_by_cell_reading_gives(
    encoding: Encoding, table: tuple[TableSchema, pd.DataFrame]
) -> None:
    schema, frame = table
    encoder = TableEncoder(schema, encoding).fit(frame)
    expected = []
    for column in schema.columns:
        values = frame[column.name].to_numpy()
        if not column.is_numerical:
            for category in column.categories:
                raw = (values == category).astype(float)
                constant = raw.min() == raw.max()
                scaled = (raw - raw.mean()) / (1 if constant else raw.std(ddof=1))
                expected.append(scaled if encoding == "standardized" else raw)
            continue
        low, constant = values.min(), values.min() == values.max()
        if encoding == "minmax":
            expected.append((values - low) / (1 if constant else np.ptp(values)))
        elif encoding == "quantile":
            distinct = sorted(set(values.tolist()))
            expected.append(np.array([distinct.index(v) for v in values.tolist()]) / max(1, len(distinct) - 1))
        else:
            expected.append((values - values.mean()) / (1 if constant else values.std(ddof=1)))
    np.testing.assert_allclose(encoder.encode(frame).numpy(), np.stack(expected, -1), rtol=1e-5, atol=1e-6)
    deviation = [frame[c.name].std() or 1.0 for c in schema.numerical]
    np.testing.assert_allclose(encoder.deviation.numpy(), deviation, rtol=1e-9)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_wide_integers_come_back(encoding: Encoding) -> None:
    # Census-like weights, a wide tail, and one far value among many: 24 bits hold each of them.
    schema = TableSchema((Column.integer("weight"), Column.integer("gain")), LABEL)
    rng = np.random.default_rng(0)
    weight = np.append(rng.integers(12_285, 1_490_400, 5_000), [12_285, 1_490_400])
    gain = np.append(rng.integers(0, 5_000, 5_000), [0, 4_000_000])
    frame = pd.DataFrame({"weight": weight, "gain": gain, "y": "no"})
    encoder = TableEncoder(schema, encoding).fit(frame)
    assert_same_rows(schema, encoder.decode(encoder.encode(frame)), frame)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_that_the_fit_did_not_see_come_back_too(encoding: Encoding) -> None:
    schema = TableSchema((Column.integer("age", 0, 120), Column.continuous("height", 0, 250)), LABEL)
    seen = pd.DataFrame({"age": [30, 40, 50], "height": [150.0, 160.0, 190.0], "y": "no"})
    new = pd.DataFrame({"age": [0, 33, 120], "height": [0.0, 151.5, 250.0], "y": "no"})
    encoder = TableEncoder(schema, encoding).fit(seen)
    assert_same_rows(schema, encoder.decode(encoder.encode(new)), new)
    assert encoder.lower.tolist() == [0, 0] and encoder.upper.tolist() == [120, 250]


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
def test_decoding_clamps_to_the_bounds_unless_told_not_to(encoding: Encoding) -> None:
    schema = TableSchema((Column.integer("age", 18, 90),), LABEL)
    frame = pd.DataFrame({"age": [30, 40, 400], "y": "no"})
    encoder = TableEncoder(schema, encoding).fit(frame)
    encoded = encoder.encode(frame)
    assert encoder.decode(encoded)["age"].tolist() == [30, 40, 90]
    assert encoder.decode(encoded, clamp=False)["age"].tolist() == [30, 40, 400]


def test_a_column_constant_but_for_rounding_is_constant() -> None:
    schema = TableSchema((Column.continuous("rate"), Column.integer("age")), LABEL)
    frame = pd.DataFrame({"rate": [0.1] * 7, "age": range(7), "y": "no"})
    encoder = TableEncoder(schema).fit(frame)
    assert (encoder.scale[0], encoder.deviation[0]) == (1.0, 1.0)
    assert encoder.decode(encoder.encode(frame))["rate"].tolist() == [0.1] * 7


def test_numbers_without_a_usable_deviation() -> None:
    schema = TableSchema((Column.continuous("rate"),), LABEL)
    tiny = pd.DataFrame({"rate": [0.0, 1e-200, 2e-200], "y": "no"})
    assert TableEncoder(schema).fit(tiny).encode(tiny).isfinite().all()
    with pytest.raises(DataError, match="column 'rate': numbers too large for their variance to be a float64"):
        TableEncoder(schema).fit(pd.DataFrame({"rate": [0.0, 1e200], "y": "no"}))


def mixed(encoding: Encoding = "standardized") -> tuple[TableEncoder, pd.DataFrame]:
    """An encoder fitted on a small mixed table, and the table."""
    columns = (Column.integer("age"), Column.categorical("sex", ["F", "M"]), Column.continuous("height", 1, 3))
    schema = TableSchema((*columns, Column.categorical("work", ["a", "b", "c"])), LABEL)
    cells = {"age": [30, 41, 41, 9], "sex": list("FMMF"), "height": [1.5, 2.0, 1.75, 1.0], "work": list("abca")}
    frame = pd.DataFrame({**cells, "y": ["no", "yes", "yes", "no"]})
    return TableEncoder(schema, encoding).fit(frame), frame


def test_layout_follows_the_schema() -> None:
    encoder, frame = mixed()
    assert encoder.width == 7 and encoder.layout.width == 7
    assert encoder.column_slices == {
        "age": slice(0, 1),
        "sex": slice(1, 3),
        "height": slice(3, 4),
        "work": slice(4, 7),
    }
    assert [block.name for block in encoder.layout.numerical] == ["age", "height"]
    assert [block.width for block in encoder.layout.categorical] == [2, 3]
    assert encoder.layout == type(encoder.layout).from_dict(json.loads(json.dumps(encoder.layout.to_dict())))
    assert encoder.encode_labels(frame).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_fuzzy_rows_are_projected_to_the_nearest_record(encoding: Encoding) -> None:
    encoder, frame = mixed(encoding)
    noise = 0.2 / encoder.scale[encoder.layout.categorical[0].start].item()
    fuzzy = encoder.encode(frame)
    for block in encoder.layout.categorical:
        fuzzy[:, block.slice] += noise * torch.rand(len(fuzzy), block.width)
    assert_same_rows(encoder.schema, encoder.decode(fuzzy), frame)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bounds_are_the_images_of_the_extreme_records(encoding: Encoding) -> None:
    encoder, frame = mixed(encoding)
    lower, upper = encoder.encoded_bounds()
    extremes = frame.assign(age=[9, 41] * 2, height=[1.0, 3.0] * 2)
    encoded = encoder.encode(extremes)[:, encoder.numerical_positions].double()
    for bound, row in ((lower, 0), (upper, 1)):
        torch.testing.assert_close(bound[encoder.numerical_positions], encoded[row], rtol=1e-6, atol=1e-6)
    x = encoder.encode(frame)
    assert (x >= lower - 1e-5).all() and (x <= upper + 1e-5).all()
    relaxed = encoder.relax(torch.randn(5, 3, encoder.width, dtype=torch.float64) * 4)
    assert (relaxed >= lower - 1e-9).all() and (relaxed <= upper + 1e-9).all()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_state_comes_back(encoding: Encoding) -> None:
    encoder, frame = mixed(encoding)
    facts, tensors = encoder.to_state()
    again = TableEncoder.from_state(json.loads(json.dumps(facts)), tensors)
    assert again.schema == encoder.schema and again.encoding == encoding and again.layout == encoder.layout
    assert torch.equal(again.encode(frame), encoder.encode(frame))
    assert again.includes_attacked is None and "includes_attacked" not in facts
    assert again.to_state()[1].keys() == tensors.keys()
    assert all(torch.equal(again.to_state()[1][name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("told", [True, False])
def test_state_says_whether_attacked_rows_were_counted(told: bool) -> None:
    encoder, frame = mixed("standardized")
    facts, tensors = encoder.fit(frame, includes_attacked=told).to_state()
    assert TableEncoder.from_state(json.loads(json.dumps(facts)), tensors).includes_attacked is told
    assert TableEncoder.from_state({**facts, "includes_attacked": "yes"}, tensors).includes_attacked is None


def test_missing_values_come_back_as_what_stands_for_them() -> None:
    schema = TableSchema(
        (Column.integer("age", missing="impute"), Column.categorical("sex", ["F", "M"], missing="category")), LABEL
    )
    frame = pd.DataFrame({"age": [30, None, 50, 50], "sex": ["F", None, "M", "M"], "y": "no"})
    encoder = TableEncoder(schema).fit(frame)
    decoded = encoder.decode(encoder.encode(frame))
    assert decoded["age"].tolist() == [30, 50, 50, 50]
    assert decoded["sex"].tolist() == ["F", MISSING_CATEGORY, "M", "M"]


@pytest.mark.parametrize("kind", ["numbers only", "categories only"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_tables_of_one_kind_of_column(encoding: Encoding, kind: str) -> None:
    column = Column.integer("a") if kind == "numbers only" else Column.categorical("a", ["3", "5", "8"])
    schema = TableSchema((column,), LABEL)
    frame = pd.DataFrame({"a": [3, 5, 8, 5], "y": "no"})
    encoder = TableEncoder(schema, encoding).fit(frame)
    x = encoder.encode(frame)
    assert encoder.decode(x)["a"].astype(int).tolist() == [3, 5, 8, 5]
    codes, numbers = encoder.project(x.expand(2, 4, encoder.width))
    assert codes.shape == (2, 4, int(kind == "categories only")) and numbers.shape == (
        2,
        4,
        int(kind == "numbers only"),
    )
    assert encoder.relax(x).shape == x.shape


def test_statistics_are_buffers() -> None:
    encoder, frame = mixed()
    assert set(encoder.state_dict()) == {"shift", "scale", "lower", "upper", "deviation"}
    assert all(value.dtype == torch.float64 for value in encoder.state_dict().values())
    assert encoder.encode(frame.iloc[:0]).shape == (0, encoder.width)


@settings(max_examples=50)
@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=30, unique=True), st.integers(0, 10**6))
def test_ranks_invert_in_single_precision(known: list[int], seed: int) -> None:
    knots = torch.tensor(sorted(known), dtype=torch.float64)
    assert torch.equal(value_at(rank_of(knots, knots).float().double(), knots), knots)
    draw = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    between = knots[0] + draw * (knots[-1] - knots[0])
    ranks = rank_of(between, knots)
    assert ((ranks >= 0) & (ranks <= 1)).all()
    reference = np.interp(between.numpy(), knots.numpy(), np.linspace(0, 1, len(known)) if len(known) > 1 else [0.0])
    np.testing.assert_allclose(ranks.numpy(), reference, atol=1e-12)
    torch.testing.assert_close(value_at(ranks, knots), between, rtol=0, atol=1e-6 * float(knots[-1] - knots[0]) + 1e-9)


def test_an_encoder_that_is_not_fitted_is_refused() -> None:
    fitted, frame = mixed()
    encoder = TableEncoder(fitted.schema)
    x = fitted.encode(frame)
    for use in (
        lambda: encoder.encode(frame),
        lambda: encoder.decode(x),
        lambda: encoder.project(x),
        lambda: encoder.relax(x),
        lambda: encoder.relaxation(),
        lambda: encoder.to_state(),
    ):
        with pytest.raises(DataError, match=r"this encoder has no statistics yet; call fit\(frame\) first"):
            use()


def test_wrong_use_is_refused() -> None:
    encoder, frame = mixed()
    with pytest.raises(
        DataError, match="encoding must be one of standardized, onehot, minmax, quantile, got 'ordinal'"
    ):
        TableEncoder(encoder.schema, "ordinal")
    with pytest.raises(DataError, match="at least 2 rows to take statistics from, got 1"):
        TableEncoder(encoder.schema).fit(frame.iloc[:1])
    with pytest.raises(DataError, match=r"encoded rows must have width 7, got shape \(4, 6\)"):
        encoder.decode(encoder.encode(frame)[:, :6])
    with pytest.raises(DataError, match=r"columns \['sex'\] are missing"):
        encoder.encode(frame.drop(columns="sex"))
    with pytest.raises(DataError, match=r"columns \['y'\] are missing"):
        encoder.encode_labels(frame.drop(columns="y"))
    with pytest.raises(DataError, match="column 'sex': expected one of"):
        encoder.fit(frame.assign(sex="X"))
    with pytest.raises(DataError, match="column 'height' has 4 missing values"):
        encoder.encode(frame.assign(height=np.nan))


STATE_DAMAGE = {
    "no schema": (lambda facts, tensors: facts.pop("schema"), "needs 'schema'"),
    "no encoding": (lambda facts, tensors: facts.pop("encoding"), "needs 'encoding'"),
    "no shift": (lambda facts, tensors: tensors.pop("shift"), "statistic 'shift' is missing"),
    "short scale": (
        lambda facts, tensors: tensors.update(scale=torch.ones(3)),
        r"'scale' must have shape \(7,\), got \(3,\)",
    ),
    "zero scale": (lambda facts, tensors: tensors.update(scale=torch.zeros(7)), "'scale' must be above 0, got 0.0"),
    "negative deviation": (
        lambda facts, tensors: tensors.update(deviation=-torch.ones(2)),
        "'deviation' must be above 0",
    ),
    "NaN bound": (lambda facts, tensors: tensors.update(lower=torch.full((2,), torch.nan)), "'lower' must be finite"),
    "no knots": (lambda facts, tensors: tensors.pop("knots.age"), "'knots.age' is missing"),
    "knots of no order": (
        lambda facts, tensors: tensors.update({"knots.age": torch.tensor([2.0, 1])}),
        "must be ascending",
    ),
    "no knot at all": (lambda facts, tensors: tensors.update({"knots.height": torch.empty(0)}), "must be ascending"),
}


@pytest.mark.parametrize("case", STATE_DAMAGE)
def test_a_damaged_state_is_refused(case: str) -> None:
    damage, message = STATE_DAMAGE[case]
    facts, tensors = (dict(part) for part in mixed("quantile")[0].to_state())
    damage(facts, tensors)
    with pytest.raises(ObservationError, match=message):
        TableEncoder.from_state(facts, tensors)


def test_a_state_of_no_schema_is_refused() -> None:
    facts, tensors = mixed()[0].to_state()
    with pytest.raises(DataError, match="a schema is a mapping"):
        TableEncoder.from_state(facts | {"schema": {"columns": []}}, tensors)
    with pytest.raises(DataError, match="encoding must be one of"):
        TableEncoder.from_state(facts | {"encoding": "ordinal"}, tensors)


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
def test_whole_numbers_are_exact_within_8_million_of_the_point_the_docstring_names(encoding: Encoding) -> None:
    schema = TableSchema((Column.integer("n", 0, 2 * 10**9),), Column.categorical("ill", ["no", "yes"]))
    start = 0 if encoding == "minmax" else 10**9
    near = start + np.random.default_rng(0).integers(0, 2**23, 2000)
    far = start + np.random.default_rng(1).integers(2**29, 2**29 + 2**20, 2000)
    for numbers, exact in ((near, True), (far, False)):
        encoder = TableEncoder(schema, encoding).fit(pd.DataFrame({"n": near}))
        decoded = encoder.decode(encoder.encode(pd.DataFrame({"n": numbers})))["n"].to_numpy()
        assert np.array_equal(decoded, numbers) is exact
