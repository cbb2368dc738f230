"""Exact inversion of FedAvg weight updates as an attack: ``run(update) -> Reconstruction`` with a certificate."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from lightleak.attacks.attack import Progress, UpdateAttack
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import RowKind, expected_of_delta
from lightleak.attacks.gradient_inversion.fedavg.exact.config import ExactFedAvgConfig
from lightleak.attacks.gradient_inversion.fedavg.exact.inversion import Inverted, invert
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate, require_weight_update
from lightleak.attacks.gradient_inversion.network.chain import layer_names
from lightleak.attacks.gradient_inversion.network.checks import require_fit
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.uncertainty import cell_uncertainty
from lightleak.core.certificate import Certificate, Feasibility, RowStatus
from lightleak.core.devices import synchronize
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.targets.functional import drops_units

CITATION = (
    "LightLeak, after Dimitrov et al., SPEAR: Exact Gradient Inversion of Batches in Federated Learning, NeurIPS 2024, "
    "and Petrov et al., DAGER: Exact Gradient Inversion for Large Language Models, NeurIPS 2024"
)


class ExactFedAvg(UpdateAttack):
    """Recover the rows behind a weight update, labels included, whatever the client's epochs, batches and order.

    Every row is tested against the first layer's update alone (`silent_units`); rows that depend linearly on others
    are fitted to all layers (`leftovers`). Needs a network of linear layers with ReLU, and no labels.

    Args:
        config: the settings.
    """

    name = "exact_fedavg"
    citation = CITATION

    def __init__(self, config: ExactFedAvgConfig) -> None:
        self.config = config
        self.threat_model = ThreatModel(
            labels="restored", marginals=config.prior in ("auto", "marginals"), local_training=True
        )

    def options(self) -> dict[str, Any]:
        """The settings of the attack."""
        return self.config.to_dict()

    def check(self, update: ClientUpdate) -> None:
        """Refuse updates this attack has no meaning for.

        Raises:
            ObservationError: a gradient, or tensors that do not fit the network.
            UnsupportedError: another loss or optimiser, weight decay, a defence, images, an encoding whose numbers are
                not affine, or a network that is no ReLU chain.
        """
        require_weight_update(self.name, update)
        if is_image_state(update.encoder):
            raise UnsupportedError(f"{self.name} reconstructs rows of a table; this update is on images")
        require_fit(update, client_network(update))
        layer_names(update)
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
        observed = WeightUpdate.of(update, device)
        draws = generator(seed, self.name)
        found = invert(observed, encoder, prior, update.facts.n_rows, self.config, draws)
        synchronize(device)
        encoded = encoder.assemble(*found.space.cells(found.rows.codes, found.rows.numbers)).cpu()
        if progress is not None:
            progress(1.0)
        status: list[RowStatus] = ["certified" if c else "likely" for c in found.proof.cells.tolist()]
        return Reconstruction(
            attack=self.name,
            threat_model=self.threat_model,
            rows=encoder.decode(encoded.to(device)),
            labels=found.rows.labels.cpu(),
            encoded=encoded,
            uncertainty=cell_uncertainty(encoder, prior, len(encoded), 0),
            loss=found.left,
            seconds=time.perf_counter() - began,
            certificate=Certificate(
                residual=found.left,
                status=tuple(status),
                digits=tuple(found.proof.digits.tolist()),
                multiplicity=tuple(found.multiplicity.tolist()),
                feasibility=_feasibility(update, observed, found, encoder),
            ),
        )


def _feasibility(update: ClientUpdate, observed: WeightUpdate, found: Inverted, encoder: TableEncoder) -> Feasibility:
    """What shapes promise, with the first layer's rank and equations as they are."""
    weights = observed.start.weights
    kind = RowKind.of(encoder.schema, update.training_mode and drops_units(client_network(update)))
    shapes = expected_of_delta(update.facts.n_rows, [len(w) for w in weights[:-1]], weights[0].shape[1], kind)
    equations = found.equations
    return replace(
        shapes,
        ranks=(equations.rank, *shapes.ranks[1:]),
        row_constraints=(len(equations.values), *shapes.row_constraints[1:]),
        unit_constraints=(max(0, len(weights[0]) - equations.rank), *shapes.unit_constraints[1:]),
        noise=observed.noise,
    )
