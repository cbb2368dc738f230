"""What a defense changes for one adversary and property: the same attacks on the same seeds, with and without it."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lightleak.core.results import VerticalRow, flat
from lightleak.report.intervals import Estimate, bounded
from lightleak.report.kinds.vertical_groups import Groups, VerticalGroup, attack_name, chosen_on_other_seeds, mean_error
from lightleak.report.read import Run

MAY_DIFFER = (
    "title", "kind", "workers", "device", "redact", "engine", "ray_address", "gpus_per_pack", "keep_captures",
    "defenses", "seeds", "properties", "adversaries", "attacks", "attack_epochs",
)  # fmt: skip
"""Settings in which two runs may differ: they change no score, or every row states them."""

Pair = tuple[VerticalRow, VerticalRow]
"""One attack on one seed without and with the defense."""


@dataclass(frozen=True)
class Change:
    """Errors of an adversary without and with a defense, one for each seed that both have.

    On each seed the adversary takes the attack that was closest on the other seeds, among those that were run on all of
    these seeds with and without the defense, or on every seed its own columns alone where these are closer on average.

    Attributes:
        before: errors without the defense.
        after: errors with it.
        cost: what the defense does to the model's AUC, after minus before; None where that is not known.
        reads_own: whether own columns alone were closer than the attacks, with or without the defense.
        other: what else differs between the runs, by the name of the setting.
    """

    before: tuple[float, ...] = ()
    after: tuple[float, ...] = ()
    cost: Estimate | None = None
    reads_own: bool = False
    other: tuple[str, ...] = ()

    def rise(self, comparisons: int = 1) -> Estimate | None:
        """How much further off the defense leaves the adversary, with an interval for that many changes at once."""
        return _difference(zip(self.before, self.after, strict=True), comparisons)

    @property
    def means(self) -> tuple[float, float]:
        """Mean error without and with the defense, of a change that is not empty."""
        return statistics.fmean(self.before), statistics.fmean(self.after)


def change_of(here: Groups, there: Groups, runs: Iterable[Run] = ()) -> Change:
    """Compare the attacks under a defense with those without it; an empty `Change` where no attack or seed is shared.

    Args:
        here: attacks of one adversary on one property under the defense.
        there: the same without it.
        runs: the runs of these attacks, for their settings.
    """
    before, after = ({_attack(group): group.by_seed for group in some} for some in (there, here))
    names = [name for name in before if name in after]
    first = before[names[0]] if names else {}
    seeds = [seed for seed in first if all(seed in of[name] for of in (before, after) for name in names)]
    if not seeds:
        return Change()
    pairs = [[(before[name][seed], after[name][seed]) for seed in seeds] for name in names]
    shared = ([{seed: of[name][seed] for seed in seeds} for name in names] for of in (before, after))
    (before_errors, before_own), (after_errors, after_own) = map(_answer, shared)
    # The AUC is that of an attack that only watches, where there is one.
    manipulating = {_attack(group) for group in here if group.manipulates}
    watching = pairs[min(range(len(names)), key=lambda at: names[at] in manipulating)]
    areas = ((row.auc, other.auc) for row, other in watching if row.auc is not None and other.auc is not None)
    other = _other_settings((pair for rows in pairs for pair in rows), {run.name: run for run in runs})
    return Change(before_errors, after_errors, _difference(areas), before_own or after_own, other)


def untried(here: Groups, there: Groups) -> tuple[str, ...]:
    """Name the attacks that an adversary chooses without the defense and that were not tried under it."""
    names = {_attack(group) for group in here}
    tried = {id(row) for group in there if _attack(group) in names for row in group.rows}
    chosen = chosen_on_other_seeds(there)
    return tuple(dict.fromkeys(attack_name(row) for row in chosen.rows if id(row) not in tried)) if chosen else ()


def _attack(group: VerticalGroup) -> tuple[object, ...]:
    row = group.first
    return row.attack, row.variant, group.variant, row.target, row.epoch


def _answer(attacks: Sequence[Mapping[str, VerticalRow]]) -> tuple[tuple[float, ...], bool]:
    """Errors of an adversary with these attacks, one for each seed, and whether own columns alone gave them."""
    picked = (min(attacks, key=lambda rows: mean_error(rows, without=seed))[seed] for seed in attacks[0])
    found = [row.error for row in picked if row.error is not None]
    own = [[row.own_columns_error for row in rows.values() if row.own_columns_error is not None] for rows in attacks]
    known = (errors for errors in own if len(errors) == len(found))
    closest = min(known, key=statistics.fmean, default=found)
    reads_own = statistics.fmean(closest) < statistics.fmean(found)
    return tuple(closest if reads_own else found), reads_own


def _difference(pairs: Iterable[tuple[float, float]], comparisons: int = 1) -> Estimate | None:
    """Mean of after minus before."""
    return bounded((after - before for before, after in pairs), -1.0, 1.0, comparisons)


def _other_settings(pairs: Iterable[Pair], runs: Mapping[str, Run]) -> tuple[str, ...]:
    """Name what differs between rows without and with a defense, but for the defense."""
    known = list(pairs)
    found = dict.fromkeys(name for pair in known for name in _changed_facts(*pair))
    for first, second in dict.fromkeys((row.run, other.run) for row, other in known):
        if first != second and first in runs and second in runs and runs[first].settings and runs[second].settings:
            found |= dict.fromkeys(_changed(_settings(runs[first]), _settings(runs[second])))
    return tuple(found)


def _changed_facts(row: VerticalRow, other: VerticalRow) -> list[str]:
    """Name what differs in what two rows state; what one of them does not state is not taken to differ."""
    facts = {"parties": (row.parties, other.parties), "rows with known property": (_sample(row), _sample(other))}
    differing = [name for name, values in facts.items() if None not in values and len(set(values)) > 1]
    return [*_changed(row.settings, other.settings), *differing]


def _sample(row: VerticalRow) -> int | None:
    return row.threat.sample if row.threat else None


def _settings(run: Run) -> dict[str, str]:
    return flat({name: value for name, value in run.settings.items() if name not in MAY_DIFFER})


def _changed(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    return [name for name in dict.fromkeys([*first, *second]) if first.get(name) != second.get(name)]
