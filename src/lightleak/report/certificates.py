"""Which rows are proven: what an attack knows of its own success, without the truth."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from lightleak.core.certificate import Outcome
from lightleak.report.comparison import Group
from lightleak.report.estimate import Estimate
from lightleak.report.result import Proof, Setting
from lightleak.report.wording import setting_parts, time_unit, varying

MARKS = {"certified": "◆", "likely": "◇", "missing": "○"}
"""Signs of the statuses of a row, unlike those for right and wrong cells."""

MEANINGS = {
    "certified": "proven: no row of other categories or another label passes the same tests against the update",
    "likely": "the best explanation that was found, not proven",
    "missing": "not found: a guess from how often values occur",
}


@dataclass(frozen=True)
class Certificates:
    """What one attack proved of batches of one size in one setting.

    Attributes:
        group: the batches.
        share: of rows that are certified: their categories and label.
        digits: of rows whose numbers are certified as well; None where the run does not say.
        complete: batches of which every row is.
        batches: batches with a certificate.
        expected: what was expected before any work, with the number of batches; empty where the run does not say.
        reasons: why, each distinct reason once.
        residual: the largest part of an update that was left unexplained; None where the run does not say.
        accuracy: share of the certified rows' cells that are right; None where there is no truth.
        exact: share of the certified rows that equal a true one in every value; None likewise.
        planned: of the first batch, where the run tells ranks; else None.
    """

    group: Group
    share: Estimate
    digits: Estimate | None
    complete: int
    batches: int
    expected: tuple[tuple[str, int], ...]
    reasons: tuple[str, ...]
    residual: float | None
    accuracy: Estimate | None
    exact: Estimate | None
    planned: Proof | None

    @property
    def layers(self) -> list[tuple[int, int, int, int]]:
        """Number, rank, equations by row space and by column space of every hidden layer of the first batch."""
        if self.planned is None:
            return []
        numbers = zip(self.planned.ranks, self.planned.row_constraints, self.planned.unit_constraints, strict=False)
        return [(layer, *of_layer) for layer, of_layer in enumerate(numbers, 1)]


def place_words(proven: Sequence[Certificates]) -> list[str]:
    """Per entry, where its updates come from and what else its setting differs in; empty where all settings agree."""
    settings = [one.group.setting for one in proven]
    differing = varying(settings)
    parts = [name for name in differing if name not in ("source", "epoch")]
    when = {"source", "epoch"} & set(differing)
    return [" · ".join([*([_when(s)] if when else []), *setting_parts(s, parts)]) for s in settings]


def _when(setting: Setting) -> str:
    told = {"initial": "before training", "given": "network as given"}
    return told.get(setting.source or "", f"{time_unit(setting)} {setting.epoch}")


def certificates(groups: Sequence[Group]) -> tuple[Certificates, ...]:
    """The groups whose attack says what it has proven."""
    found = (_of(group) for group in groups)
    return tuple(one for one in found if one is not None)


def residual_words(residual: float | None) -> str:
    """A part of the update.

    >>> residual_words(0.31), residual_words(1.26e-7), residual_words(None)
    ('31.0%', '1e-7', '–')
    """
    if residual is None:
        return "–"
    if residual >= 0.001:
        return f"{100 * residual:.1f}%"
    digits, power = f"{residual:.0e}".split("e")
    return f"{digits}e{int(power)}"


def _of(group: Group) -> Certificates | None:
    proofs = [result.proof for result in group.results if result.proof is not None]
    share = group.metrics.get("certified_share")
    if not proofs or share is None:
        return None
    counted = Counter(proof.expected for proof in proofs)
    residuals = [proof.residual for proof in proofs if proof.residual is not None]
    return Certificates(
        group=group,
        share=share,
        digits=group.metrics.get("certified_digits_share"),
        complete=sum(proof.is_complete for proof in proofs),
        batches=len(proofs),
        expected=tuple((outcome, counted[outcome]) for outcome in get_args(Outcome) if counted[outcome]),
        reasons=tuple(dict.fromkeys(proof.reason for proof in proofs if proof.reason)),
        residual=max(residuals, default=None),
        accuracy=group.metrics.get("certified_accuracy"),
        exact=group.metrics.get("certified_exact"),
        planned=next((proof for proof in proofs if proof.ranks), None),
    )
