"""Exact inversion of FedAvg weight updates as an attack: ``run(update) -> Reconstruction`` with a certificate."""

from dataclasses import replace

from lightleak.attacks.attack import PartOfWork, Progress
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import RowKind, expected_of_delta, row_kind
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows, CertifyingInversion
from lightleak.attacks.gradient_inversion.fedavg.exact.config import ExactFedAvgConfig
from lightleak.attacks.gradient_inversion.fedavg.exact.first_layer import (
    FirstLayer,
    certified_rows,
    require_first_layer,
)
from lightleak.attacks.gradient_inversion.fedavg.exact.halfway import halfway_rows, is_served, with_proven
from lightleak.attacks.gradient_inversion.fedavg.exact.inversion import Inversion, Inverted
from lightleak.attacks.gradient_inversion.fedavg.exact.leftovers import problem_of
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import (
    WeightUpdate,
    as_gradient,
    first_layer_noise,
    local_steps,
    require_weight_update,
)
from lightleak.attacks.gradient_inversion.joint.guess import Guess
from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain
from lightleak.attacks.gradient_inversion.network.dropout import require_whole_rows
from lightleak.attacks.gradient_inversion.network.of_update import layer_gradients, names_of_layers, row_network
from lightleak.attacks.gradient_inversion.network.traced import TracedNetwork
from lightleak.attacks.gradient_inversion.tables.entropy import cell_uncertainty
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.certificate import Feasibility
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder

CITATION = (
    "LightLeak, after Dimitrov et al., SPEAR: Exact Gradient Inversion of Batches in Federated Learning, NeurIPS 2024, "
    "and Petrov et al., DAGER: Exact Gradient Inversion for Large Language Models, NeurIPS 2024"
)

HIDDEN_ABOVE = 0.8
"""Squared distance of the best rows, relative to that of no rows, from which on a guess without the update is as good:
on Adult rows behind noise that left 0.4 had 80% of the cells, those that left 0.85 had 65%, and guessing has 67%."""


class ExactFedAvg(CertifyingInversion[ExactFedAvgConfig]):
    """Recover the rows behind a weight update, labels included, whatever the client's epochs, batches and order.

    Every row is tested against the first layer's update alone (`silent_units`); rows that depend linearly on others
    are fitted to all layers (`leftovers`). Needs no labels. Chains with a smooth activation are inverted by all layers
    at the middle of the weights' way (`halfway`); of other networks only the first layer's row space is read
    (`first_layer`). One client's update of a chain behind noise is inverted by all layers as well, where all its steps
    are known and were taken without momentum and dropout.
    """

    name = "exact_fedavg"
    title = "Exact inversion for FedAvg"
    citation = CITATION
    local_training = True

    def check_protocol(self, update: ClientUpdate) -> None:
        """See `require_weight_update`."""
        require_weight_update(self.name, update)

    def check_network(self, update: ClientUpdate) -> None:
        """Refuse networks without a first linear layer whose update the rows span."""
        if (layers := relu_chain(client_network(update))) is not None:
            super().check_network(update)
            return require_whole_rows(update, layers[0])
        network = row_network(as_gradient(update))
        require_first_layer(network, "weights move with every local step")
        if isinstance(network, TracedNetwork) and (first := network.names[0]) in network.forms:
            raise UnsupportedError(
                f"layer {first!r} scales its weights in every forward; weight updates of nn.Linear alone are served"
            )
        if network.first_input is not None and local_steps(update.facts) != 1:
            raise UnsupportedError(
                f"{self.name} reads the row space of the first layer, whose inputs are embedded cells here: they move "
                "with every local step, and only one step is served"
            )
        require_whole_rows(update, names_of_layers(update, network)[0])

    def invert(
        self, update: ClientUpdate, encoder: TableEncoder, seed: int, progress: Progress | None
    ) -> CertifiedRows:
        """See `CertifyingInversion.invert`."""
        prior, report = RowPrior.of(update, encoder, self.config.prior), PartOfWork(progress)

        def fit() -> CertifiedRows | None:
            return halfway_rows(update, encoder, self.config.joint(), seed, report) if is_served(update) else None

        if relu_chain(client_network(update)) is None:
            return self._by_layers(update, encoder, prior, seed, fit())
        observed, draws = WeightUpdate.of(update, encoder.shift.device), generator(seed, self.name)
        by_layers = None if update.state == "raw" else fit
        found = Inversion(encoder, prior, update.facts.n_rows, self.config, draws).run(observed, by_layers)
        report(1.0 - report.done)
        if found.fitted is not None and not found.is_whole(update.facts.n_rows):
            return with_proven(found.fitted, *found.proven(), encoder)
        feasibility = _feasibility(update, found, encoder)
        if update.state != "raw" and not bool(found.proof.cells.any()):
            problem = problem_of(found.observed, found.space, update.facts.n_rows, draws)
            if problem.value(found.rows) > HIDDEN_ABOVE:
                return Guess.of(problem, update, seed).reconstruction(problem, found.rows.labels, feasibility)
        encoded = encoder.assemble(*found.space.cells(found.rows.codes, found.rows.numbers))
        return CertifiedRows(
            encoded,
            found.rows.labels,
            cell_uncertainty(encoder, prior, len(encoded), 0),
            found.left,
            found.proof,
            found.multiplicity,
            feasibility,
            scale=found.observed.scale if bool(found.proof.cells.any()) else 1.0,
        )

    def _by_layers(
        self, update: ClientUpdate, encoder: TableEncoder, prior: RowPrior, seed: int, fitted: CertifiedRows | None
    ) -> CertifiedRows:
        """Rows that were fitted to all layers, with those that the first layer proves; or else what that one shows."""
        if fitted is not None and bool(fitted.proof.cells.any()):
            return fitted
        sent = as_gradient(update)
        network = row_network(sent, encoder.shift.device)
        observed = layer_gradients(sent, network)
        noise = first_layer_noise(update, names_of_layers(sent, network)[0], observed[0])
        first = FirstLayer.of(network, observed, update.facts.n_rows, encoder, prior, noise)
        shown = first.by_number()
        is_hidden = update.state != "raw" and not len(shown.codes)
        if fitted is not None and (is_hidden or not fitted.guesses):
            sure = shown[shown.proof.cells]
            proven = encoder.assemble(*first.space.cells(sure.codes, sure.numbers))
            return with_proven(fitted, proven, sure.proof, encoder)
        why = "weights are rounded and move with every local step: only the first layer tests rows"
        return certified_rows(first, shown, generator(seed, self.name), why, RowKind.of(encoder.schema))


def _feasibility(update: ClientUpdate, found: Inverted, encoder: TableEncoder) -> Feasibility:
    """What the shapes promise, with the measured rank and equations of the first layer."""
    weights = found.observed.start.weights
    hidden = [len(w) for w in weights[:-1]]
    shapes = expected_of_delta(update.facts.n_rows, hidden, weights[0].shape[1], row_kind(update, encoder))
    equations = found.equations
    return replace(
        shapes,
        ranks=(equations.rank, *shapes.ranks[1:]),
        row_constraints=(len(equations.values), *shapes.row_constraints[1:]),
        unit_constraints=(max(0, len(weights[0]) - equations.rank), *shapes.unit_constraints[1:]),
        noise=found.observed.noise,
    )
