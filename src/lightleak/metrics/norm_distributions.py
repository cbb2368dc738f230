"""How far the norms of records with a property lie from those of records without it (ProVFL Sec. IV, Table II, Fig. 2).

Both samples are binned over the same edges. With counts ``a`` and ``b`` over k bins, ``p = (a + c) / sum(a + c)`` and
``q = (b + c) / sum(b + c)`` for a pseudo-count ``c`` (0.5, Jeffreys), so that no bin is empty. Logarithms are natural.

The paper prints neither bins, smoothing nor base. Its KL and JS columns agree with each other only if JS is the
Jensen-Shannon *distance*, the square root of the divergence in nats (for near distributions JS = sqrt(KL) / 2), which
is what is reported here as ``js``. Its BC column belongs to other distributions than its KL column, since every pair
of them has BC >= exp(-KL / 2). Its KL of 0.0000 cannot come from bins of 2,000 rows, of which sampling alone gives
about (k - 1) (1/n_a + 1/n_b) / 2; numbers of its size come out when the sorted norms themselves, divided by their sum,
are read as distributions (`sorted_norm_distances`). Binned distances are compared at equal bins and rows only.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightleak.core.errors import DataError, UsageError

DEFAULT_BINS = 50
PSEUDO_COUNT = 0.5
"""Added to each bin before a distance is taken: an empty bin would make KL infinite."""

TABLE_ROWS = 2000
"""Rows in each of D0 and D1 (ProVFL Sec. IV)."""


@dataclass(frozen=True)
class NormDistances:
    """Distances of two binned samples.

    Attributes:
        kl: Kullback-Leibler divergence of the first sample from the second, ``sum p ln(p / q)``, in nats.
        js: Jensen-Shannon distance, the square root of the divergence in nats; in [0, sqrt(ln 2)].
        bc: Bhattacharyya coefficient ``sum sqrt(p q)``; 1 for equal histograms, 0 for disjoint ones.
    """

    kl: float
    js: float
    bc: float

    def to_dict(self) -> dict[str, float]:
        """JSON-ready form."""
        return {"kl": self.kl, "js": self.js, "bc": self.bc}


def common_edges(first: Tensor, second: Tensor, bins: int = DEFAULT_BINS) -> Tensor:
    """``bins + 1`` equidistant edges from the least to the greatest value of both samples, float64.

    >>> common_edges(torch.tensor([0.0, 1.0]), torch.tensor([4.0]), bins=4).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]

    Raises:
        UsageError: fewer than one bin.
        DataError: a sample is empty or holds NaN or infinity.
    """
    if bins < 1:
        raise UsageError(f"bins must be at least 1, got {bins}")
    both = torch.cat([_sample(first, "first sample"), _sample(second, "second sample")])
    low, high = both.min(), both.max()
    if low == high:  # one value only: a bin of some width around it, as numpy.histogram does
        low, high = low - 0.5, high + 0.5
    # The ends are exact: a last edge below the greatest value would drop it.
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64) * (high - low) + low
    edges[-1] = high
    return edges


def histogram_counts(values: Tensor, edges: Tensor) -> Tensor:
    """Number of values in each bin ``[bins]``, float64; a bin holds its left edge, the last one its right edge too.

    >>> histogram_counts(torch.tensor([0.0, 0.5, 1.0, 2.0]), torch.tensor([0.0, 1.0, 2.0])).tolist()
    [2.0, 2.0]

    Raises:
        DataError: a value is not finite or lies outside the edges.
    """
    values = _sample(values, "values")
    edges = edges.detach().to("cpu", torch.float64)
    if values.min() < edges[0] or values.max() > edges[-1]:
        raise DataError(
            f"values must lie within the edges {float(edges[0])} to {float(edges[-1])}, "
            f"got {float(values.min())} to {float(values.max())}"
        )
    return torch.histogram(values, edges).hist


def histogram_density(values: Tensor, edges: Tensor) -> Tensor:
    """Density in each bin ``[bins]``: counts over rows and width, without smoothing; its integral is 1."""
    counts = histogram_counts(values, edges)
    return counts / (counts.sum() * edges.detach().to("cpu", torch.float64).diff())


def smoothed(counts: Tensor, pseudo_count: float = PSEUDO_COUNT) -> Tensor:
    """Probabilities of bins: ``(counts + c) / sum(counts + c)``.

    >>> smoothed(torch.tensor([3.0, 0.0])).tolist()
    [0.875, 0.125]
    """
    raised = counts + pseudo_count
    return raised / raised.sum()


def kl_divergence(p: Tensor, q: Tensor) -> float:
    """``sum p ln(p / q)`` in nats; a bin with ``p = 0`` adds nothing, one with ``q = 0 < p`` makes it infinite."""
    return max(0.0, float((torch.xlogy(p, p) - torch.xlogy(p, q)).sum()))


def js_divergence(p: Tensor, q: Tensor) -> float:
    """``KL(p, m) / 2 + KL(q, m) / 2`` with ``m = (p + q) / 2``, in nats; at most ln 2."""
    middle = (p + q) / 2
    return (kl_divergence(p, middle) + kl_divergence(q, middle)) / 2


def bhattacharyya_coefficient(p: Tensor, q: Tensor) -> float:
    """``sum sqrt(p q)``, in [0, 1].

    >>> round(bhattacharyya_coefficient(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])), 4)
    0.7071
    """
    return min(1.0, float((p * q).sqrt().sum()))


def norm_distances(first: Tensor, second: Tensor, bins: int = DEFAULT_BINS) -> NormDistances:
    """KL of ``first`` from ``second``, JS distance and BC of two samples of norms ``[n]`` and ``[m]`` (Table II)."""
    edges = common_edges(first, second, bins)
    p, q = (smoothed(histogram_counts(sample, edges)) for sample in (first, second))
    return NormDistances(kl_divergence(p, q), js_divergence(p, q) ** 0.5, bhattacharyya_coefficient(p, q))


def sorted_norm_distances(first: Tensor, second: Tensor) -> NormDistances:
    """The three distances between two equally long samples of norms ``[n]``, each sorted and divided by its sum.

    No histogram: entry i of both is the i-th smallest norm. It is 0 for samples that differ by a factor only.

    >>> sorted_norm_distances(torch.tensor([1.0, 2.0]), torch.tensor([4.0, 2.0])).kl
    0.0

    Raises:
        DataError: lengths differ, a sample is empty, all zero, negative or not finite.
    """
    if len(first) != len(second):
        raise DataError(f"both samples must have the same number of norms, got {len(first)} and {len(second)}")
    p, q = (_sample(sample, "sample of norms").sort().values for sample in (first, second))
    if min(p[0], q[0]) < 0 or min(p[-1], q[-1]) == 0:
        raise DataError("norms must be at least 0 and not all 0")
    p, q = p / p.sum(), q / q.sum()
    return NormDistances(kl_divergence(p, q), js_divergence(p, q) ** 0.5, bhattacharyya_coefficient(p, q))


def compare_norms(norms: Tensor, has_property: Tensor, bins: int = DEFAULT_BINS) -> dict[str, Any]:
    """Densities and distances of the norms with and without a property, as ``norms.json`` holds them (Fig. 2, Fig. 4).

    Args:
        norms: ``[n]``, one norm per record.
        has_property: BoolTensor ``[n]``.
        bins: bins over the range of all norms.

    Returns:
        ``edges`` (bins + 1 numbers), ``with_property`` and ``without_property`` (a density per bin) and ``distances``
        (`NormDistances` of the records with the property from those without).

    Raises:
        DataError: shapes differ, or no record or every record has the property.
    """
    having, lacking = _split(norms, has_property)
    edges = common_edges(having, lacking, bins)
    return {
        "edges": edges.tolist(),
        "with_property": histogram_density(having, edges).tolist(),
        "without_property": histogram_density(lacking, edges).tolist(),
        "distances": norm_distances(having, lacking, bins).to_dict(),
    }


def draw_populations(
    norms: Tensor, has_property: Tensor, share: float, generator: torch.Generator, rows: int = TABLE_ROWS
) -> tuple[Tensor, Tensor]:
    """The two populations of Table II: ``D1`` with the property only and ``D0`` with a ``share`` of such rows.

    Rows are drawn without replacement and no row stands in both, so that what is compared is independent. The gap of
    the table is ``1 - share``.

    Args:
        norms: ``[n]``, one norm per record.
        has_property: BoolTensor ``[n]``.
        share: share of rows with the property in ``D0``, in [0, 1].
        generator: of the draw.
        rows: rows in each population.

    Returns:
        Norms of ``D1`` and of ``D0``, each ``[rows]``.

    Raises:
        UsageError: a share outside [0, 1], or fewer than one row.
        DataError: too few records with or without the property.
    """
    if not 0 <= share <= 1:
        raise UsageError(f"share must lie in [0, 1], got {share}")
    if rows < 1:
        raise UsageError(f"rows must be at least 1, got {rows}")
    having, lacking = _split(norms, has_property)
    mixed = round(share * rows)
    for name, found, needed in (("with", having, rows + mixed), ("without", lacking, rows - mixed)):
        if len(found) < needed:
            raise DataError(f"{needed} records {name} the property are needed at share {share}, got {len(found)}")
    having = having[torch.randperm(len(having), generator=generator)]
    lacking = lacking[torch.randperm(len(lacking), generator=generator)]
    return having[:rows], torch.cat([having[rows : rows + mixed], lacking[: rows - mixed]])


def _split(norms: Tensor, has_property: Tensor) -> tuple[Tensor, Tensor]:
    if norms.ndim != 1 or norms.shape != has_property.shape:
        raise DataError(
            f"norms and has_property must both have shape [n], got {tuple(norms.shape)} and {tuple(has_property.shape)}"
        )
    mask = has_property.to("cpu", torch.bool)
    if not mask.any() or mask.all():
        count = int(mask.sum())
        raise DataError(f"records with and without the property are needed, got {count} of {len(mask)} with it")
    norms = norms.detach().cpu()
    return norms[mask], norms[~mask]


def _sample(values: Tensor, name: str) -> Tensor:
    values = values.detach().to("cpu", torch.float64).flatten()
    if not len(values) or not values.isfinite().all():
        raise DataError(f"{name}: expected at least one value, all finite; got {len(values)} values")
    return values
