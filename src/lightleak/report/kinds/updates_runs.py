"""Several runs of updates against one of them: which settings changed, what that did to leakage, and what it cost."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.records import json_field, read_record
from lightleak.core.results import Row, UpdateRow, flat
from lightleak.report.compare import fixed
from lightleak.report.format import EQUAL, MORE, defense_title, sign_of
from lightleak.report.intervals import Estimate, difference, estimate, proportion, subtracted
from lightleak.report.kinds.updates_groups import Effect, Exposure, UpdateGroup, compare, exposures, update_of
from lightleak.report.kinds.updates_words import FIXED, Moment, moment_of
from lightleak.report.read import Run, load_cells

ERROR = "rmse"
METRICS = {
    "cell_accuracy": "Cells",
    "categorical_accuracy": "Categories",
    "numerical_accuracy": "Numbers",
    "close_match_rate": "Whole rows recovered",
    "exact_match_rate": "Whole rows exact",
    "certified_share": "Rows proven",
    ERROR: "Error (RMSE)",
}
"""What is compared: shares, of which more is worse for privacy; of the error, in deviations, less is."""

OF_THE_RUN = ("run", "defense", "defense_strength", "epsilon", "release_epsilon", "delta")
"""Fields that a comparison of runs is about: they may differ within what is compared."""

MAY_BE_ALIKE = ("target", "protocol", "labels", "local_epochs", "local_batches", "n_clients")
"""Fields that do not tell rows of one run apart where each run has a single value of them."""

ABSENT = "not set"
NO_MATTER = ("title", "workers", "device", "redact")
"""Settings that change no score, or no more than rounding does."""


@dataclass(frozen=True)
class _Scores:
    accuracy: float | None = json_field(key="test/accuracy", low=0, high=1, default=None)
    auroc: float | None = json_field(key="test/auroc", low=0, high=1, default=None)


@dataclass(frozen=True)
class Utility:
    """How good one trained network is, as ``training.json`` says.

    Attributes:
        test: scores on the test rows.
        test_rows: their number.
        majority: accuracy of always answering the commonest label of the test rows; None where the run does not say.
    """

    test: _Scores = field(default_factory=_Scores)
    test_rows: int | None = json_field(low=0, default=None)
    majority: float | None = json_field(key="test_majority", low=0, high=1, default=None)

    @property
    def accuracy(self) -> Estimate:
        """Share classified correctly; its interval is over the choice of test rows, not over trainings."""
        share = self.test.accuracy
        assert share is not None  # of what `utility_of` returns
        return proportion(share, self.test_rows) if self.test_rows else Estimate(share)

    @property
    def has_learned(self) -> bool:
        """Whether it is measurably better than the commonest label; also where that is not known."""
        surely = self.accuracy.mean if self.accuracy.low is None else self.accuracy.low
        return self.majority is None or surely > self.majority


@dataclass(frozen=True)
class Change:
    """One metric in two runs.

    Attributes:
        before: mean over the updates of the first run.
        after: of the second.
        difference: after minus before; its ``n`` is the number of pairs, 0 where the runs attacked different rows.
        is_equal: whether both are equal on every pair.
    """

    before: Estimate
    after: Estimate
    difference: Estimate
    is_equal: bool = False

    @property
    def sign(self) -> str:
        """Which way it measurably went."""
        return EQUAL if self.is_equal else sign_of(self.difference)


@dataclass(frozen=True)
class ChangedGroup:
    """One attack on updates of one size at one moment, before and after.

    Attributes:
        group: the attack in the first run.
        n: updates attacked before and after.
        changes: by metric.
    """

    group: UpdateGroup
    n: tuple[int, int]
    changes: Mapping[str, Change]

    @property
    def moment(self) -> Moment:
        """When the updates were sent."""
        return moment_of(self.group.first)

    @property
    def pairs(self) -> int:
        """Updates of the same rows in both; 0 where the runs attacked different rows."""
        return max((change.difference.n for change in self.changes.values()), default=0)


@dataclass(frozen=True)
class Measured:
    """One run: what it leaves at risk, and what its changed settings did and cost.

    Attributes:
        run: the run.
        title: its defense, with the run's name where another run has the same one.
        reference: the run that it is compared with; itself for the reference.
    """

    run: Run
    title: str
    reference: Run

    @property
    def is_reference(self) -> bool:
        """Whether the others are compared with it."""
        return self.run is self.reference

    @property
    def is_undefended(self) -> bool:
        """Whether the run had no defense."""
        return _is_undefended(self.run)

    @property
    def heading(self) -> str:
        """What is compared with what."""
        return f"{run_title(self.run)} against {run_title(self.reference)}"

    @cached_property
    def exposed(self) -> tuple[Exposure, ...]:
        """What is at risk at each size and moment."""
        # Others are judged where every attack was run: one that was left out of most updates would lower the mean.
        found = [one.worse if self.is_reference else one.sample or one for one in exposures(self.run)]
        effects = {} if self.is_reference or not same_table(self.reference, self.run) else self._effects(found)
        return tuple(replace(one, situations=len(found), effect=effects.get(one.place)) for one in found)

    def _effects(self, found: Sequence[Exposure]) -> dict[object, Effect | None]:
        """Effects by size and moment, of attacks that both runs tried; further ones can only take a help back."""
        before = {one.place: one.worse for one in exposures(self.reference, self.run)}
        shared = {one.place: one.sample or one for one in exposures(self.run, self.reference)}
        effects: dict[object, Effect | None] = {}
        for one in found:
            if one.place in before and one.place in shared:
                change = effect(before[one.place], shared[one.place])
                if change.helps and one.attacks - change.after.attacks:
                    change = effect(before[one.place], one)
                effects[one.place] = None if MORE in change.signs and change.after is one else change
        return effects

    @property
    def worst(self) -> Exposure:
        """The size and moment with most at risk."""
        return max(self.exposed, key=lambda one: one.order)

    def at(self, place: tuple[int | None, Moment]) -> Exposure | None:
        """Return what is at risk at a size and moment."""
        return next((one for one in self.exposed if one.place == place), None)

    @cached_property
    def utilities(self) -> tuple[Utility | None, Utility | None]:
        """Scores of the networks that the reference and the run trained."""
        return utility_of(self.reference), utility_of(self.run)

    @property
    def utility(self) -> Utility | None:
        """How good its network is; None where it trained none."""
        return self.utilities[1]

    @property
    def cost(self) -> Estimate | None:
        """Change of the accuracy; None for the reference, where either is unknown, and on another table."""
        before, after = self.utilities
        if self.is_reference or before is None or after is None or not same_table(self.reference, self.run):
            return None
        return difference(after.accuracy, before.accuracy)

    @property
    def can_be_judged(self) -> bool:
        """Whether the reference's network had anything to lose: it was better than the commonest label."""
        return self.utilities[0] is None or self.utilities[0].has_learned

    @cached_property
    def unlike(self) -> tuple[str, ...]:
        """Table and network, by name, where the reference has others."""
        parts = (("dataset", "table"), ("target", "network"))
        named = ((word, _named(self.run, part), _named(self.reference, part)) for part, word in parts)
        return tuple(
            f"another {word} ({', '.join(mine)} in place of {', '.join(other)})"
            for word, mine, other in named
            if mine != other
        )


def measured_runs(runs: Sequence[Run]) -> tuple[Measured, ...]:
    """Compare each run with the reference, which stands first: one without a defense, else the first of all."""
    if not runs:
        return ()
    reference = next((run for run in runs if _is_undefended(run)), runs[0])
    defenses = [_defense_of(run) for run in runs]
    titles = [run_title(run) if Counter(defenses)[one] > 1 else one for run, one in zip(runs, defenses, strict=True)]
    found = [Measured(run, title, reference) for run, title in zip(runs, titles, strict=True)]
    return tuple(sorted(found, key=lambda one: not one.is_reference))


def _is_undefended(run: Run) -> bool:
    return all(row.is_undefended for row in run.rows[:1])


def run_title(run: Run) -> str:
    """Return the defense of a run as its rows name it, with the run's own name."""
    return f"{_defense_of(run)} ({run.name})"


def _defense_of(run: Run) -> str:
    row: Row | None = next(iter(run.rows), None)
    if row is None or row.is_undefended:
        return "no defense"
    return defense_title(row.defense, row.defense_strength, row.number("epsilon"))


def utility_of(run: Run) -> Utility | None:
    """Return the scores of the run's training; None where it trained nothing or has not finished."""
    found = read_record(Utility, run.trained, f"{run.path}/training.json")
    return None if found.test.accuracy is None else found


def changed_settings(before: Run, after: Run) -> tuple[tuple[str, str, str], ...] | None:
    """Return name, value before and value after of each setting in ``config.yaml`` that differs.

    Returns:
        None where either run has no readable config, so that nothing can be said.
    """
    if not before.settings or not after.settings:
        return None
    first, second = (flat(run.settings) for run in (before, after))
    names = (name for name in dict.fromkeys([*first, *second]) if name not in NO_MATTER)
    rows = ((name, first.get(name, ABSENT), second.get(name, ABSENT)) for name in names)
    return tuple(row for row in rows if row[1] != row[2])


def changed_groups(before: Run, after: Run) -> tuple[ChangedGroup, ...]:
    """Return every attack, size and moment that both runs measured, in the order of the first run's rows."""
    alike = [
        name
        for name in MAY_BE_ALIKE
        if all(len({getattr(row, name) for row in run.of(UpdateRow)}) == 1 for run in (before, after))
    ]
    names = [name for name in FIXED if name not in (*OF_THE_RUN, *alike, "epoch", "source")]

    def pooled(run: Run) -> dict[object, list[UpdateGroup]]:
        """Groups of one attack, size and moment; those of the training contain one for each epoch."""
        return by_key(
            compare([run]),
            lambda g: (fixed(g.first, names), g.attack, g.variant, g.first.size, moment_of(g.first)),
        )

    first, second = pooled(before), pooled(after)
    found = []
    for key in (key for key in first if key in second):
        mine, theirs = ([row for group in groups[key] for row in group.rows] for groups in (first, second))
        is_paired = on_same_rows(before, after, mine, theirs)
        changes = {name: change for name in METRICS if (change := _change(mine, theirs, name, is_paired)) is not None}
        if changes:
            found.append(ChangedGroup(first[key][0], (len(mine), len(theirs)), changes))
    return tuple(found)


def _change(mine: Sequence[UpdateRow], theirs: Sequence[UpdateRow], name: str, is_paired: bool) -> Change | None:
    before, after = (
        {update_of(row): value for row in rows if (value := row.number(name)) is not None} for rows in (mine, theirs)
    )
    means = estimate(before.values()), estimate(after.values())
    found = subtracted(before, after, is_paired, math.inf if name == ERROR else 1.0)
    if means[0] is None or means[1] is None or found is None:
        return None
    pairs = [(before[key], after[key]) for key in before if key in after] if is_paired else []
    return Change(means[0], means[1], found, bool(pairs) and all(own == other for own, other in pairs))


def effect(before: Exposure, after: Exposure) -> Effect:
    """Return the difference of two exposures to the same attacks at one size and moment.

    It is paired where both attacked the same rows.
    """
    is_paired = on_same_rows(before.run, after.run, before.rows, after.rows)
    rows = subtracted(before.at_risk, after.at_risk, is_paired)
    return Effect(rows, subtracted(before.cells, after.cells, is_paired), is_paired, before, after)


def on_same_rows(first: Run, second: Run, before: Sequence[UpdateRow], after: Sequence[UpdateRow]) -> bool:
    """Return whether both runs attacked updates of the same rows, so that their scores can be paired.

    The rows themselves decide where both runs kept them, of the first update they share; else the configs do.
    """
    others = {(row.attack, update_of(row)): row for row in after}
    shared = [(row, other) for row in before if (other := others.get((row.attack, update_of(row)))) is not None]
    for mine, other in shared:
        rows = _true_rows(first, mine), _true_rows(second, other)
        if rows[0] and rows[1]:
            return rows[0] == rows[1]
    return bool(shared) and same_clients(first, second, before[0].source)


def same_clients(before: Run, after: Run, source: str | None) -> bool:
    """Return whether the configs say that both runs attacked updates of the same rows in the same order.

    Clients before training follow from the table, the seed and how many there are; those of the training also from its
    batches, which DP-SGD redraws.
    """
    deciding = ["data", "seed", "initial", "protocol.clients", "protocol.client_rows", "protocol.local_batch_size"]
    if source == "training":
        deciding += ["training.batch_size", "training.validation_fraction", "capture", "protocol"]
        if "dp_sgd" in {_at(run.settings, "defense.name") for run in (before, after)}:
            return False
    if not before.settings or not after.settings:
        return False
    return all(_at(before.settings, name) == _at(after.settings, name) for name in deciding)


def same_table(before: Run, after: Run) -> bool:
    """Return whether results of both name the same tables; of different ones no difference means anything."""
    return _named(before, "dataset") == _named(after, "dataset")


def _true_rows(run: Run, row: UpdateRow) -> list[tuple[str, ...]]:
    """True rows of one update in any order; empty where they were not kept or left out."""
    cells = load_cells(run, row.reconstruction) or ()
    if not any(cell["true"] for cell in cells):
        return []
    return sorted(tuple(cell["true"] for cell in same) for same in by_key(cells, lambda cell: cell["row"]).values())


def _named(run: Run, part: str) -> list[str]:
    return sorted({getattr(row, part) or "one not stated" for row in run.rows})


def _at(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings
