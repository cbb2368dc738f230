"""Exact inversion of gradients of clients that drop units: by the first layer alone, whose rows dropout leaves intact.

Dropout behind the first linear layer changes what each row adds to that layer's gradient, ``sum_i D_i (x_i, 1)^T``,
but not which rows span its row space. Rows are proven in one of two ways. As needed: where the gradient shows as many
independent rows as the batch has, all of its rows are among those of the table that lie in the row space, and a row
outside the span of the others must be one of them. By silent units: under ReLU, units that a row leaves inactive get
nothing from it, dropped or not (`silent_units`), and the row space leaves no room for other categories. Labels depend
on the layers behind the dropout and are guessed.

The same holds for weight updates of clients of any network whose first layer sees the encoded row.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.attack import ExactInversion
from lightleak.attacks.gradient_inversion.exact.certify.alternatives import SPARE_TESTS
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import RowKind, estimate_feasibility
from lightleak.attacks.gradient_inversion.exact.certify.least_squares import STANDARD_ERRORS
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.enumerate.enumeration import CERTAIN, EnumerationLimits, enumerate_rows
from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.exact.repair.missing import guess_rows
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import FLOAT32
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.fedavg.exact.agreement import independent
from lightleak.attacks.gradient_inversion.fedavg.exact.explain import gather
from lightleak.attacks.gradient_inversion.fedavg.exact.inversion import decomposed, sharpened
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import CAUTION, WeightUpdate, beyond_rank
from lightleak.attacks.gradient_inversion.fedavg.exact.proof import column_noise, settled_together, tested_alone
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain
from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain
from lightleak.attacks.gradient_inversion.network.dropout import drops, require_whole_rows
from lightleak.attacks.gradient_inversion.network.of_update import layer_gradients, names_of_layers, row_network
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork, with_one
from lightleak.attacks.gradient_inversion.tables.by_row import ByRow
from lightleak.attacks.gradient_inversion.tables.entropy import cell_uncertainty
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain, Tie
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.certificate import NUMBERS_WITHIN, Feasibility
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder

LIMITS = EnumerationLimits(hits=400_000)
"""Of the enumeration of rows in the row space."""

MOST_COMPARED = 2000
"""Rows in the row space up to which it is decided which of them the others cannot replace."""

BEYOND = 0.1
"""Part of a number's range by which a row may exceed the server's bounds. With a quarter or more, sums of rows of the
batch left nothing to prove after several local steps of 6 rows."""

INDEPENDENT = 1e-5
"""Singular values of rows below this part of the largest are the rounding of their numbers."""

ALONE = 1e-9
"""What a row's leverage among others may lack of 1 where they do not span it: the square of 3e-5."""


class ExactOrFirstLayer(ExactInversion):
    """`ExactInversion`, which also serves clients that drop units behind the first linear layer; see the module."""

    def check_network(self, update: ClientUpdate) -> None:
        """Refuse networks whose layers test no rows, and those that drop units in front of the first linear layer."""
        super().check_network(update)
        if drops(update):
            network = row_network(self._seen(update, TableEncoder.of(update))[0])
            require_first_layer(network, "clients train with dropout")
            require_whole_rows(update, names_of_layers(update, network)[0])

    def _rows(self, update: ClientUpdate, encoder: TableEncoder, prior: RowPrior, seed: int) -> CertifiedRows:
        if not drops(update):
            return super()._rows(update, encoder, prior, seed)
        network = row_network(update, encoder.shift.device)
        observed = layer_gradients(update, network)
        draws = generator(seed, self.name)
        chain = ReLUChain.of(update, encoder.shift.device) if relu_chain(client_network(update)) else None
        first = FirstLayer.of(network, observed, update.facts.n_rows, encoder, prior)
        found = first.by_silent_units(chain, draws) if chain is not None else None
        if found is None or not bool(found.proof.cells.all()) or len(found.codes) < update.facts.n_rows:
            counted = first.by_number()
            if found is None or len(counted.codes) > len(found.codes) or bool(counted.proof.cells.any()):
                found = counted
        why = "clients train with dropout: only the first layer, in front of it, tests rows"
        return certified_rows(first, found, draws, why, RowKind.of(encoder.schema))


def require_first_layer(network: RowNetwork, why: str) -> None:
    """Check that a network has a first layer that sees cells.

    Raises:
        UnsupportedError: it has none, as tokens are mixed before any.
    """
    if not network.first_sees_cells:
        raise UnsupportedError(f"{why}, so only a first linear layer on cells would test rows, and there is none")


@dataclass(frozen=True)
class Rows(ByRow):
    """Distinct rows that the first layer shows.

    Attributes:
        codes: LongTensor ``[n, K]``, coordinates of a `RowDomain`.
        numbers: likewise ``[n, F]``.
        proof: what is proven of them.
    """

    codes: Tensor
    numbers: Tensor
    proof: Proof


@dataclass(frozen=True)
class FirstLayer:
    """A first layer's gradient and what it says of its rows.

    Attributes:
        residual: nothing explained yet.
        space: rows that may be in the batch.
        equations: of the rows' span.
        noise: deviation of the errors in the gradient's elements.
        prior: of the cells.
    """

    residual: Residual
    space: RowDomain
    equations: RowEquations
    noise: float
    prior: RowPrior

    @classmethod
    def of(
        cls,
        network: RowNetwork,
        observed: tuple[Tensor, ...],
        n_rows: int,
        encoder: TableEncoder,
        prior: RowPrior,
        rounding: float | None = None,
    ) -> "FirstLayer":
        """From the gradient of every layer, as `layer_gradients` returns it.

        Args:
            network: whose gradient it is.
            observed: the gradient.
            n_rows: of the batch.
            encoder: of the rows.
            prior: of the cells.
            rounding: deviation of the errors of the first layer's elements; None: that of a float32 gradient.
        """
        first, seen = observed[0], network.first_input
        residual = Residual.of(network, observed, n_rows)
        noise = FLOAT32 * float(first.square().mean().sqrt()) if rounding is None else rounding
        noise = max(noise, CAUTION * beyond_rank(first, n_rows))
        ties: dict[int, Tie] | None = None if seen is None else {}
        space = infer_domain(residual.columns, encoder, prior, n_rows, ties=ties, noise=rounding)
        shown = int((torch.linalg.svdvals(first) > noise * sum(side**0.5 for side in first.shape)).sum())
        equations = RowEquations.of(first, space, min(n_rows, shown), noise, seen)
        return cls(residual, space, equations, noise, prior)

    @property
    def n_rows(self) -> int:
        """Of the batch."""
        return self.residual.n_rows

    @property
    def shows_all(self) -> bool:
        """Whether the gradient shows as many independent rows as the batch has: then they all are distinct."""
        return self.equations.rank == self.n_rows

    def by_silent_units(self, chain: ReLUChain, draws: torch.Generator) -> Rows:
        """Rows of a ReLU network that pass the tests of their inactive units."""
        observed = WeightUpdate(chain, chain, self.residual.observed, 1, 1.0, self.noise)
        _, rows = gather(observed, self.equations, LIMITS, draws)
        cells = torch.zeros(len(rows), dtype=torch.bool, device=rows.codes.device)
        if self.shows_all and len(rows):
            alone, _ = tested_alone(observed, self.equations, rows.codes, rows.numbers)
            cells = alone & rows.unique & rows.precise
            if len(rows) == self.n_rows:
                fit = sharpened(observed, self.space, decomposed(observed, self.equations, rows))
                together = settled_together(observed, self.space, fit, self.equations.rank)
                if bool(together.cells.any()):
                    return Rows(fit.codes, fit.numbers, together)
        return Rows(rows.codes, rows.numbers, Proof(cells, cells))

    def by_number(self) -> Rows:
        """Rows that lie in the row space; proven are those without which the others would not span it."""
        network, q = self.residual.network, len(self.equations.values)
        # A row of the batch beyond the server's bounds must not be missing from the list, unless it is far beyond them.
        found = enumerate_rows(
            self.residual.observed[0], self.space.widened(BEYOND), self.equations.rank, 0.0, LIMITS, network.first_input
        )
        deviation = self._deviation(found.codes, found.numbers)
        near = found.distance <= (q**0.5 + CERTAIN) * deviation
        codes, numbers, deviation = found.codes[near], found.numbers[near], deviation[near]
        if not 0 < len(codes) <= MOST_COMPARED:
            return Rows(codes[:0], numbers[:0], Proof.nothing(codes[:0]))
        coordinates = self.equations.coordinates(codes, numbers)
        needed = self._needed(coordinates)
        inside = ((self.space.clamp(numbers) - numbers).abs() < LIMITS.tolerance).all(1)
        # Rows of equal categories leave their numbers open. Behind embeddings a row of the batch may be missing from
        # the list: one certificate of pytorch-frame's ResNet was wrong.
        complete = (
            self.shows_all
            and network.first_input is None
            and self.equations.determines(list(range(len(self.space.free))))
        )
        if not complete or not float((q**0.5 + CERTAIN) * deviation.max()) < LIMITS.tolerance:
            cells = torch.zeros_like(needed)
        else:
            cells = needed & inside
        error = STANDARD_ERRORS * deviation.unsqueeze(1) * torch.linalg.pinv(self.equations.of_numbers).norm(dim=1)
        allowed = NUMBERS_WITHIN * self.space.encoder.deviation[list(self.space.free)] / self.space.unit
        proof = Proof(cells, cells & (error < allowed).all(1))
        cost = (~needed).double() + found.distance[near]
        order = cost.argsort(stable=True)
        chosen = independent(coordinates, order[inside[order]], INDEPENDENT)[: self.n_rows]
        return Rows(codes, numbers, proof)[chosen]

    def _needed(self, coordinates: Tensor) -> Tensor:
        """Rows outside the span of all others that lie in the row space: each is in the batch, whose rows span it."""
        _, singular, right = torch.linalg.svd(coordinates, full_matrices=False)
        basis = right[singular > INDEPENDENT * singular[0]]
        within = coordinates @ basis.T
        leverage = (within @ torch.linalg.pinv(within)).diagonal()
        return (1 - leverage < ALONE) & (len(basis) == self.n_rows)

    def _deviation(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Deviation of the noise in one equation of rows ``[n]``."""
        network, equations = self.residual.network, self.equations
        if network.first_input is None:
            grown = column_noise(self.space)
            return grown * replace(equations, noise=self.noise).deviation(codes, numbers)
        x = self.space.encode(self.space.cells(codes, numbers))
        v = with_one(x @ network.first_input.weight.T + network.first_input.bias)
        return self.noise * (v @ equations.span.T / equations.singular).norm(dim=1)


def certified_rows(first: FirstLayer, found: Rows, draws: torch.Generator, why: str, kind: RowKind) -> CertifiedRows:
    """The rows with guessed labels, and guesses for the missing ones.

    Args:
        first: what they were found by.
        found: the rows.
        draws: of random rows.
        why: begins the reason of what is expected: why the first layer alone is read.
        kind: of the rows.
    """
    residual, space, encoder = first.residual, first.space, first.space.encoder
    network, device = residual.network, residual.x.device
    cells = space.cells(found.codes, found.numbers)
    x = space.encode(cells)
    labels, left = _guessed_labels(network, residual, x)
    counts = torch.eye(network.n_classes).to(x)[labels]
    guessed, guessed_labels = guess_rows(residual.with_rows(x, counts), space, first.prior, draws)
    codes, numbers = (torch.cat([part, more]) for part, more in zip(cells, guessed, strict=True))
    return CertifiedRows(
        encoder.assemble(codes, numbers),
        torch.cat([labels, guessed_labels]),
        cell_uncertainty(encoder, first.prior, len(x), len(guessed_labels)),
        left,
        found.proof,
        torch.ones(len(x), dtype=torch.long, device=device),
        _feasibility(first, why, kind),
        len(guessed_labels),
        labels_proven=False,
    )


def _guessed_labels(network: RowNetwork, residual: Residual, x: Tensor) -> tuple[Tensor, float]:
    """The labels that suit the rows' shares in the first layer best, were nothing dropped; what no shares explain."""
    first = residual.observed[0]
    if not len(x):
        return torch.empty(0, dtype=torch.long, device=x.device), 1.0
    activations = network.forward(x)
    v = with_one(activations.hidden[0])
    shares = torch.linalg.pinv(v.T) @ first.T  # [r, h]
    each = torch.eye(network.n_classes).to(x).expand(len(x), -1, -1)
    expected = network.error_of_rows(0, activations, each, residual.n_rows)  # [r, classes, h]
    labels = torch.nn.functional.cosine_similarity(expected, shares.unsqueeze(1), dim=-1).argmax(1)
    return labels, float((first - shares.T @ v).norm() / first.norm())


def _feasibility(first: FirstLayer, why: str, kind: RowKind) -> Feasibility:
    """What the first layer alone promises."""
    found = estimate_feasibility(first.residual.observed, first.n_rows, kind=kind)
    equations, numbers = len(first.equations.values), len(first.space.free)
    enough = first.shows_all and equations >= numbers + SPARE_TESTS
    reason = f"{why}, by {equations} equations on a row of {numbers} numbers; labels are not proven"
    return replace(found, noise=first.noise, expected="partial" if enough else "approximate", reason=reason)
