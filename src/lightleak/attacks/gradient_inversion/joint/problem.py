"""The problem of joint inversion: rows that together explain a gradient."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.atoms import Nodes, Terms
from lightleak.attacks.gradient_inversion.joint.cell_prior import CellPrior
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient, Kernels
from lightleak.attacks.gradient_inversion.tables.by_row import ByRow
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain, RowTables


@dataclass(frozen=True)
class JointRows(ByRow):
    """The rows of a batch in the coordinates of a `RowDomain`.

    Attributes:
        codes: LongTensor ``[n, K]``.
        numbers: float64 ``[n, F]``.
        labels: LongTensor ``[n]``.
    """

    codes: Tensor
    numbers: Tensor
    labels: Tensor


@dataclass(frozen=True)
class JointProblem:
    """What rows are held against.

    Attributes:
        space: the rows that may be there.
        nodes: weights at which the gradient was taken, float64.
        kernels: the distance, float64.
        target: observed gradient ``[out, in + 1]`` per layer, float64; of several releases ``[T, out, in + 1]``, times
            the nodes' shares.
        n_rows: divisor of every row's term.
        prior: what is believed of cells, for noised gradients; ``None`` where the gradient alone decides.
        prior_weight: squared distance that one nat of it is worth: twice the variance of an element's noise.
    """

    space: RowDomain
    nodes: Nodes
    kernels: Kernels
    target: Gradient
    n_rows: int
    prior: CellPrior | None = None
    prior_weight: float = 0.0

    @cached_property
    def target_value(self) -> float:
        """Squared distance of the target from no rows at all; never 0, as all distances are relative to it."""
        return max(float(self.kernels.value(self.target)), torch.finfo(torch.float64).tiny)

    @cached_property
    def _tables(self) -> dict[torch.dtype, tuple[Nodes, RowTables]]:
        return {}

    def _in(self, dtype: torch.dtype) -> tuple[Nodes, RowTables]:
        """The nodes, and a table of encoded rows and then their first pre-activations at every node."""
        if dtype not in self._tables:
            layers = zip(self.nodes.weights[0], self.nodes.biases[0], strict=True)
            first = [self.space.first_layer(weight, bias) for weight, bias in layers]
            self._tables[dtype] = (self.nodes.to(dtype), RowTables.side_by_side([self.space.rows, *first]).to(dtype))
        return self._tables[dtype]

    def _terms(self, nodes: Nodes, values: Tensor) -> Terms:
        width = self.space.rows.base.shape[-1]
        first = values[..., width:].unflatten(-1, (len(nodes.shares), -1))
        return nodes.terms(values[..., :width], first.transpose(0, 1))

    def terms(self, codes: Tensor, numbers: Tensor, dtype: torch.dtype = torch.float64) -> Terms:
        """Terms of rows ``[n, K]`` and ``[n, F]``."""
        nodes, tables = self._in(dtype)
        return self._terms(nodes, tables.of(codes, numbers))

    def terms_around(self, codes: Tensor, numbers: Tensor, tried: Tensor, dtype: torch.dtype) -> Terms:
        """Terms of a row ``[K]``, ``[F]`` and of all that differ from it in one cell; see `RowTables.around`."""
        nodes, tables = self._in(dtype)
        return self._terms(nodes, tables.around(codes, numbers, tried))

    def gradient(self, rows: JointRows) -> Gradient:
        """What the rows explain, float64."""
        terms = self.terms(rows.codes, rows.numbers)
        return terms.gradient(terms.of_labels(rows.labels, self.n_rows))

    def residual(self, rows: JointRows) -> Gradient:
        """The target minus what the rows explain, float64."""
        return tuple(t - e for t, e in zip(self.target, self.gradient(rows), strict=True))

    def value(self, rows: JointRows) -> float:
        """Squared distance of the rows' gradient from the target, relative to that of no rows."""
        return float(self.kernels.value(self.residual(rows))) / self.target_value

    def objective(self, rows: JointRows) -> float:
        """Squared distance plus the prior's share: what descends."""
        distance = float(self.kernels.value(self.residual(rows)))
        return distance + self.prior_weight * float(self.penalties(rows.codes, rows.numbers).sum())

    def penalties(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Minus the logarithm of the prior of rows ``[n]``; zeros where there is no prior."""
        if self.prior is None:
            return numbers.new_zeros(codes.shape[:-1])
        return self.prior.penalties(codes, numbers)

    def penalties_around(self, codes: Tensor, numbers: Tensor, tried: Tensor) -> Tensor:
        """`penalties` of the rows of `terms_around`."""
        if self.prior is None:
            return numbers.new_zeros(1 + sum(self.space.sizes) + tried.numel())
        return self.prior.penalties_around(codes, numbers, tried)

    def without(self, rows: JointRows) -> "JointProblem":
        """The problem of the batch's other rows, at least one: what these leave, as a mean over the others."""
        left = self.n_rows - len(rows.labels)
        scale = self.n_rows / left
        target = tuple(scale * r for r in self.residual(rows))
        return replace(self, target=target, n_rows=left, prior_weight=self.prior_weight * scale**2)

    def with_kernels(self, kernels: Kernels) -> "JointProblem":
        """The same under another distance."""
        return replace(self, kernels=kernels)
