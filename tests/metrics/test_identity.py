"""Whose rows captured updates hold: training rows of a table, recorded numbers, or equal rows."""

from collections.abc import Sequence

import pandas as pd
import pytest
import torch

import lightleak
from lightleak.core.errors import DataError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.data.prepared import PreparedTable
from lightleak.metrics.identity import Behind, identify


@pytest.fixture(scope="module")
def prepared() -> PreparedTable:
    """Training rows in the order of the source, of which the first two are equal."""
    frame = pd.DataFrame({"age": range(20, 60), "sex": ["f", "m"] * 20, "ill": ["no", "no", "yes", "yes"] * 10})
    found = lightleak.prepare(frame, label="ill")
    table = found.table
    train = pd.concat([table.train.iloc[[0]], table.train], ignore_index=True)
    index = pd.Index([f"patient {i}" for i in range(len(train))])
    return PreparedTable(type(table)(table.card, table.schema, train, table.test, train_index=index), found.encoder)


def behind(prepared: PreparedTable, rows: Sequence[int], epoch: int = 0, ids: Sequence[int] | None = None) -> Behind:
    inputs, labels = prepared.encode(prepared.table.train.iloc[list(rows)])
    truth = GroundTruth(inputs, labels, ids=None if ids is None else torch.tensor(ids))
    return Behind(truth, prepared.encoder, epoch)


def test_rows_of_a_table_are_found_and_equal_ones_are_taken_in_turn(prepared: PreparedTable) -> None:
    captured = {
        "a": behind(prepared, [5, 0, 3]),
        "b": behind(prepared, [1, 7]),  # the twin of row 0
        "c": behind(prepared, [1, 5], epoch=1),
        "d": behind(prepared, [0, 0, 0], epoch=2),  # more often than it is in the table
    }
    population, places = identify(captured, prepared)
    assert {name: of.tolist() for name, of in places.items()} == {
        "a": [5, 0, 3],
        "b": [1, 7],
        "c": [0, 5],
        "d": [0, 1, 0],
    }
    assert population.marginals is not None and population.index is not None
    assert population.index[places["b"]].tolist() == ["patient 1", "patient 7"]


def test_a_row_that_is_not_in_the_table_is_refused(prepared: PreparedTable) -> None:
    one = behind(prepared, [2, 3])
    inputs = one.truth.inputs.clone()
    inputs[1, prepared.encoder.numerical_positions] += 5
    with pytest.raises(DataError, match="row 1 of update a"):
        identify({"a": Behind(GroundTruth(inputs, one.truth.labels), prepared.encoder)}, prepared)
    labels = one.truth.labels.clone()
    labels[0] = 1 - labels[0]
    with pytest.raises(DataError, match="row 0 of update a"):
        identify({"a": Behind(GroundTruth(one.truth.inputs, labels), prepared.encoder)}, prepared)


def test_tables_of_other_columns_are_refused(prepared: PreparedTable) -> None:
    frame = pd.DataFrame({"age": range(20, 60), "ill": ["no", "no", "yes", "yes"] * 10})
    other = lightleak.prepare(frame, label="ill")
    with pytest.raises(UsageError, match="columns"):
        identify({"a": behind(prepared, [1])}, other)
    with pytest.raises(UsageError, match="columns"):
        identify({"a": behind(prepared, [1]), "b": behind(other, [1])})


def test_recorded_numbers_are_kept_while_each_stands_for_one_row(prepared: PreparedTable) -> None:
    captured = {"a": behind(prepared, [5, 3], ids=[50, 30]), "b": behind(prepared, [3, 8], ids=[30, 80])}
    population, places = identify(captured)
    assert population.names is not None and population.marginals is None
    assert population.names.tolist() == [30, 50, 80]
    assert {name: population.names[of].tolist() for name, of in places.items()} == {"a": [50, 30], "b": [30, 80]}
    assert population.index is not None and population.index.tolist() == ["a:1", "a:0", "b:1"]
    # Two clients that count their own rows: number 0 is two people.
    clients = {"a": behind(prepared, [5, 3], ids=[0, 1]), "b": behind(prepared, [8, 3], ids=[0, 1])}
    _, places = identify(clients)
    assert places["a"][0] != places["b"][0] and places["a"][1] == places["b"][1]


def test_without_numbers_equal_rows_of_different_updates_are_one_person(prepared: PreparedTable) -> None:
    captured = {"a": behind(prepared, [5, 0, 1]), "b": behind(prepared, [1, 9])}
    population, places = identify(captured)
    assert len(set(places["a"].tolist())) == 3 and len(population.sent) == 4
    assert places["b"][0] == places["a"][1]
    again, other = identify({"x": behind(prepared, [9])})
    assert population.names is not None and again.names is not None
    assert again.names[other["x"]] == population.names[places["b"][1]]  # the same in another run
