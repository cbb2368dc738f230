"""What a results row says of a certificate: how many rows are proven, and, where there is a truth, whether rightly."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lightleak.core.certificate import NUMBERS_WITHIN, Certificate
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.matching import match_rows
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.cells import Cells, agreement, categorical_mask, checked_pair, equality
from lightleak.metrics.matched_batch import MatchedBatch
from lightleak.metrics.score import found_cells, match, true_rows

_STATED: Mapping[str, Callable[[Certificate], Any]] = {
    "certified_rows": lambda certificate: certificate.certified,
    "certified_share": lambda certificate: certificate.certified / len(certificate.status),
    "certified_digits_share": lambda certificate: certificate.certified_digits / len(certificate.status),
    "certificate_residual": lambda certificate: certificate.residual,
    "expected": lambda certificate: certificate.feasibility.expected,
    "row_status": lambda certificate: list(certificate.status),
    "row_digits": lambda certificate: list(certificate.digits),
    "labels_proven": lambda certificate: certificate.labels_proven,
    "normalized_columns": lambda certificate: list(certificate.assumed_statistics),
    "row_normalized_proven": lambda certificate: list(certificate.normalized_proven),
    "feasibility": lambda certificate: certificate.feasibility.to_dict(),
}
"""Fields of a results row that a certificate states."""

_JUDGED = ("certified_accuracy", "certified_exact", "certified_wrong", "certified_digits_wrong")
"""Those that take the truth as well."""

NAMES = (*_STATED, *_JUDGED)
"""Fields of a results row; all ``None`` without a certificate."""


def certificate_facts(certificate: Certificate | None) -> dict[str, Any]:
    """The fields that need no truth.

    Returns:
        ``certified_rows`` (a number), ``certified_share`` and ``certified_digits_share`` (of the rows),
        ``certificate_residual`` (part of the update that the rows leave unexplained), ``expected`` (before any work:
        exact, partial or approximate), ``row_status`` and ``row_digits`` (per row of the reconstruction),
        ``labels_proven`` (whether a certified row's label is certified as well), ``normalized_columns`` and
        ``row_normalized_proven`` (see `Certificate`), and ``feasibility`` (ranks and constraints behind
        ``expected``); all ``None`` where the attack has no certificate.
    """
    facts: dict[str, Any] = dict.fromkeys(NAMES)
    return facts if certificate is None else facts | {name: of(certificate) for name, of in _STATED.items()}


def certified_accuracy(
    reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder, batch: MatchedBatch | None = None
) -> dict[str, float | None]:
    """Whether certified rows are right, which takes the ground truth to check; arguments as for `score`.

    A certified row claims its categories and label, and its numbers where its digits are certified too. It is judged by
    the true row that it equals, and by the one that ``batch`` pairs it with where it equals none.

    Returns:
        ``certified_accuracy``: the fraction of right cells (within the tolerance of Eq. 6) among the claimed cells of
        certified rows; ``certified_exact``: the fraction of certified rows that equal a true row in every value;
        ``certified_wrong`` and ``certified_digits_wrong``: numbers of rows whose claim is wrong, see
        `wrong_certificates`. ``None`` where no row is certified.

    Raises:
        UsageError: truth and encoder, or truth and reconstruction, are not of the same shape.
        DataError: the reconstruction does not fit the schema.
    """
    certificate = reconstruction.certificate
    if certificate is None or certificate.certified == 0:
        return dict.fromkeys(_JUDGED)
    batch = batch or match(reconstruction, truth, encoder)
    certified = torch.tensor([status == "certified" for status in certificate.status])
    order, hits, equal = batch.order, batch.hits, batch.equal
    if not bool(equal[certified[order]].all()):
        order, hits, equal = _equal_rows_first(reconstruction, truth, encoder, order, certified)
    proven = certified[order]
    claimed = categorical_mask(encoder) | torch.tensor(certificate.digits)[order].unsqueeze(1)
    claimed = claimed & proven.unsqueeze(1)
    wrong, digits_wrong = wrong_certificates(reconstruction, truth, encoder, batch)
    return {
        "certified_accuracy": hits[claimed].double().mean().item() if bool(claimed.any()) else None,
        "certified_exact": equal[proven].all(-1).double().mean().item(),
        "certified_wrong": wrong,
        "certified_digits_wrong": digits_wrong,
    }


def _equal_rows_first(
    reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder, order: Tensor, certified: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Pair rows so that most certified ones equal their true row; the given order stays where none has more.

    Returns:
        ``order``, ``hits`` and ``equal`` as in `MatchedBatch`.
    """
    true, found = checked_pair(encoder, true_rows(truth, encoder).cells, found_cells(reconstruction, encoder))
    each, rows = Cells(true.codes[:, None], true.numbers[:, None]), torch.arange(len(order))
    hits, equal = agreement(encoder, each, found), equality(encoder, each, found)
    exact = equal.all(-1) & certified
    # The right cells of a pairing come to at most 1/2 together: they never outweigh an equal row.
    other = match_rows(exact.double() + hits.double().mean(-1) / (2 * len(order)))
    if int(exact[rows, other].sum()) > int(exact[rows, order].sum()):
        order = other
    return order, hits[rows, order], equal[rows, order]


def wrong_certificates(
    reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder, batch: MatchedBatch | None = None
) -> tuple[int, int]:
    """How many claims of a certificate no row of the batch bears out; every true row bears out one.

    Args:
        reconstruction: what the attack found.
        truth: the rows behind the update.
        encoder: of both.
        batch: `match` of the two, where the caller has it; rows are matched again only if it leaves a claim open.

    Returns:
        Certified rows for which no true row of equal categories (and label, where labels are proven) is left, and rows
        with certified digits for which none is left whose numbers lie within `NUMBERS_WITHIN` as well; (0, 0) without a
        certificate.

    Raises:
        UsageError: truth and reconstruction are not of the same shape.
        DataError: the reconstruction does not fit the schema.
    """
    if reconstruction.certificate is None:
        return 0, 0
    categories, everything = _equal_rows(reconstruction, truth, encoder)
    status = reconstruction.certificate.status
    claims = (
        (categories, [s == "certified" for s in status]),
        (everything, reconstruction.certificate.digits),
    )
    wrong = []
    for borne_out, claimed in claims:
        fits = borne_out.double() * torch.tensor(claimed, dtype=torch.float64)
        rows = torch.arange(len(fits))
        upheld = 0 if batch is None else int(fits[rows, batch.order].sum())
        if upheld < sum(claimed):
            upheld = int(fits[rows, match_rows(fits)].sum())
        wrong.append(sum(claimed) - upheld)
    return wrong[0], wrong[1]


NO_CLAIM, WRONG = -2, -1
"""What `proven_rows` says of a row that is not certified, and of one whose claim fits no true row."""


def proven_rows(
    reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder, batch: MatchedBatch | None = None
) -> Tensor:
    """Which true row each certified row proves: its categories and label, and its numbers where they are certified.

    Every true row is proven by one certified row at most; of several that fit a claim, the one that ``batch`` matches
    or one whose numbers lie within `NUMBERS_WITHIN` is preferred. Arguments and errors as for `wrong_certificates`.

    Returns:
        LongTensor ``[n]`` in the order of the reconstruction: index of a true row, `WRONG` or `NO_CLAIM`.
    """
    certificate, n = reconstruction.certificate, len(reconstruction.rows)
    found = torch.full((n,), NO_CLAIM)
    if certificate is None:
        return found
    claimed = torch.tensor([status == "certified" for status in certificate.status])
    categories, everything = _equal_rows(reconstruction, truth, encoder)
    fits = torch.where(torch.tensor(certificate.digits), everything, categories) & claimed
    order = None if batch is None else batch.order
    if order is None or int(fits[torch.arange(n), order].sum()) < int(claimed.sum()):
        # Rows of equal numbers come to at most 1/2 together: they never outweigh a claim.
        order = match_rows(fits.double() + (fits & everything).double() / (2 * n))
    borne_out = fits[torch.arange(n), order]
    found[claimed] = WRONG
    found[order[borne_out]] = torch.arange(n)[borne_out]
    return found


def _equal_rows(reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder) -> tuple[Tensor, Tensor]:
    """Whether true row i and reconstructed row j are equal: bool ``[n, n]``.

    Returns:
        Equal in categories, and label where the certificate proves labels; and in these and in numbers within
        `NUMBERS_WITHIN`.
    """
    true, found = checked_pair(encoder, true_rows(truth, encoder).cells, found_cells(reconstruction, encoder))
    pairs = agreement(encoder, Cells(true.codes[:, None], true.numbers[:, None]), found, NUMBERS_WITHIN)
    categories = pairs[..., categorical_mask(encoder)].all(-1)
    certificate = reconstruction.certificate
    if certificate is None or certificate.labels_proven:
        categories = categories & (truth.labels[:, None].cpu() == reconstruction.labels.cpu())
    return categories, categories & pairs.all(-1)
