"""SDMetrics' own quality report, next to our column shapes and pair trends."""

import sys
from collections.abc import Callable

import pytest

from lightleak.core.errors import UnsupportedError
from lightleak.data.schema import TableSchema
from lightleak.metrics.inversion.column_shapes import column_shapes, shapes_score
from lightleak.metrics.inversion.sdmetrics_scores import sdmetrics_scores


def test_its_column_shapes_are_ours_and_its_quality_is_the_mean(schema: TableSchema, make_rows: Callable) -> None:
    pytest.importorskip("sdmetrics", reason="the extra scores brings it")
    real, synthetic = make_rows(1, 300), make_rows(2, 200, 0.8)
    found = sdmetrics_scores(real, synthetic, schema)
    assert found["sdmetrics_column_shapes"] == pytest.approx(shapes_score(column_shapes(real, synthetic, schema)))
    both = found["sdmetrics_column_shapes"] + found["sdmetrics_column_pair_trends"]
    assert found["sdmetrics_quality"] == pytest.approx(both / 2)


def test_without_sdmetrics_the_extra_is_named(
    schema: TableSchema, make_rows: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sdmetrics", None)
    with pytest.raises(UnsupportedError, match=r"pip install .*\.\[scores\]"):
        sdmetrics_scores(make_rows(1, 9), make_rows(2, 9), schema)
