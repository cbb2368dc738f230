"""Mode-specific normalization of whole tables: round trips, and CTGAN's own transformer beside it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from ctgan.data_transformer import DataTransformer
from torch import Tensor

from lightleak.attacks.model_inversion.mode_normalizer import Modes
from lightleak.attacks.model_inversion.table_transform import ModeTransform
from lightleak.core.errors import DataError
from lightleak.data.datasets import load_dataset
from lightleak.data.schema import Column, TableSchema

LABEL = Column.categorical("ill", ["no", "yes"])
SCHEMA = TableSchema(
    (
        Column.categorical("color", ["red", "green", "blue", "never seen"]),
        Column.integer("age"),
        Column.continuous("income"),
        Column.categorical("sex", ["M", "F"]),
    ),
    label=LABEL,
)


def rows(n: int = 500, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "sex": rng.choice(["F", "M"], n),
            "income": np.where(rng.random(n) < 0.3, rng.normal(0, 1, n), rng.normal(40, 5, n)),
            "age": rng.integers(18, 90, n),
            "color": rng.choice(["blue", "red", "green"], n),
        }
    )


@pytest.fixture(scope="module")
def transform() -> ModeTransform:
    return ModeTransform.fit(rows(), SCHEMA)


def test_rows_come_back(transform: ModeTransform) -> None:
    frame = rows()
    back = transform.decode(transform.encode(frame, seed=1))
    assert list(back.columns) == list(SCHEMA.names)
    for name in ("color", "sex", "age"):
        assert back[name].tolist() == frame[name].tolist()
    np.testing.assert_allclose(back["income"], frame["income"], atol=1e-5)  # float32 of numbers up to 60
    assert back["age"].dtype == np.int64


def test_categories_lie_in_the_schemas_order_whether_or_not_they_are_seen(transform: ModeTransform) -> None:
    h = transform.encode(rows().assign(color="green", sex="F"))
    assert h[:, transform.segments.columns["color"]].unique(dim=0).tolist() == [[0, 1, 0, 0]]
    assert h[:, transform.segments.columns["sex"]].unique(dim=0).tolist() == [[0, 1]]


def test_encoded_rows_are_one_hot_per_block_and_within_the_clip(transform: ModeTransform) -> None:
    h = transform.encode(rows())
    assert h.dtype == torch.float32 and h.shape == (500, transform.width)
    for block in transform.segments.blocks:
        cells = h[:, block.start : block.stop]
        if block.kind == "softmax":
            assert torch.equal(cells.sum(1), torch.ones(500)) and set(cells.unique().tolist()) <= {0.0, 1.0}
        else:
            assert cells.abs().max() <= 0.99 and cells.std() > 0.05


def test_a_seed_gives_the_same_rows_whatever_other_columns_there_are(transform: ModeTransform) -> None:
    frame = rows()
    assert torch.equal(transform.encode(frame, seed=3), transform.encode(frame, seed=3))
    assert not torch.equal(transform.encode(frame, seed=3), transform.encode(frame, seed=4))
    alone = TableSchema((SCHEMA.column("income"),), label=LABEL)
    h = ModeTransform.fit(frame, alone).encode(frame, seed=3)
    assert torch.equal(h, transform.encode(frame, seed=3)[:, transform.segments.columns["income"]])


def test_decoded_numbers_are_whole_and_stay_within_the_rows_seen(transform: ModeTransform) -> None:
    h = transform.segments.activate(5 * torch.randn(2000, transform.width))
    frame = transform.decode(h)
    assert frame["age"].between(18, 89).all() and frame["age"].nunique() > 50
    assert frame["income"].between(rows()["income"].min(), rows()["income"].max()).all()


def test_project_takes_any_leading_dimensions_and_is_what_decode_shows(transform: ModeTransform) -> None:
    h = transform.segments.activate(torch.randn(4, 3, transform.width))
    codes, numbers = transform.project(h)
    assert codes.shape == (4, 3, 2) and numbers.shape == (4, 3, 2) and numbers.dtype == torch.float64
    frame = transform.decode(h.flatten(0, 1))
    assert numbers.flatten(0, 1)[:, 0].tolist() == frame["age"].tolist()
    assert [SCHEMA.column("sex").categories[code] for code in codes[..., 1].flatten()] == frame["sex"].tolist()


@pytest.mark.parametrize("names", [("age", "income"), ("color", "sex")])
def test_tables_of_one_kind_of_column(names: tuple[str, ...]) -> None:
    schema = TableSchema(tuple(SCHEMA.column(name) for name in names), label=LABEL)
    frame = rows()
    transform = ModeTransform.fit(frame, schema)
    back = transform.decode(transform.encode(frame))
    assert back[names[0]].tolist() == frame[names[0]].tolist()
    codes, numbers = transform.project(torch.zeros(0, transform.width))
    assert (codes.shape[-1], numbers.shape[-1]) == ((0, 2) if "age" in names else (2, 0))


def test_a_constant_column_comes_back() -> None:
    transform = ModeTransform.fit(rows().assign(age=40), SCHEMA)
    assert transform.decode(torch.randn(5, transform.width))["age"].tolist() == [40] * 5


def test_errors_name_what_does_not_fit(transform: ModeTransform) -> None:
    with pytest.raises(DataError, match=r"columns \['sex'\] are missing"):
        transform.encode(rows().drop(columns="sex"))
    with pytest.raises(DataError, match=f"width {transform.width}, got shape \\(2, 3\\)"):
        transform.project(torch.zeros(2, 3))
    with pytest.raises(DataError, match="column 'age': modes are fitted on at least 2 values, got 1"):
        ModeTransform.fit(rows(1), SCHEMA)


@pytest.fixture(scope="module")
def theirs() -> DataTransformer:
    """CTGAN's own transformer, on the columns in the schema's order."""
    frame = rows()[list(SCHEMA.names)].astype({"age": "float64"})
    found = DataTransformer()
    found.fit(frame, ["color", "sex"])
    return found


@pytest.fixture(scope="module")
def adopted(theirs: DataTransformer) -> ModeTransform:
    """Ours with the modes that CTGAN's has fitted."""
    modes = {}
    for info in theirs._column_transform_info_list:
        if info.column_type == "continuous":
            kept, mixture = info.transform.valid_component_indicator, info.transform._bgm_transformer
            modes[info.column_name] = Modes(
                mixture.means_[kept, 0],
                np.sqrt(mixture.covariances_[kept, 0, 0]),
                np.log(mixture.weights_[kept] / np.sqrt(mixture.covariances_[kept, 0, 0])),
            )
    numbers = rows()[["age", "income"]].to_numpy()
    return ModeTransform(SCHEMA, modes, torch.tensor(numbers.min(0)), torch.tensor(numbers.max(0)))


def to_theirs(h: Tensor, adopted: ModeTransform, theirs: DataTransformer) -> np.ndarray:
    """Points of our generator space in CTGAN's: its categories lie in order of appearance."""
    parts = []
    for info in theirs._column_transform_info_list:
        cells = h[:, adopted.segments.columns[info.column_name]]
        if info.column_type == "discrete":
            categories = SCHEMA.column(info.column_name).categories
            cells = cells[:, [categories.index(name) for name in info.transform.dummies]]
        parts.append(cells)
    return torch.cat(parts, -1).numpy()


def test_with_the_same_modes_decoding_is_ctgans(adopted: ModeTransform, theirs: DataTransformer) -> None:
    raw = 3 * torch.randn(1000, adopted.width)
    raw[:, adopted.segments.columns["color"].stop - 1] = -1e4  # the category that CTGAN has never seen
    h = adopted.segments.activate(raw)
    expected, ours = theirs.inverse_transform(to_theirs(h, adopted, theirs)), adopted.decode(h)
    for name in ("color", "sex"):
        assert expected[name].tolist() == ours[name].tolist()
    for name, digits in (("age", 0), ("income", 9)):
        seen = rows()[name]
        bounded = expected[name].astype("float64").clip(seen.min(), seen.max()).round(digits)
        np.testing.assert_allclose(ours[name], bounded, atol=1e-5)


def test_with_the_same_modes_encoding_is_ctgans_but_for_the_draw(
    adopted: ModeTransform, theirs: DataTransformer
) -> None:
    frame = rows()[list(SCHEMA.names)].astype({"age": "float64"})
    np.random.seed(0)
    expected = torch.tensor(theirs._synchronous_transform(frame, theirs._column_transform_info_list)[1])
    ours = adopted.encode(frame)[:, adopted.segments.columns["age"]].double()
    same = expected[:, 1:].argmax(1) == ours[:, 1:].argmax(1)
    assert same.double().mean() > 0.3
    torch.testing.assert_close(ours[same, 0], expected[same, 0], rtol=0, atol=1e-6)
    shares, expected_shares = ours[:, 1:].mean(0), expected[:, 1:].mean(0)
    # Both draw from the same posteriors; four standard errors of the difference of shares of 500 rows are at most 0.13.
    torch.testing.assert_close(shares, expected_shares, rtol=0, atol=0.13)


def test_adult_comes_back(data_dir: Path) -> None:
    table = load_dataset("adult")
    transform = ModeTransform.fit(table.train, table.schema)
    back = transform.decode(transform.encode(table.train))
    kept = {name: (back[name].to_numpy() == table.train[name].to_numpy()).mean() for name in table.schema.names}
    # 1% of capital gains (99,999 and other rare ones) lie beyond four deviations of any mode heavy enough to be kept.
    assert kept.pop("capital-gain") > 0.98
    assert min(kept.values()) > 0.999
