"""What attacks proposed for updates, set against the people behind them: of one update, and of a whole training."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from lightleak.core.ground_truth import GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.certificate import proven_rows, wrong_certificates
from lightleak.metrics.matched_batch import MatchedBatch
from lightleak.metrics.people.population import Population
from lightleak.metrics.people.rows import Bools, Floats, Ints, Rows
from lightleak.metrics.score import found_cells


@dataclass(frozen=True)
class Proposed:
    """What one attack proposed for one update, set against the people behind it; private like these.

    Attributes:
        epoch: epoch, or round under FedAvg.
        step: optimizer step, or round.
        ids: ``[n]`` people behind the update.
        recovered: ``[n]``, whether a proposed row is right in every column of theirs.
        person: ``[n]`` by proposed row: whom it proves, `WRONG`, or `NO_CLAIM`.
        digits: ``[n]`` by proposed row: its numbers are certified.
        codes: ``[n, K]`` category indices of the proposed rows.
        numbers: ``[n, L]`` their numbers.
        labels: ``[n]`` their classes.
        has_certificate: the attack says which of them are proven.
        seconds: wall time of the attack.
        cpu_seconds: its processor time; NaN where unknown.
        peak_memory: most bytes that the process held; 0 where unknown.
        wrong_cells: certified rows that are wrong in a category or the class.
        labels_proven: the classes of certified rows are certified as well.
    """

    epoch: int
    step: int
    ids: Ints
    recovered: Bools
    person: Ints
    digits: Bools
    codes: Ints
    numbers: Floats
    labels: Ints
    has_certificate: bool
    seconds: float = float("nan")
    cpu_seconds: float = float("nan")
    peak_memory: int = 0
    wrong_cells: int = 0
    labels_proven: bool = True

    @classmethod
    def of(
        cls,
        reconstruction: Reconstruction,
        truth: GroundTruth,
        encoder: TableEncoder,
        batch: MatchedBatch,
        **facts: Any,
    ) -> "Proposed":
        """Set what an attack found against the people behind the update.

        Args:
            reconstruction: what it found.
            truth: the rows behind the update; without ids, people are the numbers of its rows (see `named`).
            encoder: of both.
            batch: the two matched (`lightleak.metrics.score.match`).
            facts: ``epoch``, ``step`` and what the attack took.
        """
        ids = np.arange(len(truth.labels)) if truth.ids is None else truth.ids.cpu().numpy()
        certificate = reconstruction.certificate
        proven = proven_rows(reconstruction, truth, encoder, batch).numpy()
        cells = found_cells(reconstruction, encoder)
        rows = Rows.of((cells.codes, cells.numbers), reconstruction.labels)
        return cls(
            ids=ids,
            recovered=batch.hits.all(-1).numpy(),
            person=np.where(proven >= 0, ids[np.maximum(proven, 0)], proven),
            digits=np.array(certificate.digits if certificate else [False] * len(ids), dtype=bool),
            codes=rows.codes,
            numbers=rows.numbers,
            labels=rows.labels,
            has_certificate=certificate is not None,
            seconds=reconstruction.seconds,
            wrong_cells=wrong_certificates(reconstruction, truth, encoder, batch)[0],
            labels_proven=certificate is None or certificate.labels_proven,
            **facts,
        )

    def named(self, ids: Ints) -> "Proposed":
        """Return the same for people of other numbers, in the order of `ids`."""
        of_row = dict(zip(self.ids.tolist(), ids.tolist(), strict=True))
        return replace(self, ids=ids, person=np.array([of_row.get(one, one) for one in self.person.tolist()]))

    @property
    def rows(self) -> Rows:
        """The proposed rows."""
        return Rows(self.codes, self.numbers, self.labels)

    def to_bytes(self) -> bytes:
        """As the content of a file."""
        buffer = io.BytesIO()
        np.savez(buffer, **{one.name: getattr(self, one.name) for one in fields(self)})
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Proposed":
        """Inverse of `to_bytes`."""
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return cls(**{name: file[name] if file[name].ndim else file[name].item() for name in file.files})


class Evidence:
    """What the updates of a training say together; arrays over all their rows."""

    def __init__(self, updates: Sequence[Proposed], population: Population) -> None:
        def joined(name: str) -> Any:
            return np.concatenate([getattr(one, name) for one in updates])

        def spread(name: str) -> Ints:
            return np.repeat([getattr(one, name) for one in updates], [len(one.ids) for one in updates])

        self.population = population
        self.has_certificates = any(one.has_certificate for one in updates)
        self.ids, self.recovered, self.person = joined("ids"), joined("recovered"), joined("person")
        self.step_of_ids, self.epoch_of_ids = spread("step"), spread("epoch")
        self.update = np.repeat(np.arange(len(updates)), [len(one.ids) for one in updates])
        self.rows = Rows.together([one.rows for one in updates])
        self.people = np.unique(self.ids)
        proofs = self.person >= 0
        self.digits, self.labels_proven = joined("digits"), spread("labels_proven").astype(bool)
        self.proofs_of, self.proof_digits = self.person[proofs], self.digits[proofs]
        self.proof_labels = self.labels_proven[proofs]
        self.proof_step, self.proof_rows = self.step_of_ids[proofs], self.rows[proofs]
        is_proven = np.isin(self.people, self.proofs_of)
        is_recovered = np.isin(self.people, self.ids[self.recovered])
        self.verdicts = np.select([is_proven, is_recovered], ["proven", "recovered"], "not recovered").astype(object)

    @property
    def rows_of_epochs(self) -> Ints:
        """``[n, 2]``, person and epoch of every row behind an update."""
        return np.column_stack([self.ids, self.epoch_of_ids])

    def places(self, ids: Ints) -> Ints:
        """Where people stand in `people`."""
        return np.searchsorted(self.people, ids)

    def times(self, ids: Ints) -> Ints:
        """How often each of `people` occurs."""
        return np.bincount(self.places(ids), minlength=len(self.people))

    def first(self, ids: Ints, steps: Ints) -> "pd.Series[Any]":
        """The first step of each of `people`; missing where they do not occur."""
        found = pd.Series(steps).groupby(ids).min() if len(ids) else pd.Series(dtype="Int64")
        return found.reindex(self.people).astype("Int64").reset_index(drop=True)
