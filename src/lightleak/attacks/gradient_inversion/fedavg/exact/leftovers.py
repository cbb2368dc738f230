"""Rows that no exact test finds, from the whole update: all layers, on the straight way from start to end.

Rows that depend on each other linearly have no dual, so the first layer alone does not single them out. Together with
the rows found they are fitted to all layers (`lightleak.attacks.gradient_inversion.joint`); the way of the
weights is only known to a few percent, so what comes out is judged by the first layer's exact update afterwards.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate
from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.attacks.gradient_inversion.joint.continuous import one_hot_start, optimize, prior_start, stage_config
from lightleak.attacks.gradient_inversion.joint.coordinate_descent import descend
from lightleak.attacks.gradient_inversion.joint.gauss_newton import gauss_newton
from lightleak.attacks.gradient_inversion.joint.kernels import Kernels
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.optimize.labels import expand_counts, round_counts
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

MOST_NODES = 4
"""Points on the way at which gradients are taken: more change the model by less than its error."""

RIDGE = 1e-2
"""Of the whitened distance; see `Kernels.whitened`."""

KNOWN_LOGIT = 6.0
"""Logit of a known category at the start of the continuous stage: a share of 99.7 % or more."""

SAMPLE = 1000
"""Random rows whose mean probabilities stand in for those of the rows that are not known."""

CONTINUOUS = stage_config(
    learning_rate=0.2,
    numerical_learning_rate=0.05,
    temperature_end=0.2,
    mask_width=0.2,
    mask_width_end=0.02,
)
"""Settings of the continuous stage, but for its steps."""

ROUNDS = 4
"""Most rounds of coordinate descent and Gauss-Newton steps."""

STALLED = 0.9
"""A round that leaves more than this part of the distance is the last."""

SWEEPS, STEPS = 8, 5
"""Sweeps of coordinate descent and Gauss-Newton steps in a round."""


@dataclass(frozen=True)
class Known:
    """Rows that the tests found.

    Attributes:
        codes: LongTensor ``[m, K]``.
        numbers: ``[m, F]``, a guess where they are not sure.
        labels: LongTensor ``[m]``, likewise a guess where the row is not fixed.
        fixed: categories and label are known, bool ``[m]``; those of other rows are only where the fit starts.
        sure: so are the numbers, bool ``[m]``.
    """

    codes: Tensor
    numbers: Tensor
    labels: Tensor
    fixed: Tensor
    sure: Tensor


def problem_of(observed: WeightUpdate, space: RowDomain, n_rows: int, generator: torch.Generator) -> JointProblem:
    """The update as a sum of the rows' gradients at a few points of the way."""
    n_nodes = min(MOST_NODES, observed.steps)
    chains = [observed.between(observed.last * (k + 0.5) / n_nodes) for k in range(n_nodes)]
    nodes = Nodes.of(chains, [1 / n_nodes] * n_nodes)
    kernels = Kernels.whitened(nodes, space, RIDGE, generator)
    return JointProblem(space, nodes, kernels, observed.gradient, n_rows)


def fit_layers(
    problem: JointProblem, known: Known, n_rows: int, steps: int, generator: torch.Generator
) -> tuple[JointRows, float]:
    """All rows, the known ones first, and their relative value.

    Args:
        problem: see `problem_of`.
        known: rows found.
        n_rows: rows in all.
        steps: of the continuous stage.
        generator: a CPU generator.
    """
    m, seed = len(known.codes), int(torch.randint(2**31, (1,), generator=generator))
    labels = torch.cat([known.labels, _other_labels(problem, known, n_rows, generator)])
    start = prior_start(problem.space, n_rows, seed, 0)
    start[:m] = one_hot_start(problem.space, JointRows(known.codes, known.numbers, known.labels), KNOWN_LOGIT)
    chains = problem.nodes.chains
    middle = replace(problem, nodes=Nodes.of([chains[len(chains) // 2]]))
    (rows,) = optimize(middle, start.unsqueeze(0), labels, replace(CONTINUOUS, steps=steps))
    rows, value = _kept(rows, known), float("inf")
    for _ in range(ROUNDS):
        rows = _kept(descend(problem, rows, SWEEPS, generator), known)
        rows, reached = gauss_newton(problem, rows, STEPS)
        rows = _kept(rows, known)
        if reached > value * STALLED:
            break
        value = reached
    return rows, problem.value(rows)


def _other_labels(problem: JointProblem, known: Known, n_rows: int, generator: torch.Generator) -> Tensor:
    """Labels of the other rows: what the last bias says of their number, in no order."""
    chain = problem.nodes.chains[len(problem.nodes.chains) // 2]
    rows = problem.space.rows.of(*problem.space.draw(SAMPLE, generator, from_prior=True))
    mean = chain.forward(rows).probabilities.mean(0)
    counts = n_rows * (mean - problem.target[-1][:, -1])
    counts = (counts - torch.bincount(known.labels, minlength=chain.n_classes)).clamp_min(0).cpu()
    others = n_rows - len(known.codes)
    return expand_counts(round_counts(counts * others / counts.sum().clamp_min(1e-9), others)).to(rows.device)


def _kept(rows: JointRows, known: Known) -> JointRows:
    """The rows with the fixed ones put back; their numbers only where they are sure."""
    m = len(known.codes)
    codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
    codes[:m] = torch.where(known.fixed.unsqueeze(-1), known.codes, codes[:m])
    labels[:m] = torch.where(known.fixed, known.labels, labels[:m])
    numbers[:m] = torch.where((known.fixed & known.sure).unsqueeze(-1), known.numbers, numbers[:m])
    return JointRows(codes, numbers, labels)
