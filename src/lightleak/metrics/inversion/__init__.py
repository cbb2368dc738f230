"""How good and how private reconstructed class rows are: accuracy, statistics, nearest rows."""

from collections.abc import Callable, Mapping
from typing import Any

from lightleak.core.facts import Facts
from lightleak.metrics.inversion.attack_accuracy import AttackAccuracy
from lightleak.metrics.inversion.column_shapes import class_shapes, column_shapes
from lightleak.metrics.inversion.exact_matches import exact_match_rate
from lightleak.metrics.inversion.gower import nearest_of_class
from lightleak.metrics.inversion.memorization import memorization
from lightleak.metrics.inversion.pair_trends import pair_trends
from lightleak.metrics.inversion.sdmetrics_scores import sdmetrics_scores

INVERSION_METRICS: Mapping[str, Callable[..., Any]] = {
    "attack_accuracy": AttackAccuracy,
    "disjoint_accuracy": AttackAccuracy,
    "shapes_score": column_shapes,
    "class_shapes_score": class_shapes,
    "pair_trends_score": pair_trends,
    "sdmetrics_quality": sdmetrics_scores,
    "gower_distance": nearest_of_class,
    "distinct_nearest_rows": memorization,
    "exact_match_rate": exact_match_rate,
    "nearer_to_train": memorization,
}
"""What measures each column of an audit of a released model."""

THESIS = "Wernqvist and Djeza: Reconstructing Private Data from Trained Deep Neural Networks, Chalmers 2025"

_FEW_ROWS = "It falls with the number of rows: compare with the same number of held-out private rows."
INVERSION_FACTS: Mapping[str, Facts] = {
    "attack_accuracy": Facts(
        needs=(
            "An evaluation model. The thesis's learns from the target's own training rows and shares what is peculiar "
            "to them: compare with `disjoint_accuracy`.",
        ),
        citation=f"{THESIS}, Eq. 3.11",
    ),
    "disjoint_accuracy": Facts(
        "share of made rows that a model takes for their class which shares no training row with the target",
        needs=("Private rows that neither the target nor the first evaluation model was trained on.",),
        citation="LightLeak's own; the measure is that of the thesis, Eq. 3.11",
    ),
    "shapes_score": Facts(needs=(_FEW_ROWS,), citation=f"{THESIS}, Eq. 3.15 and 3.16"),
    "class_shapes_score": Facts(needs=(_FEW_ROWS,), citation=f"{THESIS}, Sec. 5.2.3, Fig. 5.3"),
    "pair_trends_score": Facts(needs=(_FEW_ROWS,), citation=f"{THESIS}, Eq. 3.18 and 3.19"),
    "sdmetrics_quality": Facts(
        "quality score of SDMetrics: the mean of its column shapes and column pair trends",
        needs=("The extra `scores`, and the option `samples.sdmetrics`.",),
        citation="SDMetrics, DataCebo",
    ),
    "gower_distance": Facts(
        "distance of every made row from the nearest private row of its class", citation=f"{THESIS}, Eq. 3.20 to 3.22"
    ),
    "distinct_nearest_rows": Facts(
        "effective number of private rows of a class that made rows come nearest to",
        needs=("Equal numbers of made rows, where attacks are compared.",),
        citation="LightLeak's own; the inverse of Simpson's index, Hill 1973",
    ),
    "exact_match_rate": Facts(citation="LightLeak's own"),
    "nearer_to_train": Facts(
        "odds that a made row lies nearer to a training row than to a held-out one",
        needs=("Training and held-out rows that are a random split of one table.",),
        citation="LightLeak's own; classes combined as Mantel and Haenszel, 1959",
    ),
}
"""Facts on the cards of these metrics that their code does not show."""
