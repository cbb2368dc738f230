"""Results grouped by setting, attack and batch size, each beside the baseline that never sees the update."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lightleak.report.estimate import Estimate, estimate
from lightleak.report.result import METRICS, Result, Setting
from lightleak.report.run_folder import RunFolder
from lightleak.report.wording import attack_title

BASELINE = "random"
"""The attack that guesses from one-way marginals and never reads the update."""

LARGEST_SHORTFALL = 2
"""A headline needs at least 1/2 of the batches of the best-measured group: few batches give high means by chance."""


@dataclass(frozen=True)
class Group:
    """All batches of one setting, attack and batch size.

    Attributes:
        setting: what was held fixed.
        attack: name of the attack.
        batch_size: rows behind each attacked update.
        results: one per batch.
        metrics: estimate by metric name; a metric that is undefined for every batch is absent.
        variant: settings of the attack that tell it from others of the same name here; empty where there is one.
        baseline: the group of the random baseline on the same batches; None where it was not run.
        leakage: cell accuracy minus the baseline's, paired by batch; without an interval where no batch is shared.
    """

    setting: Setting
    attack: str
    batch_size: int | None
    results: tuple[Result, ...] = field(repr=False)
    metrics: Mapping[str, Estimate]
    variant: str = ""
    baseline: "Group | None" = None
    leakage: Estimate | None = None

    @property
    def title(self) -> str:
        """The attack as a reader knows it, with its variant."""
        return attack_title(self.attack) + (f" ({self.variant})" if self.variant else "")

    @property
    def is_baseline(self) -> bool:
        """Whether this is the no-information baseline itself."""
        return self.attack == BASELINE

    @property
    def accuracy(self) -> Estimate | None:
        """Cell accuracy (TabLeak Eq. 6) as a fraction."""
        return self.metrics.get("cell_accuracy")

    @property
    def certifies(self) -> bool:
        """Whether the attack says of rows that they are proven or not."""
        return "certified_share" in self.metrics

    @property
    def proven_share(self) -> float:
        """Mean share of rows that the attack has certified; 0 where it certifies none."""
        share = self.metrics.get("certified_share")
        return 0.0 if share is None else share.mean

    @property
    def column_accuracy(self) -> dict[str, float]:
        """Mean fraction of right cells by column, in the order of the table."""
        values: dict[str, list[float]] = defaultdict(list)
        for result in self.results:
            for name, value in result.column_accuracy.items():
                values[name].append(value)
        return {name: sum(found) / len(found) for name, found in values.items()}


def compare(runs: Iterable[RunFolder]) -> tuple[Group, ...]:
    """Group the results of all runs and set each group beside its baseline; groups stand in the order of the rows."""
    members: dict[tuple[Setting, str, int | None], list[Result]] = defaultdict(list)
    for run in runs:
        for result in run.results:
            members[result.setting, result.attack, result.batch_size].append(result)
    groups = [
        Group(*key, tuple(results), metrics=_estimates(results), variant=variant)
        for key, same in members.items()
        for variant, results in _variants(same).items()
    ]
    baselines = [group for group in groups if group.is_baseline]
    return tuple(group if group.is_baseline else _beside_baseline(group, baselines) for group in groups)


def _variants(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by the settings of the attack in which they differ, such as ``restarts 5``; one empty name if in none."""
    known = list(results)
    names = dict.fromkeys(name for result in known for name in result.options)
    differing = [name for name in names if len({result.options.get(name) for result in known}) > 1]
    found: dict[str, list[Result]] = defaultdict(list)
    for result in known:
        found[", ".join(f"{name} {result.options.get(name, 'unset')}" for name in differing)].append(result)
    return found


def _estimates(results: list[Result]) -> dict[str, Estimate]:
    found = {name: estimate(result.metrics.get(name) for result in results) for name in METRICS}
    return {name: value for name, value in found.items() if value is not None}


def _beside_baseline(group: Group, baselines: Iterable[Group]) -> Group:
    """The baseline does not read labels, so one with another label setting serves as well."""
    same = [
        candidate
        for candidate in baselines
        if candidate.batch_size == group.batch_size
        and replace(candidate.setting, labels=None) == replace(group.setting, labels=None)
    ]
    if not same:
        return group
    baseline = min(same, key=lambda candidate: candidate.setting.labels != group.setting.labels)
    return replace(group, baseline=baseline, leakage=paired_leakage(group, baseline))


def paired_leakage(group: Group, baseline: Group) -> Estimate | None:
    """Cell accuracy over the baseline's on the same batch, which removes what makes a batch easy to guess.

    Returns:
        The paired estimate; the difference of the means without an interval where the two share no batch; None where
        either has no accuracy.
    """
    guessed = {result.unit: result.metrics.get("cell_accuracy") for result in baseline.results}
    differences = []
    for result in group.results:
        base, accuracy = guessed.get(result.unit), result.metrics.get("cell_accuracy")
        if base is not None and accuracy is not None:
            differences.append(accuracy - base)
    if differences:
        return estimate(differences)
    if group.accuracy is None or baseline.accuracy is None:
        return None
    return Estimate(group.accuracy.mean - baseline.accuracy.mean, n=0)


def at_start(groups: Iterable[Group]) -> tuple[Group, ...]:
    """The groups attacked before training; all of them where every one was captured during training."""
    everything = tuple(groups)
    return tuple(group for group in everything if group.setting.source != "training") or everything


def strongest_first(groups: Iterable[Group]) -> list[Group]:
    """Attacks with a measured accuracy, most leakage first; well-measured groups stand before thinly measured ones."""
    measured = [(group, group.accuracy) for group in groups if not group.is_baseline]
    known = [(group, accuracy) for group, accuracy in measured if accuracy is not None]
    most = max((accuracy.n for _, accuracy in known), default=0)

    def order(pair: tuple[Group, Estimate]) -> tuple[bool, bool, float]:
        group, accuracy = pair
        leakage = group.leakage.mean if group.leakage else accuracy.mean
        return accuracy.n * LARGEST_SHORTFALL >= most, group.leakage is not None, leakage

    return [group for group, _ in sorted(known, key=order, reverse=True)]
