"""Problems of joint inversion on made batches, with the truth in their coordinates for the tests alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.attacks.gradient_inversion.joint.kernels import Kernels
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator

Posed = Callable[..., tuple[JointProblem, JointRows]]


@pytest.fixture(scope="session")
def posed(make_batch: Any) -> Posed:
    """The problem of a batch of precise gradients, and the batch itself in its coordinates."""

    def pose(whitened: bool = False, **options: Any) -> tuple[JointProblem, JointRows]:
        batch = make_batch(**{"precise": True, **options})
        n = len(batch.x)
        space = infer_domain(batch.observed[0], batch.encoder, batch.prior, n)
        nodes = Nodes.of([batch.chain])
        kernels = Kernels.plain(nodes.depth)
        if whitened:
            kernels = Kernels.whitened(nodes, space, 1e-2, generator(0, "moments"))
        problem = JointProblem(space, nodes, kernels, batch.observed, n)
        codes, numbers = space.coordinates(batch.cells)
        return problem, JointRows(codes, numbers, batch.truth.labels.clone())

    return pose


@pytest.fixture(scope="session")
def changed() -> Callable[..., JointRows]:
    """Rows with one row's cells replaced."""

    def change(rows: JointRows, index: int, other: JointRows, at: int) -> JointRows:
        codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
        codes[index], numbers[index], labels[index] = other.codes[at], other.numbers[at], other.labels[at]
        return JointRows(codes, numbers, labels)

    return change


@pytest.fixture(scope="session")
def wrong_cell() -> Callable[..., JointRows]:
    """Rows with the category of one cell replaced by the next one."""

    def spoil(problem: JointProblem, rows: JointRows, index: int, column: int) -> JointRows:
        codes = rows.codes.clone()
        codes[index, column] = (codes[index, column] + 1) % problem.space.sizes[column]
        return JointRows(codes, rows.numbers.clone(), rows.labels.clone())

    return spoil


@pytest.fixture(scope="session")
def random_residual() -> Callable[[JointProblem], tuple[torch.Tensor, ...]]:
    """A residual of the problem's shapes."""

    def draw(problem: JointProblem) -> tuple[torch.Tensor, ...]:
        draws = generator(3, "residual")
        return tuple(torch.randn(t.shape, generator=draws, dtype=torch.float64) for t in problem.target)

    return draw


@pytest.fixture(scope="session")
def cut_off() -> Callable[..., ClientUpdate]:
    """What NVFlare's PercentilePrivacy sends: nothing of the smallest elements, and no more than a bound of others."""

    def cut(update: ClientUpdate, low: float = 0.1, high: float = 0.95) -> ClientUpdate:
        sizes = torch.cat([value.abs().flatten() for value in update.update.values()])
        least, most = (float(sizes.quantile(q)) for q in (low, high))
        sent = {name: v.masked_fill(v.abs() < least, 0.0).clamp(-most, most) for name, v in update.update.items()}
        return replace(update, update=sent, state="noised")

    return cut
