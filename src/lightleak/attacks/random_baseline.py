"""The no-information baseline: rows drawn from one-way marginals, the update unread (TabLeak Sec. 4)."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd
import torch

from lightleak.attacks.attack import ATTACKS, Progress, UpdateAttack
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.facts import Facts
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import numpy_generator
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals

Draw = Literal["row", "batch"]


@dataclass(frozen=True)
class RandomConfig:
    """Settings of the baseline.

    Attributes:
        numerical_draw: ``row`` draws a number per row; ``batch`` draws one number per column for the whole batch, which
            is what TabLeak's published code does.

    Raises:
        UsageError: an unknown way to draw.
    """

    numerical_draw: Draw = "row"

    def __post_init__(self) -> None:
        if self.numerical_draw not in ("row", "batch"):
            raise UsageError(f"numerical_draw must be row or batch, got {self.numerical_draw!r}")


class RandomBaseline(UpdateAttack):
    """Guess every cell from its column's marginal.

    It has no entropy and no loss (NaN), and its labels are the shared ones, or all the first class: it uses none.
    """

    name = "random"
    citation = "Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, ICML 2023, Sec. 4"
    threat_model = ThreatModel(
        labels="none", update=False, column_bounds=False, encoder_statistics=False, marginals=True
    )

    def __init__(self, config: RandomConfig) -> None:
        self.config = config

    def options(self) -> dict[str, Any]:
        """The settings of the baseline."""
        return asdict(self.config)

    def check(self, update: ClientUpdate) -> None:
        """Refuse an observation nothing can be drawn for.

        Raises:
            ObservationError: it carries no marginals, or none of some column.
        """
        self._tables(update)

    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """See `UpdateAttack.run_many`; ``device`` is of no use here."""
        for update in updates:
            self.check(update)
        return [self._guess(update, seed, progress) for update, seed in zip(updates, seeds, strict=True)]

    def _guess(self, update: ClientUpdate, seed: int, progress: Progress | None) -> Reconstruction:
        began = time.perf_counter()
        n = update.facts.n_rows
        encoder, marginals = self._tables(update)
        rows = marginals.sample(encoder.schema, n, numpy_generator(seed, "random"))
        if self.config.numerical_draw == "batch":
            for column in encoder.schema.numerical:
                rows[column.name] = rows[column.name].iloc[0]
        if progress is not None:
            progress(1.0)
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

    def _tables(self, update: ClientUpdate) -> tuple[TableEncoder, Marginals]:
        if update.marginals is None:
            raise ObservationError(f"{self.name} needs column marginals, and this observation carries none")
        encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors)
        marginals = Marginals.from_dict(update.marginals)
        marginals.require(encoder.schema)
        return encoder, marginals


FACTS = Facts(
    "guesses every cell from its column's shares, without the update",
    needs=("The shares of every column, counted on rows disjoint from the clients'.",),
    deviates=(
        "Every row draws its own numbers; the published code draws one number per column for the whole batch "
        "(`numerical_draw: batch`).",
    ),
)


@ATTACKS.register("random", FACTS)
def random(**options: Any) -> RandomBaseline:
    """Make the baseline; raises `UsageError` for an unknown setting."""
    unknown = sorted(set(options) - set(RandomConfig.__dataclass_fields__))
    if unknown:
        raise UsageError(f"random has no setting {', '.join(unknown)}; settings: numerical_draw")
    return RandomBaseline(RandomConfig(**options))
