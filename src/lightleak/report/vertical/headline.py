"""What the numbers say, in words that follow from the numbers alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.headline import Tile
from lightleak.report.vertical.comparison import Group, Property, attacks, chosen_on_other_seeds, most_telling
from lightleak.report.vertical.wording import (
    defense_name,
    listed,
    off_by,
    off_by_points,
    role,
    setting_words,
    varying,
    with_interval,
)
from lightleak.report.wording import percent, points

LIMITS = (
    "It is the share of records with a property, not who has it: no record and no person was reconstructed.",
    "Every attack here is assumed to hold an auxiliary sample: rows of which it knows who has the property. A company "
    "without such a sample cannot run them.",
    "Learned from the exchange is only what an attack is closer to the truth than the same kind of classifier on the "
    "adversary's own columns (of the company with the labels on these as well). An attacker who reads both together "
    "may do better than either.",
    "Half of the auxiliary sample has the property by construction, so that its share says nothing and is no baseline.",
    "An interval over seeds describes other splits and other trainings on this same table, not other data, networks or "
    "splits of the columns.",
    "It is a lower bound: another attack may come closer, so a large error is no proof of safety.",
)


@dataclass(frozen=True)
class Headline:
    """The opening of a report.

    Attributes:
        sentence: what was learned from the exchange, and by whom.
        verdict: lines on what that is worth, and on what was not shown to be learned.
        tiles: the numbers of the sentence.
        selection: how the property and the attacks were chosen among those measured.
        limits: what the numbers do not show.
    """

    sentence: str
    verdict: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    selection: str = ""
    limits: tuple[str, ...] = ()


def headline(properties: Sequence[Property], n_rows: int, redact: bool = False) -> Headline:
    """Say of which property the exchange tells most, to whom, and of which it was not shown to tell anything.

    Args:
        properties: what was measured (`comparison.properties`).
        n_rows: rows of all runs, guesses too.
        redact: leave out every share, estimated or true, and with it how far off the adversary's own columns are.
    """
    everything = [group for one in properties for group in attacks(one.groups)]
    places = [group for one in properties for group in one.best]
    main = most_telling(places)
    if main is None:
        return Headline(_nothing_measured(everything, n_rows, redact), limits=LIMITS if everything else ())
    chosen = next(one for one in properties if main in one.best)
    lines = [
        *(line for one in chosen.best for line in _verdict(chosen, one, len(places), redact)),
        *_over_all(properties, len(places)),
    ]
    return Headline(
        sentence=_sentence(chosen, len(places), redact),
        verdict=tuple(lines),
        tiles=_tiles(chosen, properties, len(places), redact),
        selection=_selection(chosen, places, everything),
        limits=LIMITS,
    )


def _nothing_measured(groups: Sequence[Group], n_rows: int, redact: bool) -> str:
    if not groups:
        return (
            "Only what reads nothing of the exchange has finished: no attack on it has been measured yet."
            if n_rows
            else "No attack has finished yet: this run holds no results."
        )
    text = "The true shares are not part of this run, so how far off the estimates are is unknown."
    first = next((group for group in groups if group.estimated is not None), None)
    if first is None or first.estimated is None or redact:
        return text
    single = first.results[0]
    own = ""
    if len(first.results) == 1 and single.low is not None and single.high is not None:
        own = f" (its own 95% interval {100 * single.low:.1f} to {100 * single.high:.1f})"
    return (
        f"{text} By {first.title}, {role(first.adversary)} ({first.adversary}) estimated that "
        f"{percent(first.estimated.mean)} of the other's records have {first.property_name}{own}."
    )


def _sentence(chosen: Property, places: int, redact: bool) -> str:
    start = "From what companies exchange while they train one model together, "
    told = f"what share of the other's records has {chosen.name}"
    parts = []
    for group in chosen.best:
        error, learned = group.error, group.learned
        assert error is not None  # `chosen_on_other_seeds` keeps only groups with an error
        average = " on average" if error.n > 1 else ""
        within = f"{off_by_points(error.mean)}{average}{with_interval(error)}"
        how = f" ({group.adversary}){', if it manipulates the training,' if group.manipulates else ''}"
        if group.leaks_among(places):
            parts.append(f"{role(group.adversary)}{how} learned {told} to within {within}{_beside(group, redact)}")
        elif learned is None or not learned.has_interval:
            why = "its own columns alone were not measured" if learned is None else "one seed is too few"
            parts.append(
                f"{role(group.adversary)}{how} estimated {told} to within {within}; {why}, so that nothing shows that "
                "the exchange gave any of it away"
            )
        else:
            parts.append(
                f"{role(group.adversary)}{how} was not shown to learn {told}: it was {within} off"
                f"{_beside(group, redact)}"
            )
        told = "it"
    true, estimated = chosen.best[0].true, chosen.best[0].estimated
    shares = ""
    if true is not None and estimated is not None and not redact:
        shares = f" The true share is {percent(true.mean)}; {chosen.best[0].adversary} estimated "
        shares += f"{percent(estimated.mean)}."
    return start + "; ".join(parts) + "." + shares


def _beside(group: Group, redact: bool) -> str:
    """The error of the adversary's own columns, after a comma."""
    own = group.own_error
    if own is None or redact:
        return ""
    return f", by its own columns alone {off_by_points(own.mean)}{with_interval(own)}"


def _verdict(chosen: Property, group: Group, places: int, redact: bool) -> list[str]:
    """What one adversary learned, what that is worth, and what it gets without manipulating."""
    found = [_difference(group, places, redact)]
    if group.worth is not None and not redact:
        own = "" if group.own_worth is None else f", that of its own columns alone {group.own_worth.words}"
        found.append(
            f"As good as a random sample of records whose property is known: {group.adversary}'s estimate is worth "
            f"{group.worth.words} records{own}."
        )
    if group.manipulates:
        honest = chosen_on_other_seeds([one for one in chosen.of(group.adversary) if not one.manipulates])
        if honest is not None and honest.error is not None:
            found.append(
                f"Without manipulating the training, {group.adversary} came to within "
                f"{off_by_points(honest.error.mean)}{with_interval(honest.error)} by {honest.title}."
            )
    return found


def _difference(group: Group, places: int, redact: bool) -> str:
    """One sober line from the paired difference to the adversary's own columns."""
    learned = group.learned_among(places)
    if learned is None:
        return (
            f"{group.adversary}: what its own columns alone tell is not part of this run, so nothing says how much of "
            "the estimate comes from the exchange."
        )
    own = "its own columns alone"
    if learned.low is None or learned.high is None:
        side = "closer than" if learned.mean > 0 else "no closer than"
        return f"{group.adversary} came {side} {own}, but one seed is too few to tell whether that is chance."
    spread = "" if redact else with_interval(learned, -1)
    by = "" if redact else f" {off_by_points(abs(learned.mean))}{spread}"
    if learned.low > 0:
        return f"Learned from the exchange: {group.adversary} came{by} closer to the truth than {own}."
    if learned.high < 0:
        return f"{group.adversary} came{'' if redact else f' {off_by_points(-learned.mean)}'} further off than {own}."
    difference = "" if redact else f" of {points(learned.mean)} points{spread}"
    most = "" if redact else f", and up to {off_by_points(learned.high)} cannot be excluded with {learned.n} seeds"
    return f"{group.adversary} was not measurably closer than {own}: the difference{difference} may be chance{most}."


def _over_all(properties: Sequence[Property], places: int) -> list[str]:
    """What was and what was not shown to be learned, where several properties were measured."""
    if len(properties) < 2:
        return []
    found = [
        f"Of {len(properties)} properties, the exchange measurably gave something away on "
        f"{_leaking(properties, places)}."
    ]
    if names := not_shown(properties, places):
        found.append(f"Nothing was shown to be learned from the exchange on {listed(names)}.")
    return found


def _leaking(properties: Sequence[Property], places: int) -> int:
    return sum(any(group.leaks_among(places) for group in one.best) for one in properties)


def not_shown(properties: Sequence[Property], places: int) -> list[str]:
    """Properties on which at least two seeds were measured and no adversary learned anything from the exchange."""
    return [
        one.name
        for one in properties
        if any((learned := group.learned) is not None and learned.has_interval for group in one.best)
        and not any(group.leaks_among(places) for group in one.best)
    ]


def _tiles(chosen: Property, properties: Sequence[Property], places: int, redact: bool) -> tuple[Tile, ...]:
    tiles = []
    for group in chosen.best:
        error, own = group.error, group.own_error
        assert error is not None  # `chosen_on_other_seeds` keeps only groups with an error
        interval = with_interval(error).strip(" ()") or "one seed, no interval"
        tiles.append(
            Tile(off_by(error.mean), f"points off: {chosen.name}, {group.adversary}", f"{group.title}, {interval}")
        )
        if own is not None and not redact:
            tiles.append(
                Tile(
                    off_by(own.mean),
                    f"points off: {group.adversary}'s own columns alone",
                    with_interval(own).strip(" ()") or "one seed, no interval",
                )
            )
    if len(properties) > 1:
        tiles.append(
            Tile(
                f"{_leaking(properties, places)} of {len(properties)}",
                "properties learned from the exchange",
                f"interval above zero, for {places} comparisons",
            )
        )
    return tuple(tiles)


def _selection(chosen: Property, places: Sequence[Group], everything: Sequence[Group]) -> str:
    setting, seeds = chosen.best[0].setting, max(len(group.results) for group in chosen.best)
    used = [
        f"{group.adversary} used {group.title}, which {'departs from' if group.manipulates else 'follows'} the protocol"
        for group in chosen.best
    ]
    text = f"Measured with {seeds} seed{'s' if seeds != 1 else ''}; {defense_name(setting.defense)}"
    differing = [name for name in varying(group.setting for group in everything) if name != "defense"]
    if differing:
        text += f" ({', '.join(setting_words(setting, differing))})"
    text += f". {'; '.join(used)}."
    among = max(group.chosen_among for group in chosen.best)
    if among > 1:
        how = "for each seed the one that was closest on the other seeds" if seeds > 1 else "afterwards, on this seed"
        text += f" The attack was chosen among {among}: {how}."
    if len(places) > 1:
        picked = " The property was picked afterwards." if len({one.property_name for one in places}) > 1 else ""
        text += (
            f"{picked} What is called learned holds for all {len(places)} combinations of property and adversary at "
            "once (Bonferroni)."
        )
    return text
