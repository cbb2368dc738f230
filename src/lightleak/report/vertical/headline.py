"""What the numbers say, in words that follow from the numbers alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.headline import Tile
from lightleak.report.vertical.comparison import Group, Property, attacks, most_telling
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
    "Guessing means answering with the share in that sample, often one half by construction. Whoever knows public "
    "statistics guesses better, so an estimate that is far better than guessing need not be news.",
    "An interval over seeds describes other splits and other trainings on this same table, not other data, networks or "
    "splits of the columns.",
    "It is a lower bound: another attack may come closer, so a large error is no proof of safety.",
)


@dataclass(frozen=True)
class Headline:
    """The opening of a report.

    Attributes:
        sentence: what could be told, and by whom.
        verdict: lines on what that means beside guessing, and on what could not be told.
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
    """Say what can be told of the property that comes out best, who can, and what cannot be told.

    Args:
        properties: what was measured (`comparison.properties`).
        n_rows: rows of all runs, guesses too.
        redact: leave out every share, estimated or true.
    """
    everything = [group for one in properties for group in one.groups]
    main = most_telling(everything)
    if main is None:
        return Headline(_nothing_measured(everything, n_rows, redact), limits=LIMITS if everything else ())
    chosen = next(one for one in properties if main in one.groups)
    best = [group for name in chosen.adversaries if (group := most_telling(chosen.of(name))) is not None]
    lines = [
        *(
            line
            for one in best
            for line in (_verdict(one, redact), _keeping_to_the_protocol(chosen.of(one.adversary), one))
        ),
        *_over_all(properties),
    ]
    return Headline(
        sentence=_sentence(chosen, best, redact),
        verdict=tuple(line for line in lines if line),
        tiles=_tiles(chosen, best, properties, redact),
        selection=_selection(main, best, everything),
        limits=LIMITS,
    )


def manipulates(group: Group) -> bool:
    """Whether the attack departs from the protocol: it replaces labels or trains its network for the attack as well."""
    return group.attack == "provfl_m" or not {"LR", "MR"}.isdisjoint(group.variant.split("+"))


def unbeaten(properties: Sequence[Property]) -> list[str]:
    """Properties on which at least two seeds were measured and no attack of any adversary beat guessing."""
    return [
        one.name
        for one in properties
        if any((gain := group.gain) is not None and gain.has_interval for group in one.groups)
        and not any(group.beats_guessing for group in one.groups)
    ]


def _nothing_measured(groups: Sequence[Group], n_rows: int, redact: bool) -> str:
    if not groups:
        return (
            "Only guessing has finished: no attack has been measured yet."
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


def _sentence(chosen: Property, best: Sequence[Group], redact: bool) -> str:
    start = "From what companies exchange while they train one model together, "
    told = f"what share of the other's records has {chosen.name}"
    parts = []
    for group in best:
        error = group.error
        assert error is not None  # most_telling keeps only groups with an error
        average = " on average" if error.n > 1 else ""
        how = f" ({group.adversary}){', if it manipulates the training,' if manipulates(group) else ''}"
        if group.beats_guessing or not (group.gain and group.gain.has_interval):
            verb = "could tell" if group.beats_guessing else "estimated"
            parts.append(
                f"{role(group.adversary)}{how} {verb} {told} "
                f"to within {off_by_points(error.mean)}{average}{with_interval(error)}"
            )
        else:
            parts.append(
                f"{role(group.adversary)}{how} was not shown to tell {told} better than by guessing: it was "
                f"{off_by_points(error.mean)} off{average}{with_interval(error)}"
            )
        told = "it"
    true, estimated = best[0].true, best[0].estimated
    shares = ""
    if true is not None and estimated is not None and not redact:
        shares = f" The true share is {percent(true.mean)}; {best[0].adversary} estimated {percent(estimated.mean)}."
    return start + "; ".join(parts) + "." + shares


def _verdict(group: Group, redact: bool) -> str:
    """One sober line for each adversary, from the paired difference to guessing."""
    gain, guess = group.gain, group.guess_error
    if gain is None or guess is None:
        return f"{group.adversary}: the auxiliary share is not known, so nothing says whether guessing does as well."
    guessing = "guessing the auxiliary share" + ("" if redact else f", which is {off_by_points(guess.mean)} off")
    by = "" if redact else f" {off_by_points(abs(gain.mean))}"
    if gain.low is None or gain.high is None:
        side = "closer than" if gain.mean > 0 else "no closer than"
        return f"{group.adversary} came {side} {guessing}, but one seed is too few to tell whether that is chance."
    if gain.low > 0:
        spread = "" if redact else with_interval(gain, -1)
        return f"{group.adversary} came{by}{spread} closer to the truth than {guessing}."
    if gain.high < 0:
        return f"{group.adversary} came{by} further from the truth than {guessing}."
    difference = "" if redact else f" of {points(gain.mean)} points{with_interval(gain, -1)}"
    return f"{group.adversary} was not measurably better than {guessing}: the difference{difference} may be chance."


def _keeping_to_the_protocol(groups: Sequence[Group], best: Group) -> str:
    """What the adversary reaches without manipulating, where the best attack manipulates; else empty."""
    if not manipulates(best):
        return ""
    found = most_telling([group for group in groups if not manipulates(group)])
    if found is None or found.error is None:
        return ""
    return (
        f"Without manipulating the training, {best.adversary} came to within {off_by_points(found.error.mean)}"
        f"{with_interval(found.error)} by {found.title}."
    )


def _over_all(properties: Sequence[Property]) -> list[str]:
    """What could and what could not be told, where several properties were measured."""
    if len(properties) < 2:
        return []
    beaten = [one.name for one in properties if any(group.beats_guessing for group in one.groups)]
    not_beaten = unbeaten(properties)
    found = [f"Of {len(properties)} properties, some attack was measurably closer than guessing on {len(beaten)}."]
    if not_beaten:
        found.append(f"No attack was shown to do better than guessing on {listed(not_beaten)}.")
    return found


def _tiles(
    chosen: Property, best: Sequence[Group], properties: Sequence[Property], redact: bool
) -> tuple[Tile, ...]:  # fmt: skip
    tiles = []
    for group in best:
        error = group.error
        assert error is not None
        interval = with_interval(error).strip(" ()") or "one seed, no interval"
        tiles.append(
            Tile(off_by(error.mean), f"points off: {chosen.name}, {group.adversary}", f"{group.title}, {interval}")
        )
    guess = chosen.guess_error
    if guess is not None and not redact:
        tiles.append(
            Tile(off_by(guess.mean), "points off by guessing", "answering with the share in the auxiliary sample")
        )
    if len(properties) > 1:
        beaten = sum(any(group.beats_guessing for group in one.groups) for one in properties)
        tiles.append(
            Tile(f"{beaten} of {len(properties)}", "properties told better than by guessing", "95% interval above zero")
        )
    return tuple(tiles)


def _selection(main: Group, best: Sequence[Group], everything: Sequence[Group]) -> str:
    seeds = len(main.results)
    used = []
    for group in best:
        conduct = "departs from" if manipulates(group) else "follows"
        used.append(f"{group.adversary} used {group.title}, which {conduct} the protocol")
    text = f"Measured with {seeds} seed{'s' if seeds != 1 else ''}; {defense_name(main.setting.defense)}"
    differing = [name for name in varying(group.setting for group in everything) if name != "defense"]
    if differing:
        text += f" ({', '.join(setting_words(main.setting, differing))})"
    text += f". {'; '.join(used)}."
    n = len(attacks(everything))
    if n > 1:
        text += (
            f" The property and the attacks are those that came closest among {n} combinations measured, of those "
            "better than guessing if any is; picked afterwards, they flatter the attacker a little."
        )
    return text
