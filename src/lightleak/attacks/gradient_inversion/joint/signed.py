"""Joint inversion, by an attacker who knows it, of updates of signs, or of elements that were cut off and noised.

A sign per element is far more than it looks: 20,902 bits about 448 cells. The column of a category that no row has is
proportional to the bias's, so that its signs tell which categories occur, and what a batch's gradient looks like is
known for every batch. Rows are those whose gradient has the signs that were sent (`interval_course`).

Of NVFlare's SVTPrivacy, which sends some elements cut off at one size and with noise, see `noised_signs`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.attacks.attack import Progress
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import estimate_feasibility, row_kind
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.joint.attack import OneGradientInversion, certified_rows, pose
from lightleak.attacks.gradient_inversion.joint.capacity import gain_at_most
from lightleak.attacks.gradient_inversion.joint.cell_prior import CellPrior
from lightleak.attacks.gradient_inversion.joint.course import reporting
from lightleak.attacks.gradient_inversion.joint.guess import Guess
from lightleak.attacks.gradient_inversion.joint.interval_course import PRIOR_WEIGHT, IntervalsConfig, solve_within
from lightleak.attacks.gradient_inversion.joint.intervals import Intervals
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient
from lightleak.attacks.gradient_inversion.joint.labels import labels_within, starting_labels
from lightleak.attacks.gradient_inversion.joint.noised_signs import LEAST_GAIN, NATS, NoisedSigns
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.core.bounds import bounded
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.encoder import TableEncoder


@dataclass(frozen=True)
class SignsConfig(IntervalsConfig):
    """Settings of the attack on signs; see `IntervalsConfig` for the others.

    Attributes:
        cut: largest size of elements before Laplace noise was added, in the update's units; 0: only signs were sent. Of
            NVFlare's SVTPrivacy it is gamma, over ``scale`` of the defense.
        noise: scale of that noise; of SVTPrivacy twice the cut over ``noise_var``.

    Raises:
        UsageError: a value of the wrong type or out of range, or one of ``cut`` and ``noise`` without the other.
    """

    owner: ClassVar[str] = "exact_signs"

    cut: float = bounded(0.0, ge=0)
    noise: float = bounded(0.0, ge=0)

    def __post_init__(self) -> None:
        """See the class docstring."""
        super().__post_init__()
        if bool(self.cut) != bool(self.noise):
            raise UsageError(
                f"{self.owner}: cut and noise must both be 0 (signs were sent) or both be above 0, "
                f"got cut {self.cut:g} and noise {self.noise:g}"
            )


class SignInversion(OneGradientInversion[SignsConfig]):
    """Recover all rows of a FedSGD batch of which a client sent the signs of the gradient.

    Needs what joint inversion needs, and that the elements of every tensor have one size, or zero, unless ``cut`` is
    set. With two classes the last bias' size gives their counts, if only signs were sent. Nothing is certified.
    Where independent starts have less in common with each other than with the best guess, the guess is returned, and
    where noise leaves the values too little to tell (`NoisedSigns.nats`).
    """

    name = "exact_signs"
    title = "Inversion of signs"

    def check_protocol(self, update: ClientUpdate) -> None:
        """See `OneGradientInversion`; an update that is not of signs is refused."""
        super().check_protocol(update)
        if not self.config.cut and not are_signs(update.update.values()):
            raise ObservationError(
                f"{self.name} inverts signs, and this update has tensors with elements of many sizes; for "
                "elements that were cut off and noised, set cut (largest size before) and noise (its scale)"
            )

    def invert(
        self, update: ClientUpdate, encoder: TableEncoder, seed: int, progress: Progress | None
    ) -> CertifiedRows:
        """See `CertifyingInversion.invert`."""
        sent = observed_gradient(update, encoder.shift.device)
        size = float(torch.cat([layer.flatten() for layer in sent]).square().mean() ** 0.5)
        cut = self.config.cut
        weight = NATS if cut else PRIOR_WEIGHT
        problem = replace(pose(update, encoder, sent, size, self.config.prior), prior_weight=weight)
        draws = generator(seed, "signs")
        labels, guess = starting_labels(update, problem.space, draws), Guess.of(problem, update, seed)
        signs = Intervals.of(problem, of_signs(sent, torch.inf if cut else 0.0), labels, draws)
        feasibility = estimate_feasibility(sent, update.facts.n_rows, size, row_kind(update, encoder))
        report = reporting(progress)
        if cut:
            signs = NoisedSigns.of_signs(signs, sent, cut, self.config.noise)
            labels = labels_within(problem, signs, draws)  # the last bias was cut off, too
            if gain_at_most(signs.nats, guess.cells.count) < LEAST_GAIN:
                report(1.0)
                return guess.reconstruction(problem, labels, feasibility)
        else:
            problem = with_present(problem, sent[0].sign())
        found = solve_within(
            problem, signs, labels, self.config, draws, derive_seed(seed, "signs"), report, guess.cells
        )
        missed = signs.missed(problem.gradient(found.rows))
        if found.is_guess_better and missed:  # rows that have every sign explain what was sent; of noise nothing tells
            return guess.reconstruction(problem, labels, feasibility)
        return replace(certified_rows(problem, update, found, feasibility), residual=missed)


def with_present(problem: JointProblem, first: Tensor) -> JointProblem:
    """The problem of rows that have the categories which the signs of the first layer's gradient show.

    An absent category's encoded value is the same in every row: its column is that many times the bias's.

    Args:
        problem: of all categories, with a prior.
        first: signs ``[h, d + 1]``.
    """
    space, prior = problem.space, problem.prior
    assert prior is not None  # the attack's problem has one
    encoder, bias = space.encoder, first[:, -1:]
    there = (first[:, :-1] != -encoder.shift.sign() * bias).any(0)
    present = []
    for block in encoder.layout.categorical:
        own = there[block.slice].nonzero().flatten()
        present.append(own if len(own) else torch.arange(block.width, device=own.device))
    each = [share[kept] for share, kept in zip(prior.categories, present, strict=True)]
    # A share of those that are there, as minus logarithms.
    categories = tuple(minus + (-minus).logsumexp(0) for minus in each)
    narrowed = replace(space, present=tuple(present))
    return replace(problem, space=narrowed, prior=CellPrior(categories, prior.values, prior.numbers))


def of_signs(sent: Gradient, zero: float = 0.0) -> tuple[Gradient, Gradient]:
    """Lowest and highest values of elements whose signs were sent.

    Zero is zero (a unit that no row activates), or as large as ``zero`` in either direction.
    """
    least = torch.finfo(torch.float32).tiny
    lowest = (
        torch.where(layer > 0, least, torch.where(layer < 0, -torch.inf, torch.full_like(layer, -zero)))
        for layer in sent
    )
    highest = (
        torch.where(layer < 0, -least, torch.where(layer > 0, torch.inf, torch.full_like(layer, zero)))
        for layer in sent
    )
    return tuple(lowest), tuple(highest)


def are_signs(sent: Iterable[Tensor]) -> bool:
    """Whether the elements of every tensor have one size, but for zeros."""
    return all(bool(((part == 0) | (part.abs() == part.abs().max())).all()) for part in sent)
