"""What a results row says of a certificate: how many rows are proven, and, where there is a truth, whether rightly."""

from typing import Any

from lightleak.core.certificate import Certificate, RowStatus
from lightleak.core.observations import GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.score import match

NAMES = (
    "certified_rows",
    "certified_share",
    "certificate_residual",
    "expected",
    "row_status",
    "feasibility",
    "certified_accuracy",
    "certified_exact",
)
"""Fields of a results row; all ``None`` without a certificate."""


def certificate_facts(certificate: Certificate | None) -> dict[str, Any]:
    """The fields that need no truth.

    Returns:
        ``certified_rows`` (a number), ``certified_share`` (of the rows), ``certificate_residual`` (part of the update
        that the rows leave unexplained), ``expected`` (before any work: exact, partial or approximate), ``row_status``
        (per row of the reconstruction) and ``feasibility`` (ranks and constraints behind ``expected``); all ``None``
        where the attack has no certificate.
    """
    facts: dict[str, Any] = dict.fromkeys(NAMES)
    if certificate is None:
        return facts
    return facts | {
        "certified_rows": certificate.certified,
        "certified_share": certificate.certified / len(certificate.status),
        "certificate_residual": certificate.residual,
        "expected": certificate.feasibility.expected,
        "row_status": list(certificate.status),
        "feasibility": certificate.feasibility.to_dict(),
    }


def status_by_true_row(
    reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder
) -> list[RowStatus] | None:
    """Status of the row that is matched with each true row; ``None`` without a certificate; errors as for `match`."""
    if reconstruction.certificate is None:
        return None
    order = match(reconstruction, truth, encoder).order
    return [reconstruction.certificate.status[i] for i in order.tolist()]


def certified_accuracy(
    reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder
) -> dict[str, float | None]:
    """Whether certified rows are right: what only whoever holds the truth can ask of a certificate.

    Returns:
        Of the certified rows, ``certified_accuracy``: the fraction of right cells (within the tolerance of Eq. 6), and
        ``certified_exact``: the fraction of rows that equal a true row in every value. ``None`` where none is
        certified.

    Raises:
        UsageError: truth and encoder, or truth and reconstruction, are not of the same shape.
        DataError: the reconstruction does not fit the schema.
    """
    certificate = reconstruction.certificate
    if certificate is None or certificate.certified == 0:
        return {"certified_accuracy": None, "certified_exact": None}
    batch = match(reconstruction, truth, encoder)
    proven = [certificate.status[i] == "certified" for i in batch.order.tolist()]
    return {
        "certified_accuracy": batch.hits[proven].double().mean().item(),
        "certified_exact": batch.equal[proven].all(-1).double().mean().item(),
    }
