"""The first page of a vertical audit, for a data-protection officer: what is learned, what helps, what it costs."""

from collections.abc import Sequence

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
from lightleak.report.vertical.defended import Line, Lines, Place, compared_lines, lines_of, place_of, reference_of
from lightleak.report.vertical.plain import LIMITS, TERMS, attacker, defense_words, short, traits, who
from lightleak.report.vertical.result import NO_DEFENSE
from lightleak.report.vertical.wording import defense_name
from lightleak.report.wording import points

COLUMNS = ("Off by, points", "Own columns, points", "Learned, points", "AUC, of 100")


def summary(groups: Sequence[Group], redact: bool = False) -> Summary:
    """Say in plain language what these runs measured.

    Args:
        groups: attacks and guesses (`comparison.compare`).
        redact: leave out every share, and with it how far off the adversary's own columns alone are.
    """
    tried = attacks(groups)
    if not tried:
        return Summary(("Nothing can be said yet: no attack has finished.",))
    reference = reference_of(tried)
    own = lines_of(tried, reference)
    main = most_telling([line.group for line in own.values()])
    if main is None:
        unknown = (
            "The true shares are not part of this report, so nothing says how close an attacker's estimate would come."
        )
        return Summary((unknown,), attacker=attacker(tried), notes=LIMITS)
    names = dict.fromkeys(group.setting.defense for group in tried)
    by_defense = {name: compared_lines(tried, reference, name) for name in names if name != reference}
    place = place_of(main)
    return Summary(
        sentences=_sentences(own, main, redact, brief=bool(by_defense)),
        tiles=_tiles(main, place, by_defense, redact),
        terms=(TERMS,),
        defences=_defences(reference, own[place], place, by_defense),
        table=_table(reference, own, place, by_defense, redact),
        attacker=attacker(tried),
        notes=_notes(by_defense),
    )


def _sentences(own: Lines, main: Group, redact: bool, brief: bool) -> tuple[str, ...]:
    """``brief`` keeps the page to one sheet where defences follow: what an estimate is worth then stands below."""
    places = len(own)
    found = [_first(main, own[place_of(main)].error, places)]
    if main.own_error is None:
        found.append(
            "What it can tell from its own columns, without the exchange, is not known: nothing shows that the "
            "exchange gives it away."
        )
    elif not redact:
        found += _beside_own_columns(main, places)[: 1 if brief else None]
    if main.true is not None and main.estimated is not None and not redact:
        found.append(
            f"In truth {of_hundred(main.true)} of 100 have it; the estimates say {of_hundred(main.estimated)}."
        )
    if main.manipulates:
        found.append("To come so close it departs from the agreed procedure and bends its own part of the training.")
    if places > 1:
        leaking = sum(line.group.leaks_among(places) for line in own.values())
        found.append(
            f"Something was measurably learned in {leaking} of {places} combinations of company and trait; this one is "
            "named afterwards, which its range allows for."
        )
    found.append(f"Measured in {counted(len(main.results), 'training')}, each with other customers.{_picked(main)}")
    return tuple(found)


def _first(main: Group, error: Estimate, places: int) -> str:
    share = f"the share of the other company's customers with {traits([main.property_name])}"
    spread = f" ({interval_of(error)})" if error.has_interval else " (one training: no interval)"
    under = "" if main.setting.defense == NO_DEFENSE else f"With {defense_name(main.setting.defense)}, "
    if main.leaks_among(places):
        text = (
            f"{who(main.adversary)} could learn {share} from what is exchanged, to within {_points(error)} on average"
            f"{spread}."
        )
    elif main.learned is None or not main.learned.has_interval:
        average = " on average" if error.n > 1 else ""
        text = f"{who(main.adversary)} could estimate {share} to within {_points(error)}{average}{spread}."
    else:
        text = (
            f"{who(main.adversary)} was not shown to learn {share} from what is exchanged: its estimate was "
            f"{_points(error)} off{spread}, not measurably closer than what its own columns tell."
        )
    return under + text if under else capital(text)


def _beside_own_columns(main: Group, places: int) -> list[str]:
    own, learned = main.own_error, main.learned_among(places)
    if own is None or learned is None:
        return []
    chance = learned.has_interval and sign_of(learned) == UNSURE
    text = (
        f"From its own columns alone, without the exchange, it would be {of_hundred(own)} points off: "
        f"{points(abs(learned.mean)).lstrip('+')} points {'more' if learned.mean >= 0 else 'less'} "
        f"({interval_of(learned, -1.0)}{', which may be chance: more trainings would tell' if chance else ''})."
    )
    if main.worth is None:
        return [text]
    beside = "" if main.own_worth is None else f", its own columns alone {main.own_worth.words}"
    return [
        text,
        f"That is worth asking {main.worth.words} customers drawn at random{beside}.",
    ]


def _picked(main: Group) -> str:
    if main.chosen_among < 2:
        return ""
    how = (
        "picked for each training by the other trainings"
        if len(main.results) > 1
        else "picked afterwards, so that it looks a little better than it is"
    )
    return f" The attack is one of {main.chosen_among}, {how}."


def _points(value: Estimate) -> str:
    told = of_hundred(value)
    return f"{told} point" if told == "1" else f"{told} points"


def _tiles(main: Group, place: Place, by_defense: dict[str, Lines], redact: bool) -> tuple[Tile, ...]:
    error, own = main.error, main.own_error
    assert error is not None  # `chosen_on_other_seeds` keeps only groups with an error
    who_does = joined(short(main.adversary), interval_of(error))
    tiles = [Tile(of_hundred(error), "points off the true share", who_does)]
    if own is not None and not redact:
        tiles.append(Tile(of_hundred(own), "points off by its own columns alone", interval_of(own)))
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
        f"{capital(defense_words(name))} helps: an attacker who knows of it is then {of_hundred(line.error)} points "
        f"off instead of {of_hundred(before.error)} ({change_of(rise)}). {_price(line)}"
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
    note = "Small figures are 95% intervals over trainings, each line by itself."
    if by_defense:
        note += f" ▲ measurably more, ▼ measurably less, ○ not measurably different from {defense_name(reference)}."
    places = list(own)
    is_short = is_long([[name for name in every if one in every[name]] for one in places])
    if is_short and by_defense:
        places = [place]
        helpful = sorted(by_defense, key=lambda name: -_error_at(by_defense[name], place))
        # Two lines less than elsewhere: what own columns tell takes their room on the one sheet.
        every = {name: lines for name, lines in every.items() if name in (reference, *helpful[: MOST_LINES - 3])}
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
    between = () if redact else (cell_of(group.own_error), signed_cell(group.learned))
    cells = (cell_of(line.error, line.rise), *between, cell_of(group.auc, line.cost))
    return Row(title, counted(len(group.results), "training"), cells)


def _notes(by_defense: dict[str, Lines]) -> tuple[str, ...]:
    notes = [INTERVAL, *LIMITS]
    if by_defense:
        notes.append("The attacker is assumed to know which defence is used, and how strong.")
    return tuple(notes)
