"""Some rows of a batch solved anew while the others stay: a small batch is far easier than a large one."""

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import EngineConfig
from lightleak.attacks.gradient_inversion.joint.continuous import Widths, optimize, prior_start
from lightleak.attacks.gradient_inversion.joint.pair_descent import Weighted, alike_pairs
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows


def doubtful_rows(problem: JointProblem, rows: JointRows, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows with another one like them (`alike_pairs`), LongTensor ascending: these may be wrong together unseen."""
    terms = Weighted.of(problem, rows.codes, rows.numbers, rows.labels, dtype)
    doubtful = sorted({i for pair in alike_pairs(terms, problem.kernels.to(dtype)) for i in pair})
    return torch.tensor(doubtful, dtype=torch.long, device=rows.codes.device)


def reopen(
    problem: JointProblem,
    rows: JointRows,
    chosen: Tensor,
    restarts: int,
    config: EngineConfig,
    widths: Widths,
    seed: int,
) -> list[JointRows]:
    """The batch with some rows found again from fresh starts, one result per start; labels stay.

    Args:
        problem: what rows are held against.
        rows: the batch.
        chosen: which rows, LongTensor, at least one.
        restarts: starts.
        config: of the engine.
        widths: of the problem's network.
        seed: root of the random streams.
    """
    others = torch.ones(len(rows.codes), dtype=torch.bool, device=chosen.device)
    others[chosen] = False
    rest = JointRows(rows.codes[others], rows.numbers[others], rows.labels[others])
    part = problem.without(rest)
    starts = torch.stack([prior_start(problem.space, len(chosen), seed, restart) for restart in range(restarts)])
    return [_with(rows, chosen, found) for found in optimize(part, starts, rows.labels[chosen], config, widths)]


def _with(rows: JointRows, chosen: Tensor, found: JointRows) -> JointRows:
    codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
    codes[chosen], numbers[chosen], labels[chosen] = found.codes, found.numbers, found.labels
    return JointRows(codes, numbers, labels)
