"""The rows to return where an update tells nothing that a search could use: the best guess without it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.joint.decision import Cells
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.tables.entropy import cell_uncertainty
from lightleak.attacks.gradient_inversion.tables.guessed_rows import best_guess
from lightleak.core.certificate import Feasibility
from lightleak.core.observations import ClientUpdate
from lightleak.data.marginals import Marginals, statistics_marginals


@dataclass(frozen=True)
class Guess:
    """Rows drawn from what is believed of cells.

    Attributes:
        encoded: ``[n, d]``.
        cells: the same as cells.
    """

    encoded: Tensor
    cells: Cells

    @classmethod
    def of(cls, problem: JointProblem, update: ClientUpdate, seed: int) -> "Guess":
        """What the baseline `random` draws with the same seed and the same knowledge.

        Args:
            problem: whose prior says what may be known: marginals, if it rests on them, or else the encoder's
                statistics.
            update: for its marginals.
            seed: root of the random stream.
        """
        encoder = problem.space.encoder
        is_counted = problem.space.prior.source == "marginals" and update.marginals is not None
        marginals = Marginals.from_dict(update.marginals or {}) if is_counted else statistics_marginals(encoder)
        encoded = encoder.encode(best_guess(encoder.schema, marginals, update.facts.n_rows, seed))
        return cls(encoded, Cells(*encoder.project(encoded)))

    def reconstruction(self, problem: JointProblem, labels: Tensor, feasibility: Feasibility) -> CertifiedRows:
        """The guess as what an attack returns: nothing found, nothing proven.

        Args:
            problem: that it leaves unsolved.
            labels: how often every class occurs.
            feasibility: what was to be expected.
        """
        space, none = problem.space, self.encoded[:0]
        codes, numbers = space.coordinates((self.cells.codes, self.cells.values))
        residual = problem.value(JointRows(codes, numbers, labels)) ** 0.5
        uncertainty = cell_uncertainty(space.encoder, space.prior, 0, len(labels))
        multiplicity = torch.ones(0, dtype=torch.long)
        proof = Proof.nothing(none)
        return CertifiedRows(
            self.encoded, labels, uncertainty, residual, proof, multiplicity, feasibility, guesses=len(labels)
        )
