"""The first page of a vertical audit, for a data-protection officer: what is learned, what helps, what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.estimate import Estimate
from lightleak.report.headline import Tile
from lightleak.report.plain import (
    INTERVAL,
    MOST_LINES,
    UNSURE,
    Block,
    Row,
    Summary,
    Table,
    capital,
    cell_of,
    change_of,
    counted,
    interval_of,
    is_long,
    joined,
    of_hundred,
    sign_of,
    signed_cell,
)
from lightleak.report.vertical.comparison import Group, attacks, most_telling
from lightleak.report.vertical.headline import manipulates
from lightleak.report.vertical.plain import LIMITS, TERMS, attacker, defense_words, short, traits, who
from lightleak.report.vertical.result import NO_DEFENSE
from lightleak.report.vertical.tables import paired
from lightleak.report.vertical.wording import defense_name
from lightleak.report.wording import points

COLUMNS = ("Off by, points", "Seeing nothing, points", "Closer than seeing nothing, points", "AUC, of 100")

Place = tuple[str | None, str, str]
"""Table, property and adversary."""


@dataclass(frozen=True)
class Line:
    """The attack that comes closest on one property, by one adversary, under one defence.

    Attributes:
        group: that attack.
        rise: how much further off the defence leaves the closest of the attacks that were tried with and without it;
            None where none was, or without a defence.
        cost: what the defence does to the model's AUC, after minus before, over the same trainings.
    """

    group: Group
    rise: Estimate | None = None
    cost: Estimate | None = None

    @property
    def error(self) -> Estimate:
        """How far off it is."""
        found = self.group.error
        assert found is not None  # `most_telling` keeps only groups with an error
        return found

    @property
    def helps(self) -> bool:
        """Whether the defence measurably leaves the attacker further off."""
        return self.rise is not None and self.rise.low is not None and self.rise.low > 0


Lines = dict[Place, Line]


def summary(groups: Sequence[Group], redact: bool = False) -> Summary:
    """Say in plain language what these runs measured.

    Args:
        groups: attacks and guesses (`comparison.compare`).
        redact: leave out every share, and with it how far off guessing is.
    """
    tried = attacks(groups)
    if not tried:
        return Summary(("Nothing can be said yet: no attack has finished.",))
    names = list(dict.fromkeys(group.setting.defense for group in tried))
    reference = NO_DEFENSE if NO_DEFENSE in names else names[0]
    own = _lines([group for group in tried if group.setting.defense == reference])
    main = most_telling([line.group for line in own.values()])
    if main is None:
        unknown = (
            "The true shares are not part of this report, so nothing says how close an attacker's estimate would come."
        )
        return Summary((unknown,), attacker=attacker(tried), notes=LIMITS)
    by_defense = {name: _defended(tried, reference, name) for name in names if name != reference}
    place = _place(main)
    return Summary(
        sentences=_sentences(own, main, tried, redact),
        tiles=_tiles(main, place, by_defense, redact),
        terms=(TERMS,),
        defences=_defences(reference, own[place], place, by_defense),
        table=_table(reference, own, place, by_defense, redact),
        attacker=attacker(tried),
        notes=_notes(by_defense),
    )


def _place(group: Group) -> Place:
    return group.setting.dataset, group.property_name, group.adversary


def _lines(groups: Sequence[Group]) -> Lines:
    found = {}
    for place in dict.fromkeys(map(_place, groups)):
        closest = most_telling([group for group in groups if _place(group) == place])
        if closest is not None:
            found[place] = Line(closest)
    return found


def _defended(tried: Sequence[Group], reference: str, name: str) -> Lines:
    """Lines under one defence, each compared over the attacks that were tried with and without it."""
    under = [group for group in tried if group.setting.defense == name]
    without = [group for group in tried if group.setting.defense == reference]
    found = {}
    for place, line in _lines(under).items():
        here, there = ([one for one in groups if _place(one) == place] for groups in (under, without))
        shared = {_attack(one) for one in here} & {_attack(one) for one in there}
        after, before = (most_telling([one for one in groups if _attack(one) in shared]) for groups in (here, there))
        found[place] = Line(
            line.group,
            paired(after, before, lambda one: one.error),
            _cost(here, there, shared),
        )
    return found


def _attack(group: Group) -> tuple[object, ...]:
    return group.attack, group.variant, group.detail, group.setting.target, group.setting.epoch


def _cost(here: Sequence[Group], there: Sequence[Group], shared: set[tuple[object, ...]]) -> Estimate | None:
    """AUC after minus before, in the training of an attack that only watches where there is one."""
    chosen = sorted((one for one in here if _attack(one) in shared), key=manipulates)
    if not chosen:
        return None
    return paired(chosen[0], next(one for one in there if _attack(one) == _attack(chosen[0])), lambda one: one.auc)


def _sentences(own: Lines, main: Group, tried: Sequence[Group], redact: bool) -> tuple[str, ...]:
    error, gain, guess = own[_place(main)].error, main.gain, main.guess_error
    share = f"the share of the other company's customers with {traits([main.property_name])}"
    spread = f" ({interval_of(error)})" if error.has_interval else " (one training: no interval)"
    under = "" if main.setting.defense == NO_DEFENSE else f"With {defense_name(main.setting.defense)}, "
    if main.beats_guessing or not (gain and gain.has_interval):
        average = " on average" if error.n > 1 else ""
        first = f"{who(main.adversary)} could estimate {share} to within {_points(error)}{average}{spread}."
    else:
        first = (
            f"{who(main.adversary)} was not shown to know {share} better than someone who saw nothing: its estimate "
            f"was {_points(error)} off{spread}."
        )
    found = [under + first if under else capital(first), "A point is one customer in 100."]
    if gain is None or guess is None:
        found.append("How far off someone would be who saw nothing of the exchange is not known.")
    elif not redact:
        chance = ", which may be chance" if gain.has_interval and sign_of(gain) == UNSURE else ""
        found.append(
            f"Someone who saw nothing of the exchange, and named the share in a sample, would be {of_hundred(guess)} "
            f"points off: {points(abs(gain.mean)).lstrip('+')} points {'more' if gain.mean >= 0 else 'less'} "
            f"({interval_of(gain, -1.0)}{chance})."
        )
    if main.true is not None and main.estimated is not None and not redact:
        found.append(
            f"In truth {of_hundred(main.true)} of 100 have it; the estimates say {of_hundred(main.estimated)}."
        )
    if manipulates(main):
        found.append("To come so close it departs from the agreed procedure and bends its own part of the training.")
    if len(own) > 1:
        beaten = sum(line.group.beats_guessing for line in own.values())
        found.append(
            f"Of {len(own)} combinations of company and trait, an attack was measurably closer than someone who saw "
            f"nothing in {beaten}."
        )
    same = [group for group in tried if group.setting.defense == main.setting.defense]
    picked = (
        f" It is the attack that came closest of {len(same)} that were measured; picked afterwards, it looks a little "
        "better than it is."
        if len(same) > 1
        else ""
    )
    found.append(f"Measured in {counted(len(main.results), 'training')}, each with other customers.{picked}")
    return tuple(found)


def _points(value: Estimate) -> str:
    told = of_hundred(value)
    return f"{told} point" if told == "1" else f"{told} points"


def _tiles(main: Group, place: Place, by_defense: dict[str, Lines], redact: bool) -> tuple[Tile, ...]:
    error, guess = main.error, main.guess_error
    assert error is not None  # `most_telling` keeps only groups with an error
    who_does = joined(short(main.adversary), interval_of(error))
    tiles = [Tile(of_hundred(error), "points off the true share", who_does)]
    if guess is not None and not redact:
        tiles.append(Tile(of_hundred(guess), "points off, seeing nothing", "naming the share in the sample"))
    best = _most_protective(place, by_defense)
    if best is not None:
        name, line = best
        tiles.append(Tile(of_hundred(line.error), f"points off with {defense_name(name)}", interval_of(line.error)))
        if line.cost is not None:
            tiles.append(Tile(points(line.cost.mean), "points of the model's AUC", interval_of(line.cost, -1.0)))
    return tuple(tiles)


def _helping(place: Place, by_defense: dict[str, Lines]) -> list[tuple[str, Line]]:
    found = [(name, lines[place]) for name, lines in by_defense.items() if place in lines]
    return [pair for pair in found if pair[1].helps]


def _most_protective(place: Place, by_defense: dict[str, Lines]) -> tuple[str, Line] | None:
    """The defence that measurably helps and leaves the attacker furthest off."""
    return max(_helping(place, by_defense), key=lambda pair: pair[1].error.mean, default=None)


def _defences(reference: str, before: Line, place: Place, by_defense: dict[str, Lines]) -> tuple[str, ...]:
    if not by_defense:
        which = "No defence was tried" if reference == NO_DEFENSE else f"Only {defense_words(reference)} was tried"
        return (
            f"{which}. What a defence would change, and what it would cost, is not known from this report; an audit "
            "with and without one, reported together, tells.",
        )
    helping = _helping(place, by_defense)
    if not helping:
        tried = [lines[place] for lines in by_defense.values() if place in lines]
        if not any(line.rise is not None and line.rise.has_interval for line in tried):
            return ("Defences were tried, but not in the same situation or too few times to compare them.",)
        which = "The defence that was tried does not help"
        which = f"None of the {len(by_defense)} defences that were tried helps" if len(by_defense) > 1 else which
        return (f"{which} measurably; see the table.",)
    best = _most_protective(place, by_defense)
    cheapest = max(helping, key=lambda pair: pair[1].cost.mean if pair[1].cost else -1.0)
    assert best is not None  # some defence helps
    found = []
    if len(by_defense) > 1:
        found.append(
            f"{len(helping)} of {len(by_defense)} defences help measurably. Which to name was decided after the "
            "fact: measure again, with other random draws, before you rely on one."
        )
    found.append(_defence(*best, before))
    if cheapest[0] != best[0]:
        found.append(f"The least costly of those that help. {_defence(*cheapest, before)}")
    return tuple(found)


def _defence(name: str, line: Line, before: Line) -> str:
    rise = line.rise
    assert rise is not None  # it helps
    return (
        f"{capital(defense_words(name))} helps: the attacker is then {of_hundred(line.error)} points off instead of "
        f"{of_hundred(before.error)} ({change_of(rise)}). {_price(line)}"
    )


def _price(line: Line) -> str:
    cost, left = line.cost, line.group.auc
    if cost is None or left is None:
        return "What it costs is not known: the model's AUC was not measured with and without it."
    chance = "" if cost.low is None or cost.high is None or not cost.low <= 0 <= cost.high else "; it may be chance"
    return f"The price: an AUC of {of_hundred(left)} of 100 ({change_of(cost)}{chance})."


def _table(reference: str, own: Lines, place: Place, by_defense: dict[str, Lines], redact: bool) -> Table:
    """By trait and company, with a line for each defence; of many, the trait that comes out best."""
    every = {reference: own} | by_defense
    note = (
        "In each line the attack that came closest. Small figures are 95% intervals over trainings, each of other "
        "customers."
    )
    if by_defense:
        note += f" ▲ measurably more, ▼ measurably less, ○ not measurably different from {defense_name(reference)}."
    places = list(own)
    is_short = is_long([[name for name in every if one in every[name]] for one in places])
    if is_short and by_defense:
        places = [place]
        helpful = sorted(by_defense, key=lambda name: -_error_at(by_defense[name], place))
        every = {name: lines for name, lines in every.items() if name in (reference, *helpful[: MOST_LINES - 1])}
    elif is_short:
        places = sorted(own, key=lambda one: own[one].error.mean)[:MOST_LINES]
    if is_short:
        note += " What is not shown here follows further down."
    if by_defense:
        blocks = tuple(
            Block(
                _titled(one, own),
                "",
                tuple(
                    _row(capital(defense_name(name)), lines[one], redact)
                    for name, lines in every.items()
                    if one in lines
                ),
            )
            for one in places
        )
    else:
        rows = tuple(_row(_titled(one, own), own[one], redact) for one in places)
        blocks = (Block(capital(defense_name(reference)), "", rows),)
    columns = COLUMNS[:1] + COLUMNS[-1:] if redact else COLUMNS
    head = "The trait, who estimates, and the defence" if by_defense else "The trait, and who estimates"
    return Table("How far off an attacker is", head, columns, blocks, note)


def _titled(place: Place, own: Lines) -> str:
    """Trait and company, with the table where there are several."""
    dataset, name, adversary = place
    several = len({one[0] for one in own}) > 1
    return joined(f"{dataset or 'table not stated'}: {name}" if several else name, short(adversary))


def _error_at(lines: Lines, place: Place) -> float:
    return lines[place].error.mean if place in lines else -1.0


def _row(title: str, line: Line, redact: bool) -> Row:
    group = line.group
    between = () if redact else (cell_of(group.guess_error), signed_cell(group.gain))
    cells = (cell_of(line.error, line.rise), *between, cell_of(group.auc, line.cost))
    return Row(title, counted(len(group.results), "training"), cells)


def _notes(by_defense: dict[str, Lines]) -> tuple[str, ...]:
    notes = [INTERVAL, *LIMITS]
    if by_defense:
        notes.append(
            "A change compares the attacks that were tried both with and without a defence, training by training; it "
            "need not equal the difference of two figures."
        )
    return tuple(notes)
