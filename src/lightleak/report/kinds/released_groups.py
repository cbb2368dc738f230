"""Attacks on a released model by setting, with what ``inversion.json`` adds to their rows."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from lightleak.core.results import ALL, ReleasedRow
from lightleak.metrics.inversion.score import MEASURES
from lightleak.report.compare import Group, apart, by_key, differing, fixed, group_rows
from lightleak.report.format import DASH, attack_title, interval, joined, percent, points
from lightleak.report.intervals import Estimate, bounded, difference, estimate, proportion
from lightleak.report.kinds.released_entries import NOT_STATED, Entry, Memorization, pooled

FIXED = ("dataset", "target", "evaluation", "setting")
"""What is the same for all that is compared."""

BASELINES = ("public_pseudo_labeled", "gan_without_target", "plgmi_black_box", "public_random")
"""What is not led by the target: whatever an attack reaches above them, the model itself gave away."""

BLACK_BOX = "plgmi_black_box"
"""The attack that sees answers alone, for files that do not state what an attacker sees."""

UNLED = (None, "random", "softmax")
"""Latent searches that do not ask the target; a baseline with another one is an attack."""

SEARCHES = {
    "gradient": "gradient search",
    "tpe": "Bayesian search (TPE)",
    "random_best": "best of as many random\u00a0z",
    "random": "random\u00a0z",
    "softmax": "random\u00a0z, likeliest categories",
}
"""Latent searches in the order of thesis Table 5.6; the last is where the searches start from."""

ACCURACY = "attack_accuracy"
OVER_PUBLIC = "over_public_"
"""Prefix of a measure minus that of as many public rows which the target sorted into its classes."""

COUNT = "distinct_nearest_rows"
"""The one measure that counts rows."""

SHARES = ({*MEASURES} - {COUNT}) | {"shapes_score", "pair_trends_score", "condition_accuracy"}
"""Scores between 0 and 1, of which equal trainings leave an interval (`bounded`); equal rows have one of their own."""

HALF = 0.5
"""Share that lies nearer to a training row where nothing is copied."""

TOO_WIDE = 0.2
"""Width from which an interval around one half is no sign of anything."""

_BRIDGES = {"exact": "exact bridge", "shared": "shared transform"}
_MODELS = {"gandalf": "GANDALF", "boosted_trees": "boosted trees (XGBoost)", "mlp": "MLP"}

Copied = Literal["unknown", "too few", "none", "as public", "may be", "traces"]
Outcome = Literal["more", "less", "chance", "one training", "unknown"]


@dataclass(frozen=True)
class Measure:
    """One measure of an attack, compared with as many public rows that the released model sorted into the same classes.

    Attributes:
        name: one of `lightleak.metrics.inversion.score.MEASURES`.
        value: the attack's.
        public: that of the public rows.
        gain: the difference, paired by training.
    """

    name: str
    value: Estimate | None
    public: Estimate | None
    gain: Estimate | None

    @property
    def is_count(self) -> bool:
        """Whether it counts rows; the others are shares."""
        return self.name == COUNT

    def shown(self, value: Estimate | None) -> str:
        """A value in percent, or as a number of rows."""
        return f"{value.mean:.1f} rows" if self.is_count and value else percent(value)

    @property
    def difference(self) -> str:
        """The difference in points, or in rows, with its interval."""
        if self.gain is None:
            return DASH
        scale = 0.01 if self.is_count else 1.0
        ends = (None if end is None else scale * end for end in (self.gain.low, self.gain.high))
        scaled = Estimate(scale * self.gain.mean, self.gain.n, *ends)
        return points(scaled) + (f" ({interval(scaled, -math.inf, math.inf)})" if scaled.has_interval else "")

    @property
    def outcome(self) -> Outcome:
        """What the interval of the difference says; without several trainings there is none."""
        if self.gain is None:
            return "unknown"
        if not self.gain.has_interval:
            return "one training"
        return "more" if self.gain.is_above else "less" if self.gain.is_below else "chance"


@dataclass(frozen=True)
class Attack(Group[ReleasedRow]):
    """One attack or baseline in one setting, over its evaluations.

    Attributes:
        fit_name: what its training is called in this setting.
        name: the same with its latent search, where several were measured.
        entries: what ``inversion.json`` says of it.
    """

    fit_name: str = ""
    name: str = ""
    entries: tuple[Entry, ...] = field(default=(), repr=False)

    @property
    def title(self) -> str:
        """What the config calls it, or its name in the literature."""
        return title_of(self.first)

    @property
    def search(self) -> str | None:
        """Its latent search."""
        return self.first.latent_search

    @property
    def is_black_box(self) -> bool:
        """Whether the attacker sees the model's answers alone."""
        threat = self.first.threat
        return "weights" not in threat.sees if threat else self.attack == BLACK_BOX

    @property
    def is_baseline(self) -> bool:
        """Whether its rows come from public data, not led by the target."""
        return is_baseline(self.attack, self.search)

    @cached_property
    def evaluations(self) -> dict[tuple[str, ...], list[ReleasedRow]]:
        """Rows by run, seed and evaluation."""
        return by_key(self.rows, lambda row: (row.run, str(row.seed), str(row.evaluation_index)))

    @property
    def n_trainings(self) -> int:
        """How many trainings were evaluated; only several give an interval."""
        return len({key[:2] for key in self.evaluations})

    @property
    def samples(self) -> int | None:
        """Made-up rows judged in each evaluation; None where it is not stated or differs."""
        found = {sum(row.samples or 0 for row in _overall(rows)) for rows in self.evaluations.values()} - {0}
        return found.pop() if len(found) == 1 else None

    def value(self, name: str = ACCURACY) -> Estimate | None:
        """Mean of one score over trainings, with their interval where there are several; None where not measured.

        Evaluations of one training say nothing of another one: they are averaged, and give no interval.
        """
        return _over_trainings(name, self.by_evaluation(name))

    def change(self, other: "Attack", name: str = ACCURACY) -> Estimate | None:
        """One score minus another's, paired by evaluation; the difference of the means where they share none."""
        mine, others = self.by_evaluation(name), other.by_evaluation(name)
        pairs = {key: mine[key] - others[key] for key in mine if key in others}
        return _over_trainings(OVER_PUBLIC + name, pairs) if pairs else difference(self.value(name), other.value(name))

    def deviation(self, name: str = ACCURACY) -> float | None:
        """Sample standard deviation over trainings, or over evaluations of the only one; None for fewer than two."""
        found = self.by_evaluation(name)
        values = list((_by_training(found) if self.n_trainings > 1 else found).values())
        return statistics.stdev(values) if len(values) > 1 else None

    def singles(self) -> list[tuple[float, str]]:
        """The accuracy of each evaluation, with what it is called."""
        seed = "seed {1}, " if self.n_trainings > 1 else ""
        found = self.by_evaluation(ACCURACY).items()
        return [(value, f"{seed}evaluation {{2}}: {percent(value)}".format(*key)) for key, value in found]

    @property
    def equal_rows(self) -> Estimate | None:
        """Share of made-up rows that equal a private one; equal trainings are no surer than their rows allow."""
        found = self.value("exact_match_rate")
        if found is None or found.low != found.high:
            return found
        return proportion(found.mean, self.samples) if self.samples else Estimate(found.mean)

    def by_class(self, name: str) -> dict[str, float]:
        """One score by class, mean over evaluations and trainings."""
        found = self.by(lambda row: row.class_name, name)
        return {str(key): value for key, value in found.items() if key != ALL}

    def by_evaluation(self, name: str) -> dict[tuple[str, ...], float]:
        """The row over all classes; where there is none, the mean over the classes."""
        found = {key: _numbers(_overall(rows), name) or _numbers(rows, name) for key, rows in self.evaluations.items()}
        return {key: statistics.fmean(values) for key, values in found.items() if values}

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """Every measure, those that were not taken too."""
        return tuple(
            Measure(name, self.value(name), self.value(f"public_{name}"), self.value(OVER_PUBLIC + name))
            for name in MEASURES
        )

    def having(self, outcome: Outcome) -> tuple[Measure, ...]:
        """The measures with this outcome."""
        return tuple(one for one in self.measures if one.outcome == outcome)

    @property
    def gives_away(self) -> bool:
        """Whether every measure says that the rows show more of the classes than public rows do."""
        return len(self.having("more")) == len(self.measures)

    @cached_property
    def memory(self) -> Memorization:
        """How near its rows are to training rows."""
        return pooled(self.entries)


@dataclass(frozen=True)
class Scenario:
    """All attacks and baselines in one setting.

    Attributes:
        groups: attacks, then baselines, each with the highest attack accuracy first.
        entries: what ``inversion.json`` says of its table and split.
        title: how it differs from the others; empty if it is the only one.
    """

    groups: tuple[Attack, ...]
    entries: tuple[Entry, ...] = ()
    title: str = ""

    @property
    def first(self) -> ReleasedRow:
        """A row, for what all rows have in common."""
        return self.groups[0].first

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """The groups that the target leads."""
        return tuple(group for group in self.groups if not group.is_baseline)

    @property
    def baselines(self) -> tuple[Attack, ...]:
        """The groups that it does not lead."""
        return tuple(group for group in self.groups if group.is_baseline)

    @cached_property
    def reference(self) -> Attack | None:
        """The baseline with the highest attack accuracy: the one an attack has to beat."""
        return next((group for group in self.baselines if group.value() is not None), None)

    @cached_property
    def real_rows(self) -> Estimate | None:
        """Share of held-out private rows that the evaluation model takes for their class; no bound of an attack."""
        known = [value for group in self.groups for value in group.values("real_rows_accuracy")]
        return Estimate(statistics.fmean(known)) if known else None

    @cached_property
    def n_classes(self) -> int | None:
        """Number of private classes; None where unknown."""
        stated = [size for entry in self.entries if (size := entry.size("classes"))]
        seen = {row.class_name for group in self.groups for row in group.rows} - {ALL}
        return stated[0] if stated else len(seen) or None

    @property
    def chance(self) -> Estimate | None:
        """What naming a class at random reaches."""
        return Estimate(1 / self.n_classes) if self.n_classes else None

    @cached_property
    def quality(self) -> Estimate | None:
        """Share of held-out rows that the released model judges correctly, over trainings; None where unknown."""
        scores = {one.seed: one for one in self.entries if "test_accuracy" in one.target_scores}
        value = estimate(one.target_scores["test_accuracy"] for one in scores.values())
        if value is None or value.low != value.high:
            return value
        n = next(iter(scores.values())).size("private_test_rows")  # equal trainings are no surer than their rows allow
        return proportion(value.mean, n) if n and 0 <= value.mean <= 1 else value

    @property
    def most_equal_public(self) -> Estimate | None:
        """The highest share of public rows that equal a private one."""
        public = (one.value("exact_match_rate") for one in self.baselines if one.attack.startswith("public"))
        return max((one for one in public if one), key=lambda one: one.mean, default=None)

    def gain(self, group: Attack) -> Estimate | None:
        """Attack accuracy over the best baseline's, paired by training where both have it; None of a baseline."""
        return None if self.reference is None or group.is_baseline else group.change(self.reference)

    def place(self, name: str) -> str:
        """A name with its setting, where there are several settings."""
        return joined(name, self.title, by=" · ")

    def copied(self, group: Attack) -> Copied:
        """Whether single training rows come through, as far as this was measured.

        Returns:
            ``unknown`` (not measured, or without an interval), ``too few`` (rows held out to tell), ``none``,
            ``as public`` (rows from public data are as near), ``may be`` (nothing to compare with) or ``traces``.
        """
        share = group.memory.value
        if share is None or share.low is None or share.high is None:
            return "unknown"
        if share.low <= HALF:
            return "too few" if share.high - share.low > TOO_WIDE else "none"
        beyond = difference(share, self.nearest_public)
        if beyond is None:
            return "may be"
        return "traces" if beyond.is_above else "as public"

    @property
    def nearest_public(self) -> Estimate | None:
        """The highest share of rows from public data, which are no copies, that lie nearer to a training row."""
        known = [share for one in self.baselines if (share := one.memory.value)]
        return max(known, key=lambda share: share.mean, default=None)


def compare(rows: Sequence[ReleasedRow], entries: Sequence[Entry] = ()) -> tuple[Scenario, ...]:
    """Scenarios in the order of the rows, runs together. A group has each seed, evaluation and class once."""
    found = by_key(rows, lambda row: fixed(row, FIXED)).values()
    varying = differing((same[0] for same in found), FIXED)
    return tuple(
        Scenario(
            tuple(sorted(_attacks(same, entries), key=_reading_order)),
            tuple(one for one in entries if (one.dataset, one.setting) == (same[0].dataset, same[0].setting)),
            " · ".join(setting_words(same[0], varying)),
        )
        for same in found
    )


def most_telling(scenarios: Sequence[Scenario]) -> tuple[Scenario, Attack] | None:
    """The attack that most surely exceeds the best baseline; None without an accuracy.

    That is the highest lower end of the interval of `Scenario.gain`, so that few rows are no advantage; of the accuracy
    where there is no baseline.
    """
    known = [(one, group, value) for one in scenarios for group in one.attacks if (value := group.value())]
    gained = [(one, group, gain) for one, group, _ in known if (gain := one.gain(group))]
    best = max(gained or known, key=lambda found: _least(found[2]), default=None)
    return best and best[:2]


def topics(scenarios: Sequence[Scenario], entries: Sequence[Entry], main: Attack | None) -> list[Attack]:
    """Attacks with entries, each entry once, under names with their place: ``main`` first, and baselines last."""
    places = [(group is not main, scenario, group) for scenario in scenarios for group in scenario.groups]
    left, found = list(entries), []
    for is_other, scenario, group in sorted(places, key=lambda place: place[0]):
        # An entry without a search is about several groups, and belongs to the first.
        own = tuple(entry for entry in left if any(entry is one for one in group.entries))
        left = [entry for entry in left if not any(entry is one for one in own)]
        name, fit_name = scenario.place(group.name), scenario.place(group.fit_name)
        found += [(is_other, replace(group, entries=own, name=name, fit_name=fit_name))] if own else []
    # What is left is of an attack whose rows are not there, such as of an interrupted run.
    for same in by_key(left, lambda one: (one.dataset, one.setting, one.attack, one.label, one.search)).values():
        fit, search = title_of(same[0]), same[0].search
        name = joined(fit, search_name(search) if search else "", by=" · ")
        row = ReleasedRow(attack=same[0].attack, latent_search=search)
        found.append((True, Attack((row,), fit_name=fit, name=name, entries=tuple(same))))
    return [attack for _, attack in sorted(found, key=lambda pair: (pair[0], pair[1].is_baseline))]


def is_baseline(attack: str, search: str | None) -> bool:
    """Whether rows made so are not led by the target.

    >>> is_baseline("gan_without_target", "random"), is_baseline("gan_without_target", "gradient")
    (True, False)
    """
    return attack in BASELINES and search in UNLED


def title_of(one: ReleasedRow | Entry) -> str:
    """The attack as a reader knows it, or what the config calls it where that says more.

    >>> title_of(Entry("plgmi", "plgmi")), title_of(Entry("plgmi", "PLG-MI, alpha 0"))
    ('PLG-MI', 'PLG-MI, alpha 0')
    """
    return one.label if one.label and one.label != one.attack else attack_title(one.attack)


def search_name(search: str | None) -> str:
    """The latent search in words.

    >>> search_name("tpe"), search_name(None)
    ('Bayesian search (TPE)', 'search not stated')
    """
    return SEARCHES.get(search or "", search or "search not stated")


def model_name(name: str | None) -> str:
    """A network as the literature writes it.

    >>> model_name("mlp-2048-1024"), model_name("gandalf"), model_name(None)
    ('MLP 2048-1024', 'GANDALF', 'not stated')
    """
    family, _, rest = (name or NOT_STATED).partition("-")
    return joined(_MODELS[family], rest, by=" ") if family in _MODELS else name or NOT_STATED


def setting_words(row: ReleasedRow, names: Iterable[str]) -> list[str]:
    """The named parts of a setting, each as a short phrase.

    >>> setting_words(ReleasedRow(attack="", dataset="diabetes130", target="mlp-100", setting="2"), FIXED[:2])
    ['diabetes130', 'target MLP 100']
    """
    phrases = {
        "dataset": row.dataset or "dataset not stated",
        "target": f"target {model_name(row.target)}",
        "evaluation": f"judged by {model_name(row.evaluation)}",
        "setting": "setting not stated" if row.setting is None else f"setting {row.setting}",
    }
    return [phrases[name] for name in names]


def _attacks(rows: Sequence[ReleasedRow], entries: Sequence[Entry]) -> Iterator[Attack]:
    groups = group_rows(
        rows,
        lambda row: (row.attack, row.name, row.latent_search, row.bridge),
        lambda same: apart(same, lambda row: (str(row.seed), str(row.evaluation_index), row.class_name)),
    )
    by_name = by_key(groups, lambda group: (group.attack, group.first.name))
    for group in groups:
        row = group.first
        varying = differing((one.first for one in by_name[group.attack, row.name]), ("latent_search", "bridge"))
        search = search_name(row.latent_search) if "latent_search" in varying else ""
        bridge = _BRIDGES.get(row.bridge or "", row.bridge or "bridge not stated") if "bridge" in varying else ""
        fit, name = (joined(title_of(row), one, bridge, group.variant, by=" · ") for one in ("", search))
        found = Attack(group.rows, group.variant, fit_name=fit, name=name)
        yield replace(found, entries=tuple(entry for entry in entries if _belongs(entry, found)))


def _belongs(entry: Entry, group: Attack) -> bool:
    """Whether an entry is about this group; one without a search is about every search."""
    row = group.first
    same = (entry.dataset, entry.setting, entry.attack, entry.label or entry.attack) == (
        row.dataset, row.setting, row.attack, row.name,
    )  # fmt: skip
    in_run = not group.variant or entry.run in {one.run for one in group.rows}
    return same and entry.search in (None, group.search) and in_run


def _reading_order(group: Attack) -> tuple[bool, float]:
    value = group.value()
    return group.is_baseline, -value.mean if value else 1.0


def _least(value: Estimate) -> tuple[bool, float]:
    return (False, value.mean) if value.low is None else (True, value.low)


def _overall(rows: Sequence[ReleasedRow]) -> Sequence[ReleasedRow]:
    return [row for row in rows if row.class_name == ALL] or rows


def _numbers(rows: Iterable[ReleasedRow], name: str) -> list[float]:
    return [value for row in rows if (value := row.number(name)) is not None]


def _by_training(values: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Means of values by run, seed and evaluation over the evaluations of each training."""
    found = by_key(values.items(), lambda pair: pair[0][:2])
    return {key: statistics.fmean(value for _, value in same) for key, same in found.items()}


def _over_trainings(name: str, values: Mapping[tuple[str, ...], float]) -> Estimate | None:
    """Mean over trainings with an interval that stays within what the score can be."""
    base = name.removeprefix(OVER_PUBLIC)
    highest = 1.0 if base.removeprefix("public_") in SHARES else math.inf
    lowest = -highest if name != base else 0.0 if highest == 1.0 else -math.inf
    return bounded(_by_training(values).values(), lowest, highest)
