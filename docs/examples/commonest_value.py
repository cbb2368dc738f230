"""An attack in one file: answer the commonest value of every column, the update unread."""

import time
from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from lightleak.attacks.attack import ATTACKS, Progress, UpdateAttack
from lightleak.core.errors import ObservationError
from lightleak.core.facts import Facts
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.schema import ColumnKind

FACTS = Facts(
    "answers the commonest value of every column",  # the line of `lightleak list attacks`
    needs=("The shares of every column.",),
    deviates=("It follows no paper: it is an example.",),
)


@ATTACKS.register("commonest_value", FACTS)
class CommonestValue(UpdateAttack):
    """Every cell is the value that most rows have."""

    name = "commonest_value"
    citation = "LightLeak's documentation"
    threat_model = ThreatModel(labels="none", update=False, encoder_statistics=False, marginals=True)

    def options(self) -> dict[str, Any]:
        """It has no setting."""
        return {}

    def check(self, update: ClientUpdate) -> None:
        """Reject an unsupported update before any work."""
        if update.marginals is None:
            raise ObservationError("commonest_value needs column marginals, and this observation carries none")

    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """One reconstruction per update; each depends on its update and its seed alone."""
        return [self._guess(update) for update in updates]

    def _guess(self, update: ClientUpdate) -> Reconstruction:
        self.check(update)
        began = time.perf_counter()
        encoder = TableEncoder.of(update)
        marginals = Marginals.from_dict(update.marginals)
        n = update.facts.n_rows
        row = {
            name: values[max(range(len(values)), key=marginals.probabilities[name].__getitem__)]
            for name, values in marginals.values.items()
        }
        whole = [column.name for column in encoder.schema.columns if column.kind is ColumnKind.INTEGER]
        row |= {name: round(row[name]) for name in whole}  # the value of a number is the lower edge of its bin
        rows = encoder.schema.validate(pd.DataFrame([row] * n), require_label=False)
        return Reconstruction(
            attack=self.name,
            threat_model=self.threat_model,
            rows=rows,
            labels=torch.zeros(n, dtype=torch.long) if update.labels is None else update.labels.clone(),
            encoded=encoder.encode(rows),
            uncertainty=pd.DataFrame(float("nan"), index=range(n), columns=list(encoder.schema.names)),
            loss=float("nan"),
            seconds=time.perf_counter() - began,
        )
