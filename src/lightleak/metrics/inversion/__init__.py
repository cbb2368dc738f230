"""How good and how private reconstructed class rows are: accuracy, statistics, nearest rows."""

from collections.abc import Callable, Mapping
from typing import Any

from lightleak.metrics.inversion.attack_accuracy import AttackAccuracy
from lightleak.metrics.inversion.column_shapes import class_shapes, column_shapes
from lightleak.metrics.inversion.exact_matches import exact_match_rate
from lightleak.metrics.inversion.gower import nearest_of_class
from lightleak.metrics.inversion.memorisation import memorisation
from lightleak.metrics.inversion.pair_trends import pair_trends

INVERSION_METRICS: Mapping[str, Callable[..., Any]] = {
    "attack_accuracy": AttackAccuracy,
    "shapes_score": column_shapes,
    "class_shapes_score": class_shapes,
    "pair_trends_score": pair_trends,
    "gower_distance": nearest_of_class,
    "exact_match_rate": exact_match_rate,
    "nearer_to_train": memorisation,
}
"""What measures each column of an audit of a released model."""
