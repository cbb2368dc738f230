"""Find rows one at a time: descent on the distance from a layer's row and column space, from many starts at once.

An early inner layer is searched (of a plain chain the second): its input is a function of the row alone, its column
space tests everything above. A chain of the search moves one column at a time: every present category of a categorical
one, local and far steps of a number; once a sweep, all numbers together by a damped Gauss-Newton step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.search.readings import varied
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import Spaces, whitened
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork, with_one
from lightleak.attacks.gradient_inversion.tables.by_row import ByRow
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

SAMPLE = 2000
"""Random rows that the null spaces are whitened over."""

DIRECTIONS = 60
"""Null directions that a search looks at: more of them cost time and no longer tell rows apart any better."""

LOCAL, FAR, EVEN = 10, 6, 4
"""Trials of a number: steps from its value (10^-3 to 1 deviations), draws from a normal, draws between the bounds."""

SLOWEST_GAIN, SETTLED, EARLIEST_STOP = 0.99, 0.97, 4
"""Sweeps end once this part of the chains gained less than 1% in one, the first few sweeps aside."""

ENOUGH = 60
"""Null directions of the row space that find rows alone: the column space then only costs time."""

DAMPING = 1e-5
"""Of the Gauss-Newton step, relative to the diagonal."""

STEPS = (1.0, 0.5, 0.2)
"""Lengths of the Gauss-Newton step that are tried."""


POLISHED = 64
"""Candidates of a search that are polished, or a third of them where that is more."""

POLISH_ROUNDS = 5


@dataclass(frozen=True)
class Candidates(ByRow):
    """Rows a search ended at, best first.

    Attributes:
        codes: ``[n, K]``.
        numbers: ``[n, F]``, float64.
        distance: squared whitened distance from the spaces ``[n]``.
    """

    codes: Tensor
    numbers: Tensor
    distance: Tensor


class RowSearch:
    """Search the rows of a space that lie in the spaces of the searched layer's gradient.

    Args:
        network: float64.
        space: the rows.
        spaces: of the searched layer's residual gradient.
        floor: see `whitened`; what solves one batch stalls on another, so that the caller varies it.
        generator: of all random numbers, on the CPU.
    """

    def __init__(
        self, network: RowNetwork, space: RowDomain, spaces: Spaces, floor: float, generator: torch.Generator
    ) -> None:
        self.space, self.generator, self.device = space, generator, space.encoder.shift.device
        self.exact_view, self.exact_tables = network.view(), space.first_layer(*network.state_map)
        sample = self.exact_tables.of(*space.draw(round(SAMPLE * network.search_share), generator))
        self.row_metric = self._reduced(whitened(spaces.row_null, with_one(self.exact_view.hidden(sample)), floor))
        # Most null directions of the first layer's row space hold for every row of the table and test none.
        row_space_is_enough = network.searched > 0 and spaces.row_null.shape[1] >= ENOUGH
        self.tests_units = self.exact_view.has_directions and spaces.unit_null.shape[1] > 0 and not row_space_is_enough
        if self.tests_units:
            directions = self.exact_view.directions(sample) / spaces.unit_scale
            metric = self._reduced(whitened(spaces.unit_null, directions, floor)) / spaces.unit_scale.unsqueeze(-1)
            self.exact_view = self.exact_view.onto(metric)
        self.units_move_numbers = self.tests_units and network.errors_bend and network.searched == 0
        self.view = self.exact_view.to(torch.float32)
        self.trials = tuple(max(1, round(trials * network.search_share**0.5)) for trials in (LOCAL, FAR, EVEN))
        self.tables = self.exact_tables.to(torch.float32)
        self.metric = self.row_metric.float().contiguous()
        self.lower, self.upper = space.lower.float(), space.upper.float()

    def run(self, chains: int, sweeps: int) -> Candidates:
        """Descend from random rows.

        Args:
            chains: starts.
            sweeps: most rounds over all columns.
        """
        codes, numbers = self.space.draw(chains, self.generator)
        state = _State(codes, numbers.float(), self.tables.of(codes, numbers.float()))
        state.value = self.distance(state.hidden)
        columns = [(True, k) for k, size in enumerate(self.space.sizes) if size > 1]
        columns += [(False, i) for i in range(len(self.space.free))]
        for sweep in range(sweeps):
            before = state.value
            for at in torch.randperm(len(columns), generator=self.generator).tolist():
                categorical, index = columns[at]
                (self._move_category if categorical else self._move_number)(state, index)
            if self.space.free:
                self._move_numbers(state)
            settled = (state.value > SLOWEST_GAIN * before).float().mean()
            if sweep >= EARLIEST_STOP and float(settled) > SETTLED:
                break
        return Candidates(state.codes, state.numbers.double(), state.value)[state.value.argsort(stable=True)]

    def best(self, chains: int, sweeps: int) -> Candidates:
        """The best and most varied of the candidates of `run`, by `polish`."""
        found = self.run(chains, sweeps)
        return self.polish(found[varied(found.codes)[: max(POLISHED, chains // 3)]], POLISH_ROUNDS)

    def distance(self, state: Tensor, limit: Tensor | None = None) -> Tensor:
        """Squared whitened distance of rows with these states ``[..., h]`` from both spaces.

        Above ``limit`` (broadcast against the rows) only a part of it may be counted, itself above the limit.
        """
        hidden = self.view.hidden(state)
        value = torch.addmm(self.metric[-1], hidden.flatten(0, -2), self.metric[:-1]).square_().sum(-1)
        value = value.view(hidden.shape[:-1])
        if not self.tests_units:
            return value
        if limit is None:
            return value + self.view.directions(state).square().sum(-1)
        # Both parts are squares: where one alone exceeds the limit, the other need not be known.
        open_ = (value < limit).nonzero(as_tuple=True)
        return value.index_put(open_, self.view.directions(state[open_]).square().sum(-1), accumulate=True)

    def polish(self, candidates: Candidates, rounds: int) -> Candidates:
        """Numbers by undamped Gauss-Newton steps in float64, and whole numbers rounded.

        Columns are rounded one after the other, the narrowest first, and the others follow: where few equations leave
        a line of solutions, or two rows of equal categories a whole line between them, a whole number on it decides.

        Args:
            candidates: rows.
            rounds: steps before anything is rounded; after each rounding one.
        """
        space, numbers = self.space, candidates.numbers
        open_ = torch.ones(len(space.free), dtype=torch.bool, device=self.device)
        for _ in range(rounds if space.free else 0):
            numbers = self._newton(candidates.codes, numbers, open_)
        for i in space.unit.argsort().tolist():
            if bool(space.integer[i]):
                numbers = space.rounded(numbers, i)
                open_[i] = False
                if bool(open_.any()):
                    numbers = self._newton(candidates.codes, numbers, open_)
        return Candidates(candidates.codes, space.clamp(numbers), candidates.distance)

    def _newton(self, codes: Tensor, numbers: Tensor, open_: Tensor) -> Tensor:
        """One step of the open numbers, kept where it improves."""
        state = self.exact_tables.of(codes, numbers)
        value, jacobian = self._equations(state, self.exact_tables.numbers[open_])
        step = (torch.linalg.pinv(jacobian, rtol=1e-9) @ value.unsqueeze(-1)).squeeze(-1)
        moved = numbers.clone()
        moved[:, open_] = moved[:, open_] - step
        moved = self.space.clamp(moved)
        after = self._values(self.exact_tables.of(codes, moved))
        better = after.square().sum(-1) < value.square().sum(-1)
        return torch.where(better.unsqueeze(-1), moved, numbers)

    def _values(self, state: Tensor) -> Tensor:
        """Residuals ``[n, q]`` of the equations that numbers are solved from, in the precision of the states.

        They include the column space where the first layer is searched, whose row space leaves few equations.
        """
        exact = state.dtype == torch.float64
        view, metric = (self.exact_view, self.row_metric) if exact else (self.view, self.metric)
        value = view.hidden(state) @ metric[:-1] + metric[-1]
        return torch.cat([value, view.directions(state)], -1) if self.units_move_numbers else value

    def _equations(self, state: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """`_values` and their derivatives ``[n, q, F]`` as states move along ``steps`` ``[F, h]``."""
        exact = state.dtype == torch.float64
        view, metric = (self.exact_view, self.row_metric) if exact else (self.view, self.metric)
        jacobian = view.jacobian(state, steps, metric[:-1])
        if self.units_move_numbers:
            jacobian = torch.cat([jacobian, view.direction_slopes(state, steps)], 1)
        return self._values(state), jacobian

    def _reduced(self, metric: Tensor) -> Tensor:
        """At most `DIRECTIONS` random combinations of the null directions."""
        if metric.shape[1] <= DIRECTIONS:
            return metric
        mixing = torch.randn(metric.shape[1], DIRECTIONS, generator=self.generator, dtype=torch.float64)
        return metric @ torch.linalg.qr(mixing)[0].to(metric.device)

    def _move_category(self, state: "_State", k: int) -> None:
        table = self.tables.categories[k]
        options = (state.hidden - table[state.codes[:, k]]).unsqueeze(1) + table
        best, better = self._take(state, options)
        state.codes[:, k] = torch.where(better, best, state.codes[:, k])

    def _move_number(self, state: "_State", i: int) -> None:
        local, far, evenly = self.trials
        n, here = len(state.codes), state.numbers[:, i : i + 1]
        lower, upper = self.lower[i], self.upper[i]
        sizes = 10 ** (-3 * torch.rand(n, local, generator=self.generator))
        normal = torch.randn(n, local + far, generator=self.generator)
        even = torch.rand(n, evenly, generator=self.generator).to(self.device)
        steps = (sizes * normal[:, :local]).to(self.device)
        trials = torch.cat(
            [here + steps, normal[:, local:].to(self.device), lower + (upper - lower) * even, lower.expand(n, 1)], 1
        ).clamp(float(lower), float(upper))
        options = state.hidden.unsqueeze(1) + (trials - here).unsqueeze(-1) * self.tables.numbers[i]
        best, better = self._take(state, options)
        state.numbers[:, i] = torch.where(better, trials.gather(1, best.unsqueeze(1)).squeeze(1), state.numbers[:, i])

    def _move_numbers(self, state: "_State") -> None:
        each = self.tables.numbers
        value, jacobian = self._equations(state.hidden, each)
        normal = jacobian.transpose(1, 2) @ jacobian
        diagonal = normal.diagonal(dim1=1, dim2=2)
        normal = normal + torch.diag_embed(DAMPING * diagonal + torch.finfo(torch.float32).tiny)
        normal = normal + 1e-9 * torch.eye(len(each), device=self.device)
        step = torch.linalg.solve(normal, jacobian.transpose(1, 2) @ value.unsqueeze(-1)).squeeze(-1)
        lengths = torch.tensor(STEPS, device=self.device)
        trials = state.numbers.unsqueeze(1) - lengths.view(1, -1, 1) * step.unsqueeze(1)
        trials = torch.maximum(torch.minimum(trials, self.upper), self.lower)
        options = state.hidden.unsqueeze(1) + (trials - state.numbers.unsqueeze(1)) @ each
        best, better = self._take(state, options)
        chosen = trials[torch.arange(len(best), device=self.device), best]
        state.numbers = torch.where(better.unsqueeze(-1), chosen, state.numbers)

    def _take(self, state: "_State", options: Tensor) -> tuple[Tensor, Tensor]:
        """Move every chain to its best option ``[chains, options, h]`` if that is better than where it is."""
        values = self.distance(options, state.value.unsqueeze(1))
        value, best = values.min(1)
        better = value < state.value * (1 - 1e-6)
        rows = torch.arange(len(best), device=self.device)
        state.hidden = torch.where(better.unsqueeze(-1), options[rows, best], state.hidden)
        state.value = torch.where(better, value, state.value)
        return best, better


class _State:
    """Where the chains are: coordinates, states of the network, distance."""

    def __init__(self, codes: Tensor, numbers: Tensor, hidden: Tensor) -> None:
        self.codes, self.numbers, self.hidden = codes, numbers, hidden
        self.value = hidden.new_empty(len(codes))
