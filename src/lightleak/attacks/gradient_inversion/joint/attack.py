"""Joint inversion as an attack: ``run(update) -> Reconstruction`` beyond the rank limit and under noise."""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot, sqrt
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.attack import Progress
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import estimate_feasibility, row_kind
from lightleak.attacks.gradient_inversion.exact.certify.inexact_proof import fit_under_error
from lightleak.attacks.gradient_inversion.exact.certify.proof import proven_together
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows, CertifyingInversion, Config
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.attacks.gradient_inversion.joint.capacity import is_hopeless
from lightleak.attacks.gradient_inversion.joint.cell_prior import CellPrior, ties_of_marginals
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.course import Solution, Work, reporting, solve, solve_noised
from lightleak.attacks.gradient_inversion.joint.guess import Guess
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient, Kernels
from lightleak.attacks.gradient_inversion.joint.labels import starting_labels
from lightleak.attacks.gradient_inversion.joint.noise import error_variances, estimated_noise, noise_error
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.joint.visible_rows import visible_rows
from lightleak.attacks.gradient_inversion.network.chain import (
    ReLUChain,
    SmoothChain,
    any_chain,
    chain_names,
    observed_gradient,
)
from lightleak.attacks.gradient_inversion.network.checks import require_even_batches, require_one_gradient
from lightleak.attacks.gradient_inversion.network.dropout import require_whole_rows
from lightleak.attacks.gradient_inversion.network.of_update import names_of_layers, row_network
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork
from lightleak.attacks.gradient_inversion.tables.entropy import cell_entropy, cell_uncertainty
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import PriorSource, RowPrior
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.certificate import Feasibility
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals

CITATION = "LightLeak: all rows of a batch moved against the whole gradient, with derivatives of ReLU's masks"


class OneGradientInversion(CertifyingInversion[Config]):
    """An attack on all rows of one client's FedSGD gradient at once, behind ReLU or one smooth activation."""

    citation = CITATION

    def check_network(self, update: ClientUpdate) -> None:
        """See `CertifyingInversion.check_network`; a smooth activation is served as well."""
        require_whole_rows(update, chain_names(update)[0])

    def check_protocol(self, update: ClientUpdate) -> None:
        """Refuse weight deltas, aggregates, and a gradient of zeros."""
        require_one_gradient(self.name, update)
        require_even_batches(self.name, update)
        if not any(bool(value.any()) for value in update.update.values()):
            raise ObservationError(f"{self.name} fits rows to a gradient, and this one is zero in every element")


class JointInversion(OneGradientInversion[JointConfig]):
    """Recover all rows of a FedSGD batch together, labels included, where single rows cannot be distinguished.

    Needs a network of linear layers with ReLU or one smooth activation between them, at least one of them hidden, and
    no labels. Under noise, rows that stand out of it are found one at a time (`visible_rows`), the others together;
    where it hides what a search needs, the best guess is returned (`capacity`, `decision`).
    Rows are certified where the batch explains the gradient to its rounding, or to its noise, and they could have no
    other cells, and likely otherwise.
    """

    name = "exact_joint"
    title = "Exact inversion of all rows jointly"
    combines_releases: ClassVar[bool] = True

    def check(self, update: ClientUpdate) -> None:
        """See `CertifyingInversion.check`; several releases must all be noised, as that is what they average out.

        Raises:
            ObservationError: one of several releases has no noise.
            UnsupportedError: see `CertifyingInversion.check`.
        """
        super().check(update)
        if update.further_updates and min(self._releases(update, TableEncoder.of(update))[1]) == 0:
            raise ObservationError(f"{self.name} combines releases behind noise, and one of these has none")

    def _releases(self, update: ClientUpdate, encoder: TableEncoder) -> tuple[list[Gradient], list[float]]:
        """The gradient of every release, and the deviation of its noise."""
        observed = [observed_gradient(release, encoder.shift.device) for release in update.releases]
        if self.config.noise is not None:
            return observed, [self.config.noise] * len(observed)
        return observed, [estimated_noise(gradient, encoder) for gradient in observed]

    def invert(
        self, update: ClientUpdate, encoder: TableEncoder, seed: int, progress: Progress | None
    ) -> CertifiedRows:
        """See `CertifyingInversion.invert`."""
        observed, noises = self._releases(update, encoder)
        noise = hypot(*noises) / sqrt(len(noises))
        problem = pose(update, encoder, observed[0], noise, self.config.prior, self.config.ridge)
        if len(observed) > 1:
            chains = [any_chain(release, encoder.shift.device) for release in update.releases]
            problem = together(problem, chains, observed, noises)
        feasibility = estimate_feasibility(observed[0], update.facts.n_rows, noise, row_kind(update, encoder))
        if noise != 0:
            errors = [error_variances(o, s) for o, s in zip(observed, noises, strict=True)]
            estimate_error = noise_error(observed[0], encoder) if self.config.noise is None else 0.0
            return behind_errors(
                problem, update, observed, errors, self.config, seed, feasibility, progress, estimate_error
            )
        draws, report = generator(seed, "joint"), reporting(progress)
        labels = starting_labels(update, problem.space, draws)
        found = solve(problem, labels, Work(self.config, draws, derive_seed(seed, "joint"), report))
        rows = certified_rows(problem, update, found, feasibility, observed)
        report(1.0)
        return rows


def behind_errors(
    problem: JointProblem,
    update: ClientUpdate,
    observed: Sequence[Gradient],
    variances: Sequence[Sequence[Tensor]],
    config: JointConfig,
    seed: int,
    feasibility: Feasibility,
    progress: Progress | None = None,
    estimate_error: float = 0.0,
    proves: bool = True,
) -> CertifiedRows:
    """The rows behind gradients with errors: first those that stand out, then the others; or the best guess.

    Args:
        problem: with a prior, see `solve_noised`.
        update: whose gradients are inverted.
        observed: the gradient of every release.
        variances: of the error of every element of each, above 0.
        config: the settings.
        seed: root of all random streams.
        feasibility: what was to be expected.
        progress: called with the share of the work done since the last call.
        estimate_error: of the root of the variances, relative, where they are estimated.
        proves: whether errors are independent of each other and as the variances say, so that rows may be certified.
    """
    draws, report = generator(seed, "joint"), reporting(progress)
    labels = starting_labels(update, problem.space, draws)
    guess = Guess.of(problem, update, seed)
    if is_hopeless(problem, labels, generator(seed, "believed")):
        report(1.0)
        return guess.reconstruction(problem, labels, feasibility)
    visible = None
    if len(observed) == 1:
        visible = rows_that_stand_out(problem, update, variances[0], draws)
    work = Work(config, draws, derive_seed(seed, "joint"), report)
    found = solve_noised(problem, labels, work, visible, guess.cells)
    if found.is_guess_better:
        return guess.reconstruction(problem, labels, feasibility)
    rows = certified_rows(problem, update, found, feasibility, observed, variances if proves else None, estimate_error)
    report(1.0)
    return rows


def _certifying(problem: JointProblem, update: ClientUpdate) -> tuple[RowNetwork, tuple[int, ...]]:
    """The network of an update, as certificates need it, and its layers that test rows."""
    if problem.nodes.activation.smooth is None:
        chain = ReLUChain.of(update, problem.space.encoder.shift.device)
        return chain, tuple(range(chain.depth))
    network, names = row_network(update, problem.space.encoder.shift.device), chain_names(update)
    return network, tuple(names.index(name) for name in names_of_layers(update, network))


def rows_that_stand_out(
    problem: JointProblem, update: ClientUpdate, variances: Sequence[Tensor], draws: torch.Generator
) -> JointRows:
    """Rows that stand out of a gradient's error, see `visible_rows`.

    Args:
        problem: whose target is that gradient.
        update: for its network.
        variances: of the error of every layer's elements ``[out, in + 1]``.
        draws: a CPU generator.
    """
    network, tested = _certifying(problem, update)
    observed = tuple(problem.target[layer] for layer in tested)
    return visible_rows(
        Residual.of(network, observed, problem.n_rows),
        problem.space,
        variances[tested[network.searched]],
        draws,
    )


def certified_rows(
    problem: JointProblem,
    update: ClientUpdate,
    found: Solution,
    feasibility: Feasibility,
    observed: Sequence[Gradient] = (),
    variances: Sequence[Sequence[Tensor]] | None = None,
    estimate_error: float = 0.0,
) -> CertifiedRows:
    """The solution's rows, with what is proven of them.

    Args:
        problem: what was solved.
        update: whose gradients were inverted.
        found: its solution.
        feasibility: what was to be expected.
        observed: the gradient of every release; not needed where ``variances`` are None.
        variances: of each gradient's error, see `fit_under_error`; None: rounding alone.
        estimate_error: of their root, relative, where that is estimated.
    """
    encoder, n = problem.space.encoder, len(found.rows.labels)
    networks, tested = zip(*(_certifying(problem, release) for release in update.releases), strict=True)
    codes, values = problem.space.cells(found.rows.codes, found.rows.numbers)
    encoded = encoder.assemble(codes, values.clamp(encoder.lower, encoder.upper))
    residual = problem.with_kernels(Kernels.plain(problem.nodes.depth)).value(found.rows) ** 0.5
    proof = Proof.nothing(encoded)
    if found.solved:
        uncertainty = cell_uncertainty(encoder, problem.space.prior, n, 0)
    else:
        members = found.ensemble or (found.rows,)
        each = [encoder.assemble(*problem.space.cells(m.codes, m.numbers)) for m in members]
        uncertainty = cell_entropy(encoder, torch.stack(each))
    if variances is not None and len(set(tested)) == 1:
        x, labels = encoded.double(), found.rows.labels
        sent, errors = ([tuple(one[layer] for layer in tested[0]) for one in each] for each in (observed, variances))
        fitted = fit_under_error(networks, sent, problem.space, x, labels, errors, estimate_error)
        if fitted is not None:
            encoded, proof = fitted.x.to(encoded), fitted.proof
    distinct, which, times = encoded.double().unique(dim=0, return_inverse=True, return_counts=True)
    if found.solved:
        labels = one_hot(found.rows.labels, networks[0].n_classes).to(distinct)
        counts = labels.new_zeros(len(distinct), labels.shape[1]).index_add(0, which, labels)
        target = tuple(problem.target[layer] for layer in tested[0])
        batch = Residual.of(networks[0], target, n).explaining(distinct, counts)
        proof = proven_together(batch, problem.space)[which]
    return CertifiedRows(encoded, found.rows.labels, uncertainty, residual, proof, times[which], feasibility)


def pose(
    update: ClientUpdate,
    encoder: TableEncoder,
    observed: Gradient,
    noise: float,
    prior: PriorSource,
    ridge: float = JointConfig.ridge,
) -> JointProblem:
    """The problem of a gradient: whitened and in the columns it shows, or plain with a prior where it is noised.

    Args:
        update: the observation.
        encoder: its encoder, on the device of the work.
        observed: its gradient.
        noise: deviation of the noise on its elements.
        prior: see `ExactSettings`.
        ridge: see `JointConfig`.
    """
    cells, n = RowPrior.of(update, encoder, prior), update.facts.n_rows
    nodes = Nodes.of([any_chain(update, encoder.shift.device)])
    if noise == 0:
        space = infer_domain(observed[0], encoder, cells, n)
        kernels = Kernels.whitened(nodes, space, ridge, generator(0, "second moments"))
        return JointProblem(space, nodes, kernels, observed, n)
    marginals = Marginals.from_dict(update.marginals) if cells.source == "marginals" and update.marginals else None
    whole = RowDomain.whole(encoder, cells)
    ties = {} if marginals is None else ties_of_marginals(encoder, marginals)
    space = RowDomain(encoder, cells, whole.present, {}, ties)
    kernels = Kernels.plain(nodes.depth)
    return JointProblem(space, nodes, kernels, observed, n, CellPrior.of(space, marginals), 2 * noise**2)


def together(
    problem: JointProblem,
    chains: Sequence[ReLUChain | SmoothChain],
    observed: Sequence[Gradient],
    noises: Sequence[float],
) -> JointProblem:
    """The problem of several noised releases of the same rows: their squared errors are summed, each by its noise.

    Args:
        problem: of one of them.
        chains: the network at each.
        observed: the gradient of each.
        noises: deviation of the noise on the elements of each.
    """
    shares = [(problem.prior_weight / 2) ** 0.5 / noise for noise in noises]
    nodes = Nodes.of(chains, shares, apart=True)
    target = tuple(torch.stack([s * g for s, g in zip(shares, of, strict=True)]) for of in zip(*observed, strict=True))
    return replace(problem, nodes=nodes, target=target)
