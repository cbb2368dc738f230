"""Joint inversion of updates of which a client sent the signs alone, by an attacker who knows that.

A sign per element is far more than it looks: 20,902 bits about 448 cells. The column of a category that no row has is
proportional to the bias's, so that its signs tell which categories occur, and what a batch's gradient looks like is
known for every batch. Rows are those whose gradient has the signs that were sent: starts of the engine on a likelihood
of signs (`signs`), then single cells, and rows exchanged between starts (`sign_descent`).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.attacks.attack import Progress
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import estimate_feasibility, row_kind
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion, certified_rows, pose
from lightleak.attacks.gradient_inversion.joint.cell_prior import CellPrior
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.continuous import Widths, one_hot_start, optimize, prior_start
from lightleak.attacks.gradient_inversion.joint.course import WIDTH, WIDTH_END, Report, Solution, fresh, reporting
from lightleak.attacks.gradient_inversion.joint.decision import Cells, expected_right
from lightleak.attacks.gradient_inversion.joint.guess import Guess
from lightleak.attacks.gradient_inversion.joint.labels import starting_labels
from lightleak.attacks.gradient_inversion.joint.pooling import pooled
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.joint.sign_descent import descend_signs, exchange
from lightleak.attacks.gradient_inversion.joint.signs import Signs, are_signs, gradient_of, objective
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.encoder import TableEncoder

PRIOR_WEIGHT = 0.25
"""What a nat of the prior counts, in nats of the signs' likelihood; the engine counts it `BELIEF` times. Measured as
`FACTOR`, share of cells after the engine: 81% at a tenth of it, 77% at ten times."""

AMPLITUDE = 3.0
"""Logit of the present categories where the engine resumes: low enough for it to leave them."""


@dataclass(frozen=True)
class SignsConfig(JointConfig):
    """Settings of the attack on signs; see `JointConfig`.

    Attributes:
        restarts: starts.
        steps: the engine's steps of each.
        sweeps: most sweeps over single cells after every run of the engine.
        rounds: in each, rows are exchanged, and the engine resumes from the best ones.
        round_steps: its steps then.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    owner: ClassVar[str] = "exact_signs"

    restarts: int = 6
    steps: int = 1200
    sweeps: int = 2
    rounds: int = 3
    round_steps: int = 800


class SignInversion(JointInversion):
    """Recover all rows of a FedSGD batch of which a client sent the signs of the gradient.

    Needs what joint inversion needs, and that the elements of every tensor have one size, or zero. With two classes the
    last bias' size gives their counts. Nothing is certified, as signs leave numbers open. Where independent starts have
    less in common with each other than with the best guess, the guess is returned.
    """

    name = "exact_signs"
    title = "Inversion of signs"
    combines_releases: ClassVar[bool] = False
    config: SignsConfig

    def check_protocol(self, update: ClientUpdate) -> None:
        """See `JointInversion`; an update that is not of signs is refused."""
        super().check_protocol(update)
        if not are_signs(update.update.values()):
            raise ObservationError(
                f"{self.name} inverts signs, and this update has tensors with elements of many sizes"
            )

    def invert(
        self, update: ClientUpdate, encoder: TableEncoder, seed: int, progress: Progress | None
    ) -> CertifiedRows:
        """See `CertifyingInversion.invert`."""
        sent = observed_gradient(update, encoder.shift.device)
        size = float(torch.cat([layer.flatten() for layer in sent]).square().mean() ** 0.5)
        problem = replace(pose(update, encoder, sent, size, self.config), prior_weight=PRIOR_WEIGHT)
        draws = generator(seed, "signs")
        labels, guess = starting_labels(update, problem.space, draws), Guess.of(problem, update, seed)
        signs = Signs.of(problem, labels, draws)
        problem = with_present(problem, signs.sent[0])
        feasibility = estimate_feasibility(sent, update.facts.n_rows, size, row_kind(update, encoder))
        found = solve_signs(
            problem, signs, labels, self.config, draws, derive_seed(seed, "signs"), reporting(progress), guess.cells
        )
        missed = signs.missed(gradient_of(problem, found.rows))
        if found.is_guess_better and missed:  # rows that have every sign explain what was sent
            return guess.reconstruction(problem, labels, feasibility)
        return replace(certified_rows(problem, update, found, feasibility), residual=missed)


def solve_signs(
    problem: JointProblem,
    signs: Signs,
    labels: Tensor,
    config: SignsConfig,
    draws: torch.Generator,
    seed: int,
    report: Report,
    guess: Cells | None = None,
) -> Solution:
    """The rows under which the signs sent are likeliest, of several starts and rounds.

    Args:
        problem: with plain kernels and a prior.
        signs: what rows are held against.
        labels: to start from ``[n]``.
        config: the settings.
        draws: a CPU generator, for moves.
        seed: root of the starts.
        report: called with the share of the work done.
        guess: rows that were guessed without the update.
    """
    widths, sharp = Widths.of(problem), signs.at(1.0)
    runs, engine_signs = config.restarts + config.rounds, signs.to(torch.float32)

    def run(start: Tensor, labels: Tensor, steps: int) -> JointRows:
        settings = fresh(steps, WIDTH, WIDTH_END)
        rows = optimize(problem, start.unsqueeze(0), labels, settings, widths, engine_signs)[0]
        return descend_signs(problem, sharp, rows, config.sweeps, draws)

    def value(rows: JointRows) -> float:
        return objective(problem, sharp, rows)

    found: list[JointRows] = []
    for restart in range(config.restarts):
        found.append(run(prior_start(problem.space, problem.n_rows, seed, restart), labels, config.steps))
        report((restart + 1) / runs)
    starts, best = list(found), min(found, key=value)
    for done in range(config.rounds):
        pool = found[0]
        for other in found[1:]:
            pool = pool.and_also(other)
        best = exchange(problem, sharp, best, pool, draws)
        best = descend_signs(problem, sharp, best, config.sweeps, draws)
        found.append(best)
        found.append(run(one_hot_start(problem.space, best, AMPLITUDE), best.labels, config.round_steps))
        best = min(best, found[-1], key=value)
        report((config.restarts + done + 1) / runs)
    _, ensemble = pooled(problem.space, [best, *starts], 0)
    is_guess_better = guess is not None and _is_guess_better(problem, starts, guess)
    return Solution(best, problem.value(best), tuple(ensemble), is_guess_better)


def _is_guess_better(problem: JointProblem, starts: list[JointRows], guess: Cells) -> bool:
    """Whether the guess has as many cells in common with independent starts as these have with each other."""
    cells, encoder = [Cells.of(problem, rows) for rows in starts], problem.space.encoder
    if len(cells) < 2:
        return False
    with_others = [expected_right(one, [o for o in cells if o is not one], encoder) for one in cells]
    return expected_right(guess, cells, encoder) >= sum(with_others) / len(with_others)


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
