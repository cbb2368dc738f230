"""Reconstructions put together of the rows that several stages found, and judged without the truth."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from lightleak.attacks.attack import ATTACKS, UpdateAttack
from lightleak.attacks.gradient_inversion.compose.peeling import (
    as_one_batch,
    label_counts,
    peeled_update,
    scaled_update,
)
from lightleak.attacks.gradient_inversion.compose.unexplained import misfit, unexplained_share
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import estimate_feasibility, row_kind
from lightleak.attacks.gradient_inversion.exact.certify.proof import explains_but_for_digits
from lightleak.attacks.gradient_inversion.exact.spaces.residual import EXPLAINED, Residual
from lightleak.attacks.gradient_inversion.joint.noise import estimated_noise
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain, smooth_chain
from lightleak.attacks.gradient_inversion.network.of_update import layer_gradients, row_network
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.certificate import Certificate, Feasibility, RowStatus
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed
from lightleak.core.threat_model import LabelKnowledge, ThreatModel
from lightleak.data.encoder import TableEncoder

TAKEN_BELOW = 1e-3
"""A reconstruction that leaves less of the update than this unexplained is taken without trying further stages: wrong
rows leave 1e-1 and more, right ones with a number off by a hair 1e-5. Rows that the network is sure of may be missing
then, in 16 of 264 batches of up to 12 rows where a trained network's logits were multiplied by 8 to 32: in these,
further stages got more cells right in 6 and fewer in 5, and took 7 CPU seconds more each."""


@dataclass(frozen=True)
class Explanation:
    """A reconstruction of a whole batch.

    Attributes:
        found: its rows.
        status, digits: of every row, see `Certificate`.
        residual: part of the update that it leaves unexplained.
    """

    found: Reconstruction
    status: tuple[RowStatus, ...]
    digits: tuple[bool, ...]
    residual: float

    @property
    def is_complete(self) -> bool:
        """Whether every row is certified."""
        return all(s == "certified" for s in self.status)

    def doubted(self) -> "Explanation":
        """The same with no row certified."""
        return replace(
            self,
            status=tuple("likely" if s == "certified" else s for s in self.status),
            digits=(False,) * len(self.status),
        )


class Course:
    """How far the work on one update is.

    Args:
        update: the whole.
        seed: root of its random streams.
        knows_marginals: whether a guess may rest on the marginals that the update carries.

    Attributes:
        rest: what the next stage is to attack.
    """

    def __init__(self, update: ClientUpdate, seed: int, *, knows_marginals: bool) -> None:
        self.update, self.seed, self.rest = update, seed, as_one_batch(update)
        self._knows_marginals = knows_marginals
        self._proven: Reconstruction | None = None
        self._proven_digits: tuple[bool, ...] = ()
        self._explanations: list[Explanation] = []
        self._ran: list[UpdateAttack] = []
        self._refusals: list[UsageError] = []
        self._feasibility: Feasibility | None = None
        self._seconds = 0.0
        self._scale = 1.0
        self._proves_gradients = True

    @property
    def is_over(self) -> bool:
        """Whether nothing is left for further stages."""
        return any(one.is_complete or one.residual < TAKEN_BELOW for one in self._explanations)

    def is_served_by(self, stage: UpdateAttack) -> bool:
        """Whether a stage can attack `rest`, and no alternative to it has."""
        if any(stage.name == one.name for one in self._ran):
            return False
        refused = refusal(stage, self.rest)
        if refused is not None:
            self._refusals.append(refused)
        return refused is None

    def add(self, stage: UpdateAttack, found: Reconstruction) -> None:
        """Take in what a stage made of `rest`."""
        began = time.perf_counter()
        self._ran.append(stage)
        if found.certificate is not None:
            self._feasibility = self._feasibility or found.certificate.feasibility
            self._rescale(found.certificate.scale)
        whole = self._explanation(found, *_claims(found))
        if not _proves_gradients(found):
            self._proves_gradients = False
            self._explanations.append(whole)
            self._seconds += found.seconds + time.perf_counter() - began
            return
        certified = [i for i, s in enumerate(_claims(found)[0]) if s == "certified"]
        if _contradicts(self.rest.labels, found.labels[certified]):
            whole, certified = whole.doubted(), []
        elif self._is_contradiction(whole):
            whole, certified = whole.doubted(), []
            self._proven, self._proven_digits, self.rest = None, (), as_one_batch(self.update)
        self._explanations.append(whole)
        if self.update.kind == "gradient" and certified and not whole.is_complete and row_network(self.update).peels:
            self._prove(found, certified)
        self._seconds += found.seconds + time.perf_counter() - began

    def best(self, name: str) -> Reconstruction:
        """The best explanation as the reconstruction of the attack ``name``; of equals the earlier stage's.

        If no row is certified and a guess explains the update at least as well as all of them, the guess is returned.
        """
        began = time.perf_counter()
        chosen, known = self._chosen(), [stage.threat_model for stage in self._ran]
        is_open = not (self.is_over or "certified" in chosen.status)
        if is_open and (guess := self._guess(chosen.found)):
            known.append(guess.found.threat_model)
            chosen = guess if guess.residual <= min(one.residual for one in self._explanations) else chosen
        self._seconds += time.perf_counter() - began
        return replace(
            chosen.found,
            attack=name,
            threat_model=joined_threat_model(known),
            loss=chosen.residual,
            seconds=self._seconds,
            certificate=Certificate(
                chosen.residual,
                chosen.status,
                chosen.digits,
                _how_often(chosen),
                self._feasibility or self._estimated_feasibility(),
                self._scale,
                **_what_is_open(chosen.found.certificate),
            ),
        )

    def _chosen(self) -> Explanation:
        complete = [one for one in self._explanations if one.is_complete]
        if complete or len(self._explanations) == 1:
            return (complete or self._explanations)[0]
        if not self._proves_gradients and (proven := [one for one in self._explanations if "certified" in one.status]):
            return proven[0]
        return min(self._explanations, key=lambda one: misfit(self.update, one.found, self._orders))

    def _guess(self, found: Reconstruction) -> Explanation | None:
        """The baseline's guess with the labels that were found, every row missing; None where it refuses the update."""
        baseline = ATTACKS.get("random")()
        update = self.update if self._knows_marginals else replace(self.update, marginals=None)
        if refusal(baseline, update):
            return None
        guess = replace(baseline.run(update, self.seed), labels=found.labels, settings=found.settings)
        missing: tuple[RowStatus, ...] = ("missing",)
        n, share = len(guess.rows), unexplained_share(self.update, guess, self._orders)
        return Explanation(guess, missing * n, (False,) * n, share)

    def _explanation(
        self, found: Reconstruction, status: tuple[RowStatus, ...], digits: tuple[bool, ...]
    ) -> Explanation:
        """The proven rows and the found ones together, judged by the whole update."""
        if self._proven is not None:
            proven: tuple[RowStatus, ...] = ("certified",)
            status = proven * len(self._proven.rows) + status
            digits = self._proven_digits + digits
            found = _joined([self._proven, found])
        if found.certificate is not None and found.certificate.assumed_statistics:  # the table's numbers explain less
            return Explanation(found, status, digits, found.certificate.residual)
        return Explanation(found, status, digits, unexplained_share(self.update, found, self._orders))

    def _is_contradiction(self, whole: Explanation) -> bool:
        """Whether every row of a gradient is claimed to be proven, and more than their digits is left to explain.

        Then one claim at least is wrong, and nothing says which.
        """
        if self.update.kind != "gradient" or not whole.is_complete or whole.residual < EXPLAINED or self._is_inexact:
            return False
        encoder, network = self._encoder, row_network(self.update)
        rows, counts = encoder.encode(whole.found.rows).double(), label_counts(whole.found.labels, network.n_classes)
        explained = Residual.of(network, layer_gradients(self.update, network), len(rows)).with_rows(rows, counts)
        return not explains_but_for_digits(explained, RowDomain.whole(encoder, RowPrior.of(self.update, encoder)))

    @property
    def _is_inexact(self) -> bool:
        """Whether the gradient has an error beyond rounding, within which a stage's proofs have been made."""
        network = client_network(self.update)
        if relu_chain(network) is None and smooth_chain(network) is None:
            return False
        return estimated_noise(observed_gradient(self.update), self._encoder) > 0

    @property
    def _encoder(self) -> TableEncoder:
        return TableEncoder.of(self.update)

    def _rescale(self, scale: float) -> None:
        """Undo what a client did to the size of its gradient, once a stage has found it out."""
        self._scale *= scale
        if scale != 1:
            self.update, self.rest = scaled_update(self.update, scale), scaled_update(self.rest, scale)

    @property
    def _orders(self) -> int:
        return derive_seed(self.seed, "orders")

    def _prove(self, found: Reconstruction, certified: list[int]) -> None:
        digits, part = _claims(found)[1], _part(found, certified)
        self._proven = part if self._proven is None else _joined([self._proven, part])
        self._proven_digits += tuple(digits[i] for i in certified)
        rows, labels = self._encoder.encode(self._proven.rows).double(), self._proven.labels
        rest = peeled_update(self.update, rows, label_counts(labels, row_network(self.update).n_classes))
        shared = self.update.labels
        self.rest = rest if shared is None else replace(rest, labels=_without(shared, labels))

    def _estimated_feasibility(self) -> Feasibility:
        """Where no stage said what to expect."""
        reason = str(self._refusals[0]) if self._refusals else "no stage certifies rows"
        if self.update.kind == "gradient":
            try:
                kind = row_kind(self.update, self._encoder)
                observed = layer_gradients(self.update, row_network(self.update))
                return estimate_feasibility(observed, self.update.facts.n_rows, kind=kind)
            except UnsupportedError as error:
                reason = str(error)
        return Feasibility((), (), (), 0.0, "approximate", reason)


def refusal(stage: UpdateAttack, update: ClientUpdate) -> UsageError | None:
    """Why a stage does not serve an update; None where it does."""
    try:
        stage.check(update)
    except UsageError as error:
        return error
    return None


def joined_threat_model(known: Sequence[ThreatModel]) -> ThreatModel:
    """What several attacks know together."""
    strongest_first: tuple[LabelKnowledge, ...] = ("true", "restored", "none")
    labels = min((one.labels for one in known), key=strongest_first.index)
    flags = {f.name: any(getattr(one, f.name) for one in known) for f in fields(ThreatModel) if f.name != "labels"}
    return ThreatModel(labels=labels, **flags)


def _how_often(found: Explanation) -> tuple[int, ...]:
    """Per row how often it occurs: of a certified row among certified ones, as its proof says how many there are."""
    often, certified = list(multiplicity(found.found.rows)), [i for i, s in enumerate(found.status) if s == "certified"]
    for i, times in zip(certified, multiplicity(found.found.rows.iloc[certified]), strict=True):
        often[i] = times
    return tuple(often)


def multiplicity(rows: pd.DataFrame) -> tuple[int, ...]:
    """Per row, how many rows of a table are equal to it.

    >>> multiplicity(pd.DataFrame({"age": [30, 41, 30], "sex": ["F", "M", "F"]}))
    (2, 1, 2)
    """
    keys = list(rows.itertuples(index=False, name=None))
    return tuple(keys.count(key) for key in keys)


def _claims(found: Reconstruction) -> tuple[tuple[RowStatus, ...], tuple[bool, ...]]:
    """Status and digits per row; what an attack without certificates finds is the best explanation, not proven."""
    if found.certificate is not None:
        return found.certificate.status, found.certificate.digits
    likely: tuple[RowStatus, ...] = ("likely",)
    return likely * len(found.rows), (False,) * len(found.rows)


def _proves_gradients(found: Reconstruction) -> bool:
    """Whether the gradient of a proven row is known: not where units were dropped or its numbers are open."""
    one = found.certificate
    return one is None or (one.labels_proven and not one.assumed_statistics)


def _what_is_open(certificate: Certificate | None) -> dict[str, Any]:
    """The fields that say what a certificate leaves open; none where there is no certificate."""
    names = "labels_proven", "assumed_statistics", "normalized_proven"
    return {} if certificate is None else {name: getattr(certificate, name) for name in names}


def _part(found: Reconstruction, rows: list[int]) -> Reconstruction:
    """Some of the rows."""
    return replace(
        found,
        rows=found.rows.iloc[rows],
        labels=found.labels[rows],
        encoded=found.encoded[rows],
        uncertainty=found.uncertainty.iloc[rows],
    )


def _joined(parts: Sequence[Reconstruction]) -> Reconstruction:
    """The rows of all parts, in their order."""
    return replace(
        parts[-1],
        rows=pd.concat([part.rows for part in parts], ignore_index=True),
        labels=torch.cat([part.labels for part in parts]),
        encoded=torch.cat([part.encoded.float() for part in parts]),
        uncertainty=pd.concat([part.uncertainty for part in parts], ignore_index=True),
        ensemble=None,
    )


def _contradicts(shared: Tensor | None, labels: Tensor) -> bool:
    """Whether rows said to be certain have labels that the batch, as the client shares them, has not."""
    if shared is None or not len(labels):
        return False
    classes = 1 + max(int(shared.max()), int(labels.max()))
    return bool((torch.bincount(labels, minlength=classes) > torch.bincount(shared, minlength=classes)).any())


def _without(shared: Tensor, labels: Tensor) -> Tensor:
    """The labels that are left, in class order, where they do not contradict each other."""
    counts = torch.bincount(shared)
    left = counts - torch.bincount(labels, minlength=len(counts))
    return torch.repeat_interleave(torch.arange(len(left)), left)
