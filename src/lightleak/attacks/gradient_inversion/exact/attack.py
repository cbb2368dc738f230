"""Exact inversion as an attack: ``run(update) -> Reconstruction`` with a certificate."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from lightleak.attacks.attack import Progress, UpdateAttack
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import estimate_feasibility, row_kind
from lightleak.attacks.gradient_inversion.exact.config import ExactConfig
from lightleak.attacks.gradient_inversion.exact.repair.missing import guess_rows
from lightleak.attacks.gradient_inversion.exact.rounds import Found, Rounds
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, layer_names, observed_gradient
from lightleak.attacks.gradient_inversion.network.checks import require_fit
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.uncertainty import cell_uncertainty
from lightleak.core.certificate import Certificate, Feasibility, RowStatus
from lightleak.core.devices import synchronize
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state

CITATION = (
    "LightLeak, after Dimitrov et al., SPEAR: Exact Gradient Inversion of Batches in Federated Learning, NeurIPS 2024, "
    "and Petrov et al., DAGER: Exact Gradient Inversion for Large Language Models, NeurIPS 2024"
)


class ExactInversion(UpdateAttack):
    """Recover every row of a FedSGD batch, labels included, and say which rows are proven.

    Needs a network of linear layers with ReLU, at least two of them hidden, and no labels. See `Rounds` for the course.

    Args:
        config: the settings.
    """

    name = "exact"
    citation = CITATION

    def __init__(self, config: ExactConfig) -> None:
        self.config = config
        self.threat_model = ThreatModel(labels="restored", marginals=config.prior in ("auto", "marginals"))

    def options(self) -> dict[str, Any]:
        """The settings of the attack."""
        return self.config.to_dict()

    def check(self, update: ClientUpdate) -> None:
        """Refuse updates this attack has no meaning for.

        Raises:
            ObservationError: a weight delta, an aggregate of clients with unequal numbers of rows, or tensors that do
                not fit the network.
            UnsupportedError: another loss, images, an encoding whose numbers are not affine, or a network that is no
                ReLU chain of two hidden layers or more.
        """
        facts = update.facts
        if update.kind != "gradient" or facts.epochs != 1:
            got = f"a {update.kind} of {facts.epochs or 'an unknown number of'} epochs (FedAvg)"
            raise ObservationError(f"{self.name} inverts a FedSGD gradient; this update is {got}; use exact_fedavg")
        if facts.n_clients != 1 and len(set(facts.client_rows)) > 1:
            rows = list(facts.client_rows)
            raise ObservationError(f"{self.name} needs clients with equal numbers of rows in an aggregate, got {rows}")
        if facts.loss != "cross_entropy":
            raise UnsupportedError(f"{self.name} needs the loss 'cross_entropy', got {facts.loss!r}")
        if is_image_state(update.encoder):
            raise UnsupportedError(f"{self.name} reconstructs rows of a table; this update is on images")
        require_fit(update, client_network(update))
        names = layer_names(update)
        if len(names) < 3:
            raise UnsupportedError(f"{self.name} needs two hidden layers or more, the network has {len(names) - 1}")
        encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors)
        if encoder.encoding == "quantile":
            raise UnsupportedError(f"{self.name} needs numbers encoded by an affine map, got the encoding 'quantile'")
        RowPrior.of(update, encoder, self.config.prior)

    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """See `UpdateAttack.run_many`; one update after the other, each vectorised over its candidates."""
        for update in updates:
            self.check(update)
        return [
            self._run(update, seed, torch.device(device), progress) for update, seed in zip(updates, seeds, strict=True)
        ]

    def _run(self, update: ClientUpdate, seed: int, device: torch.device, progress: Progress | None) -> Reconstruction:
        began = time.perf_counter()
        encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors).to(device)
        prior = RowPrior.of(update, encoder, self.config.prior)
        chain, observed = ReLUChain.of(update, device), observed_gradient(update, device)
        draws = generator(seed, "exact")
        feasibility = estimate_feasibility(observed, update.facts.n_rows, kind=row_kind(update, encoder))
        rounds = Rounds(chain, observed, update.facts.n_rows, encoder, prior, self.config, draws)
        found = rounds.found() if feasibility.expected == "approximate" else rounds.run()
        synchronize(device)
        reconstruction = self._reconstruction(encoder, prior, found, feasibility, draws, began)
        if progress is not None:
            progress(1.0)
        return reconstruction

    def _reconstruction(
        self,
        encoder: TableEncoder,
        prior: RowPrior,
        found: Found,
        feasibility: Feasibility,
        draws: torch.Generator,
        began: float,
    ) -> Reconstruction:
        """Rows in the order in which they were found, rows of one kind side by side, guesses last."""
        residual, counts = found.residual, found.residual.counts.long()
        times = counts.sum(-1)
        source = torch.repeat_interleave(torch.arange(len(times), device=times.device), times)
        classes = torch.arange(residual.chain.n_classes, device=times.device)
        labels = torch.cat([torch.repeat_interleave(classes, of_row) for of_row in counts]) if len(counts) else times
        cells = (found.cells[0][source], found.cells[1][source])
        guessed_cells, guessed_labels = guess_rows(residual, found.space, prior, draws)
        cells = (torch.cat([cells[0], guessed_cells[0]]), torch.cat([cells[1], guessed_cells[1]]))
        proven: list[RowStatus] = ["certified" if p else "likely" for p in found.proof.cells[source].tolist()]
        status: list[RowStatus] = [*proven, *["missing"] * len(guessed_labels)]  # type: ignore[list-item]
        encoded = encoder.assemble(*cells).cpu()
        return Reconstruction(
            attack=self.name,
            threat_model=self.threat_model,
            rows=encoder.decode(encoded.to(encoder.shift.device)),
            labels=torch.cat([labels, guessed_labels]).cpu(),
            encoded=encoded,
            uncertainty=cell_uncertainty(encoder, prior, len(source), len(guessed_labels)),
            loss=residual.relative,
            seconds=time.perf_counter() - began,
            certificate=Certificate(
                residual=residual.relative,
                status=tuple(status),
                digits=(*found.proof.digits[source].tolist(), *[False] * len(guessed_labels)),
                multiplicity=(*times[source].tolist(), *[1] * len(guessed_labels)),
                feasibility=feasibility,
                scale=found.factor,
            ),
        )
