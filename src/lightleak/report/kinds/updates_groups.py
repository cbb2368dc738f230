"""Rows of updates grouped by attack, each measured against guessing, and by update, whichever attack was best on it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from lightleak.core.grouping import by_key
from lightleak.core.results import UpdateRow
from lightleak.report.compare import Group, attacks, fixed, group_rows
from lightleak.report.format import DASH, LESS, MORE, percent, sign_of, with_interval
from lightleak.report.intervals import ENOUGH_PAIRS, Estimate, Values, bounded, paired_difference
from lightleak.report.kinds.updates_words import FIXED, Moment, moment_of
from lightleak.report.read import Run

BASELINE = "random"
"""The attack that guesses from one-way marginals and never reads the update."""

RECOVERED, PROVEN = ("close_match_rate", "exact_match_rate"), "certified_digits_share"
"""Metrics of which the highest one says what share of an update's rows is at risk; older runs lack the first."""

LARGEST_SHORTFALL = 2
"""A ranked attack needs at least 1/2 of the rows of the best-measured one: few rows give high means by chance."""

_WITHOUT_LABELS = tuple(name for name in FIXED if name != "labels")


@dataclass(frozen=True)
class UpdateGroup(Group[UpdateRow]):
    """One attack on updates of one size in one setting."""

    baseline: "UpdateGroup | None" = field(default=None, repr=False)

    @property
    def leakage(self) -> Estimate | None:
        """Cell accuracy over that of guessing on the same batch, which removes what makes a batch easy.

        The difference of the means without an interval where the two share no batch; None where either has none.
        """
        if self.baseline is None:
            return None
        guessed, mine = (one.by(batch_of, "cell_accuracy") for one in (self.baseline, self))
        if paired := paired_difference(guessed, mine):
            return paired
        means = self.mean("cell_accuracy"), self.baseline.mean("cell_accuracy")
        return None if means[0] is None or means[1] is None else Estimate(means[0].mean - means[1].mean, n=0)

    @property
    def proven_share(self) -> float:
        """Mean share of rows that the attack has certified; 0 where it certifies none."""
        share = self.mean("certified_share")
        return 0.0 if share is None else share.mean

    @property
    def size(self) -> str:
        """Rows behind each update."""
        return DASH if self.first.size is None else str(self.first.size)

    def share(self, name: str) -> str:
        """Return the mean of a score that is a share."""
        return percent(self.mean(name))

    def share_with_interval(self, name: str) -> str:
        """Return the same with its interval."""
        return with_interval(self.mean(name))


def compare(runs: Iterable[Run]) -> tuple[UpdateGroup, ...]:
    """Group the rows of all runs, and set each group against the guessing baseline, in the order of the rows."""
    rows = [_without_local(row) for run in runs for row in run.of(UpdateRow)]
    found = group_rows(rows, lambda row: (fixed(row, FIXED), row.attack, row.size))
    groups = [UpdateGroup(one.rows, one.variant) for one in found]
    guessing = by_key((one for one in groups if one.is_baseline), lambda one: _place_without_labels(one.first))

    def measured(group: UpdateGroup) -> UpdateGroup:
        # The baseline does not read labels: one with another label setting is as good.
        same = guessing.get(_place_without_labels(group.first), [])
        return replace(group, baseline=min(same, key=lambda one: one.first.labels != group.first.labels, default=None))

    return tuple(group if group.is_baseline else measured(group) for group in groups)


def _place_without_labels(row: UpdateRow) -> tuple[object, ...]:
    return (*fixed(row, _WITHOUT_LABELS), row.size)


def batch_of(row: UpdateRow) -> tuple[object, object]:
    """Return what attacks on the same batch share."""
    return (row.seed, row.batch_index)


def update_of(row: UpdateRow) -> tuple[object, ...]:
    """Return what names an update within its run; equal runs name equal updates equally."""
    local = (row.local_epochs, row.local_batches, row.n_clients) if row.on_fedavg else ()
    return (row.dataset, row.epoch, *local, row.batch_size, *batch_of(row))


def at_start(groups: Sequence[UpdateGroup]) -> tuple[UpdateGroup, ...]:
    """Return the groups attacked before training; all of them where every one was captured during training."""
    return tuple(group for group in groups if group.first.source != "training") or tuple(groups)


def strongest_first(groups: Iterable[UpdateGroup]) -> list[UpdateGroup]:
    """Return attacks with a measured accuracy, most leakage first; thinly measured ones stand last."""
    measured = [(group, len(group.values("cell_accuracy"))) for group in attacks(groups)]
    most = max((n for _, n in measured), default=0)

    def order(pair: tuple[UpdateGroup, int]) -> tuple[bool, bool, float]:
        group, n = pair
        over, accuracy = group.leakage, group.mean("cell_accuracy")
        return LARGEST_SHORTFALL * n >= most, over is not None, (over or accuracy or Estimate(0.0)).mean

    return [group for group, n in sorted(measured, key=order, reverse=True) if n]


def _without_local(row: UpdateRow) -> UpdateRow:
    """Under FedSGD nothing is trained locally: what such rows say of it must not tell settings apart."""
    return row if row.on_fedavg else replace(row, local_epochs=None, local_batches=None, n_clients=None)


@dataclass(frozen=True)
class Effect:
    """What a run's changed settings did to an exposure: after minus before.

    Attributes:
        rows: of `Exposure.at_risk`; negative where fewer rows are at risk.
        values: of `Exposure.cells`.
        is_paired: whether both are over the same rows.
        before: what the attacks that both runs tried got out of the first.
        after: of the second.
    """

    rows: Estimate | None
    values: Estimate | None
    is_paired: bool
    before: "Exposure" = field(repr=False)
    after: "Exposure" = field(repr=False)

    @property
    def signs(self) -> tuple[str, ...]:
        """Which way rows at risk and values recovered went, as the table shows it; what is unknown is left out."""
        return tuple(sign_of(one) for one in (self.rows, self.values) if one is not None)

    @property
    def helps(self) -> bool:
        """Whether it measurably lowers rows at risk or values recovered, and measurably raises neither."""
        return LESS in self.signs and MORE not in self.signs


@dataclass(frozen=True)
class Exposure:
    """What all attacks of a run together got out of updates of one size, sent at one moment.

    Of each update the attack counts that got most from it. Who has no truth to compare with cannot choose better, so
    this is an upper end of what these attacks can do, and no attack is picked after the fact. Attacks that were run on
    a sample of the updates count there alone (`sample`): a mean over all would hide what they found.

    Attributes:
        run: whose.
        batch_size: rows behind an update (`UpdateRow.size`).
        moment: when the updates were sent.
        rows: of all attacks, guessing apart.
        at_risk: share of an update's rows that came back right in every value (numbers within the tolerance of
            TabLeak's Eq. 6), or certified whole, by update.
        cells: share of values recovered, by update; empty where the truth is unknown.
        certified: share of an update's rows that is certified with its numbers, by update; empty where no attack
            certifies.
        guess: share of values that guessing gets right; None where it was not measured.
        guessed_rows: share of rows that guessing gets right in every value.
        sample: the same of the updates that every attack was run on, where some were run on more.
        situations: sizes and moments of the run, among which the worst one is named.
        effect: what changed from the reference; None for the reference itself.
    """

    run: Run = field(repr=False)
    batch_size: int | None
    moment: Moment
    rows: tuple[UpdateRow, ...] = field(repr=False)
    at_risk: Values = field(repr=False)
    cells: Values = field(repr=False)
    certified: Values = field(repr=False)
    guess: Estimate | None
    guessed_rows: Estimate | None
    sample: "Exposure | None" = None
    situations: int = 1
    effect: Effect | None = None

    @property
    def n(self) -> int:
        """Updates that were attacked."""
        return len(self.at_risk)

    @property
    def place(self) -> tuple[int | None, Moment]:
        """Size and moment, by which exposures of several runs are compared."""
        return self.batch_size, self.moment

    @property
    def attacks(self) -> frozenset[str]:
        """Attacks that count."""
        return frozenset(row.attack for row in self.rows)

    @property
    def knows_truth(self) -> bool:
        """Whether rows were compared with the true ones, so that uncertified ones count as well."""
        return any(row.number("exact_match_rate") is not None for row in self.rows)

    @property
    def about(self) -> str:
        """What stands before `batch_size` where that is a mean."""
        return "about " if self.rows[0].planned_batch_size else ""

    @property
    def risk(self) -> Estimate:
        """Share of records at risk; intervals of all situations of a run hold at once."""
        found = bounded(self.at_risk.values(), comparisons=self.situations)
        assert found is not None  # an exposure has at least one update
        return found

    @property
    def proven(self) -> Estimate | None:
        """Share of records proven, with the same allowance; None where no attack certifies."""
        return bounded(self.certified.values(), comparisons=self.situations)

    @property
    def has_too_few_pairs(self) -> bool:
        """Whether not even a change from all records to none would have been measurable."""
        one = self.effect
        return one is not None and one.is_paired and one.after.n < ENOUGH_PAIRS and set(one.signs) != {LESS}

    @property
    def values(self) -> Estimate | None:
        """Mean of `cells`."""
        return bounded(self.cells.values())

    @property
    def order(self) -> tuple[float, float, int, int]:
        """By how much is at risk: share of records and of single values; of equals, by how much was measured."""
        return self.risk.mean, self.values.mean if self.values else 0.0, self.n, self.batch_size or 0

    @property
    def worse(self) -> "Exposure":
        """The sample where it measurably shows more at risk, else all updates."""
        one = self.sample
        pairs = ((one.risk, self.risk), (one.values, self.values)) if one else ()
        is_more = any(own and other and own.low is not None and own.low > other.mean for own, other in pairs)
        return one if one and is_more else self


def exposures(run: Run, other: Run | None = None) -> tuple[Exposure, ...]:
    """Return every size and moment of a run, updates sent before training first, then by size.

    Args:
        run: whose.
        other: a run to compare with: attacks that it did not try at the same size and moment are left out.
    """
    found: list[Exposure] = []
    tried = None if other is None else {(*_situation(row), row.attack) for row in other.of(UpdateRow)}
    counted = [row for row in run.of(UpdateRow) if tried is None or (*_situation(row), row.attack) in tried]
    for (moment, size), rows in by_key(counted, _situation).items():
        updates = {
            attack: {update_of(row) for row in of}
            for attack, of in by_key(rows, lambda row: row.attack).items()
            if attack != BASELINE
        }
        if not updates:
            continue
        every, shared = set.union(*updates.values()), set.intersection(*updates.values())
        whole = _exposure(run, size, moment, [row for row in rows if updates.get(row.attack, every) == every])
        part = _exposure(run, size, moment, [row for row in rows if update_of(row) in shared])
        one = replace(whole, sample=part) if whole and part and shared != every else _exposure(run, size, moment, rows)
        if one:
            found.append(one)
    return tuple(sorted(found, key=lambda one: (one.moment == "during training", one.batch_size or 0)))


def _situation(row: UpdateRow) -> tuple[Moment, int | None]:
    return moment_of(row), row.size


def _exposure(run: Run, size: int | None, moment: Moment, rows: Sequence[UpdateRow]) -> Exposure | None:
    attacking = tuple(row for row in rows if row.attack != BASELINE)
    guessing = [row for row in rows if row.attack == BASELINE]
    at_risk, cells = _highest(attacking, *RECOVERED, PROVEN), _highest(attacking, "cell_accuracy")
    if not at_risk:
        return None
    guess, guessed = (bounded(_highest(guessing, *names).values()) for names in (("cell_accuracy",), RECOVERED))
    return Exposure(run, size, moment, attacking, at_risk, cells, _highest(attacking, PROVEN), guess, guessed)


def _highest(rows: Iterable[UpdateRow], *names: str) -> Values:
    """The highest of the named metrics over all attacks, by update."""
    found: dict[tuple[object, ...], float] = {}
    for row in rows:
        for value in (row.number(name) for name in names):
            if value is not None:
                found[update_of(row)] = max(found.get(update_of(row), 0.0), value)
    return found
