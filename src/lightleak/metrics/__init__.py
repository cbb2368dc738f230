"""Numbers for a risk: what of a private batch was recovered, and how far above guessing.

Match a batch once (`MatchedBatch.compare`), then update any metric with it; all of them reduce across ranks.
"""

from collections.abc import Callable
from functools import partial

from torchmetrics import Metric

from lightleak.core.registry import Registry
from lightleak.metrics.accuracy import (
    CategoricalAccuracy,
    CellAccuracy,
    ExactMatchRate,
    LeakageOverBaseline,
    NumericalAccuracy,
)
from lightleak.metrics.certainty import EntropyAccuracyCorrelation, QuartileAccuracy
from lightleak.metrics.labels import LabelCountError
from lightleak.metrics.matched_batch import MatchedBatch
from lightleak.metrics.rmse import NumericalRMSE

METRICS: Registry[Callable[..., Metric]] = Registry("metric")
"""Metric factories by the name they have in results.json."""

METRICS.register("cell_accuracy")(CellAccuracy)
METRICS.register("categorical_accuracy")(CategoricalAccuracy)
METRICS.register("numerical_accuracy")(NumericalAccuracy)
METRICS.register("exact_match_rate")(ExactMatchRate)
METRICS.register("rmse")(NumericalRMSE)
METRICS.register("top25_categorical")(partial(QuartileAccuracy, "categorical", "top"))
METRICS.register("bottom25_categorical")(partial(QuartileAccuracy, "categorical", "bottom"))
METRICS.register("top25_numerical")(partial(QuartileAccuracy, "numerical", "top"))
METRICS.register("bottom25_numerical")(partial(QuartileAccuracy, "numerical", "bottom"))
METRICS.register("label_count_error")(LabelCountError)
METRICS.register("leakage_over_baseline")(LeakageOverBaseline)
METRICS.register("kendall_tau_categorical")(partial(EntropyAccuracyCorrelation, "categorical"))
METRICS.register("kendall_tau_numerical")(partial(EntropyAccuracyCorrelation, "numerical"))

__all__ = [
    "METRICS",
    "CategoricalAccuracy",
    "CellAccuracy",
    "EntropyAccuracyCorrelation",
    "ExactMatchRate",
    "LabelCountError",
    "LeakageOverBaseline",
    "MatchedBatch",
    "NumericalAccuracy",
    "NumericalRMSE",
    "QuartileAccuracy",
]
