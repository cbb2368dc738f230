"""Problems of joint inversion on made batches, with the truth in their coordinates for the tests alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.attacks.gradient_inversion.joint.attack import pose
from lightleak.attacks.gradient_inversion.joint.intervals import Intervals
from lightleak.attacks.gradient_inversion.joint.kernels import Kernels
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.joint.pruned import Pruned
from lightleak.attacks.gradient_inversion.joint.signed import of_signs
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.rounding import Sign
from lightleak.defenses.horizontal.sparsification import GradientCompression

Posed = Callable[..., tuple[JointProblem, JointRows]]
HeldAgainst = Callable[..., tuple[JointProblem, Intervals, JointRows]]


@pytest.fixture(scope="session")
def posed(make_batch: Any) -> Posed:
    """The problem of a batch of precise gradients, and the batch itself in its coordinates."""

    def of_batch(whitened: bool = False, **options: Any) -> tuple[JointProblem, JointRows]:
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

    return of_batch


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


@pytest.fixture(scope="session")
def signed() -> Callable[[ClientUpdate], ClientUpdate]:
    """What a client sends that sends signs alone."""

    def sign(update: ClientUpdate) -> ClientUpdate:
        return replace(update, update=Sign().apply(update.update, generator(0)), state="noised")

    return sign


@pytest.fixture(scope="session")
def halved() -> Callable[[ClientUpdate], ClientUpdate]:
    """What a client sends that leaves out the smaller half of the elements."""

    def halve(update: ClientUpdate) -> ClientUpdate:
        return replace(update, update=GradientCompression(keep=0.5).apply(update.update, generator(0)), state="noised")

    return halve


@pytest.fixture(scope="session")
def held_against() -> HeldAgainst:
    """The problem of an update, the intervals of signs, or of what was pruned, and the true rows."""

    def hold(batch: Any, update: ClientUpdate, is_pruned: bool = False) -> tuple[JointProblem, Intervals, JointRows]:
        observed = observed_gradient(update)
        problem = replace(pose(update, batch.encoder, observed, 1.0, "auto"), prior_weight=0.25)
        codes, numbers = problem.space.coordinates(batch.cells)
        truth = JointRows(codes, numbers, batch.truth.labels.clone())
        pruned = Pruned.of(observed, "smallest")
        bounds = (pruned.lowest, pruned.highest) if is_pruned else of_signs(observed)
        return problem, Intervals.of(problem, bounds, truth.labels, generator(0)), truth

    return hold
