"""One call for everything: each number is that of its own metric, and all of it is JSON."""

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.core.errors import DataError, UsageError
from lightleak.data.schema import TableSchema
from lightleak.metrics.inversion.column_shapes import class_shapes, column_shapes
from lightleak.metrics.inversion.pair_trends import pair_trends
from lightleak.metrics.inversion.score import PrivateRows, SampleScores, sample_statistics, score_samples
from lightleak.metrics.inversion.table import class_labels


@pytest.fixture(scope="module")
def frames(make_rows: Callable) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Training rows, held-out rows, and samples without class 2."""
    samples = make_rows(2, 90, 0.4)
    return make_rows(0, 400), make_rows(1, 100), samples[samples["code"] != "2"].reset_index(drop=True)


@pytest.fixture(scope="module")
def scores(frames: tuple, schema: TableSchema) -> SampleScores:
    train, held_out, samples = frames
    labels = class_labels(samples, schema)
    private = PrivateRows.of(schema, train, held_out)
    return score_samples(samples, labels, (labels + (torch.arange(len(labels)) % 3 == 0)) % 4, private)


def test_a_row_holds_every_score(scores: SampleScores, frames: tuple, schema: TableSchema):
    train, _, samples = frames
    row = json.loads(json.dumps(scores.to_row(), allow_nan=False))
    by_class = [
        (np.flatnonzero(samples["code"] == c) % 3 != 0).mean() for c in ("0", "1", "3")
    ]  # every third prediction is off by one
    assert row["attack_accuracy"] == pytest.approx(np.mean(by_class))
    assert row["attack_accuracy_low"] < np.mean(by_class) < row["attack_accuracy_high"]
    assert row["samples"] == len(samples)
    labels = [class_labels(rows, schema) for rows in (train, samples)]
    expected = class_shapes(train, labels[0], samples, labels[1], schema, 4)
    assert row["class_shapes_score"] == pytest.approx(np.nanmean(expected))
    assert row["gower_distance"] == pytest.approx(scores.nearest.mean)
    assert row["exact_match_rate"] == scores.exact.rate


def test_rows_by_class_leave_out_classes_without_samples(scores: SampleScores):
    rows = json.loads(json.dumps(scores.class_rows(), allow_nan=False))
    assert [row["class"] for row in rows] == ["0", "1", "3"]
    assert {name for row in rows for name in row} == {"class", *scores.to_row()}
    assert sum(row["samples"] for row in rows) == scores.to_row()["samples"]
    assert np.mean([row["attack_accuracy"] for row in rows]) == pytest.approx(scores.to_row()["attack_accuracy"])
    assert rows[2]["gower_distance"] == pytest.approx(scores.nearest.per_class[3].item())


def test_an_entry_holds_heat_map_pairs_and_memorization(scores: SampleScores, frames: tuple, schema: TableSchema):
    train, _, samples = frames
    entry = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    heat_map = entry["class_shapes"]
    assert heat_map["groups"] == ["continuous", "discrete", "categorical", "boolean"]
    assert heat_map["columns"] == {"continuous": 2, "discrete": 2, "categorical": 1, "boolean": 2}
    assert [one["class"] for one in heat_map["classes"]] == ["0", "1", "3"]
    assert heat_map["classes"][2]["scores"]["categorical"] == pytest.approx(scores.class_shapes[3, 1])
    assert [pair["class"] for pair in entry["nearest"]] == ["0", "1", "3"]
    for pair in entry["nearest"]:
        for part, rows in (("reconstructed", samples), ("private", train)):
            of_class = rows[rows["code"] == pair["class"]]
            assert list(pair[part]) == list(schema.names)
            assert isinstance(pair[part]["stay"], int) and isinstance(pair[part]["bmi"], float)
            assert (of_class[list(schema.names)] == pd.Series(pair[part])).all(axis=1).any(), part
    assert entry["memorisation"]["n"] == len(samples)
    assert entry["memorisation"]["share_nearer_to_train"] == pytest.approx(scores.memorization.overall.share)
    assert [one["class"] for one in entry["memorisation"]["classes"]] == ["0", "1", "3"]


def test_copied_rows_are_found_by_every_score(frames: tuple, schema: TableSchema):
    train, held_out, _ = frames
    private = PrivateRows.of(schema, train, held_out)
    labels = class_labels(train, schema)
    found = score_samples(train, labels, labels, private)
    row = found.to_row()
    assert row["attack_accuracy"] == row["exact_match_rate"] == row["exact_match_rate_with_label"] == 1
    assert row["class_shapes_score"] == pytest.approx(1)
    assert row["gower_distance"] == 0
    assert found.memorization.overall.share == pytest.approx(1)
    # Held-out rows as samples are the ceiling: they are copies of no training row.
    ceiling = score_samples(held_out, class_labels(held_out, schema), class_labels(held_out, schema), private)
    assert ceiling.to_row()["exact_match_rate"] == 0 < ceiling.to_row()["gower_distance"]
    assert ceiling.memorization.overall.share == pytest.approx(0)


def test_statistics_of_a_sample_of_all_classes(frames: tuple, schema: TableSchema):
    train, held_out, samples = frames
    private = PrivateRows.of(schema, train, held_out)
    found = sample_statistics(samples, private)
    columns = column_shapes(train, samples, schema)
    assert found.to_row() == pytest.approx(
        {
            "shapes_score": np.mean(list(columns.values())),
            "pair_trends_score": pair_trends(train, samples, schema).score,
        }
    )
    entry = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert entry["column_shapes"] == pytest.approx(columns)
    assert entry["lowest_columns"][0]["score"] == min(columns.values())
    assert set(entry["lowest_columns"][0]) == {"column", "kind", "metric", "score"}


def test_wrong_use_is_refused(frames: tuple, schema: TableSchema):
    train, held_out, samples = frames
    private = PrivateRows.of(schema, train, held_out)
    labels = class_labels(samples, schema)
    with pytest.raises(UsageError, match="samples: at least one"):
        score_samples(samples[:0], labels[:0], labels[:0], private)
    with pytest.raises(UsageError, match="one per row"):
        score_samples(samples, labels[:-1], labels, private)
    with pytest.raises(DataError, match="code"):
        PrivateRows.of(schema, train.drop(columns="code"), held_out)
    with pytest.raises(UsageError, match="held-out rows"):
        PrivateRows.of(schema, train, held_out[:0])
