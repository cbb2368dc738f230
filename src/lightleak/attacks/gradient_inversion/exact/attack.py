"""Exact inversion as an attack: ``run(update) -> Reconstruction`` with a certificate."""

from dataclasses import replace

import torch
from torch import Tensor

from lightleak.attacks.attack import Progress
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import estimate_feasibility, row_kind
from lightleak.attacks.gradient_inversion.exact.config import ExactConfig
from lightleak.attacks.gradient_inversion.exact.repair.missing import guess_rows
from lightleak.attacks.gradient_inversion.exact.rounds import Found, Rounds
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows, CertifyingInversion
from lightleak.attacks.gradient_inversion.exact.unknown_statistics import NormalizedTable
from lightleak.attacks.gradient_inversion.network.checks import require_even_batches, require_one_normalization
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.network.of_update import (
    layer_gradients,
    not_compared,
    row_network,
    statistics_of,
)
from lightleak.attacks.gradient_inversion.optimize.labels import each_row
from lightleak.attacks.gradient_inversion.tables.entropy import cell_uncertainty
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.certificate import Feasibility
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder

CITATION = (
    "LightLeak, after Dimitrov et al., SPEAR: Exact Gradient Inversion of Batches in Federated Learning, NeurIPS 2024, "
    "and Petrov et al., DAGER: Exact Gradient Inversion for Large Language Models, NeurIPS 2024"
)

REFINEMENTS = 2
"""Times that statistics of the rows found take the place of known ones: last digits that were wrong with six digits of
them may be right only the second time (2 of 20 clients of 8 rows of Adult)."""

NAMED = 4
"""At most so many parameters are named that take no part in a certificate."""


class ExactInversion(CertifyingInversion[ExactConfig]):
    """Recover every row of a FedSGD batch, labels included, and say which rows are proven.

    Needs a network that works row by row and whose first layer is linear (`network.traced`), and no labels. `Rounds`
    has the steps.
    """

    name = "exact"
    title = "Exact inversion"
    citation = CITATION

    def __init__(self, config: ExactConfig) -> None:
        super().__init__(config)
        self.threat_model = replace(self.threat_model, batch_statistics=config.batch_statistics)

    def check_network(self, update: ClientUpdate) -> None:
        """Refuse networks whose layers test no rows, and statistics where each batch of a step had its own."""
        seen, table = self._seen(update, TableEncoder.of(update))
        if seen.batch_statistics and table is None:
            require_one_normalization(self.name, update, client_network(update))
        row_network(seen)

    def _seen(self, update: ClientUpdate, encoder: TableEncoder) -> tuple[ClientUpdate, NormalizedTable | None]:
        """The update as this attack may know it, and its normalized table where statistics of BatchNorm are unknown."""
        seen = update if self.config.batch_statistics else replace(update, batch_statistics={})
        table = NormalizedTable.of(seen, encoder, RowPrior.of(seen, encoder, self.config.prior))
        return (seen, None) if table is None else (table.update, table)

    def check_protocol(self, update: ClientUpdate) -> None:
        """Refuse weight deltas, and aggregates of clients with unequal numbers of rows."""
        facts = update.facts
        if update.kind != "gradient" or facts.epochs != 1:
            got = f"a {update.kind} of {facts.epochs or 'an unknown number of'} epochs (FedAvg)"
            raise ObservationError(f"{self.name} inverts a FedSGD gradient; this update is {got}; use exact_fedavg")
        require_even_batches(self.name, update)
        if facts.n_clients != 1 and len(set(facts.client_rows)) > 1:
            rows = list(facts.client_rows)
            raise ObservationError(f"{self.name} needs clients with equal numbers of rows in an aggregate, got {rows}")

    def invert(
        self, update: ClientUpdate, encoder: TableEncoder, seed: int, progress: Progress | None
    ) -> CertifiedRows:
        """See `CertifyingInversion.invert`."""
        prior = RowPrior.of(update, encoder, self.config.prior)
        seen, table = self._seen(update, encoder)
        rows = self._rows(seen, encoder if table is None else table.encoder, prior, seed)
        if table is not None:
            rows = table.of_client(rows, encoder, prior)
        else:
            rows = self._by_own_statistics(seen, encoder, prior, seed, rows)
        if progress is not None:
            progress(1.0)
        return rows

    def _by_own_statistics(
        self, update: ClientUpdate, encoder: TableEncoder, prior: RowPrior, seed: int, rows: CertifiedRows
    ) -> CertifiedRows:
        """The rows with most proofs as statistics read off buffers give way to those of the rows themselves."""
        found = rows
        for _ in range(REFINEMENTS):
            own = None if found.guesses or bool(found.proof.cells.all()) else statistics_of(update, found.encoded)
            if own is None:
                break
            found = self._rows(replace(update, batch_statistics=own), encoder, prior, seed)
            rows = max(rows, found, key=lambda one: int(one.proof.cells.sum()))
        return rows

    def _rows(self, update: ClientUpdate, encoder: TableEncoder, prior: RowPrior, seed: int) -> CertifiedRows:
        """The rows of an update whose statistics are known."""
        network = row_network(update, encoder.shift.device)
        observed = layer_gradients(update, network)
        draws = generator(seed, "exact")
        feasibility = estimate_feasibility(observed, update.facts.n_rows, kind=row_kind(update, encoder))
        if left_out := not_compared(update, network):
            more = f" and {len(left_out) - NAMED} more" if len(left_out) > NAMED else ""
            said = f"parameters of no linear layer take no part in proofs: {', '.join(left_out[:NAMED])}{more}"
            feasibility = replace(feasibility, reason=f"{feasibility.reason}; {said}")
        rounds = Rounds(network, observed, update.facts.n_rows, encoder, prior, self.config, draws)
        found = rounds.found() if feasibility.expected == "approximate" else rounds.run()
        return _in_order(encoder, prior, found, feasibility, draws)


def _in_order(
    encoder: TableEncoder, prior: RowPrior, found: Found, feasibility: Feasibility, draws: torch.Generator
) -> CertifiedRows:
    """Rows in the order in which they were found, equal rows side by side, guesses last."""
    residual = found.residual
    source, labels = each_row(residual.counts)
    cells, guessed_labels = guess_rows(residual, found.space, prior, draws)
    own = found.cells[0][source], found.cells[1][source]
    codes, numbers = (torch.cat([part, guessed]) for part, guessed in zip(own, cells, strict=True))
    return CertifiedRows(
        encoder.assemble(codes, numbers),
        torch.cat([labels, guessed_labels]),
        cell_uncertainty(encoder, prior, len(source), len(guessed_labels)),
        residual.relative,
        found.proof[source],
        _copies(*own, encoder),
        feasibility,
        len(guessed_labels),
        found.factor,
    )


SAME = 0.005
"""Deviations within which numbers of two rows are one: half of what a certificate leaves open (`Certificate`)."""


def _copies(codes: Tensor, numbers: Tensor, encoder: TableEncoder) -> Tensor:
    """How many of the rows are equal to each, itself included; a row may have been found more than once."""
    if not len(codes):
        return codes.new_zeros(0)
    scaled = numbers.double() / encoder.deviation.to(numbers.device)
    apart = torch.cdist(scaled, scaled, p=torch.inf)
    return ((codes.unsqueeze(0) == codes.unsqueeze(1)).all(-1) & (apart <= SAME)).sum(-1)
