"""What the numbers say, in words that follow from the numbers alone."""

from collections.abc import Sequence

from lightleak.report.estimate import Estimate
from lightleak.report.frontier.choice import Choice, accuracy_of, choose, fullest, shows_leakage
from lightleak.report.frontier.comparison import Frontier, Point
from lightleak.report.frontier.pareto import Standing, standings
from lightleak.report.frontier.wording import (
    cost_words,
    curve_title,
    full_name,
    guarantee,
    short_name,
    strength_words,
    unsigned,
)
from lightleak.report.headline import Headline, Tile
from lightleak.report.wording import attack_title, interval, percent, with_interval

LIMITS = (
    "Leakage is a lower bound. The attacks were not adapted to the defences: one that knows the defence may recover "
    "more. Only an epsilon bounds what any attack can tell of a row.",
    "Leakage is that of one update sent by the untrained network, where most leaks, and each client was attacked once. "
    "A server that sees many updates of one client can average noise away.",
    "The cost is that of training with the same epochs and learning rate under every defence. Settings chosen for a "
    "defence could make it cheaper.",
    "An interval over trainings describes other first weights and orders of the same rows, not other data. Many points "
    "are compared, so a few of the measurable differences will be chance.",
)

OF_EPSILON = (
    "Epsilon of the training is for one who sees the weights after every step but not which rows a step used: batches "
    "are drawn at random. A server that knows whose update it reads knows that; what bounds it in that step is the "
    "epsilon of one update, which stands beside it."
)


def headline(frontiers: Sequence[Frontier]) -> Headline:
    """Say what the cheapest defence that takes away half of the leakage buys, and at what cost."""
    frontier = fullest(frontiers)
    if frontier is None:
        return Headline("Nothing has finished yet: this run holds no results.")
    none, standing = frontier.none, standings(frontier.measured)
    if none is None or not none.is_measured:
        sentence = "The undefended network has not been measured yet, so nothing can be said of what a defence buys."
        return Headline(sentence, limits=limits(frontiers))
    if frontier.budget.is_weak:
        return Headline(
            sentence=_lower_bound(frontier, none),
            verdict=(frontier.budget.sentence, *filter(None, (_guaranteed(frontier),))),
            tiles=_tiles(frontier, none, None),
            selection=_selection(frontier, None),
            limits=limits(frontiers),
        )
    choice = choose(frontier)
    return Headline(
        sentence=_sentence(frontier, none, choice),
        verdict=tuple(line for line in (_best(standing), _unsure(standing), _guaranteed(frontier)) if line),
        tiles=_tiles(frontier, none, choice),
        selection=_selection(frontier, choice),
        limits=limits(frontiers),
    )


def limits(frontiers: Sequence[Frontier]) -> tuple[str, ...]:
    """What the numbers do not show."""
    guaranteed = any(point.epsilon is not None for one in frontiers for point in one.points)
    return (*LIMITS, OF_EPSILON) if guaranteed else LIMITS


def _sentence(frontier: Frontier, none: Point, choice: Choice | None) -> str:
    guess, cells = frontier.guess, none.cells
    assert guess is not None and cells is not None  # of a point that is measured
    guessing = f"guessing gives {percent(guess.mean)}"
    if not shows_leakage(none):
        return (
            f"Without any defence, the attack recovers {percent(cells.mean)} of a client's cells where {guessing}: no "
            "leakage was shown that a defence could take away."
        )
    if choice is None:
        return (
            f"No defence that was tried was shown to cut what can be read from a client: {percent(cells.mean)} of its "
            f"cells without any ({guessing})."
        )
    after, cost = choice.point.cells, frontier.cost(choice.point)
    assert after is not None  # of a point that is measured
    at = f" {cost_words(cost)}" if cost is not None else ""
    reached = f"from {percent(cells.mean)} to {percent(after.mean)} of cells ({guessing})"
    return f"{full_name(choice.point.strength)} cuts what can be read from a client {reached}{at}."


def _lower_bound(frontier: Frontier, none: Point) -> str:
    """What attacks show of which not all had their published budget: no more than that so much can be recovered."""
    assert frontier.guess is not None and none.cells is not None  # of a point that is measured
    return (
        f"Without any defence, at least {percent(none.cells.mean)} of a client's cells can be recovered where guessing "
        f"gives {percent(frontier.guess.mean)}. Which defence helps cannot be said from attacks of this budget."
    )


def _best(standing: Sequence[Standing]) -> str:
    best = sorted((one.point for one in standing if one.is_best), key=accuracy_of, reverse=True)
    if len(standing) < 2:
        return ""
    names = ", ".join(short_name(point.strength) for point in best)
    which = f"only one is Pareto-best: {names}."
    if len(best) > 1:
        which = f"{len(best)} are Pareto-best, from the most accurate to the least leaky: {names}."
    return (
        f"Of {len(standing)} points measured, {which} Each other point has one that is at least as accurate and leaks "
        "no more."
    )


def _unsure(standing: Sequence[Standing]) -> str:
    """How far the frontier can be trusted."""
    if all(len(one.point.accuracies) < 2 and len(one.point.gains) < 2 for one in standing):
        return "One training and one client at each point give no intervals: which points are best may be chance."
    best = [one for one in standing if one.is_best]
    shaky = [one for one in best if one.verdict == "not distinguishable"]
    close = [one for one in standing if not one.is_best and one.verdict == "not distinguishable"]
    parts = []
    if shaky:
        parts.append(
            f"{_share_of(shaky, best)} best in the means only, as another point is neither measurably less accurate "
            "nor measurably leakier"
        )
    if close:
        others = len(standing) - len(best)
        parts.append(f"of the other {others}, {len(close)} cannot be told from a better one")
    return f"By the 95% intervals, {'; '.join(parts)}." if parts else ""


def _share_of(some: Sequence[Standing], everything: Sequence[Standing]) -> str:
    if len(some) == len(everything):
        return "it is" if len(some) == 1 else "all of them are"
    return f"{len(some)} of them {'is' if len(some) == 1 else 'are'}"


def _guaranteed(frontier: Frontier) -> str:
    """The guarantee that costs least, and what it costs."""
    known = [point for point in frontier.measured if point.epsilon is not None]
    if not known:
        return ""
    point = max(known, key=accuracy_of)
    cost, at = frontier.cost(point), "" if point.delta is None else f" at delta {point.delta:g}"
    price = "" if cost is None else f", {cost_words(cost)}"
    how = " with ".join(filter(None, (curve_title(point.strength.label), strength_words(point.strength))))
    return (
        f"The only guarantee against attacks that nobody has tried yet is differential privacy: {how} gives epsilon "
        f"{guarantee(point.epsilon)}{at} for every row of the training set{_release(point)}{price}."
    )


def _release(point: Point) -> str:
    """The guarantee for the one update that is attacked."""
    if point.release_epsilon is None:
        return ""
    return (
        f" over the whole training, and epsilon {guarantee(point.release_epsilon)} for one update whose batch is known"
    )


def _tiles(frontier: Frontier, none: Point, choice: Choice | None) -> tuple[Tile, ...]:
    assert none.cells is not None  # of a point that is measured
    found = [_share(none.cells, "of cells recovered without a defence", none)]
    if choice is not None and choice.point.cells is not None:
        found.append(_share(choice.point.cells, f"with {short_name(choice.point.strength)}", choice.point))
        if (cost := frontier.cost(choice.point)) is not None:
            words = with_interval(cost, -1).strip(" ()") or "one training, no interval"
            found.append(Tile(unsigned(cost.mean), "points of accuracy it costs", words))
    if frontier.guess is not None:
        found.append(Tile(percent(frontier.guess.mean), "by guessing", "from column marginals, no update read"))
    return tuple(found)


def _share(value: Estimate, label: str, point: Point) -> Tile:
    words = f"95% interval {interval(value)}" if value.has_interval else "one client, no interval"
    return Tile(percent(value.mean), label, f"{attack_title(point.attack or '')}, {words}")


def _selection(frontier: Frontier, choice: Choice | None) -> str:
    trainings = sorted({len(point.accuracies) for point in frontier.measured})
    clients = sorted({len(point.gains) for point in frontier.measured})
    text = f"Measured with {_numbers(trainings, 'training')} and {_numbers(clients, 'client')} at each point."
    if choice is None:
        return text
    how = (
        "the most accurate defence that takes away at least half of the leakage"
        if choice.halves
        else "the defence that takes most of the leakage away; none takes away half"
    )
    return f"{text} Named above: {how}. Picked afterwards among all points, it flatters the defence a little."


def _numbers(found: Sequence[int], what: str) -> str:
    number = str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return f"{number} {what}{'' if found[-1] == 1 else 's'}"
