"""How many records are at risk, whichever attack was best on each update: no attack is picked after the fact."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lightleak.core.results import UpdateRow
from lightleak.report.change.changed import on_same_rows
from lightleak.report.compare import by_key
from lightleak.report.format import LESS, MORE, sign_of
from lightleak.report.intervals import Estimate, Values, bounded, paired_difference, unpaired_difference
from lightleak.report.kinds.updates_groups import BASELINE, update_of
from lightleak.report.kinds.updates_words import Moment, moment_of
from lightleak.report.read import Run

AT_RISK = ("exact_match_rate", "certified_digits_share")
"""Metrics of which the higher one says what share of an update's rows is at risk."""


@dataclass(frozen=True)
class Exposure:
    """What all attacks of a run together got out of updates of one size, sent at one moment.

    Of each update the attack counts that got most from it. Who has no truth to compare with cannot choose better, so
    this is an upper end of what these attacks can do.

    Attributes:
        run: whose.
        batch_size: rows behind an update.
        moment: when the updates were sent.
        rows: of all attacks, guessing apart.
        at_risk: share of an update's rows that came back with every value right, or certified whole, by update.
        proven: share that is certified with its numbers, by update; empty where no attack certifies.
        cells: share of values recovered, by update; empty where the truth is unknown.
        guesses: the same by guessing; empty where it was not measured.
        knows_truth: whether rows were compared with the true ones, so that uncertified ones count as well.
    """

    run: Run = field(repr=False)
    batch_size: int | None
    moment: Moment
    rows: tuple[UpdateRow, ...] = field(repr=False)
    at_risk: Values = field(repr=False)
    proven: Values = field(repr=False)
    cells: Values = field(repr=False)
    guesses: Values = field(repr=False)
    knows_truth: bool

    @property
    def n(self) -> int:
        """Updates that were attacked."""
        return len(self.at_risk)

    @property
    def leading(self) -> tuple[str, ...]:
        """Attacks that no other surpassed on some update; none where all got everything, so that none can do more."""
        if min([*self.at_risk.values(), *self.cells.values()]) == 1:
            return ()
        found: dict[str, None] = {}
        for row in self.rows:
            unit = update_of(row)
            most = max(row.number(name) or 0.0 for name in AT_RISK)
            if most == self.at_risk.get(unit) or (row.number("cell_accuracy") or -1.0) == self.cells.get(unit):
                found[row.attack] = None
        return tuple(found)

    def risk(self, comparisons: int = 1) -> Estimate:
        """Mean of `at_risk`, with an interval that allows for having picked it among several."""
        found = bounded(self.at_risk.values(), comparisons=comparisons)
        assert found is not None  # an exposure has at least one update
        return found

    @property
    def certified(self) -> Estimate | None:
        """Mean of `proven`."""
        return bounded(self.proven.values())

    @property
    def values(self) -> Estimate | None:
        """Mean of `cells`."""
        return bounded(self.cells.values())

    @property
    def guess(self) -> Estimate | None:
        """Mean of `guesses`."""
        return bounded(self.guesses.values())


@dataclass(frozen=True)
class Effect:
    """What a run's changed settings did to an exposure: after minus before.

    Attributes:
        rows: of `Exposure.at_risk`; negative where fewer rows are at risk.
        values: of `Exposure.cells`.
        is_paired: whether both are over the same rows.
    """

    rows: Estimate | None
    values: Estimate | None
    is_paired: bool

    @property
    def signs(self) -> tuple[str, ...]:
        """Which way rows at risk and values recovered went, as the table shows it; what is unknown is left out."""
        return tuple(sign_of(one) for one in (self.rows, self.values) if one is not None)

    @property
    def helps(self) -> bool:
        """Whether it measurably lowers rows at risk or values recovered, and measurably raises neither."""
        return LESS in self.signs and MORE not in self.signs


def exposures(run: Run) -> tuple[Exposure, ...]:
    """Every size and moment of a run, updates sent before training first, then by size."""
    found = by_key(run.of(UpdateRow), lambda row: (moment_of(row), row.batch_size))
    order = sorted(found, key=lambda key: (key[0] == "during training", key[1] or 0))
    every = (_exposure(run, moment, size, found[moment, size]) for moment, size in order)
    return tuple(one for one in every if one is not None)


def effect(before: Exposure, after: Exposure) -> Effect:
    """Difference of two exposures of one size and moment, paired where both attacked the same rows."""
    is_paired = on_same_rows(before.run, after.run, before.rows, after.rows)
    subtract = paired_difference if is_paired else unpaired_difference
    return Effect(subtract(before.at_risk, after.at_risk), subtract(before.cells, after.cells), is_paired)


def _exposure(run: Run, moment: Moment, size: int | None, rows: list[UpdateRow]) -> Exposure | None:
    attacks = [row for row in rows if row.attack != BASELINE]
    at_risk = _highest(attacks, AT_RISK)
    if not at_risk:
        return None
    return Exposure(
        run=run,
        batch_size=size,
        moment=moment,
        rows=tuple(attacks),
        at_risk=at_risk,
        proven=_highest(attacks, ("certified_digits_share",)),
        cells=_highest(attacks, ("cell_accuracy",)),
        guesses=_highest((row for row in rows if row.attack == BASELINE), ("cell_accuracy",)),
        knows_truth=any(row.number("exact_match_rate") is not None for row in attacks),
    )


def _highest(rows: Iterable[UpdateRow], names: tuple[str, ...]) -> Mapping[tuple[object, ...], float]:
    """The highest of the named metrics over all attacks, by update."""
    found: dict[tuple[object, ...], float] = {}
    for row in rows:
        for name in names:
            if (value := row.number(name)) is not None:
                found[update_of(row)] = max(found.get(update_of(row), 0.0), value)
    return found
