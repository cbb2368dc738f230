"""Numbers for a risk: what of a private batch was recovered, and how far above guessing.

Match a batch once (`MatchedBatch.compare`), then update any metric with it; all of them reduce across ranks.
"""

from collections.abc import Callable
from functools import partial

from torchmetrics import Metric

from lightleak.core.facts import Facts
from lightleak.core.registry import Registry
from lightleak.metrics.accuracy import (
    CategoricalAccuracy,
    CellAccuracy,
    ExactMatchRate,
    LeakageOverBaseline,
    NumericalAccuracy,
)
from lightleak.metrics.certainty import End, EntropyAccuracyCorrelation, QuartileAccuracy
from lightleak.metrics.labels import LabelCountError
from lightleak.metrics.matched_batch import CellKind, MatchedBatch
from lightleak.metrics.rmse import NumericalRMSE

METRICS: Registry[Callable[..., Metric]] = Registry("metric")
"""Metric factories by the name they have in results.json."""

TABLEAK = "Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, ICML 2023"
OWN = "LightLeak's own"
"""Citation of what no paper defines."""


def _entropy(tables: str, summary: str = "") -> Facts:
    return Facts(
        summary,
        needs=("An attack that says how sure it is of every cell.",),
        deviates=(
            "The share is of the cells of one kind; the published notebook takes a quarter of the number of numerical "
            "cells for categorical ones, too (`share`).",
        )
        if tables.startswith("Table")
        else (),
        citation=f"{TABLEAK}, {tables}",
    )


METRICS.register("cell_accuracy", Facts(citation=f"{TABLEAK}, Eq. 6 and 7"))(CellAccuracy)
METRICS.register("categorical_accuracy", Facts(citation=f"{TABLEAK}, Fig. 4"))(CategoricalAccuracy)
METRICS.register("numerical_accuracy", Facts(citation=f"{TABLEAK}, Fig. 4"))(NumericalAccuracy)
METRICS.register(
    "exact_match_rate", Facts("fraction of rows that are right in every digit, mean over batches", citation=OWN)
)(ExactMatchRate)
METRICS.register(
    "close_match_rate",
    Facts("fraction of rows that are right in every cell, numbers within TabLeak's tolerance (Eq. 6)", citation=OWN),
)(partial(ExactMatchRate, True))
METRICS.register("rmse", Facts(citation=f"{TABLEAK}, App. C.4, Eq. 8"))(NumericalRMSE)
_KINDS: tuple[CellKind, ...] = ("categorical", "numerical")
_ENDS: tuple[End, ...] = ("top", "bottom")
for _kind in _KINDS:
    for _end in _ENDS:
        _sure = "surest" if _end == "top" else "least sure"
        _summary = f"accuracy of the quarter of a batch's {_kind} cells that the attacker is {_sure} of"
        METRICS.register(f"{_end}25_{_kind}", _entropy("Tables 4 and 29-32", _summary))(
            partial(QuartileAccuracy, _kind, _end)
        )
METRICS.register(
    "label_count_error",
    Facts("half the L1 distance of restored and true label counts over n", citation=f"{TABLEAK}, Tables 1 and 17-20"),
)(LabelCountError)
METRICS.register("leakage_over_baseline", Facts(citation=OWN))(LeakageOverBaseline)
for _kind in _KINDS:
    METRICS.register(f"kendall_tau_{_kind}", _entropy("App. D.4, Tables 25-28"))(
        partial(EntropyAccuracyCorrelation, _kind)
    )

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
