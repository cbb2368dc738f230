"""One-way marginals: counted from a table, drawn from column by column, refused where they are damaged."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightleak.core.errors import DataError, ObservationError
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.marginals import BINS, Marginals, statistics_marginals
from lightleak.data.schema import Column, TableSchema

SCHEMA = TableSchema(
    (Column.integer("age"), Column.continuous("height"), Column.categorical("sex", ["F", "M", "X"])),
    Column.categorical("y", ["no", "yes"]),
)


def table(n: int = 500, seed: int = 0) -> pd.DataFrame:
    """Ages 18 to 60, heights, and a sex that never is X."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 61, n),
            "height": rng.normal(170, 10, n),
            "sex": rng.choice(["F", "M"], n, p=[0.3, 0.7]),
            "y": "no",
        }
    )


def test_frequencies_are_those_of_the_table() -> None:
    frame = table()
    marginals = Marginals.of(SCHEMA, frame)
    assert marginals.values["sex"] == ("F", "M", "X")
    assert marginals.probabilities["sex"] == pytest.approx([(frame["sex"] == sex).mean() for sex in "FMX"])
    counts = frame["age"].value_counts(normalize=True)
    assert dict(zip(marginals.values["age"], marginals.probabilities["age"], strict=True)) == pytest.approx(
        {float(age): counts.get(age, 0.0) for age in range(18, 61)}
    )
    assert len(marginals.values["height"]) == BINS
    assert marginals.values["height"][0] == frame["height"].min()
    for name in SCHEMA.names:
        assert sum(marginals.probabilities[name]) == pytest.approx(1)


@settings(max_examples=60)
@example(low=-3, span=BINS - 1, seed=0)
@example(low=-3, span=BINS, seed=0)
@given(low=st.integers(-50, 50), span=st.integers(1, 150), seed=st.integers(0, 100))
def test_whole_numbers_of_a_narrow_range_have_a_bin_each(low: int, span: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ages = np.append(rng.integers(low, low + span + 1, 60), [low, low + span])
    frame = pd.DataFrame({"age": ages, "height": 1.0, "sex": "F", "y": "no"})
    marginals = Marginals.of(SCHEMA, frame)
    if span < BINS:
        assert marginals.values["age"] == tuple(float(value) for value in range(low, low + span + 1))
        expected = [np.mean(ages == value) for value in marginals.values["age"]]
    else:
        edges = np.linspace(low, low + span, BINS + 1)
        expected = np.histogram(ages, edges)[0] / len(ages)
        assert marginals.values["age"] == pytest.approx(edges[:-1])
    assert marginals.probabilities["age"] == pytest.approx(expected)


def test_drawn_rows_follow_the_marginals() -> None:
    frame = table(2_000)
    drawn = Marginals.of(SCHEMA, frame).sample(SCHEMA, 20_000, np.random.default_rng(1))
    assert list(drawn.columns) == ["age", "height", "sex"]
    assert drawn["age"].dtype == "int64" and drawn["height"].dtype == "float64"
    SCHEMA.validate(drawn, require_label=False)
    assert drawn["age"].mean() == pytest.approx(frame["age"].mean(), abs=0.5)
    width = np.ptp(frame["height"]) / BINS  # a bin stands for its lower edge, half a bin too low on average
    assert drawn["height"].mean() + width / 2 == pytest.approx(frame["height"].mean(), abs=0.5)
    assert (drawn["sex"] == "M").mean() == pytest.approx((frame["sex"] == "M").mean(), abs=0.02)
    assert abs(np.corrcoef(drawn["age"], drawn["height"])[0, 1]) < 0.03


def test_draws_depend_on_their_generator_alone() -> None:
    marginals = Marginals.of(SCHEMA, table())
    np.random.seed(1)
    first = marginals.sample(SCHEMA, 50, np.random.default_rng(7))
    np.random.seed(2)
    again = marginals.sample(SCHEMA, 50, np.random.default_rng(7))
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(marginals.sample(SCHEMA, 50, np.random.default_rng(8)))


def test_constant_columns_are_drawn_as_they_are() -> None:
    frame = table().assign(age=33, height=1.5, sex="F")
    drawn = Marginals.of(SCHEMA, frame).sample(SCHEMA, 20, np.random.default_rng(0))
    assert set(map(tuple, drawn.to_numpy().tolist())) == {(33, 1.5, "F")}


def test_marginals_come_back_from_json() -> None:
    marginals = Marginals.of(SCHEMA, table())
    again = Marginals.from_dict(json.loads(json.dumps(marginals.to_dict())))
    assert again == marginals
    one, other = (m.sample(SCHEMA, 30, np.random.default_rng(3)) for m in (marginals, again))
    pd.testing.assert_frame_equal(one, other)


def test_tables_that_cannot_be_counted_are_refused() -> None:
    with pytest.raises(DataError, match="marginals are counted from rows, got an empty table"):
        Marginals.of(SCHEMA, table().iloc[:0])
    with pytest.raises(DataError, match="column 'sex': expected one of"):
        Marginals.of(SCHEMA, table().assign(sex="Q"))


DAMAGE = {
    "no pair": ([1, 2, 3], "marginal of column 'age' must be values and as many probabilities"),
    "empty": ([], "marginal of column 'age'"),
    "unequal": ([[1.0, 2.0], [1.0]], "marginal of column 'age'"),
    "negative": ([[1.0, 2.0], [1.5, -0.5]], "marginal of column 'age'"),
    "no weight": ([[1.0, 2.0], [0.0, 0.0]], "marginal of column 'age'"),
    "NaN": ([[1.0, 2.0], [0.5, float("nan")]], "marginal of column 'age'"),
    "words": ([[1.0, 2.0], ["a", "b"]], "marginal of column 'age'"),
    "nothing": (None, "marginal of column 'age'"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_marginals_are_refused(case: str) -> None:
    entry, message = DAMAGE[case]
    with pytest.raises(ObservationError, match=message):
        Marginals.from_dict({"age": entry})


def test_marginals_of_another_table_are_refused() -> None:
    state = Marginals.of(SCHEMA, table()).to_dict()
    for name, entry in (("sex", [["F", "Q"], [0.5, 0.5]]), ("height", [["tall"], [1.0]]), ("age", [[], []])):
        changed = Marginals(
            {**Marginals.from_dict(state).values, name: tuple(entry[0])}, {**state, name: tuple(entry[1])}
        )
        with pytest.raises(ObservationError, match=f"the marginals hold no .* values of column {name!r}"):
            changed.sample(SCHEMA, 3, np.random.default_rng(0))
    del state["age"]
    with pytest.raises(ObservationError, match="the marginals hold no integer values of column 'age'"):
        Marginals.from_dict(state).require(SCHEMA)


@pytest.mark.parametrize("encoding", ["standardized", "onehot"])
def test_statistics_give_a_fine_grid_however_wide_the_declared_bounds(encoding: Encoding) -> None:
    schema = TableSchema((Column.continuous("income", 0, 1e7),), Column.categorical("y", ["no", "yes"]))
    income = np.random.default_rng(0).normal(3000, 600, 2000)
    encoder = TableEncoder(schema, encoding).fit(pd.DataFrame({"income": income, "y": "no"}))
    implied = statistics_marginals(encoder)
    values, shares = np.array(implied.values["income"]), np.array(implied.probabilities["income"])
    assert len(values) == BINS and values.min() >= 0
    near = np.abs(values - income.mean()) <= 0.319 * income.std()
    assert shares[near].sum() == pytest.approx(0.25, abs=0.03)  # of a normal distribution
