"""The no-information baseline: rows guessed from one-way marginals, the update unread.

TabLeak's Random (Sec. 4) draws every cell from its column's marginal. That is not the best guess: draws from sharpened
marginals recover 6 to 7 points more of Adult's cells at 8 to 32 rows, and the modal row 10 more of a single row
(``benchmarks/RESULTS.md``). Leakage is what an attack gains on the best of these guesses.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pandas as pd
import torch

from lightleak.attacks.attack import ATTACKS, Progress, UpdateAttack
from lightleak.attacks.gradient_inversion.tables.guessed_rows import Draw, guessed_rows, sharpness_of
from lightleak.attacks.settings import AttackSettings, factory
from lightleak.core.errors import UsageError
from lightleak.core.facts import Facts
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals, statistics_marginals
from lightleak.data.schema import TableSchema

Sharpness = float | Literal["best", "modal"]

AS_PUBLISHED = {"numerical_draw": "batch", "sharpness": 1}
"""Settings of TabLeak's published code."""


@dataclass(frozen=True)
class RandomConfig(AttackSettings):
    """Settings of the baseline.

    Attributes:
        numerical_draw: ``row`` draws a number per row; ``batch`` draws one number per column for the whole batch, which
            is what TabLeak's published code does.
        sharpness: how strongly likely values are favored (`Marginals.sharpened`): 1 draws from the marginals as they
            are, which is TabLeak's Random; ``modal`` fills every row with the likeliest values; ``best`` takes
            whichever of `CANDIDATES` recovers most cells of batches simulated from the marginals. It depends on
            marginals and batch size alone, never on the truth, and results state it.

    Raises:
        UsageError: an unknown way to draw, or a sharpness below 1.
    """

    owner: ClassVar[str] = "random"

    numerical_draw: Draw = "row"
    sharpness: Sharpness = "best"

    def __post_init__(self) -> None:
        is_number = isinstance(self.sharpness, int | float) and not isinstance(self.sharpness, bool)
        if self.sharpness not in ("best", "modal") and not (is_number and 1 <= float(self.sharpness) < math.inf):
            raise UsageError(f"sharpness must be best, modal or a number of at least 1, got {self.sharpness!r}")
        super().__post_init__()


BY_STATISTICS = ThreatModel(labels="none", update=False)
"""What the baseline knows where an observation carries no marginals: bounds and encoder statistics."""


class RandomBaseline(UpdateAttack):
    """Guess every cell from its column's marginal.

    It has no entropy and no loss (NaN), and its labels are the shared ones, or all the first class: it uses none.

    Needs:
        * The shares of every column, counted on rows disjoint from the clients', or the encoder's statistics.

    Deviates:
        * Likely values are favored as strongly as recovers most cells of batches that are simulated from the same
          shares, up to the modal row; the paper draws from the shares as they are (``sharpness: 1``).
        * Every row draws its own numbers; the published code draws one number per column for the whole batch
          (``numerical_draw: batch``).
    """

    name = "random"
    title = "Guessing"
    is_baseline = True
    citation = "Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, ICML 2023, Sec. 4"
    threat_model = ThreatModel(
        labels="none", update=False, column_bounds=False, encoder_statistics=False, marginals=True
    )

    def __init__(self, config: RandomConfig) -> None:
        self.config = config

    def options(self) -> dict[str, Any]:
        """The settings of the baseline."""
        return self.config.to_dict()

    def check(self, update: ClientUpdate) -> None:
        """Serve every observation on a table; one without marginals by the encoder's statistics.

        Raises:
            ObservationError: its encoder or its marginals are damaged, or of other columns.
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
        sharpness = self._sharpness(encoder.schema, marginals, n)
        rows = guessed_rows(encoder.schema, marginals, n, seed, sharpness)
        for column in encoder.schema.numerical if self.config.numerical_draw == "batch" else ():
            rows[column.name] = rows[column.name].iloc[0]
        if progress is not None:
            progress(1.0)
        return Reconstruction(
            attack=self.name,
            threat_model=self.threat_model if update.marginals is not None else BY_STATISTICS,
            rows=rows,
            labels=torch.zeros(n, dtype=torch.long) if update.labels is None else update.labels.clone(),
            encoded=encoder.encode(rows),
            uncertainty=pd.DataFrame(float("nan"), index=range(n), columns=list(encoder.schema.names)),
            loss=float("nan"),
            seconds=time.perf_counter() - began,
            settings={"sharpness": "modal" if math.isinf(sharpness) else sharpness},
        )

    def _sharpness(self, schema: TableSchema, marginals: Marginals, n: int) -> float:
        chosen = self.config.sharpness
        if chosen == "best":
            return sharpness_of(schema, marginals, n, self.config.numerical_draw)
        return math.inf if chosen == "modal" else float(chosen)

    def _tables(self, update: ClientUpdate) -> tuple[TableEncoder, Marginals]:
        encoder = TableEncoder.of(update)
        if update.marginals is None:
            return encoder, statistics_marginals(encoder)
        marginals = Marginals.from_dict(update.marginals)
        marginals.require(encoder.schema)
        return encoder, marginals


FACTS = Facts("guesses every cell from its column's shares, without the update")
ATTACKS.register("random", FACTS)(factory(RandomBaseline, RandomConfig()))
