"""The trial of a Pareto front where giving up more of one objective buys least of the others."""

from collections.abc import Sequence

import numpy as np


def knee(values: Sequence[Sequence[float]] | np.ndarray) -> int:
    """Index of the point of a front that lies farthest from the line between its ends, towards the good corner.

    Objectives are scaled to [0, 1] over the front. With more than two objectives, or where no point lies on the good
    side of the line: the point nearest to the best of every objective.

    Args:
        values: ``[points, objectives]`` of the front, small is good.

    >>> knee([[0.0, 1.0], [0.1, 0.2], [1.0, 0.0]])
    1
    """
    points = np.asarray(values, dtype=float)
    low, high = points.min(0), points.max(0)
    scaled = (points - low) / np.where(high > low, high - low, 1.0)
    if points.shape[1] == 2:
        inside = 1 - scaled.sum(1)  # of the line from (0, 1) to (1, 0), in units of its distance
        if inside.max() > 0:
            return int(inside.argmax())
    return int(np.linalg.norm(scaled, axis=1).argmin())
