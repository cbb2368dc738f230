"""Which defence, what it costs, and what that is worth, in sentences for a data-protection officer."""

from lightleak.report.estimate import Estimate
from lightleak.report.frontier.choice import (
    Choice,
    accuracy_change,
    accuracy_of,
    guaranteed,
    helping,
    reading_change,
    shows_leakage,
    takes_half,
    tried,
)
from lightleak.report.frontier.comparison import Frontier, Paired, Point
from lightleak.report.frontier.pareto import is_worse
from lightleak.report.frontier.plain import DOES, defense_words, most_often_right, often
from lightleak.report.frontier.wording import guarantee, named, short_name
from lightleak.report.intervals import bounded
from lightleak.report.plain import change_of, interval_of, of_hundred, range_of
from lightleak.report.wording import points

MOST_GUARANTEES = 3
"""With more, only the weakest and the strongest are told, so that the summary stays one sheet."""


def advice(frontier: Frontier, none: Point, choice: Choice | None) -> tuple[str, ...]:
    """Whether a defence helps, which is named and why, what the choice is worth, and what would be a guarantee."""
    n = len(tried(frontier))
    if not none.is_measured:
        return (
            "What a defence changes, and what it costs, is not known yet: the training without a defence, or the "
            "answers of someone who saw nothing, are missing.",
        )
    if not n:
        return (
            "No defence has been measured yet. What one would change, and what it would cost, is not known from this "
            "report.",
        )
    granted = guarantees(frontier, choice)
    if choice is not None:
        return (_named(frontier, choice), _afterwards(frontier, choice), granted)
    if not shows_leakage(none):
        return ("Without a defence nothing was shown to be given away that a defence could take away.", granted)
    which = "The defence that was tried was not" if n == 1 else f"None of the {n} defences was"
    return (f"{which} shown to help: what is read with and without it may differ by chance. See the table.", granted)


def _named(frontier: Frontier, choice: Choice) -> str:
    none, point = choice.none, choice.point
    effect = reading_change(point, none)
    told = "" if effect is None else f" ({change_of(effect)}{_chance(effect)})"
    read = f"{of_hundred(point.cells)} of 100 values are then read instead of {of_hundred(none.cells)}{told}"
    return (
        f"The first to consider: {defense_words(point.strength)}, {_why(frontier, choice)}. {read}: {_left(point)}. "
        f"{_price(point, none)}"
    )


def _why(frontier: Frontier, choice: Choice) -> str:
    """How the named defence was picked."""
    helped, n = helping(frontier), len(tried(frontier))
    n_halving = sum(takes_half(one, choice.none) for one in helped)
    if n == 1:
        much = "at least half" if choice.halves else "less than half"
        return f"the only defence that was tried, and takes away {much} of what is given away"
    if n_halving == 1:
        return f"the only one of {n} defences tried that takes away at least half of what is given away"
    if n_halving:
        which = f"the most accurate of the {n_halving} defences, of {n} tried, that take"
        return f"{which} away at least half of what is given away"
    most = "the only one" if len(helped) == 1 else f"the most protective of the {len(helped)}"
    return f"{most}, of {n} defences tried, that {'helps' if len(helped) == 1 else 'help'}; none takes away half"


def _chance(change: Estimate) -> str:
    """Words for a change that is none for sure: its interval holds 0."""
    if change.mean == 0 or change.low is None or change.high is None or not change.low <= 0 <= change.high:
        return ""
    return "; it may be chance"


def _left(point: Point) -> str:
    """What is still read beyond what someone gets who saw nothing."""
    left = point.leakage
    assert left is not None  # of a point that is measured
    spread = interval_of(left, -1.0)
    if left.mean > 0:
        amount = f"{points(left.mean).lstrip('+')} points"
        return f"still {amount} more than seeing nothing ({spread}{_chance(left)})"
    if left.high is None or left.high > 0:
        return f"on average no more than seeing nothing (difference {points(left.mean)}, {spread})"
    return "no more than seeing nothing"


def _price(point: Point, none: Point) -> str:
    change = accuracy_change(point, none)
    if change is None:
        return "What it costs is not known: no training with it shares its random draws with one without."
    start = "It costs no accuracy that was measured" if change.mean >= 0 else "The price"
    return (
        f"{start}: the model judges {of_hundred(point.accuracy)} of 100 new records rightly instead of "
        f"{of_hundred(none.accuracy)} ({change_of(change)}{_chance(change)})."
    )


def _afterwards(frontier: Frontier, choice: Choice) -> str:
    """What the choice after the fact is worth: intervals that hold for all defences at once, and rivals."""
    none, point, n = choice.none, choice.point, len(tried(frontier))
    found = []
    if n > 1:
        found.append(f"Picked after the fact, as the best of {n}, it may owe part of that to luck.")
        found += _widened(choice, 2 * n)
    if not _has_interval(point, none):
        found.append("One message or one training with each cannot tell any of this from chance.")
    rivals = _rivals(frontier, point)
    if rivals:
        which = f"{len(rivals)} others that help ({named(rivals)}) are" if len(rivals) > 1 else f"{named(rivals)} is"
        found.append(f"{which} neither measurably less accurate nor measurably less protective.")
    return " ".join([*found, "Measure again, with other random draws, before you rely on it."])


def _rivals(frontier: Frontier, point: Point) -> tuple[Point, ...]:
    """Others that help and are measurably worse in nothing, the strongest guarantee or the most accurate first."""
    found = [one for one in helping(frontier) if one is not point and not is_worse(one, point)]
    return tuple(sorted(found, key=lambda one: (one.epsilon is None, one.epsilon or 0.0, -accuracy_of(one))))


def _has_interval(point: Point, none: Point) -> bool:
    effect, change = reading_change(point, none), accuracy_change(point, none)
    return effect is not None and effect.has_interval and change is not None and change.has_interval


def _widened(choice: Choice, comparisons: int) -> list[str]:
    """Intervals of both changes that hold for every defence at once (Bonferroni)."""
    none, point = choice.none, choice.point
    effect = bounded(_differences(point.recovered, none.recovered), -1.0, 1.0, comparisons)
    change = bounded(_differences(point.accuracies, none.accuracies), -1.0, 1.0, comparisons)
    told = [
        f"from {range_of(one, -1.0)} for {what}"
        for one, what in ((effect, "values read"), (change, "accuracy"))
        if one is not None and one.has_interval
    ]
    if not told:
        return []
    found = [f"Allowing for that, the changes may be anything {' and '.join(told)}."]
    if effect is not None and _chance(effect):
        found.append("By this measure the help may be chance.")
    return found


def _differences(after: Paired, before: Paired) -> list[float]:
    return [after[key] - before[key] for key in after if key in before]


def guarantees(frontier: Frontier, choice: Choice | None) -> str:
    """What epsilon means, and which was measured."""
    known = guaranteed(frontier)
    if not known:
        return (
            "Nothing here is a guarantee: an attack that nobody has tried may read more. Differential privacy "
            f"(DP-SGD: {DOES['dp_sgd']}) bounds what any attack can learn of one record; it was not measured here."
        )
    told = known if len(known) <= MOST_GUARANTEES else (known[0], known[-1])
    limits = "; ".join(
        f"{short_name(point.strength)} (epsilon {guarantee(point.epsilon)}) "
        f"{often(most_often_right(point.epsilon or 0.0, point.delta))}"
        for point in told
    )
    which = "" if told is known else f", of {len(known)} measured, for the weakest and the strongest"
    own = ""
    if choice is not None:
        epsilon = choice.point.epsilon
        gives = "no guarantee" if epsilon is None else f"epsilon {guarantee(epsilon)}"
        if choice.point.release_epsilon is not None:
            gives += f", one message {guarantee(choice.point.release_epsilon)}"
        own = f" The defence named above gives {gives}."
    is_named = choice is not None and choice.point.strength.defense == "dp_sgd"
    how = "" if is_named else f" ({DOES['dp_sgd']})"
    return (
        f"A guarantee covers also attacks that nobody has tried. DP-SGD{how} gives one (differential privacy). A "
        "number, epsilon, says how strong it is, the smaller the stronger: it limits how often anyone can tell rightly "
        "whether a given record was used in the training; a coin is right 50 times in 100. The limit "
        f"is{which}: {limits}.{own}"
    )
