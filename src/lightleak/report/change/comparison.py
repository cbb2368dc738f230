"""Two runs side by side: settings, leakage, utility."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.core.results import Row
from lightleak.report.change.changed import METRICS, ChangedGroup, changed_groups
from lightleak.report.change.settings import changed_settings, same_table
from lightleak.report.change.utility import Cost, Utility, utility_cost, utility_of
from lightleak.report.format import defense_title
from lightleak.report.kinds.updates_groups import is_baseline
from lightleak.report.read import Run


@dataclass(frozen=True)
class Comparison:
    """A run beside the one it is compared with.

    Attributes:
        before: the reference.
        after: the other run.
        settings: name, value before, value after of what differs; None where a config is missing.
        groups: what both measured.
        utilities: scores of the networks that the two runs trained.
        cost: difference of these; None where either is unknown or they are of different tables.
    """

    before: Run
    after: Run
    settings: tuple[tuple[str, str, str], ...] | None
    groups: tuple[ChangedGroup, ...]
    utilities: tuple[Utility | None, Utility | None]
    cost: Cost | None

    @property
    def title(self) -> str:
        """What is compared with what."""
        return f"{run_title(self.after)} against {run_title(self.before)}"

    @property
    def metrics(self) -> list[str]:
        """Metrics that some attack has in both runs."""
        return [name for name in METRICS if any(name in group.changes for group in self.groups)]

    @property
    def knows_majority(self) -> bool:
        """Whether some run says what always answering the commonest label would get."""
        return any(one is not None and one.majority is not None for one in self.utilities)

    @property
    def n_intervals(self) -> int:
        """Differences with an interval, guessing apart."""
        return sum(
            change.difference.has_interval
            for group in self.groups
            if not is_baseline(group.group)
            for change in group.changes.values()
        )


def compare_runs(runs: Sequence[Run]) -> tuple[Comparison, ...]:
    """Each other run beside the reference; none where there is one run."""
    if len(runs) < 2:
        return ()
    reference = reference_of(runs)
    return tuple(_comparison(reference, run) for run in runs if run is not reference)


def reference_of(runs: Sequence[Run]) -> Run:
    """The first run without a defense; the first of all where every run has one."""
    return next((run for run in runs if is_undefended(run)), runs[0])


def is_undefended(run: Run) -> bool:
    """Whether the run had no defense."""
    return all(row.is_undefended for row in run.rows[:1])


def run_title(run: Run) -> str:
    """Defence of a run as its rows name it, with the run's own name."""
    return f"{_defense_of_run(run)} ({run.name})"


def short_titles(runs: Sequence[Run]) -> tuple[str, ...]:
    """Defence of each run, with the run's own name only where several have the same defense."""
    names = Counter(map(_defense_of_run, runs))
    return tuple(run_title(run) if names[_defense_of_run(run)] > 1 else _defense_of_run(run) for run in runs)


def _defense_of_run(run: Run) -> str:
    row: Row | None = next(iter(run.rows), None)
    return "no defense" if row is None or row.is_undefended else defense_title(row.defense, row.defense_strength)


def _comparison(before: Run, after: Run) -> Comparison:
    utilities = utility_of(before), utility_of(after)
    return Comparison(
        before=before,
        after=after,
        settings=changed_settings(before, after),
        groups=changed_groups(before, after),
        utilities=utilities,
        cost=utility_cost(*utilities) if same_table(before, after) else None,
    )
