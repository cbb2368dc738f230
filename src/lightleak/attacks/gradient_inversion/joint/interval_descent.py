"""Rows improved one by one within the intervals of a gradient, as `coordinate_descent` does it by a squared distance.

How far a gradient is beyond intervals has no expansion that would spare the gradient: every candidate's is formed. That
also allows for whole rows of other solutions as candidates, which combines what each start has found.
"""

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.coordinate_descent import neighbor, number_moves
from lightleak.attacks.gradient_inversion.joint.intervals import Intervals
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows

LEAST_GAIN = 1e-3
"""What a change must gain at least, in units of the cost: less is rounding of float32, and would move rows for ever."""


def descend_within(
    problem: JointProblem, intervals: Intervals, rows: JointRows, sweeps: int, generator: torch.Generator
) -> JointRows:
    """Sweep over all rows in random order, trying every change of one cell with every label.

    Args:
        problem: the rows, their network and prior.
        intervals: what rows are held against.
        rows: where to start.
        sweeps: at most so many, until one changes nothing.
        generator: a CPU generator.
    """
    intervals, classes = intervals.to(torch.float32), problem.nodes.weights[-1].shape[1]
    for _ in range(sweeps):
        codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
        tried = number_moves(problem.space, numbers, generator)
        total, changed = _float32(problem.gradient(rows)), 0
        for i in torch.randperm(len(codes), generator=generator).tolist():
            terms = problem.terms_around(codes[i], numbers[i], tried[i], torch.float32)
            coefficients, label = terms.coefficients(problem.n_rows), int(labels[i])
            hidden = tuple(h[0] for h in terms.hidden)
            errors = [tuple(e[0] for e in terms.weighted(coefficients[:, c])) for c in range(classes)]
            rest = _added(total, errors[label], hidden, 0, -1.0)
            penalties = problem.penalties_around(codes[i], numbers[i], tried[i]).float()
            each = torch.stack([intervals.with_term(rest, errors[c], hidden) for c in range(classes)], 1)
            energy = each + problem.prior_weight * penalties.unsqueeze(1)
            choice, to = divmod(int(energy.argmin()), classes)
            if not float(energy[choice, to]) < float(energy[0, label]) - LEAST_GAIN:
                continue
            codes[i], numbers[i] = neighbor(problem.space, codes[i], numbers[i], tried[i], choice)
            labels[i] = to
            total = _added(rest, errors[to], hidden, choice)
            changed += 1
        rows = JointRows(codes, numbers, labels)
        if not changed:
            break
    return rows


def exchange(
    problem: JointProblem, intervals: Intervals, rows: JointRows, pool: JointRows, generator: torch.Generator
) -> JointRows:
    """Sweep once over all rows, trying every row of a pool, with its label, in the place of each.

    Args:
        problem: see `descend_within`.
        intervals: likewise.
        rows: where to start.
        pool: rows of other solutions.
        generator: a CPU generator.
    """
    intervals = intervals.to(torch.float32)
    codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
    total = _float32(problem.gradient(rows))
    for i in torch.randperm(len(codes), generator=generator).tolist():
        tried = JointRows(codes[i : i + 1], numbers[i : i + 1], labels[i : i + 1]).joined(pool)
        terms = problem.terms(tried.codes, tried.numbers, torch.float32)
        errors = tuple(e[0] for e in terms.weighted(terms.of_labels(tried.labels, problem.n_rows)))
        hidden = tuple(h[0] for h in terms.hidden)
        rest = _added(total, errors, hidden, 0, -1.0)
        penalties = problem.penalties(tried.codes, tried.numbers).float()
        energy = intervals.with_term(rest, errors, hidden) + problem.prior_weight * penalties
        best = int(energy.argmin())
        if not float(energy[best]) < float(energy[0]) - LEAST_GAIN:
            continue
        codes[i], numbers[i], labels[i] = tried.codes[best], tried.numbers[best], tried.labels[best]
        total = _added(rest, errors, hidden, best)
    return JointRows(codes, numbers, labels)


def _float32(gradient: Gradient) -> tuple[Tensor, ...]:
    return tuple(layer.float() for layer in gradient)


def _added(gradient: Gradient, errors: Gradient, hidden: Gradient, row: int, sign: float = 1.0) -> Gradient:
    """A gradient with one row's term, ``errors`` ``[m, out]`` by ``hidden`` ``[m, in + 1]``, added to it."""
    each = zip(gradient, errors, hidden, strict=True)
    return tuple(torch.addr(layer, e[row], h[row], alpha=sign) for layer, e, h in each)
