"""Tables of bits: encoded at one byte per cell, with the numbers and statistics of the wide road."""

import tracemalloc
from collections.abc import Callable
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import DataError, UnsupportedError
from lightleak.data import binary_table
from lightleak.data import encoder as encoder_module
from lightleak.data.binary_table import holds_bits, is_binary
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.property import Property
from lightleak.data.schema import Column, TableSchema

LABEL = Column.categorical("y", ["no", "yes"])


def bit_schema(width: int) -> TableSchema:
    return TableSchema(tuple(Column.integer(f"feature_{i}", 0, 1) for i in range(width)), LABEL)


def bit_frame(n_rows: int, width: int, seed: int = 0, dtype: str = "uint8") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    bits = (rng.random((n_rows, width)) < rng.random(width)).astype(dtype)
    frame = pd.DataFrame(bits, columns=list(bit_schema(width).names))
    frame["y"] = np.asarray(["no", "yes"], dtype=object)[rng.integers(0, 2, n_rows)]
    return frame


@settings(max_examples=40)
@given(
    st.integers(0, 40), st.integers(1, 9), st.sampled_from(["uint8", "bool", "int64", "float64"]), st.integers(0, 99)
)
def test_bits_are_what_the_wide_road_encodes(n_rows: int, width: int, dtype: str, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binary_table, "BLOCK_COLUMNS", 4)  # several blocks, the last one short
        _compare_with_the_wide_road(n_rows, width, dtype, seed)


def _compare_with_the_wide_road(n_rows: int, width: int, dtype: str, seed: int) -> None:
    schema, frame = bit_schema(width), bit_frame(n_rows, width, seed, dtype)
    frame = frame[np.random.default_rng(seed).permutation(frame.columns).tolist()]
    bits = TableEncoder(schema).encode_bits(frame)
    assert bits.dtype == torch.uint8 and bits.is_contiguous() and bits.shape == (n_rows, width)
    for name, column in zip(schema.names, bits.T.tolist(), strict=True):
        assert column == frame[name].astype(int).tolist()
    if n_rows > 1:
        wide = TableEncoder(schema, "minmax").fit(frame).encode(frame)
        assert torch.equal(bits.float(), wide)


def test_bits_share_no_memory_with_the_frame() -> None:
    frame = bit_frame(5, 3)
    before = frame.copy()
    TableEncoder(bit_schema(3)).encode_bits(frame).fill_(7)
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("encoding", get_args(Encoding))
@pytest.mark.parametrize("dtype", ["uint8", "bool"])
def test_statistics_are_those_of_the_wide_road(encoding: Encoding, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, frame = bit_schema(6), bit_frame(57, 6, dtype=dtype)
    frame["feature_2"], frame["feature_3"] = np.zeros(57, dtype), np.ones(57, dtype)
    narrow = TableEncoder(schema, encoding).fit(frame)
    monkeypatch.setattr(encoder_module, "holds_bits", lambda schema, frame: False)
    wide = TableEncoder(schema, encoding).fit(frame)
    (facts, tensors), (expected_facts, expected) = narrow.to_state(), wide.to_state()
    assert facts == expected_facts and tensors.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(tensors[name], value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(narrow.encode(frame), wide.encode(frame))


def test_a_frame_of_bytes_beyond_one_takes_the_wide_road() -> None:
    schema, frame = bit_schema(2), bit_frame(9, 2)
    frame.loc[0, "feature_1"] = 3
    assert not holds_bits(schema, frame)
    assert float(TableEncoder(schema).fit(frame).shift[1]) == pytest.approx(frame["feature_1"].mean())


@pytest.mark.parametrize(
    "column",
    [
        Column.integer("odd", 0, 2),
        Column.integer("odd"),
        Column.integer("odd", 0),
        Column.integer("odd", -1, 1),
        Column.continuous("odd", 0, 1),
        Column.categorical("odd", ["0", "1"]),
    ],
)
def test_a_schema_with_another_column_is_refused(column: Column) -> None:
    schema = TableSchema((Column.integer("feature_0", 0, 1), column), LABEL)
    assert not is_binary(schema)
    with pytest.raises(
        UnsupportedError, match=r"column 'odd': bits need whole-number columns with bounds 0 and 1; got"
    ):
        TableEncoder(schema).encode_bits(pd.DataFrame({"feature_0": [0, 1], "odd": [0, 1]}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.assign(feature_1=np.uint8(2)), "column 'feature_1': bits are 0 or 1, got 2"),
        (lambda f: f.assign(feature_1=-1), "column 'feature_1': bits are 0 or 1, got -1"),
        (lambda f: f.assign(feature_1=256), "column 'feature_1': bits are 0 or 1, got 256"),
        (lambda f: f.assign(feature_1=0.5), "column 'feature_1': expected whole numbers"),
        (lambda f: f.assign(feature_1=np.nan), "column 'feature_1' has 4 missing values"),
        (lambda f: f.drop(columns="feature_1"), r"columns \['feature_1'\] are missing"),
        (lambda f: pd.concat([f, f[["feature_1"]]], axis=1), r"repeated: \['feature_1'\]"),
    ],
)
def test_other_cells_are_refused(change: Callable[[pd.DataFrame], pd.DataFrame], message: str) -> None:
    with pytest.raises(DataError, match=message):
        TableEncoder(bit_schema(3)).encode_bits(change(bit_frame(4, 3)))


def test_no_wide_copy_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_table, "BLOCK_COLUMNS", 10)
    n_rows, width = 5_000, 200
    schema, frame = bit_schema(width), bit_frame(n_rows, width)
    table_bytes = n_rows * width
    encoder = TableEncoder(schema, "minmax")
    reordered = frame[[*schema.names[1:], schema.names[0]]].astype("int64")
    # A block of int64 cells is 0.4 tables; torch's own memory, such as the bits that are returned, is not traced.
    for step, tables in (
        (lambda: encoder.encode_bits(frame), 0.3),
        (lambda: encoder.encode_bits(reordered), 2),
        (lambda: encoder.fit(frame), 0.5),
        (lambda: encoder.encode_labels(frame), 0.5),
    ):
        tracemalloc.start()
        step()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < tables * table_bytes, tables  # as int64 or float64 the table would be eight


def test_labels_need_no_other_column() -> None:
    schema, frame = bit_schema(3), bit_frame(4, 3)
    expected = [["no", "yes"].index(label) for label in frame["y"]]
    assert TableEncoder(schema).encode_labels(frame[["y"]]).tolist() == expected
    with pytest.raises(DataError, match=r"columns \['y'\] are missing"):
        TableEncoder(schema).encode_labels(frame.drop(columns="y"))
    with pytest.raises(DataError, match=r"column 'y': expected one of \['no', 'yes'\], got \['perhaps'\]"):
        TableEncoder(schema).encode_labels(frame.assign(y="perhaps"))


def test_a_bit_is_a_property() -> None:
    wanted, frame = Property("feature_1", "1"), bit_frame(30, 3)
    wanted.check(bit_schema(3))
    assert wanted.mask(frame).tolist() == [bit == 1 for bit in frame["feature_1"].tolist()]
