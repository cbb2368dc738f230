"""The few defences that the first page shows, and why each of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.frontier.choice import (
    Choice,
    accuracy_change,
    accuracy_of,
    guaranteed,
    helping,
    most_accurate,
    most_protective,
    reading_change,
    takes_half,
    tried,
)
from lightleak.report.frontier.comparison import Frontier, Point
from lightleak.report.frontier.plain import does
from lightleak.report.frontier.wording import guarantee, short_name
from lightleak.report.plain import Block, Cell, Row, Table, cell_of, counted, signed_cell

COLUMNS = ("Values read, of 100", "More than seeing nothing, points", "Model right, of 100")
EPSILON = "Epsilon: training, message"
ENOUGH_LINES = 4
"""Up to here lines are filled with defences that nothing sets apart; the summary is to stay one sheet."""


@dataclass(frozen=True)
class Line:
    """A defence that is shown; ``why`` is empty where nothing sets it apart."""

    point: Point
    why: str = ""
    is_named: bool = False


def shortlist(frontier: Frontier, none: Point, choice: Choice | None) -> tuple[Line, ...]:
    """No defence, the named one, and what else to consider: at most five lines."""
    if choice is None:
        least = sorted(tried(frontier), key=lambda point: (point.gain, -accuracy_of(point)))
        return (Line(none), *map(Line, least[: ENOUGH_LINES - 1]))
    helped, known = helping(frontier), guaranteed(frontier)
    cheapest, safest = most_accurate(helped), most_protective(helped)
    lines = [Line(none), Line(choice.point, _merits(choice.point, cheapest, safest), is_named=True)]
    lines.append(Line(cheapest, "costs least of those that help"))
    if safest.gain < choice.point.gain:
        lines.append(Line(safest, "gives least away"))
    if known:
        lines.append(Line(known[-1], "the strongest guarantee"))
    halving = [point for point in helped if takes_half(point, none)]
    others = [Line(point, "takes away half, too") for point in sorted(halving, key=accuracy_of, reverse=True)]
    shown = _once(lines)
    return (*shown, *_once([*shown, *others])[len(shown) : max(len(shown), ENOUGH_LINES)])


def _once(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The first line of each point."""
    found: dict[int, Line] = {}
    for line in lines:
        found.setdefault(id(line.point), line)
    return tuple(found.values())


def _merits(point: Point, cheapest: Point, safest: Point) -> str:
    parts = ["named above"]
    if point is cheapest:
        parts.append("costs least of those that help")
    if point is safest and point.gain:
        parts.append("gives least away")
    return ", ".join(parts)


def shortlist_table(frontier: Frontier, none: Point, lines: Sequence[Line]) -> Table:
    """What each of them lets be read, and what it costs."""
    has_epsilon = any(line.point.epsilon is not None for line in lines)
    details = _details(lines)
    note = (
        "In each line the attack that reads most; below “seeing nothing” it is of no use. Small "
        "figures: 95% intervals, of values over messages, of the model over trainings."
    )
    if len(lines) > 1:
        note += " ▼ measurably less, ▲ more, ○ not measurably different from no defence."
    if len(frontier.points) > len(lines):
        note += f" All {len(frontier.points) - 1} defences follow below."
    trainings = max(len(line.point.accuracies) for line in lines)
    aside = f"{counted(len(none.recovered), 'message')}, {counted(trainings, 'training')} for each"
    size = frontier.setting.batch_size
    title = f"{frontier.setting.dataset or 'Table not stated'}{f', {size} records in a message' if size else ''}"
    rows = tuple(_row(line.point, detail, none, has_epsilon) for line, detail in zip(lines, details, strict=True))
    columns = (*COLUMNS, EPSILON) if has_epsilon else COLUMNS
    return Table("Defences compared", "Defence", columns, (Block(title, aside, rows),), note)


def _details(lines: Sequence[Line]) -> list[str]:
    """Why each is shown, and what it does where no sentence (of DP-SGD always one) and no line before has said it."""
    said = {"dp_sgd", *(line.point.strength.defense for line in lines if line.is_named)}
    found = []
    for line in lines:
        strength = line.point.strength
        words = "" if strength.defense in said else does(strength)
        said.add(strength.defense)
        found.append("; ".join(filter(None, (line.why, words))))
    return found


def _row(point: Point, detail: str, none: Point, has_epsilon: bool) -> Row:
    is_none = point is none
    cells = [
        cell_of(point.cells, None if is_none else reading_change(point, none)),
        signed_cell(point.leakage),
        cell_of(point.accuracy, None if is_none else accuracy_change(point, none)),
    ]
    if has_epsilon:
        cells.append(Cell("none" if point.epsilon is None else _guarantees(point)))
    return Row("No defence" if is_none else short_name(point.strength), detail, tuple(cells))


def _guarantees(point: Point) -> str:
    """Epsilon of the whole training, and of one update whose batch is known."""
    return ", ".join(guarantee(one) for one in (point.epsilon, point.release_epsilon) if one is not None)
