"""Two runs side by side: settings, leakage, utility."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.change.groups import METRICS, ChangedGroup, changed_groups
from lightleak.report.change.settings import changed_settings, same_table
from lightleak.report.change.utility import Cost, Utility, utility_cost, utility_of
from lightleak.report.result import Setting
from lightleak.report.run_folder import RunFolder
from lightleak.report.wording import defense_title

UNDEFENDED = (None, "none")


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

    before: RunFolder
    after: RunFolder
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
            if not group.is_baseline
            for change in group.changes.values()
        )


def compare_runs(runs: Sequence[RunFolder]) -> tuple[Comparison, ...]:
    """Each other run beside the reference; none where there is one run."""
    if len(runs) < 2:
        return ()
    reference = reference_of(runs)
    return tuple(_comparison(reference, run) for run in runs if run is not reference)


def reference_of(runs: Sequence[RunFolder]) -> RunFolder:
    """The first run without a defence; the first of all where every run has one."""
    return next((run for run in runs if defense_of(run) in UNDEFENDED), runs[0])


def defense_of(run: RunFolder) -> str | None:
    """Name of the defence in the run's rows."""
    return next((result.setting.defense for result in run.results), None)


def run_title(run: RunFolder) -> str:
    """Defence of a run as its rows name it, with the run's own name."""
    return f"{_defense_of_run(run)} ({run.name})"


def short_titles(runs: Sequence[RunFolder]) -> tuple[str, ...]:
    """Defence of each run, with the run's own name only where several have the same defence."""
    names = Counter(map(_defense_of_run, runs))
    return tuple(run_title(run) if names[_defense_of_run(run)] > 1 else _defense_of_run(run) for run in runs)


def _defense_of_run(run: RunFolder) -> str:
    setting = next((result.setting for result in run.results), Setting(run.name))
    return "no defence" if setting.defense in UNDEFENDED else defense_title(setting.defense, setting.strength)


def _comparison(before: RunFolder, after: RunFolder) -> Comparison:
    utilities = utility_of(before), utility_of(after)
    return Comparison(
        before=before,
        after=after,
        settings=changed_settings(before, after),
        groups=changed_groups(before, after),
        utilities=utilities,
        cost=utility_cost(*utilities) if same_table(before, after) else None,
    )
