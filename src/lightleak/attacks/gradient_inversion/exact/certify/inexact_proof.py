"""What is proven of a whole batch whose gradient has an error of known size: noise, or the rounding of a short type.

The first layer's gradient is ``sum_i e_i (x_i, 1)^T``. In a direction that no other row's error has under any label,
what is left of it after the claimed batch is the error of the gradient alone, whose deviation is known: there each row
is read by itself. A cell is proven where every other category of its column is less probable by `ADVANTAGE`, whatever
the row's numbers and its weight; a label where that holds of the bias's column.

Several releases of the same rows, each with an error of its own, are read one by one, and their advantages add up: the
errors are independent. A claim must then leave each release its error, and their sum no more than errors that are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log10

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.alternatives import MARGIN, log_combinations
from lightleak.attacks.gradient_inversion.exact.certify.least_squares import STANDARD_ERRORS, solve
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.certify.row_evidence import number_tolerances
from lightleak.attacks.gradient_inversion.network.chain import Activations, ReLUChain
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork, with_one
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.data.encoder import TableEncoder

ADVANTAGE = 64.0
"""Twice the logarithm of the likelihood by which a claimed category is ahead of every other one: a factor of 8e13."""

ALIKE = 4.0
"""Standard errors by which a layer may leave more or less of its error than the others do. Where the error's deviation
is estimated from few equations, wrong rows may leave a third more than the truth: they do not leave it evenly (a tanh
network, a table of numbers alone: 6.8 standard errors; rightly certified batches had 2.4 at most)."""

READING_WITHIN = 6.0
"""Deviations of the error within which every claimed cell agrees with what the gradient says of it."""

MISFIT_SLACK = 0.05
"""By which the root mean square of what is left may exceed the error's deviation where that is known."""

ESTIMATE_ERRORS = 3.0
"""Standard errors of the error's deviation, where that is estimated, by which it may be exceeded."""

ROUNDS = 60
"""Steps of least squares for the numbers, each followed by changes of masks, at most."""

NEAR_KINK = 8.0
"""Standard errors of a preactivation, by those of the row's numbers, within which its sign is open."""

SURE = 0.05
"""Standard error of a number, in deviations of its column, below which a proven row's fit replaces the claimed value. A
claim may use what is known of rows and the fit does not, and numbers fitted to rows of wrong categories are worse: at
noise of 1e-3, 32 rows of Adult, taking all of the fit's numbers turned 93 to 99% of right cells into 80 to 90%."""

SETTLED = 1.0
"""Gain in squared deviations of the error below which nothing more is gained."""


@dataclass(frozen=True)
class Fitted:
    """A batch that leaves no more of its gradient than the known error.

    Attributes:
        x: encoded rows ``[n, d]`` with the numbers that fit best where the row is proven and they are sure.
        proof: of its rows.
    """

    x: Tensor
    proof: Proof


def fit_under_error(
    networks: Sequence[RowNetwork],
    observed: Sequence[tuple[Tensor, ...]],
    space: RowDomain,
    x: Tensor,
    labels: Tensor,
    variances: Sequence[Sequence[Tensor]],
    estimate_error: float = 0.0,
) -> Fitted | None:
    """Fit the numbers of a claimed batch, and say what is proven of it; None where nothing is.

    Args:
        networks: the network at every release of the rows, float64; mostly there is one.
        observed: the gradient of each.
        space: rows that may be in the batch.
        x: all claimed rows ``[n, d]``; of equal ones none is proven, as none has a direction of its own.
        labels: theirs ``[n]``.
        variances: of the error of every element of each gradient, ``[out, in + 1]`` for each layer, above 0.
        estimate_error: relative standard error of the error's deviation; 0 where it is known.
    """
    slack = max(MISFIT_SLACK, ESTIMATE_ERRORS * estimate_error)
    batch = _fit(networks, observed, space, x, labels, variances)
    # By layer as well: where the error is less even than it is taken to be, some layer shows it.
    each = [zip(release.left, release.variances, strict=True) for release in batch.releases]
    parts = [[(left.square() / v).flatten() for left, v in layers] for layers in each]
    whole = [part for of_release in parts for part in of_release] + batch.squares_of_sums()
    is_noise = all(_is_even(v) for of_release in variances for v in of_release)  # rounding is known, and not alike
    is_alike = all(_are_alike(of_release) for of_release in parts) or not is_noise
    is_explained = batch.misfit <= 1 + slack and all(_is_error(part, slack) for part in whole)
    if not (is_explained and is_alike and _enough_evidence(batch, space)):
        return None
    cells = torch.stack([_is_read(batch, space, row, slack) for row in range(len(x))])
    at, error = list(space.encoder.numerical_positions), max(1.0, batch.misfit) * batch.error
    is_sure = error * number_tolerances(space.encoder) < SURE * space.encoder.deviation
    better = x.clone()
    better[:, at] = torch.where(is_sure & cells.unsqueeze(1), batch.x[:, at], x[:, at])
    rounded = space.encoder.assemble(*space.encoder.project(better)).to(x)
    moved = (batch.x - rounded)[:, at] * space.encoder.scale[at] / number_tolerances(space.encoder)
    within = (moved.abs() + STANDARD_ERRORS * error < 1).all(1)
    return Fitted(rounded, Proof(cells, cells & within))


@dataclass(frozen=True)
class _FixedMasks(ReLUChain):
    """A chain whose ReLU masks are given for every row, rather than read off its preactivations.

    Attributes:
        masks: ``[n, out_l]`` as numbers, for every hidden layer.
    """

    masks: tuple[Tensor, ...]

    def forward(self, x: Tensor) -> Activations:
        """Activations of the ``n`` rows ``[..., n, d]``."""
        hidden, preactivations = [x], []
        for weight, bias, mask in zip(self.weights[:-1], self.biases[:-1], self.masks, strict=True):
            preactivations.append((mask - 0.5).expand(*x.shape[:-1], -1))  # of the mask's sign
            hidden.append((hidden[-1] @ weight.T + bias) * mask)
        logits = hidden[-1] @ self.weights[-1].T + self.biases[-1]
        return Activations(tuple(hidden), logits.softmax(-1), tuple(preactivations))


@dataclass(frozen=True)
class _Release:
    """One gradient of a claimed batch.

    Attributes:
        network: of ReLU, with the masks of the rows; else it has none.
        observed: the gradient.
        left: what the batch leaves of it.
        variances: of its error.
    """

    network: RowNetwork
    observed: tuple[Tensor, ...]
    left: tuple[Tensor, ...]
    variances: Sequence[Tensor]

    @property
    def squares(self) -> float:
        """Squared norm of what is left, in units of the error's variance."""
        return sum(float((left.square() / v).sum()) for left, v in zip(self.left, self.variances, strict=True))

    def at(self, x: Tensor, labels: Tensor, masks: tuple[Tensor, ...]) -> "_Release":
        """The same with other numbers and masks."""
        network = self.network
        if isinstance(network, _FixedMasks):
            network = replace(network, masks=masks)
        explained = network.gradient(x, labels, len(x))
        left = tuple(o - e for o, e in zip(self.observed, explained, strict=True))
        return replace(self, network=network, left=left)


@dataclass(frozen=True)
class _Batch:
    """A claimed batch with the numbers and the masks that fit its gradients best.

    Attributes:
        releases: the gradients.
        x: encoded rows ``[n, d]``, their numbers real.
        labels: of each row ``[n, classes]``, one-hot.
        step: last step of the numbers ``[n, m]``, in units of their tolerances.
        error: standard errors of the numbers ``[n, m]``, likewise.
        reach: the largest that they have been, times the misfit, ``[n, m]``.
    """

    releases: tuple[_Release, ...]
    x: Tensor
    labels: Tensor
    step: Tensor
    error: Tensor
    reach: Tensor

    @property
    def squares(self) -> float:
        """Squared norm of what is left, in units of the error's variance."""
        return sum(release.squares for release in self.releases)

    @property
    def misfit(self) -> float:
        """Root mean square of what is left, in units of the error's deviation."""
        elements = sum(v.numel() for release in self.releases for v in release.variances)
        return (self.squares / max(1, elements - self.step.numel())) ** 0.5

    @property
    def masks(self) -> tuple[tuple[Tensor, ...], ...]:
        """Of every release; a smooth network has none."""
        networks = [release.network for release in self.releases]
        return tuple(network.masks if isinstance(network, _FixedMasks) else () for network in networks)

    def at(self, x: Tensor, masks: Sequence[tuple[Tensor, ...]]) -> "_Batch":
        """The same rows with other numbers and masks."""
        releases = zip(self.releases, masks, strict=True)
        return replace(self, x=x, releases=tuple(release.at(x, self.labels, own) for release, own in releases))

    def squares_of_sums(self) -> list[Tensor]:
        """Squares of what is left of all releases together, by layer, in units of the variance of their sum.

        What a wrong claim leaves is alike in all releases, and hides in each of them longer than in their sum.
        """
        lefts, variances = ([getattr(release, of) for release in self.releases] for of in ("left", "variances"))
        layers = zip(zip(*lefts, strict=True), zip(*variances, strict=True), strict=True)
        return [(torch.stack(left).sum(0).square() / torch.stack(v).sum(0)).flatten() for left, v in layers]


def _fit(
    networks: Sequence[RowNetwork],
    observed: Sequence[tuple[Tensor, ...]],
    space: RowDomain,
    x: Tensor,
    labels: Tensor,
    variances: Sequence[Sequence[Tensor]],
) -> _Batch:
    """Fit the numbers of a claimed batch by least squares, and the masks of units near their kinks with them.

    A number that is off by its standard error moves some unit of some row across its kink, which changes the gradient
    by far more than the error. Masks are therefore unknowns of their own wherever the numbers leave them open.
    """
    encoder = space.encoder
    none = x.new_zeros(len(x), len(encoder.schema.numerical))
    fixed = [_FixedMasks(n.weights, n.biases, n.forward(x).masks) if isinstance(n, ReLUChain) else n for n in networks]
    releases = tuple(_Release(*each) for each in zip(fixed, observed, observed, variances, strict=True))
    batch = _Batch(releases, x, torch.eye(networks[0].n_classes).to(x)[labels], none, none, none)
    batch = batch.at(x, batch.masks)
    # Elements of little error would lead rows astray that are far from fitting: they count fully only at the end.
    is_even = all(_is_even(v) for of_release in variances for v in of_release)
    for floor in (0.0,) if is_even else (1.0, 1e-2, 1e-4, 0.0):
        raised = [[v.clamp_min(floor * float(v.mean())) for v in of_release] for of_release in variances]
        pairs = zip(batch.releases, raised, strict=True)
        batch = replace(batch, releases=tuple(replace(release, variances=v) for release, v in pairs))
        for _ in range(ROUNDS):
            before = batch.squares
            batch = _with_numbers(batch, encoder)
            better = _with_masks(batch, encoder)
            if better is None and before - batch.squares < SETTLED:
                break
            batch = better or batch
    return batch


def _with_numbers(batch: _Batch, encoder: TableEncoder) -> _Batch:
    """One step of least squares for all numbers, masks fixed; half as long until it helps."""
    at = list(encoder.numerical_positions)
    if not at:
        return batch
    unit = number_tolerances(encoder) / encoder.scale[at]
    directions = torch.zeros(len(at), batch.x.shape[1]).to(batch.x)
    directions[torch.arange(len(at)), at] = unit
    n = len(batch.x)
    unknowns = n * len(at)
    normal, right = batch.x.new_zeros(unknowns, unknowns), batch.x.new_zeros(unknowns)
    for release in batch.releases:
        network, activations = release.network, release.network.forward(batch.x)
        errors = network.errors_of_rows(activations, batch.labels, n)
        error_slopes = network.error_slopes(activations, batch.labels, directions, n)
        slopes = network.slopes(activations, directions)
        for e, de, h, dh, left, v in zip(
            errors, error_slopes, activations.hidden, slopes, release.left, release.variances, strict=True
        ):
            moved = torch.cat([dh, torch.zeros_like(dh[..., :1])], -1)
            change = de.unsqueeze(-1) * with_one(h)[:, None, None] + e[:, None, :, None] * moved.unsqueeze(-2)
            scaled = (change / v.sqrt()).flatten(0, 1).flatten(1)  # [n m, elements]
            normal = normal + scaled @ scaled.T
            right = right + scaled @ (left / v.sqrt()).flatten()
    scale = normal.diagonal().sqrt()
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    solution = solve(normal / safe.unsqueeze(0) / safe.unsqueeze(1), right / safe)
    step = (solution.step / safe).view(n, -1)
    error = torch.where(scale > 0, solution.error / safe, torch.inf).view(n, -1)
    reach = torch.where(error.isfinite(), error, 0.0) * max(1.0, batch.misfit)
    batch = replace(batch, error=error, reach=torch.maximum(batch.reach, reach))
    for times in (1.0, 0.5, 0.25, 0.125):
        x = batch.x.clone()
        x[:, at] += times * step * unit
        found = batch.at(x, batch.masks)
        if found.squares <= batch.squares:
            return replace(found, step=times * step)
    return replace(batch, step=torch.zeros_like(step))


def _with_masks(batch: _Batch, encoder: TableEncoder) -> _Batch | None:
    """The same rows with the masks that fit better among those that the numbers leave open; None: there are none."""
    gains, toggles = [], []  # of a release, row, layer and unit
    for r, release in enumerate(batch.releases):
        if not isinstance(release.network, _FixedMasks):
            continue
        rows, layers, units = _open_masks(batch, release.network, encoder)
        gains.append(_gains(batch, release, release.network, rows, layers, units))
        toggles += [(r, *one) for one in torch.stack([rows, layers, units], 1).tolist()]
    if not toggles:
        return None
    gain = torch.cat(gains)
    best = gain.argsort(descending=True)
    best = best[gain[best] > SETTLED]
    while len(best):
        masks = [[mask.clone() for mask in of_release] for of_release in batch.masks]
        changed: set[tuple[int, int]] = set()
        for r, row, layer, unit in (toggles[toggle] for toggle in best.tolist()):
            if (r, row) not in changed:
                changed.add((r, row))
                masks[r][layer][row, unit] = 1 - masks[r][layer][row, unit]
        found = batch.at(batch.x, [tuple(of_release) for of_release in masks])
        if found.squares < batch.squares - SETTLED:
            return found
        best = best[: len(best) // 2]
    return None


def _open_masks(batch: _Batch, network: _FixedMasks, encoder: TableEncoder) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, hidden layers and units whose preactivations are within `NEAR_KINK` standard errors of zero."""
    at = list(encoder.numerical_positions)
    unit = number_tolerances(encoder) / encoder.scale[at]
    error = batch.reach * unit
    moved = torch.zeros(len(batch.x), len(at), batch.x.shape[1]).to(batch.x)
    moved[:, torch.arange(len(at)), at] = error
    hidden, found = batch.x, []
    for layer, (weight, bias, mask) in enumerate(
        zip(network.weights[:-1], network.biases[:-1], network.masks, strict=True)
    ):
        reached, slope = hidden @ weight.T + bias, moved @ weight.T
        rows, units = (reached.abs() <= NEAR_KINK * slope.square().sum(1).sqrt()).nonzero(as_tuple=True)
        found.append((rows, torch.full_like(rows, layer), units))
        hidden, moved = reached * mask, slope * mask.unsqueeze(1)
    rows, layers, units = (torch.cat(parts) for parts in zip(*found, strict=True))
    return rows, layers, units


def _gains(
    batch: _Batch, release: _Release, network: _FixedMasks, rows: Tensor, layers: Tensor, units: Tensor
) -> Tensor:
    """By how much a change of one mask each lowers the squared norm of what is left."""
    masks = [mask[rows].clone() for mask in network.masks]
    for layer, mask in enumerate(masks):
        of_layer = (layers == layer).nonzero().flatten()
        mask[of_layer, units[of_layer]] = 1 - mask[of_layer, units[of_layer]]
    total = torch.zeros(len(rows)).to(batch.x)
    n, parts = len(batch.x), []
    for chosen in (tuple(masks), tuple(mask[rows] for mask in network.masks)):
        own = replace(network, masks=chosen)
        activations = own.forward(batch.x[rows])
        errors = own.errors_of_rows(activations, batch.labels[rows], n)
        parts.append([(e, with_one(h)) for e, h in zip(errors, activations.hidden, strict=True)])
    for (after, reached), (before, hidden), left, v in zip(*parts, release.left, release.variances, strict=True):
        moved, shifted = after - before, reached - hidden  # the change is moved reached^T + before shifted^T
        share = (moved @ (left / v) * reached + before @ (left / v) * shifted).sum(1)
        squares = moved.square() @ (1 / v) * reached.square() + before.square() @ (1 / v) * shifted.square()
        squares = squares + 2 * (moved * before) @ (1 / v) * (reached * shifted)
        total += 2 * share - squares.sum(1)
    return total


def _enough_evidence(batch: _Batch, space: RowDomain) -> bool:
    """Whether the gradient has digits enough above its error to name all cells, beyond those that numbers can meet.

    Several releases count as one of a smaller error: under the same weights they are.
    """
    rows, digits, numbers = len(batch.x), 0.0, len(space.encoder.schema.numerical)
    for layer, shape in enumerate(left.shape for left in batch.releases[0].left):
        rank, above = min(rows, *shape), batch.x.new_zeros(shape)
        for release in batch.releases:
            if _is_even(release.variances[layer]):
                above += ((release.observed[layer] - release.left[layer]).square() / release.variances[layer]).mean()
            else:  # of every element by itself, and none for a zero that was sent in place of something else
                above += release.observed[layer].square() / release.variances[layer]
        each = (1 + above).log10() / 2
        digits += float(each.mean() * (rank * sum(shape) - rank**2) - each.max() * rank * numbers)
    names = rows * (log_combinations(space) + log10(max(2, batch.labels.shape[1])))
    return digits > names + MARGIN


@dataclass(frozen=True)
class _Reading:
    """What one gradient says of one row in the direction that is its own.

    Attributes:
        size: of the row's error in that direction, in units of the error's deviation.
        left: what the claim leaves of each column ``[d + 1]``, in the same units.
        variance: of that, by column ``[d + 1]``.
        label: advantage of the label over each other one by the bias's column, which nothing else can change.
    """

    size: Tensor
    left: Tensor
    variance: Tensor
    label: Tensor


def _reading(batch: _Batch, release: _Release, row: int) -> _Reading | None:
    """None where other rows' errors, of any label, leave the row no direction of its own."""
    network, variance, n = release.network, release.variances[0], len(batch.x)
    activations, each = network.forward(batch.x), torch.eye(network.n_classes).to(batch.x).expand(n, -1, -1)
    errors = network.error_of_rows(0, activations, each, n)  # [n, classes, out]
    claimed = network.error_of_rows(0, activations, batch.labels, n)
    unit = variance.mean(1).sqrt()
    others = torch.cat([errors[:row], errors[row + 1 :]]).flatten(0, 1) / unit
    own, labels = claimed[row] / unit, (errors[row] - claimed[row]) / unit
    basis = _basis(others)
    direction = own - basis @ (basis.T @ own)
    size = direction.norm()
    if not bool(size > 0):
        return None
    direction = direction / size
    left = direction @ (release.left[0] / unit.unsqueeze(-1))
    spread = direction.square() @ (variance / unit.square().unsqueeze(-1))
    labels = labels[batch.labels[row] == 0]
    labels = labels - (labels @ basis) @ basis.T
    spread_of_bias = labels.square() @ (variance[:, -1] / unit.square())
    moved, remains = labels.square().sum(1), labels @ (release.left[0][:, -1] / unit)
    ahead = (moved - 2 * remains) * moved / spread_of_bias.clamp_min(torch.finfo(moved.dtype).tiny)
    return _Reading(size, left, spread, ahead)


def _is_error(squares: Tensor, slack: float) -> bool:
    """Whether squares, in units of the error's variance, have no larger mean than the error's."""
    return float(squares.mean()) ** 0.5 <= 1 + STANDARD_ERRORS / (2 * len(squares)) ** 0.5 + slack


def _is_even(variance: Tensor) -> bool:
    return float(variance.min()) > 0.5 * float(variance.mean())


def _are_alike(parts: Sequence[Tensor]) -> bool:
    """Whether squares, in units of the error's variance, have one mean in all parts."""
    sums, sizes = torch.stack([part.sum() for part in parts]), torch.tensor([len(part) for part in parts]).to(parts[0])
    rest, left = sums.sum() - sums, sizes.sum() - sizes
    ratio = (sums / sizes / (rest / left)).log()
    return bool((ratio.abs() <= ALIKE * (2 / sizes + 2 / left).sqrt()).all())


def _basis(vectors: Tensor) -> Tensor:
    """Orthonormal columns that span vectors ``[n, out]``."""
    if not len(vectors):
        return vectors.T
    left, singular, _ = torch.linalg.svd(vectors.T, full_matrices=False)
    return left[:, singular > 1e-9 * singular[0].clamp_min(torch.finfo(singular.dtype).tiny)]


def _is_read(batch: _Batch, space: RowDomain, row: int, slack: float) -> Tensor:
    """Whether no other categories or label of one row would leave as little."""
    encoder = space.encoder
    no = torch.zeros((), dtype=torch.bool, device=batch.x.device)
    found = [reading for release in batch.releases if (reading := _reading(batch, release, row)) is not None]
    if len(found) < len(batch.releases):
        return no
    weights = torch.stack([r.size / r.variance for r in found])
    scale = torch.stack([r.size**2 / r.variance for r in found]).sum(0).sqrt()
    together = (weights * torch.stack([r.left for r in found])).sum(0) / scale
    for squares in (*(r.left.square() / r.variance for r in found), together.square()):
        if not (_is_error(squares, slack) and bool((squares <= READING_WITHIN**2).all())):
            return no
    if not bool((torch.stack([r.label for r in found]).sum(0) >= ADVANTAGE).all()):
        return no
    codes, ahead = encoder.project(batch.x[row : row + 1])[0][0], torch.ones_like(no)
    for k, block in enumerate(encoder.layout.categorical):
        change = torch.zeros(block.width, batch.x.shape[1] + 1).to(batch.x)
        change[torch.arange(block.width), torch.arange(block.start, block.stop)] = 1 / encoder.scale[block.slice]
        change = change - change[codes[k]]
        gain = torch.stack([_advantage(reading, change, batch.x[row], encoder) for reading in found]).sum(0)
        gain[codes[k]] = torch.inf
        ahead = ahead & (gain >= ADVANTAGE).all()
    return ahead


def _advantage(reading: _Reading, change: Tensor, x: Tensor, encoder: TableEncoder) -> Tensor:
    """Advantage of a row ``[d]`` over itself with each of some changes ``[m, d + 1]``, in one release."""
    weight, x = 1 / reading.variance, with_one(x)
    weight[list(encoder.numerical_positions)] = 0  # whatever the numbers
    change = change - (change @ (weight * x) / (weight * x.square()).sum()).unsqueeze(-1) * x  # whatever its weight
    return reading.size**2 * change.square() @ weight - 2 * reading.size * change @ (weight * reading.left)
