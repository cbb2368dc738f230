"""A point of a defense frontier: what one defense at one strength lets an attack read, and what it costs."""

import math
import statistics
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from lightleak.core.grouping import by_key
from lightleak.core.guarantee import success_bound, success_bound_of_epsilon
from lightleak.core.people import People, Rate
from lightleak.core.results import NONE, FrontierRow, flat
from lightleak.report.attacks import knowing
from lightleak.report.budget import budget
from lightleak.report.compare import Group, attacks, group_rows
from lightleak.report.format import capital, defense_title, of_a_number
from lightleak.report.intervals import ENOUGH_PAIRS, Estimate, bounded, estimate, of_rate
from lightleak.report.intervals import difference as of_shares
from lightleak.report.kinds.updates_groups import BASELINE

WIDEST = 0.05
"""Width of an interval, as a share of cells, beyond which guessing within it shows nothing: a defense that leaves the
attack several points above guessing would look the same."""

COIN = 0.5
"""Prior of `Point.bound`: two candidate rows, equally likely."""

HARDLY_A_LIMIT = 0.9995
"""A bound from which on it is as good as none."""

UNVERIFIED = ("nvflare_svt",)
"""Defenses whose epsilon is what they claim, and nobody has shown."""

KNOWN_IN_PART = ("dp_sgd",)
"""Defenses of which `knowing` attacks know the noise alone: they take every row's gradient for unclipped."""

UNDEFENDED = {"audit_max"}
"""Attacks of the undefended point in place of which `adaptive` runs, at a defense, the one that knows it."""

Protection = Literal["protects", "leaks", "too few measurements"]
Scores = Literal["accuracies", "aurocs"]
Paired = Mapping[Hashable, float]
"""Values by what several points share: the run, with the seed of a training or the client that was attacked."""


@dataclass(frozen=True)
class Point(Group[FrontierRow]):
    """One defense at one strength, over seeds of the training and over attacked clients.

    Attributes:
        baseline: the point without a defense; None for itself and where there is none.
        guesses: share of cells that guessing gets right, by client; guessing reads no update, so that it is the same
            under every defense.
        whole_guesses: rows that guessing recovers whole, by client.
        people: what attacks revealed of every person of a training under the same defense, of other runs, and whether
            the attack was weak.
        settings_named: its other settings, where another point has the same curve and strength.
    """

    baseline: "Point | None" = field(default=None, repr=False)
    guesses: Paired = field(default_factory=dict, repr=False)
    whole_guesses: Paired = field(default_factory=dict, repr=False)
    people: tuple[tuple[People, bool], ...] = field(default=(), repr=False)
    settings_named: str = field(default="", repr=False)

    @cached_property
    def accuracies(self) -> Paired:
        """Test accuracy by seed of the training."""
        return self.by(unit_of, lambda row: row.accuracy if row.is_training else None)

    @cached_property
    def accuracy(self) -> Estimate | None:
        """Test accuracy over seeds."""
        return _mean(self.accuracies.values(), lowest=0.0)

    @property
    def has_learned(self) -> bool:
        """Whether its network measurably beats the commonest label or, by AUROC, a coin; also where that is open."""
        majority = next(iter(self.values("majority")), None)
        if majority is None or self.accuracy is None:
            return True
        return lowest(self.accuracy) > majority or lowest(self.auroc) > COIN

    @cached_property
    def aurocs(self) -> Paired:
        """Area under the ROC curve by seed of the training."""
        return self.by(unit_of, lambda row: row.auroc if row.is_training else None)

    @cached_property
    def auroc(self) -> Estimate | None:
        """Area under the ROC curve over seeds."""
        return _mean(self.aurocs.values(), lowest=0.0)

    @cached_property
    def attacks(self) -> tuple[Group[FrontierRow], ...]:
        """Every attack with its settings, guessing left out."""
        return attacks(group_rows((row for row in self.rows if not row.is_training), lambda row: row.attack))

    @property
    def is_adaptive(self) -> bool | None:
        """Whether an attack that knows the defense, as it was set, is among the attacks; None where there is none."""
        if self.first.defense in KNOWN_IN_PART:
            return None
        known = self.known_to
        of_known = [one for one in self.attacks if one.attack in known]
        ran = (flat(known[one.attack]).items() <= one.first.settings.items() for one in of_known)
        return any(ran) or any(map(self._composes, self.attacks)) if known else None

    def _composes(self, attack: Group[FrontierRow]) -> bool:
        """Whether an attack has one among its parts that knows the defense in any settings."""
        parts = {key.partition(".")[0] for key in attack.first.settings if "." in key}
        return any(name in parts and not settings for name, settings in self.known_to.items())

    @property
    def known_to(self) -> Mapping[str, Mapping[str, Any]]:
        """Attacks on what its clients send that know the defense, with the settings in which they do."""
        row, known = self.first, knowing(self.first.defense or NONE)
        return {
            attack: {**of, **row.defense_knowledge.get(attack, {})}
            for attack, of in known.items()
            if attack.endswith("_fedavg") == self.is_fedavg
        }

    @property
    def is_fedavg(self) -> bool:
        """Whether its clients send what several local steps changed."""
        return self.first.protocol == "fedavg"

    @cached_property
    def strongest(self) -> Group[FrontierRow] | None:
        """The attack that recovers most on average, by which a defense is judged."""
        known = [(mean.mean, one) for one in self.attacks if (mean := one.mean("cell_accuracy"))]
        return max(known, key=lambda pair: pair[0], default=(0.0, None))[1]

    def over_guessing(self, comparisons: int = 1) -> Estimate | None:
        """`cells` minus guessing, paired by client, never of zero width by chance (`bounded`)."""
        return bounded(differences(self.recovered, self.guesses), -1.0, 1.0, comparisons)

    @cached_property
    def proven(self) -> Rate | None:
        """Rows that an attack proved, by the one that proves most, of the rows of attacked clients."""
        return self._most(proven_rows)

    @cached_property
    def is_weak(self) -> bool:
        """Whether nothing follows from what its own attacks did not recover, whatever others were run elsewhere."""
        return budget(row for one in self.attacks for row in one.rows).is_weak

    @cached_property
    def whole(self) -> Rate | None:
        """Rows that an attack recovered in every column, by the one that recovers most, of the rows of its clients."""
        return self._most(whole_rows)

    def _most(self, count: Callable[[FrontierRow], float | None]) -> Rate | None:
        found = []
        for attack in self.attacks:
            known = [(n, row.batch_size) for row in attack.rows if row.batch_size and (n := count(row)) is not None]
            found.append(Rate.of(sum(n for n, _ in known), sum(size for _, size in known)))
        return max(filter(None, found), key=lambda one: one.share, default=None)

    def recovers_rows(self, attack: Group[FrontierRow]) -> bool:
        """Whether an attack recovers measurably more rows whole than guessing does, of the same clients."""
        found, sizes = attack.by(unit_of, whole_rows), attack.by(unit_of, "batch_size")
        shared = [key for key in found if key in self.whole_guesses]
        n = round(sum(sizes[key] for key in shared))
        return _is_more(*(Rate.of(sum(of[key] for key in shared), n) for of in (found, self.whole_guesses)))

    @cached_property
    def exposed(self) -> People | None:
        """The attack on a whole training that proves most people, or recovers measurably more than guessing does."""
        every = [one for one, _ in self.people]
        guesses = [one.exposed for one in every if one.attack == BASELINE]
        guessed = max(guesses, key=lambda rate: rate.share, default=Rate.of(0, sum(one.n for one in every)))
        found = [one for one in every if one.proven or _is_more(one.exposed, guessed)]
        return max(found, key=lambda one: (one.proven, one.recovered), default=None)

    @property
    def searched(self) -> People | None:
        """An attack on a whole training from whose finding nobody something follows."""
        return next((one for one, is_weak in self.people if one.attack != BASELINE and not is_weak), None)

    @cached_property
    def protection_alone(self) -> Protection:
        """Whether an attack, the best or any other, does measurably better than guessing or proves a row or person.

        It does better by cells or by rows recovered whole.
        An interval includes guessing where a defense works and where few clients were attacked: it counts as protection
        over `ENOUGH_PAIRS` clients, if it is at most `WIDEST`, no attack was weak, and every attack on the undefended
        point was run here as well (`is_tested`).
        """
        found = [_mean(differences(attack.by(unit_of, "cell_accuracy"), self.guesses)) for attack in self.attacks]
        if any(one is not None and one.is_above for one in found) or any(map(self.recovers_rows, self.attacks)):
            return "leaks"
        if self.exposed or (self.proven and self.proven.share > 0):
            return "leaks"
        shown = found and all(map(_is_narrow, found)) and not self.is_weak and self.is_tested
        return "protects" if shown else "too few measurements"

    @property
    def is_tested(self) -> bool:
        """Whether every attack on the undefended point was run here as well, in any settings, on as many clients."""
        ran, before = _clients(self), _clients(self.baseline)
        lacking = {attack for attack, clients in before.items() if ran.get(attack, 0) < clients}
        return not lacking or (lacking <= UNDEFENDED and self.is_adaptive is not False)

    @property
    def protection(self) -> Protection:
        """`protection_alone`, where a defense is credited only if it leaks measurably less than no defense."""
        is_open = self.baseline is not None and self.baseline.is_measured and not self.helps
        return "too few measurements" if self.protection_alone == "protects" and is_open else self.protection_alone

    @cached_property
    def helps(self) -> bool:
        """Whether it leaks measurably less than no defense, or less in the mean where one client has no interval."""
        none = self.baseline
        if none is None or not none.is_measured or not self.is_measured or not none.place[1]:
            return False
        return lowest(difference(none.gains, self.gains)) > 0

    @cached_property
    def recovered(self) -> Paired:
        """Share of cells that `strongest` recovers, by client."""
        return {} if self.strongest is None else self.strongest.by(unit_of, "cell_accuracy")

    @cached_property
    def cells(self) -> Estimate | None:
        """Share of cells that `strongest` recovers, over clients."""
        return bounded(self.recovered.values())

    @cached_property
    def leakage(self) -> Estimate | None:
        """`cells` minus guessing, paired by client; negative where guessing does better."""
        return _mean(differences(self.recovered, self.guesses))

    @cached_property
    def gains(self) -> Paired:
        """What a client gives away beyond guessing: an attacker that does better by guessing guesses, and gains 0."""
        if self.leakage is None:
            return {}
        is_useful = self.leakage.mean > 0
        shared = {key: cells for key, cells in self.recovered.items() if key in self.guesses}
        return {key: cells - self.guesses[key] if is_useful else 0.0 for key, cells in shared.items()}

    @property
    def place(self) -> tuple[float, float]:
        """Accuracy and mean of `gains`; only of a point that `is_measured`."""
        return statistics.fmean(self.accuracies.values()), statistics.fmean(self.gains.values())

    @property
    def is_measured(self) -> bool:
        """Whether both what it costs and what it leaks are known."""
        return bool(self.accuracies and self.gains)

    @property
    def name(self) -> str:
        """The curve and the strength, and what tells it from another point of these.

        >>> row = FrontierRow(attack="none", defense="dp_sgd", defense_strength=0.5)
        >>> Point((row,)).name, Point((FrontierRow(attack="none"),)).name
        ('DP-SGD 0.5', 'no defense')
        """
        strength = self.first.defense_strength
        return curve_title(self.first.curve) + ("" if strength is None else f" {strength:g}") + self.settings_named

    def granted(self, name: str) -> float | None:
        """Largest ``epsilon``, ``release_epsilon`` or ``delta`` of its trainings; None where one guarantees nothing.

        Before a training has finished, that of the attacked updates.
        """
        trainings = [row.number(name) for row in self.rows if row.is_training]
        known = [value for value in trainings or self.values(name) if value is not None]
        return max(known, default=None) if len(known) >= len(trainings) else None

    @property
    def bound(self) -> float | None:
        """How often any attack on one update can tell which of two equally likely rows was in it; None: no limit.

        It follows from the noise where that is known (the exact bound for Gaussian releases), else from epsilon. An
        update of FedAvg is as many releases as it has local epochs, in each of which a row takes part once.
        """
        row, epsilon = self.first, self.granted("release_epsilon")
        if row.defense in UNVERIFIED:
            return None
        epochs = max((row.local_epochs or 0 for row in self.rows), default=0) if self.is_fedavg else 1
        if row.defense == "dp_sgd" and row.defense_option == "noise_multiplier" and row.defense_strength and epochs:
            return success_bound(row.defense_strength / math.sqrt(epochs), COIN)
        return None if epsilon is None else success_bound_of_epsilon(epsilon, self.granted("delta") or 0.0, COIN)

    @property
    def shares_labels(self) -> bool:
        """Whether its updates carry their labels, which no noise covers: a bound is then about rows of one label."""
        return any("true" in (row.labels, row.label_setting) for row in self.rows)

    @property
    def is_bounded(self) -> bool:
        """Whether a guarantee limits attacks on one update that nobody has tried."""
        return self.bound is not None and self.bound < HARDLY_A_LIMIT

    def read_change(self, comparisons: int = 0) -> Estimate | None:
        """What the defense changes in the share of cells recovered, paired by client.

        ``comparisons`` widens the interval to one that holds for so many at once (`bounded`).
        """
        if self.baseline is None:
            return None
        found = differences(self.recovered, self.baseline.recovered)
        return bounded(found, -1.0, 1.0, comparisons) if comparisons else _mean(found)

    def change(self, scores: Scores) -> Estimate | None:
        """What it changes in its scores against no defense, paired by seed."""
        return _mean(differences(getattr(self, scores), getattr(self.baseline, scores))) if self.baseline else None

    def lost(self, scores: Scores) -> Estimate | None:
        """What it loses of them, paired by seed."""
        return _mean(differences(getattr(self.baseline, scores), getattr(self, scores))) if self.baseline else None

    def to_dict(self, comparisons: int) -> dict[str, Any]:
        """Return how the recommendation judges it, JSON-ready; ``at_most`` holds for so many points at once."""
        row, corrected = self.first, self.over_guessing(comparisons)
        found = {
            "name": self.name,
            "defense_label": row.curve,
            "defense": row.defense or NONE,
            "defense_strength": row.defense_strength,
            "protection": self.protection,
            "attack": self.strongest and self.strongest.attack,
            "adaptive": self.is_adaptive,
            "leakage": self.over_guessing(),
            "at_most": corrected and corrected.high,
            "proven": self.proven,
            "recovered_whole": self.whole,
            "accuracy": self.accuracy,
            "accuracy_lost": self.lost("accuracies"),
            "auroc": self.auroc,
            "auroc_lost": self.lost("aurocs"),
            **{name: self.granted(name) for name in ("epsilon", "release_epsilon", "delta")},
            "bound": self.bound,
        }
        return {name: asdict(one) if isinstance(one, Estimate | Rate) else one for name, one in found.items()}


def differences(first: Paired, second: Paired) -> list[float]:
    """``first`` minus ``second`` for each key that they share."""
    return [value - second[key] for key, value in first.items() if key in second]


def difference(first: Paired, second: Paired) -> Estimate | None:
    """Mean of these, with its interval; None where they share no key.

    >>> difference({"a": 0.75, "b": 0.5}, {"a": 0.25}).mean
    0.5
    """
    return estimate(differences(first, second))


def curve_title(label: str) -> str:
    """Name of a curve.

    >>> curve_title("gaussian_noise"), curve_title("none")
    ('Gaussian noise', 'no defense')
    """
    return "no defense" if label == NONE else capital(defense_title(label))


@of_a_number
def guarantee(epsilon: float) -> str:
    """Epsilon of differential privacy.

    >>> guarantee(2.943), guarantee(None)
    ('2.94', '–')
    """
    return f"{epsilon:.3g}"


def unit_of(row: FrontierRow) -> tuple[str, str, str]:
    """Return what rows of several strengths are paired by: the run, the seed, and the client."""
    return row.run, str(row.seed), "" if row.is_training else str(row.batch_index)


def whole_rows(row: FrontierRow) -> float | None:
    """Return the number of rows that came back right in every column."""
    share = row.number("close_match_rate")
    return None if share is None or row.batch_size is None else share * row.batch_size


def proven_rows(row: FrontierRow) -> int | None:
    """Return the number of rows that were certified, and rightly."""
    return None if row.certified_rows is None else row.certified_rows - (row.certified_wrong or 0)


def _is_more(found: Rate | None, guessed: Rate | None) -> bool:
    """Whether a share lies measurably above that of guessing."""
    change = of_shares(of_rate(found), of_rate(guessed))
    return change is not None and change.is_above


def _clients(point: Point | None) -> Mapping[str, int]:
    """On how many clients each attack was run."""
    by_name = by_key([] if point is None else point.attacks, lambda one: one.attack)
    return {name: max(len(one.by(unit_of, "cell_accuracy")) for one in same) for name, same in by_name.items()}


def _mean(values: Collection[float], lowest: float = -1.0) -> Estimate | None:
    """Mean with its interval, which has no width only where enough clients or trainings agree."""
    return estimate(values) if len(values) >= ENOUGH_PAIRS else bounded(values, lowest)


def _is_narrow(value: Estimate | None) -> bool:
    if value is None or value.low is None or value.high is None:
        return False
    return value.n >= ENOUGH_PAIRS and value.high - value.low <= WIDEST


def exceeds(first: Paired, second: Paired) -> bool:
    """Whether the 95% interval of the paired difference lies above 0."""
    found = difference(first, second)
    return found is not None and found.is_above


def lowest(value: Estimate | None) -> float:
    """Lower end of an interval, or the mean where there is none."""
    return 0.0 if value is None else value.mean if value.low is None else value.low
