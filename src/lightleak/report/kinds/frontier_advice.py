"""Which tested setting of a defense to use, as data: the cheapest one under which no attack beats guessing.

What an attack that nobody has tried may read is limited by a formal guarantee alone (`Setting.bound`).
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from lightleak.core.guarantee import success_bound, success_bound_of_epsilon
from lightleak.core.people import Rate
from lightleak.core.results import NONE
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.frontier_points import (
    Frontier,
    Point,
    Protection,
    costs_more,
    most_accurate,
)

COIN = 0.5
"""Prior of `Setting.bound`: two candidate rows, equally likely."""

HARDLY_A_LIMIT = 0.9995
"""A bound from which on it is as good as none."""

ATTACKER = {
    True: "",
    False: " No attack of this run knows that defense: set adaptive: true to add the one that does.",
    None: " There is no attack made for that defense.",
}
"""What is said of a recommended setting by `Setting.adaptive`."""

Outcome = Literal["protects", "none protects", "too few measurements", "no leakage", "weak attacks", "not measured"]


@dataclass(frozen=True)
class Setting:
    """One defense at one strength, as the recommendation judges it.

    Attributes:
        name: the defense with its strength.
        defense_label: name of its curve.
        defense: registered name of the defense.
        defense_strength: its strength; None where it has none.
        protection: see `Frontier.protection`.
        attack: the attack that does best against it.
        adaptive: whether an attack that knows the defense was tried; None where there is no such attack.
        leakage: share of cells that this attack recovers minus guessing, with the interval that was judged.
        at_most: upper end of the same interval, widened so that it holds for all tested settings at once.
        proven: rows that an attack proved, of those behind the attacked updates; None without certificates.
        accuracy: accuracy on held-out rows, over trainings.
        accuracy_lost: what it costs against no defense, paired by training.
        epsilon: what differential privacy the whole training grants.
        release_epsilon: what it grants for one update whose batch is known.
        delta: the probability with which it may fail.
        bound: how often any attack on one update can tell which of two equally likely rows was in it; guessing is right
            with `COIN`.
    """

    name: str
    defense_label: str
    defense: str
    defense_strength: float | None
    protection: Protection
    attack: str | None
    adaptive: bool | None
    leakage: Estimate | None
    at_most: float | None
    proven: Rate | None
    accuracy: Estimate | None
    accuracy_lost: Estimate | None
    epsilon: float | None
    release_epsilon: float | None
    delta: float | None
    bound: float | None

    @property
    def is_bounded(self) -> bool:
        """Whether a guarantee limits attacks on one update that nobody has tried."""
        return self.bound is not None and self.bound < HARDLY_A_LIMIT


@dataclass(frozen=True)
class Recommendation:
    """What a frontier recommends.

    Attributes:
        outcome: ``protects``: `cheapest` is recommended; ``none protects``: every tested setting leaks; ``too few
            measurements``: none was shown to protect, and of some it is open; ``no leakage``: no attack beats guessing
            without a defense either; ``weak attacks``: attacks had less than their published budget; ``not measured``:
            no defense has both a training and an attack.
        tested: every measured setting, in the order of the frontier, without the undefended one.
        cheapest: the most accurate setting that protects; of equals the one with the smaller epsilon, then the one that
            leaks less.
        ties: other protecting settings that are not measurably less accurate.
        guaranteed: the most accurate setting with a bound that limits anything, whether or not it is the cheapest.
    """

    outcome: Outcome
    tested: tuple[Setting, ...] = ()
    cheapest: Setting | None = None
    ties: tuple[Setting, ...] = ()
    guaranteed: Setting | None = None

    @property
    def undecided(self) -> tuple[Setting, ...]:
        """Settings of which it is open whether they protect."""
        return tuple(one for one in self.tested if one.protection == "too few measurements")

    @property
    def sentence(self) -> str:
        """The recommendation in one line."""
        said = {
            "weak attacks": "No recommendation: the attacks had less than their published budget.",
            "not measured": "No recommendation: no defense was both trained with and attacked.",
            "no leakage": "No defense is needed against these attacks: without one, none does better than guessing.",
            "none protects": f"None of the {len(self.tested)} tested protects: under each, an attack does measurably "
            "better than guessing.",
            "too few measurements": "Too few measurements to tell: no defense was shown to protect, and of "
            f"{len(self.undecided)} of {len(self.tested)} tested it is open.",
        }
        if self.cheapest is None:
            return said[self.outcome]
        tied = f" Not measurably less accurate: {', '.join(one.name for one in self.ties)}." if self.ties else ""
        return (
            f"{self.cheapest.name} is the cheapest of {len(self.tested)} tested under which no attack does measurably "
            f"better than guessing.{tied}{ATTACKER[self.cheapest.adaptive]}"
        )

    @property
    def guarantee(self) -> str:
        """What a formal guarantee adds, in one line."""
        best, found = self.guaranteed, self.cheapest
        if best is None or best.bound is None:
            return "No tested setting limits what an attack that nobody has tried reads from one message."
        limit = (
            f"any attack on one message, tried or not, tells which of two records was used at most "
            f"{100 * best.bound:.1f} times in 100 (a coin: 50)"
        )
        if found is best:
            return f"It comes with a guarantee: {limit}."
        lacking = "" if found is None else f"{found.name} comes with no guarantee. "
        return f"{lacking}With {best.name}, {limit}."

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        names = {"cheapest": self.cheapest and self.cheapest.name, "ties": [one.name for one in self.ties]}
        guaranteed = self.guaranteed and self.guaranteed.name
        known = {"outcome": self.outcome, "sentence": self.sentence, "guarantee": self.guarantee}
        return known | names | {"guaranteed": guaranteed, "tested": [asdict(one) for one in self.tested]}


def recommend(frontier: Frontier) -> Recommendation:
    """Return what the measured points recommend."""
    settings = {id(point): _setting(frontier, point) for point in frontier.tried}
    tested = tuple(settings.values())
    limited = [point for point in frontier.tried if settings[id(point)].is_bounded]
    guaranteed = settings[id(most_accurate(limited))] if limited else None
    none, found = frontier.none, {one.protection for one in tested}
    outcome: Outcome = "protects" if frontier.protecting else "too few measurements"
    if not tested:
        outcome = "not measured"
    elif found == {"leaks"}:
        outcome = "none protects"  # whatever the attacks' budget
    elif frontier.budget.is_weak:
        outcome = "weak attacks"
    elif none is not None and none.protection == "protects":
        outcome = "no leakage"
    if outcome != "protects":
        return Recommendation(outcome, tested, guaranteed=guaranteed)
    best, *others = frontier.protecting
    cheapest = settings[id(best)]
    ties = tuple(settings[id(point)] for point in others if not costs_more(point, best))
    return Recommendation(outcome, tested, cheapest, ties, cheapest if cheapest.is_bounded else guaranteed)


def _setting(frontier: Frontier, point: Point) -> Setting:
    row, strongest = point.first, point.strongest
    corrected = None if strongest is None else point.over_guessing(strongest, len(frontier.tried))
    return Setting(
        point.name,
        row.curve,
        row.defense or NONE,
        row.defense_strength,
        frontier.protection(point),
        None if strongest is None else strongest.attack,
        point.is_adaptive,
        None if strongest is None else point.over_guessing(strongest),
        None if corrected is None else corrected.high,
        point.proven,
        point.accuracy,
        frontier.cost(point),
        point.granted("epsilon"),
        point.granted("release_epsilon"),
        point.granted("delta"),
        _bound(point),
    )


def _bound(point: Point) -> float | None:
    """From the noise where it is known (the exact bound for one Gaussian release), else from epsilon."""
    row, epsilon = point.first, point.granted("release_epsilon")
    if row.defense == "dp_sgd" and row.defense_option == "noise_multiplier" and row.defense_strength is not None:
        return success_bound(row.defense_strength, COIN)
    return None if epsilon is None else success_bound_of_epsilon(epsilon, point.granted("delta") or 0.0, COIN)
