"""Joint inversion as an attack: ``run(update) -> Reconstruction`` beyond the rank limit and under noise."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import one_hot

from lightleak.attacks.attack import Progress, UpdateAttack
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import estimate_feasibility, row_kind
from lightleak.attacks.gradient_inversion.exact.certify.proof import proven_together
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.attacks.gradient_inversion.joint.cell_prior import CellPrior, ties_of_marginals
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.course import Solution, solve, solve_noised
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient, Kernels
from lightleak.attacks.gradient_inversion.joint.labels import starting_labels
from lightleak.attacks.gradient_inversion.joint.noise import estimated_noise
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, layer_names, observed_gradient
from lightleak.attacks.gradient_inversion.network.checks import require_fit
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.tables.entropy import cell_entropy
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.attacks.gradient_inversion.tables.uncertainty import cell_uncertainty
from lightleak.core.certificate import Certificate, RowStatus
from lightleak.core.devices import synchronize
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed, generator
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.data.marginals import Marginals

CITATION = "LightLeak: all rows of a batch moved against the whole gradient, with derivatives of the ReLU masks"


class JointInversion(UpdateAttack):
    """Recover all rows of a FedSGD batch together, labels included, where single rows cannot be told apart.

    Needs a network of linear layers with ReLU, at least one of them hidden, and no labels. Rows are certified
    where the batch explains the gradient to rounding and they could have no other cells, and likely otherwise.

    Args:
        config: the settings.
    """

    name = "exact_joint"
    citation = CITATION

    def __init__(self, config: JointConfig) -> None:
        self.config = config
        self.threat_model = ThreatModel(labels="restored", marginals=config.prior in ("auto", "marginals"))

    def options(self) -> dict[str, Any]:
        """The settings of the attack."""
        return self.config.to_dict()

    def check(self, update: ClientUpdate) -> None:
        """Refuse updates this attack has no meaning for.

        Raises:
            ObservationError: a weight delta, an aggregate, zeros, or tensors that do not fit the network.
            UnsupportedError: another loss, images, an encoding whose numbers are not affine, or a network that is no
                ReLU chain with a hidden layer.
        """
        facts = update.facts
        if update.kind != "gradient" or facts.epochs != 1:
            got = f"a {update.kind} of {facts.epochs or 'an unknown number of'} epochs (FedAvg)"
            raise ObservationError(f"{self.name} inverts one FedSGD gradient; this update is {got}")
        if facts.n_clients != 1:
            number = facts.n_clients or "an unknown number of clients"
            raise ObservationError(f"{self.name} inverts one client's gradient; this one aggregates {number}")
        if not any(bool(value.any()) for value in update.update.values()):
            raise ObservationError(f"{self.name} fits rows to a gradient, and this one is zero in every element")
        if facts.loss != "cross_entropy":
            raise UnsupportedError(f"{self.name} needs the loss 'cross_entropy', got {facts.loss!r}")
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
        observed = observed_gradient(update, device)
        noise = estimated_noise(observed, encoder) if self.config.noise is None else self.config.noise
        problem = pose(update, encoder, observed, noise, self.config)
        draws = generator(seed, "joint")
        labels = starting_labels(update, problem.space, draws)
        course = solve if noise == 0 else solve_noised
        report = _Differences(progress)
        found = course(problem, labels, self.config, draws, derive_seed(seed, "joint"), report)
        synchronize(device)
        reconstruction = self._reconstruction(update, problem, found, noise, began)
        report(1.0)
        return reconstruction

    def _reconstruction(
        self, update: ClientUpdate, problem: JointProblem, found: Solution, noise: float, began: float
    ) -> Reconstruction:
        encoder, n = problem.space.encoder, update.facts.n_rows
        codes, values = problem.space.cells(found.rows.codes, found.rows.numbers)
        encoded = encoder.assemble(codes, values.clamp(encoder.lower, encoder.upper))
        residual = problem.with_kernels(Kernels.plain(problem.nodes.depth)).value(found.rows) ** 0.5
        if found.solved:
            uncertainty = cell_uncertainty(encoder, problem.space.prior, n, 0)
        else:
            members = found.ensemble or (found.rows,)
            each = [encoder.assemble(*problem.space.cells(m.codes, m.numbers)) for m in members]
            uncertainty = cell_entropy(encoder, torch.stack(each), encoded)
        distinct, which, times = encoded.double().unique(dim=0, return_inverse=True, return_counts=True)
        cells, digits = torch.zeros(2, n, dtype=torch.bool)
        if found.solved:
            labels = one_hot(found.rows.labels, problem.nodes.weights[-1].shape[1]).to(distinct)
            counts = labels.new_zeros(len(distinct), labels.shape[1]).index_add(0, which, labels)
            nothing = Residual.of(problem.nodes.chains[0], problem.target, n)
            proof = proven_together(nothing.explaining(distinct, counts), problem.space)
            cells, digits = proof.cells[which], proof.digits[which]
        status: list[RowStatus] = ["certified" if sure else "likely" for sure in cells.tolist()]
        return Reconstruction(
            attack=self.name,
            threat_model=self.threat_model,
            rows=encoder.decode(encoded),
            labels=found.rows.labels.cpu(),
            encoded=encoded.cpu(),
            uncertainty=uncertainty,
            loss=residual,
            seconds=time.perf_counter() - began,
            certificate=Certificate(
                residual=residual,
                status=tuple(status),
                digits=tuple(digits.tolist()),
                multiplicity=tuple(times[which].tolist()),
                feasibility=estimate_feasibility(problem.target, n, noise, row_kind(update, encoder)),
            ),
        )


def pose(
    update: ClientUpdate, encoder: TableEncoder, observed: Gradient, noise: float, config: JointConfig
) -> JointProblem:
    """The problem of a gradient: whitened and in the columns it shows, or plain with a prior where it is noised.

    Args:
        update: the observation.
        encoder: its encoder, on the device of the work.
        observed: its gradient.
        noise: deviation of the noise on its elements.
        config: ridge and prior.
    """
    prior, n = RowPrior.of(update, encoder, config.prior), update.facts.n_rows
    nodes = Nodes.of([ReLUChain.of(update, encoder.shift.device)])
    if noise == 0:
        space = infer_domain(observed[0], encoder, prior, n)
        kernels = Kernels.whitened(nodes, space, config.ridge, generator(0, "second moments"))
        return JointProblem(space, nodes, kernels, observed, n)
    marginals = Marginals.from_dict(update.marginals) if prior.source == "marginals" and update.marginals else None
    whole = RowDomain.whole(encoder, prior)
    ties = {} if marginals is None else ties_of_marginals(encoder, marginals)
    space = RowDomain(encoder, prior, whole.present, {}, ties)
    kernels = Kernels.plain(nodes.depth)
    return JointProblem(space, nodes, kernels, observed, n, CellPrior.of(space, marginals), 2 * noise**2)


class _Differences:
    """Tells a progress of shares done since the last call what a course reports as shares done in all."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress, self.done = progress, 0.0

    def __call__(self, done: float) -> None:
        if self.progress is not None and done > self.done:
            self.progress(done - self.done)
        self.done = max(self.done, done)
