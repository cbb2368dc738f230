"""Encoded columns and their importance."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.inspection import permutation_importance

from lightleak.core.seeds import derive_seed
from lightleak.data import feature_selection
from lightleak.data.feature_selection import encoded_columns, encoded_frame, encoded_matrix, importances
from lightleak.data.schema import Column, TableSchema
from lightleak.data.task_config import TaskConfig

LABEL = Column.categorical("ill", ["no", "yes"])


def names(columns: list[Column], frame: pd.DataFrame, min_frequency: float) -> list[str]:
    return [
        found.column.name
        for found in encoded_columns(TableSchema(tuple(columns), LABEL), frame, np.arange(len(frame)), min_frequency)
    ]


def test_which_columns_are_offered() -> None:
    frame = pd.DataFrame(
        {
            "sex": ["F"] * 60 + ["M"] * 40,
            "smoker": ["no"] * 30 + ["yes"] * 70,
            "rare": ["x"] * 97 + ["y"] * 2 + ["z"],
            "ward": ["a"] * 50 + ["b"] * 49 + ["c"],
            "town": ["k"] * 50 + ["l"] * 30 + ["m"] * 20,
            "age": range(100),
            "constant": 7,
        }
    )
    columns = [
        Column.categorical("sex", ["F", "M"]),
        Column.categorical("smoker", ["no", "yes"]),
        Column.categorical("rare", ["x", "y", "z"]),
        Column.categorical("ward", ["c", "b", "a"]),
        Column.categorical("town", ["m", "l", "k", "never"]),
        Column.integer("age"),
        Column.integer("constant"),
    ]
    town = ["town=m", "town=l", "town=k"]
    assert names(columns, frame, 0.02) == ["age", "sex=M", "smoker", "rare=y", "ward=a", *town]
    assert names(columns, frame, 0.0) == [
        "age", "sex=M", "smoker", "rare=x", "rare=y", "rare=z", "ward=c", "ward=b", "ward=a", *town
    ]  # fmt: skip
    assert names(columns, frame, 0.45) == ["age", "ward=a", "town=k"]


def test_no_information_is_lost_where_every_category_is_frequent() -> None:
    rng = np.random.default_rng(0)
    columns = (
        Column.categorical("sex", ["F", "M"]),
        Column.continuous("dose"),
        Column.categorical("town", ["k", "l", "m"]),
        Column.integer("age"),
    )
    schema = TableSchema(columns, LABEL)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["F", "M"], 200),
            "dose": rng.normal(size=200),
            "town": rng.choice(["k", "l", "m"], 200),
            "age": rng.integers(0, 90, 200),
        }
    )
    found = encoded_columns(schema, frame, np.arange(200), 0.01)
    table = encoded_frame(found, np.arange(200))
    made = TableSchema(tuple(column.column for column in found), LABEL)
    pd.testing.assert_frame_equal(made.validate(table, require_label=False), table)  # canonical types already
    assert (table["sex=M"].map({"yes": "M", "no": "F"}) == frame["sex"]).all()
    towns = table[["town=k", "town=l", "town=m"]] == "yes"
    assert (towns.sum(axis=1) == 1).all() and (towns.idxmax(axis=1).str[-1] == frame["town"]).all()
    assert table["dose"].equals(frame["dose"]) and table["age"].equals(frame["age"])
    as_numbers = [(table[name] == "yes") if name in made.names[2:] else table[name] for name in made.names]
    assert np.array_equal(encoded_matrix(found, np.arange(200)), np.column_stack(as_numbers).astype(np.float32))


@pytest.fixture
def parts() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Training and validation rows of three classes; of nine columns the first three tell the class."""

    def draw(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        classes = rng.integers(0, 3, n)
        rows = rng.normal(size=(n, 9))
        rows[:, 0] += 2 * classes
        rows[:, 1] -= classes
        rows[:, 2] = (classes == 1) ^ (rng.random(n) < 0.2)
        return rows.astype(np.float32), classes

    return draw(0, 400), draw(1, 300)


@pytest.mark.parametrize("kind", ["impurity", "permutation"])
def test_importance_is_scikit_learn_s(parts, kind, monkeypatch) -> None:
    monkeypatch.setattr(feature_selection, "PERMUTED_ROWS", 300)
    config = TaskConfig(importance=kind, trees=12, leaf_rows=3)
    found, facts = importances(*parts, config, seed=4)
    in_order = [
        tuple(np.array(values) for values in zip(*sorted(zip(rows, classes, strict=True), key=as_bytes), strict=True))
        for rows, classes in parts
    ]
    state = derive_seed(4, "feature-forest") % 2**32
    forest = RandomForestClassifier(12, min_samples_leaf=3, random_state=state).fit(*in_order[0])
    assert facts["validation_accuracy"] == forest.score(*in_order[1])
    if kind == "impurity":
        assert np.array_equal(found, forest.feature_importances_)
    else:
        # Another permutation of 300 rows: the accuracy lost agrees within four standard errors of a difference.
        lost = permutation_importance(forest, *in_order[1], n_repeats=10, random_state=0).importances_mean
        assert np.abs(found - lost).max() < 4 * np.sqrt(0.25 / 300)
    assert set(np.argsort(-found)[:3]) == {0, 1, 2}


def as_bytes(row: tuple[np.ndarray, np.ndarray]) -> bytes:
    return np.append(row[0], np.float32(row[1])).astype(np.float32).tobytes()


@pytest.mark.parametrize("kind", ["impurity", "permutation"])
def test_importance_depends_on_the_seed_and_not_on_the_order_of_rows(parts, kind) -> None:
    config = TaskConfig(importance=kind, trees=5, leaf_rows=3)
    rng = np.random.default_rng(0)
    shuffled = []
    for rows, classes in parts:
        order = rng.permutation(len(classes))
        shuffled.append((rows[order], classes[order]))
    found, _ = importances(*parts, config, seed=0)
    assert np.array_equal(found, importances(*shuffled, config, seed=0)[0])
    assert not np.array_equal(found, importances(*parts, config, seed=1)[0])
