"""The first page of a defence frontier, for a data-protection officer: what is read, which defence, what it costs."""

from collections.abc import Sequence

from lightleak.report.budget import WEAK_DEFENSES
from lightleak.report.estimate import Estimate
from lightleak.report.frontier.advice import advice, guarantees
from lightleak.report.frontier.choice import (
    Choice,
    accuracy_change,
    choose,
    fullest,
    guaranteed,
    reading_change,
    shows_leakage,
)
from lightleak.report.frontier.comparison import Frontier, Point
from lightleak.report.frontier.plain import LIMITS, TERMS, attacker, of_epsilon
from lightleak.report.frontier.shortlist import Line, shortlist, shortlist_table
from lightleak.report.frontier.wording import short_name
from lightleak.report.headline import Tile
from lightleak.report.plain import INTERVAL, Summary, counted, interval_of, joined, of_hundred
from lightleak.report.wording import points


def summary(frontiers: Sequence[Frontier]) -> Summary:
    """Say in plain language what these runs measured."""
    frontier = fullest(frontiers)
    if frontier is None:
        return Summary(("Nothing can be said yet: no training and no attack has finished.",))
    none = frontier.none
    if none is None or none.cells is None:
        unknown = "Nothing can be said yet of what a defence helps: no attack without a defence has finished."
        return Summary((unknown,), attacker=attacker(frontier), notes=LIMITS)
    is_weak = frontier.budget.is_weak
    choice = choose(frontier) if shows_leakage(none) and not is_weak else None
    lines = shortlist(frontier, none, choice)
    return Summary(
        sentences=_sentences(frontiers, frontier, none),
        tiles=_tiles(frontier, none, choice),
        terms=(TERMS,),
        defences=(WEAK_DEFENSES, guarantees(frontier, None)) if is_weak else advice(frontier, none, choice),
        table=shortlist_table(frontier, none, lines),
        attacker=attacker(frontier),
        notes=_notes(frontier, none, lines),
        budget=frontier.budget.sentence,
    )


def _sentences(frontiers: Sequence[Frontier], frontier: Frontier, none: Point) -> tuple[str, ...]:
    cells, size = none.cells, frontier.setting.batch_size
    assert cells is not None  # else nothing is said of it
    rows = f"a message made from {counted(size, 'record')}" if size else "a message"
    spread = interval_of(cells) if cells.has_interval else "one message: no interval"
    got = f"{of_hundred(cells)} of every 100 single values right ({spread})"
    found = [
        f"Without a defence, whoever reads {rows} gets {got}.",
        *_beside_nothing(frontier, none),
        f"Measured on {counted(len(none.recovered), 'message')}.",
    ]
    if len(frontiers) > 1:
        setting = joined(frontier.setting.dataset or "", frontier.setting.target or "")
        found.append(
            f"This page tells of one of {len(frontiers)} situations, the one in which most was measured"
            f"{f' ({setting})' if setting else ''}; the others follow further down."
        )
    return tuple(found)


def _beside_nothing(frontier: Frontier, none: Point) -> list[str]:
    leakage = none.leakage
    if leakage is None or frontier.guess is None:
        return ["How many someone would get right who saw nothing is not known."]
    who = f"Someone who saw nothing, and went by general statistics, gets {of_hundred(frontier.guess)}"
    spread = interval_of(leakage, -1.0)
    if leakage.mean <= 0 and frontier.budget.is_weak:
        return [f"{who}: no less than attacks of this budget, which is no sign of safety."]
    if leakage.mean <= 0:
        return [f"{who}: the message helped no attack (difference {points(leakage.mean)}, {spread})."]
    chance = "" if shows_leakage(none) else ", so this may be chance"
    amount = f"{points(leakage.mean).lstrip('+')} points"
    return [f"{who}: the message gives away {amount} ({spread}){chance}.", "A point is one value in 100."]


def _tiles(frontier: Frontier, none: Point, choice: Choice | None) -> tuple[Tile, ...]:
    assert none.cells is not None  # else nothing is said of it
    tiles = [Tile(of_hundred(none.cells), "of 100 values read", interval_of(none.cells))]
    if frontier.guess is not None:
        tiles.append(Tile(of_hundred(frontier.guess), "of 100, seeing nothing", interval_of(frontier.guess)))
    if choice is not None:
        left, change = choice.point.cells, accuracy_change(choice.point, none)
        tiles.append(Tile(of_hundred(left), f"with {short_name(choice.point.strength)}", _interval(left)))
        if change is not None:
            tiles.append(Tile(points(change.mean), "points of accuracy", interval_of(change, -1.0)))
    return tuple(tiles)


def _interval(value: Estimate | None) -> str:
    return "" if value is None else interval_of(value)


def _notes(frontier: Frontier, none: Point, lines: Sequence[Line]) -> tuple[str, ...]:
    notes = [INTERVAL, *LIMITS]
    known = guaranteed(frontier)
    if known:
        notes.append(of_epsilon(known[-1].delta))
    notes.append(
        "Intervals of the model are over trainings on the same records. Changes compare the same messages and the "
        "same random draws, and are surer than the difference of two figures."
    )
    if any(value is not None and value.n > 1 and value.low == value.high for value in _estimates(none, lines)):
        notes.append("An interval without width means that all measurements agreed; so few of them say less than that.")
    return tuple(notes)


def _estimates(none: Point, lines: Sequence[Line]) -> list[Estimate | None]:
    """Everything that the table gives with an interval."""
    shown = [line.point for line in lines]
    own = [value for point in shown for value in (point.cells, point.accuracy, point.leakage)]
    defended = [point for point in shown if point is not none]
    return own + [change(point, none) for point in defended for change in (reading_change, accuracy_change)]
