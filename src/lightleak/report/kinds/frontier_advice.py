"""Which tested defense to use, as data: the cheapest one under which no attack beats guessing.

The cost is what is lost of accuracy and AUROC, added: a network that names the commonest label for everyone keeps its
accuracy, and one whose threshold is off keeps its AUROC.
What an attack that nobody has tried may read is limited by a formal guarantee alone (`Point.bound`).
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from lightleak.core.people import People
from lightleak.core.shell import shell_word
from lightleak.report.budget import PROOFS
from lightleak.report.format import attack_title
from lightleak.report.kinds.frontier_groups import Frontier
from lightleak.report.kinds.frontier_points import Point
from lightleak.report.kinds.frontier_standings import cheapest_first, costs_more

ATTACKER = {
    True: "",
    False: " No attack of this run knows that defense: set adaptive: true to add the one that does.",
    None: " There is no attack made for that defense.",
}
"""What is said of a recommended setting by `Point.is_adaptive`."""

UNKNOWN = " (no attack of this run knows it)"
"""What is said of one that costs as much."""

OPTIMIZES, SAMPLE = "audit_max", 20
"""Attack that also recovers rows without proof, and updates of an epoch that it is run on, at half a minute each."""

NOT_LEARNED = "without a defense, the network is not measurably better than the commonest label (in AUROC, than a coin)"

Outcome = Literal[
    "protects",
    "none protects",
    "too few measurements",
    "no leakage",
    "weak attacks",
    "not measured",
    "no reference",
    "not learned",
]


@dataclass(frozen=True)
class Recommendation:
    """What a frontier recommends.

    Attributes:
        outcome: ``protects``: `cheapest` is recommended; ``none protects``: every tested setting leaks; ``too few
            measurements``: none was shown to protect, and of some it is open; ``no leakage``: no attack beats guessing
            without a defense either; ``weak attacks``: attacks had less than their published budget, or exact inversion
            was run alone; ``not measured``: no defense has both a training and an attack; ``no reference``: nothing was
            measured without a defense; ``not learned``: without one, the network is no better than the commonest label,
            nor, by AUROC, than a coin.
        tested: every measured point, in the order of the frontier, without the undefended one.
        cheapest: the point that protects and costs least (`cheapest_first`).
        ties: other protecting points of which neither accuracy nor AUROC is measurably lower.
        guaranteed: the cheapest point with a bound that limits anything, whether or not it protects.
        has_learned: whether the network without a defense has learned anything that a defense could cost.
    """

    outcome: Outcome
    tested: tuple[Point, ...] = ()
    cheapest: Point | None = None
    ties: tuple[Point, ...] = ()
    guaranteed: Point | None = None
    has_learned: bool = True

    @property
    def undecided(self) -> tuple[Point, ...]:
        """Points of which it is open whether they protect."""
        return tuple(one for one in self.tested if one.protection == "too few measurements")

    @property
    def marks(self) -> list[tuple[Point | None, str]]:
        """How the table marks the points that the recommendation names."""
        ties = ((one, "not measurably dearer") for one in self.ties)
        return [(self.cheapest, "recommended"), *ties, (self.guaranteed, "the cheapest with a guarantee")]

    @property
    def sentence(self) -> str:
        """The recommendation in one line."""
        said = {
            "weak attacks": "No recommendation: the attacks had less than their published budget, or exact inversion "
            "was run alone.",
            "no reference": "No recommendation: nothing was measured without a defense.",
            "not learned": f"No recommendation: {NOT_LEARNED}, so that no defense can cost anything (train longer).",
            "not measured": "No recommendation: no defense was both trained with and attacked.",
            "no leakage": "No defense is needed against these attacks on single messages: without one, none does "
            "better than guessing.",
            "none protects": f"None of the {len(self.tested)} tested protects: under each, an attack does measurably "
            "better than guessing or proves a record.",
            "too few measurements": "Too few measurements to tell: no defense was shown to protect, and of "
            f"{len(self.undecided)} of {len(self.tested)} tested it is open.",
        }
        if self.cheapest is None:
            is_known = self.has_learned or self.outcome == "not learned"
            cost = "" if is_known else f" What a defense costs cannot be judged: {NOT_LEARNED} (train longer)."
            return said[self.outcome] + cost
        names = [one.name + ("" if one.is_adaptive else UNKNOWN) for one in self.ties]
        tied = f" Not measurably dearer: {', '.join(names)}." if names else ""
        cost = "accuracy and AUROC lost, added" if self.cheapest.aurocs else "accuracy lost"
        useless = "" if self.cheapest.has_learned else " It keeps the network from learning anything measurable."
        return (
            f"{self.cheapest.name} is the cheapest of {len(self.tested)} tested ({cost}) under which no attack does "
            f"measurably better than guessing or proves a record.{useless}{tied}"
            f"{ATTACKER[self.cheapest.is_adaptive]}"
        )

    @property
    def over_training(self) -> str:
        """What is known of people over a whole training, as a frontier's attacks read one message each."""
        exposed = [
            f"{one.exposed.proven} of {one.exposed.n} people were proven and {one.exposed.recovered} more recovered "
            f"under {one.name} ({_by(one.exposed)})"
            for one in self.tested
            if one.exposed
        ]
        said = f"Over a training, {'; '.join(exposed)}." if exposed else ""
        if self.cheapest is None:
            return said
        if met := self.cheapest.searched:
            return (
                f"Over a training under {self.cheapest.name}, none of {met.n} people was proven, nor measurably more "
                f"recovered than by guessing ({_by(met)}). {said}"
            ).strip()
        return (
            f"{said} Every attack read one message; over a training, noise averages out. To see whom that gives away, "
            f"run (with this data, network and training): {self.follow_up}"
        ).strip()

    @property
    def follow_up(self) -> str:
        """The command that measures people under the recommended setting, where that was not done."""
        return command(self.cheapest) if self.cheapest and not self.cheapest.searched else ""

    @property
    def guarantee(self) -> str:
        """What a formal guarantee adds, in one line."""
        best, found = self.guaranteed, self.cheapest
        if best is None or best.bound is None:
            return "No tested setting limits what an attack that nobody has tried reads from one message."
        records = "records of equal label" if best.shares_labels else "records"
        limit = (
            f"any attack on one message, tried or not, tells which of two {records} was used at most "
            f"{100 * best.bound:.1f} times in 100 (a coin: 50)"
        )
        if found is best:
            return f"It comes with a guarantee: {limit}."
        lacking = "" if found is None else f"{found.name} comes with no guarantee. "
        return f"{lacking}With {best.name}, {limit}."

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {
            "outcome": self.outcome,
            "sentence": self.sentence,
            "guarantee": self.guarantee,
            "over_training": self.over_training,
            "cheapest": self.cheapest and self.cheapest.name,
            "ties": [one.name for one in self.ties],
            "guaranteed": self.guaranteed and self.guaranteed.name,
            "tested": [one.to_dict(len(self.tested)) for one in self.tested],
        }


def _by(people: People) -> str:
    """The attack, and on how much of the training."""
    of = "" if people.is_whole else f", on {people.means.updates} of its messages"
    return f"by {attack_title(people.attack)}{of}"


def recommend(frontier: Frontier) -> Recommendation:
    """Return what the measured points recommend."""
    tested, none = frontier.tried, frontier.none
    limited = [point for point in tested if point.is_bounded]
    guaranteed = next(iter(cheapest_first(limited)), None)
    outcome: Outcome = "protects" if frontier.protecting else "too few measurements"
    if not tested:
        outcome = "not measured"
    elif {one.protection for one in tested} == {"leaks"}:
        outcome = "none protects"  # whatever the attacks' budget
    elif none is None or not none.is_measured:
        outcome = "no reference"
    elif frontier.budget.is_weak or all(one.is_weak for one in tested if one.protection != "leaks"):
        outcome = "weak attacks"
    elif not none.has_learned:
        outcome = "not learned"
    elif none.protection == "protects":
        outcome = "no leakage"
    if outcome != "protects":
        has_learned = none is None or none.has_learned
        return Recommendation(outcome, tested, guaranteed=guaranteed, has_learned=has_learned)
    best, *others = frontier.protecting
    ties = tuple(point for point in others if not costs_more(point, best))
    return Recommendation(outcome, tested, best, ties, best if best.is_bounded else guaranteed)


def command(point: Point) -> str:
    """What measures people over a training under the same defense, by an attack that also finds without proof."""
    row, known = point.first, {name: of for name, of in point.known_to.items() if name not in PROOFS}
    known = known or {OPTIMIZES: {}}
    options = {} if row.defense_option is None else {row.defense_option: row.defense_strength}
    settings = row.defense_settings or {"name": row.defense, "options": options}
    defense = {key: value for key, value in settings.items() if value not in ({}, "update")}
    flags = {"--defense": defense} | {f"--attacks.{name}": of for name, of in known.items()}
    words = (f"{flag} {shell_word(json.dumps(of))}" for flag, of in flags.items())
    sampled = (f"--capture.sample.{name} {SAMPLE}" for name in known)
    return " ".join(["lightleak audit configs/people.yaml", *words, *sampled])
