"""What every estimator of distribution comparison takes and returns, and what the values say by themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import kstwobign

from lightleak.attacks.property_inference.calibration import Noise, Response, SampleSizes
from lightleak.core.parties import Kind


@dataclass(frozen=True)
class KindValues:
    """One number per record and kind of intermediate result; rows are the same ones in every kind.

    Attributes:
        with_property: ``[a]`` auxiliary rows with the property.
        without: ``[b]`` auxiliary rows without.
        records: ``[n]`` all records.
    """

    with_property: np.ndarray
    without: np.ndarray
    records: np.ndarray


Values = Mapping[Kind, KindValues]


@dataclass(frozen=True)
class Outcome:
    """An estimator's answer.

    Attributes:
        fraction: the estimate over all kinds, not clipped.
        by_kind: estimate of each kind.
        response: what the estimator answers at each fraction.
        noise: how far the answer scatters; ``None`` where it was not measured.
        details: further JSON-ready facts.
        pulled: `response` at the other end of what is possible; ``None`` where it is known well enough.
    """

    fraction: float
    by_kind: Mapping[Kind, float]
    response: Response = field(default_factory=Response)
    noise: Noise | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    pulled: Response | None = None


def separation(values: KindValues, sizes: SampleSizes) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance between the two auxiliary classes, and its asymptotic p-value."""
    points = np.concatenate([values.with_property, values.without])
    distance = float(np.abs(_share(values.with_property, points) - _share(values.without, points)).max())
    return distance, _p_value(distance, 1 / sizes.with_property + 1 / sizes.without)


def misfit(values: KindValues, fraction: float, sizes: SampleSizes) -> tuple[float, float]:
    """Distance of the records' distribution from the mixture at ``fraction`` of the auxiliary ones, and its p-value.

    A small p-value says that the auxiliary rows do not look like the records, which no interval covers.
    """
    points = np.concatenate([values.with_property, values.without])
    mixed = fraction * _share(values.with_property, points) + (1 - fraction) * _share(values.without, points)
    distance = float(np.abs(_share(values.records, points) - mixed).max())
    return distance, _p_value(distance, fraction**2 / sizes.with_property + (1 - fraction) ** 2 / sizes.without)


def _share(values: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.sort(values), points, side="right") / len(values)


def _p_value(distance: float, variance: float) -> float:
    return float(kstwobign.sf(distance / np.sqrt(variance)))
