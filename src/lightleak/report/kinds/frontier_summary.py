"""The summary of a defense frontier: what is read, which defense to consider, what it costs, what is guaranteed."""

import math
from collections.abc import Callable, Sequence

from lightleak.core.results import FrontierRow, UpdateRow
from lightleak.report.budget import WEAK_DEFENSES
from lightleak.report.format import (
    change_words,
    counted,
    interval,
    interval_words,
    joined,
    of_hundred,
    points,
    unsigned_points,
)
from lightleak.report.intervals import Estimate, bounded
from lightleak.report.kinds.frontier_points import (
    Choice,
    Frontier,
    Point,
    difference,
    differences,
    fullest,
    guarantee,
    is_worse,
    most_accurate,
    most_protective,
    named,
    short_name,
    shows_leakage,
)
from lightleak.report.kinds.updates_groups import BASELINE
from lightleak.report.kinds.updates_words import attacker
from lightleak.report.page import Cell, Column, Table, Tile, table_of, text
from lightleak.report.sections.summary import INTERVAL, NO_PROOF, THIS_ALONE, Summary, points_cell, share_cell

MOST_GUARANTEES = 3
"""With more, only the weakest and the strongest are explained, so that the summary stays one sheet."""

ENOUGH_LINES = 4
"""Up to here the table is filled with defenses that nothing sets apart, for the same reason."""

NEARLY = 0.9995
"""From this share on, one decimal would print that a guess is always right."""

DOES = {
    "gaussian_noise": "random noise is added to every number of the message",
    "laplacian_noise": "random noise, now and then strong, is added to every number of the message",
    "random_pruning": "numbers of the message are left out at random",
    "clipping": "a large message is scaled down as a whole",
    "sign": "of every number of the message only the sign is sent, plus or minus",
    "quantization": "every number of the message is rounded coarsely",
    "gradient_compression": "only the largest numbers of the message are sent",
    "dp_sgd": "what a single record can add to a message is limited, and hidden by random noise",
}
"""What a defense does, by its name."""

HOW_MUCH = {
    ("gaussian_noise", "scale"): "of size {value:g}",
    ("laplacian_noise", "scale"): "of size {value:g}",
    ("random_pruning", "probability"): "{hundredths:g} in 100",
    ("clipping", "max_norm"): "to size {value:g}",
    ("quantization", "bits"): "to {value:g} binary digits",
    ("gradient_compression", "keep"): "{hundredths:g} in 100",
    ("dp_sgd", "noise_multiplier"): "{value:g} times as large as the limit",
}
"""What its strength means, by the setting that is varied; it ends the sentence of `DOES`."""

TERMS = (
    "A “message” is what a participant sends instead of its records. A “value” is one entry of one record, such as an "
    "age; it is read when it comes out right, or, of a number, close. “Seeing nothing” is to fill in values as often "
    "as other people have them, without a message; some are right by luck."
)
LIMITS = (
    "The attacks do not adapt to the defense: an attacker who knows it may read more.",
    "Each participant sent one message. Whoever collects many from one participant can average noise away.",
    "Every defense was trained with the same settings; others may make it cheaper.",
    "Values are counted one by one. How many records are read whole, and whether one points to a person, was not "
    "measured.",
    NO_PROOF,
    THIS_ALONE,
)
OF_INTERVALS = (
    "Intervals of the model are over trainings on the same records. Changes compare the same messages and the same "
    "random draws, and are more certain than the difference of two figures."
)

_Line = tuple[Point, str]
"""A defense that the table shows, and why; empty where nothing sets it apart."""


def summary(frontiers: Sequence[Frontier]) -> Summary:
    """Say in plain language what these runs measured."""
    frontier = fullest(frontiers)
    if frontier is None:
        return Summary(("Nothing can be said yet: no training and no attack has finished.",))
    none, who = frontier.none, attacker(list(map(_as_update, _attacks(frontier))) or [_as_update(frontier.first)])
    if none is None or none.cells is None:
        unknown = "Nothing can be said yet about the defenses: no attack without a defense has finished."
        return Summary((unknown,), attacker=who, notes=LIMITS)
    is_weak = frontier.budget.is_weak
    choice = frontier.choice if shows_leakage(none) and not is_weak else None
    lines = shortlist(frontier, none, choice)
    table, note = _table(frontier, none, lines, choice)
    return Summary(
        sentences=(*_sentences(frontiers, frontier, none, none.cells), frontier.budget.sentence),
        tiles=_tiles(frontier, none.cells, choice),
        terms=(TERMS,),
        defenses=(WEAK_DEFENSES, _guarantees(frontier, None)) if is_weak else _advice(frontier, none, choice),
        table=table,
        note=note,
        attacker=who,
        notes=_notes(frontier, none, [point for point, _ in lines]),
    )


def does(row: FrontierRow) -> str:
    """What a defense does; empty where that is not known.

    >>> does(FrontierRow(attack="", defense="gradient_compression", defense_strength=0.01, defense_option="keep"))
    'only the largest numbers of the message are sent, 1 in 100'
    """
    name, value = row.defense or "", row.defense_strength
    words, how = DOES.get(name, ""), HOW_MUCH.get((name, row.defense_option or ""))
    return joined(words, how.format(value=value, hundredths=100 * value) if how and value is not None else "")


def most_often_right(epsilon: float, delta: float | None) -> float:
    """How often a guess whether a record was used is right at most, where both are equally likely beforehand.

    Differential privacy bounds the sum of the two rates at which any test is right (Kairouz, Oh and Viswanath 2015,
    Theorem 2.1): (e^epsilon + delta) / (e^epsilon + 1) on average.

    >>> most_often_right(0.0, 0.0), round(most_often_right(1.0, 1e-5), 3)
    (0.5, 0.731)
    """
    odds = math.exp(-max(epsilon, 0.0))
    return min((1 + (delta or 0.0) * odds) / (1 + odds), 1.0)


def shortlist(frontier: Frontier, none: Point, choice: Choice | None) -> tuple[_Line, ...]:
    """No defense, the recommended one, and what else to consider: at most five lines."""
    if choice is None:
        least = sorted(frontier.tried, key=lambda point: (point.place[1], -point.place[0]))
        return ((none, ""), *((point, "") for point in least[: ENOUGH_LINES - 1]))
    helping = frontier.helping
    cheapest, safest = most_accurate(helping), most_protective(helping)
    merits = [(cheapest, "costs least of those that help")]
    if (safest is choice.point and safest.place[1]) or safest.place[1] < choice.point.place[1]:
        merits.append((safest, "gives least away"))
    own = joined("named above", *(why for point, why in merits if point is choice.point))
    lines = [(none, ""), (choice.point, own), *merits]
    lines += [(point, "the strongest guarantee") for point in frontier.guaranteed[-1:]]
    shown = _once(lines)
    halving = sorted(frontier.halving, key=lambda point: -point.place[0])
    more = _once([*shown, *((point, "takes away half, too") for point in halving)])
    return more[: max(len(shown), ENOUGH_LINES)]


def _once(lines: Sequence[_Line]) -> tuple[_Line, ...]:
    """The first line of each point."""
    found: dict[int, _Line] = {}
    for line in lines:
        found.setdefault(id(line[0]), line)
    return tuple(found.values())


def _attacks(frontier: Frontier) -> list[FrontierRow]:
    rows = (row for point in frontier.points for row in point.rows)
    return [row for row in rows if not row.is_training and row.attack != BASELINE]


def _as_update(row: FrontierRow) -> UpdateRow:
    """The attack as one on an update that was sent before training."""
    return UpdateRow(attack=row.attack, protocol=row.protocol, threat=row.threat, threat_model=row.threat_model)


def _read_change(point: Point, none: Point) -> Estimate | None:
    return difference(point.recovered, none.recovered)


def _accuracy_change(point: Point, none: Point) -> Estimate | None:
    return difference(point.accuracies, none.accuracies)


def _sentences(frontiers: Sequence[Frontier], frontier: Frontier, none: Point, cells: Estimate) -> tuple[str, ...]:
    size, spread = (
        frontier.first.batch_size,
        interval_words(cells) if cells.has_interval else "one message: no interval",
    )
    rows = f"a message made from {counted(size, 'record')}" if size else "a message"
    got = f"{of_hundred(cells)} of every 100 single values right ({spread})"
    found = [
        f"Without a defense, whoever reads {rows} gets {got}.",
        _against_guessing(frontier, none),
        f"Measured on {counted(len(none.recovered), 'message')}.",
    ]
    if len(frontiers) > 1:
        where = joined(frontier.first.dataset or "", frontier.first.target or "")
        found.append(
            f"This summary is about one of {len(frontiers)} situations, the one in which most was measured"
            f"{f' ({where})' if where else ''}; the others follow further down."
        )
    return tuple(found)


def _against_guessing(frontier: Frontier, none: Point) -> str:
    leakage = none.leakage
    if leakage is None or frontier.guess is None:
        return "How many values someone who saw nothing would get right is not known."
    who = f"Someone who saw nothing, and went by general statistics, gets {of_hundred(frontier.guess)}"
    spread = interval_words(leakage, -1.0)
    if leakage.mean <= 0 and frontier.budget.is_weak:
        return f"{who}: no less than attacks of this budget, which is no sign of safety."
    if leakage.mean <= 0:
        return f"{who}: the message helped no attack (difference {points(leakage)}, {spread})."
    chance = "" if shows_leakage(none) else ", so this may be chance"
    return (
        f"{who}: the message gives away {unsigned_points(leakage)} points ({spread}){chance}. A point is one value in "
        "100."
    )


def _tiles(frontier: Frontier, cells: Estimate, choice: Choice | None) -> tuple[Tile, ...]:
    tiles = [Tile(of_hundred(cells), "of 100 values read", interval_words(cells))]
    if frontier.guess is not None:
        tiles.append(Tile(of_hundred(frontier.guess), "of 100, seeing nothing", interval_words(frontier.guess)))
    if choice is not None and (left := choice.point.cells) is not None:
        tiles.append(Tile(of_hundred(left), f"with {short_name(choice.point)}", interval_words(left)))
        if (change := _accuracy_change(choice.point, choice.none)) is not None:
            tiles.append(Tile(points(change), "points of accuracy", interval_words(change, -1.0)))
    return tuple(tiles)


def _advice(frontier: Frontier, none: Point, choice: Choice | None) -> tuple[str, ...]:
    """Whether a defense helps, which one to consider and why, what the choice is worth, what would be a guarantee."""
    n = len(frontier.tried)
    if not none.is_measured:
        return (
            "What a defense changes, and what it costs, is not known yet: the training without a defense, or the "
            "answers of someone who saw nothing, are missing.",
        )
    if not n:
        return ("No defense has been measured yet, so what one would change, and what it would cost, is not known.",)
    granted = _guarantees(frontier, choice)
    if choice is not None:
        return (_recommended(frontier, choice), _afterwards(frontier, choice), granted)
    if not shows_leakage(none):
        return ("Without a defense no leakage was shown that a defense could take away.", granted)
    which = "The defense that was tried was not" if n == 1 else f"None of the {n} defenses was"
    return (f"{which} shown to help: the difference from no defense may be chance. See the table.", granted)


def _recommended(frontier: Frontier, choice: Choice) -> str:
    none, point = choice.none, choice.point
    words, effect = does(point.first), _read_change(point, none)
    change = "" if effect is None else f" ({change_words(effect)}{_chance(effect)})"
    return (
        f"The first to consider: {short_name(point)}{f' ({words})' if words else ''}, {_why(frontier, choice)}. "
        f"{of_hundred(point.cells)} of 100 values are then read instead of {of_hundred(none.cells)}{change}: "
        f"{_left(point)}. {_price(point, none)}"
    )


def _why(frontier: Frontier, choice: Choice) -> str:
    """How the recommended defense was picked."""
    n, n_helping, n_halving = len(frontier.tried), len(frontier.helping), len(frontier.halving)
    if n == 1:
        much = "at least half" if choice.halves else "less than half"
        return f"the only defense that was tried; it takes away {much} of what is given away"
    if n_halving == 1:
        return f"the only one of {n} defenses tried that takes away at least half of what is given away"
    if n_halving:
        return (
            f"the most accurate of the {n_halving} defenses, of {n} tried, that take away at least half of what is "
            "given away"
        )
    most = "the only one" if n_helping == 1 else f"the most protective of the {n_helping}"
    return f"{most}, of {n} defenses tried, that {'helps' if n_helping == 1 else 'help'}; none takes away half"


def _chance(change: Estimate) -> str:
    """Words for a change whose interval contains 0."""
    if change.mean == 0 or change.low is None or change.high is None or not change.low <= 0 <= change.high:
        return ""
    return "; it may be chance"


def _left(point: Point) -> str:
    """What is still read beyond what someone gets who saw nothing."""
    left = point.leakage
    assert left is not None  # of a point that is measured
    spread = interval_words(left, -1.0)
    if left.mean > 0:
        return f"still {unsigned_points(left)} points more than seeing nothing ({spread}{_chance(left)})"
    if left.high is None or left.high > 0:
        return f"on average no more than seeing nothing (difference {points(left)}, {spread})"
    return "no more than seeing nothing"


def _price(point: Point, none: Point) -> str:
    change = _accuracy_change(point, none)
    if change is None:
        return "What it costs is not known: no training with it shares its random draws with one without."
    start = "No cost in accuracy was measured" if change.mean >= 0 else "The price"
    return (
        f"{start}: the model judges {of_hundred(point.accuracy)} of 100 new records correctly instead of "
        f"{of_hundred(none.accuracy)} ({change_words(change)}{_chance(change)})."
    )


def _afterwards(frontier: Frontier, choice: Choice) -> str:
    """What the choice after the fact is worth: intervals that hold for all defenses at once, and rivals."""
    none, point, n = choice.none, choice.point, len(frontier.tried)
    found = []
    if n > 1:
        found.append(f"Picked after the fact, as the best of {n}, it may owe part of that to luck.")
        found += _widened(choice, 2 * n)
    if not all(one and one.has_interval for one in (_read_change(point, none), _accuracy_change(point, none))):
        found.append("One message or one training with each cannot tell any of this from chance.")
    rivals = [one for one in frontier.helping if one is not point and not is_worse(one, point)]
    rivals.sort(key=lambda one: (one.granted("epsilon") is None, one.granted("epsilon") or 0.0, -one.place[0]))
    if rivals:
        which = f"{len(rivals)} others that help ({named(rivals)}) are" if len(rivals) > 1 else f"{named(rivals)} is"
        found.append(f"{which} neither measurably less accurate nor measurably less protective.")
    return " ".join([*found, "Measure again, with other random draws, before you rely on it."])


def _widened(choice: Choice, comparisons: int) -> list[str]:
    """Intervals of both changes that hold for every defense at once (Bonferroni)."""
    none, point = choice.none, choice.point
    effect = bounded(differences(point.recovered, none.recovered), -1.0, 1.0, comparisons)
    change = bounded(differences(point.accuracies, none.accuracies), -1.0, 1.0, comparisons)
    wide = [
        f"from {interval(one, -1.0)} for {what}"
        for one, what in ((effect, "values read"), (change, "accuracy"))
        if one is not None and one.has_interval
    ]
    found = [f"Allowing for that, the changes may be anything {' and '.join(wide)}."] if wide else []
    if effect is not None and _chance(effect):
        found.append("By this measure the help may be chance.")
    return found


def _guarantees(frontier: Frontier, choice: Choice | None) -> str:
    """What epsilon means, and which was measured."""
    known = frontier.guaranteed
    if not known:
        return (
            "Nothing here is a guarantee: an attack that nobody has tried may read more. Differential privacy "
            f"(DP-SGD: {DOES['dp_sgd']}) bounds what any attack can learn about one record; it was not measured here."
        )
    shown = known if len(known) <= MOST_GUARANTEES else (known[0], known[-1])
    limits = "; ".join(
        f"{short_name(point)} (epsilon {guarantee(point.granted('epsilon'))}) {_often(point)}" for point in shown
    )
    which = "" if shown is known else f", of {len(known)} measured, for the weakest and the strongest"
    own = ""
    if choice is not None:
        epsilon, release = choice.point.granted("epsilon"), choice.point.granted("release_epsilon")
        one_message = "" if release is None else f"one message {guarantee(release)}"
        given = "no guarantee" if epsilon is None else f"epsilon {guarantee(epsilon)}"
        own = f" The defense named above gives {joined(given, one_message)}."
    is_named = choice is not None and choice.point.first.defense == "dp_sgd"
    how = "" if is_named else f" ({DOES['dp_sgd']})"
    return (
        f"A guarantee also covers attacks that nobody has tried. DP-SGD{how} "
        "gives one (differential privacy). A number, epsilon, says how strong it is, the smaller the stronger: it "
        "limits how often anyone can tell correctly whether a given record was used in the training; a coin is right "
        f"50 times in 100. The limit is{which}: {limits}.{own}"
    )


def _often(point: Point) -> str:
    share = most_often_right(point.granted("epsilon") or 0.0, point.granted("delta"))
    return "nearly always, hardly a limit" if share >= NEARLY else f"{100 * share:.1f} times in 100"


def _table(frontier: Frontier, none: Point, lines: Sequence[_Line], choice: Choice | None) -> tuple[Table, str]:
    """What each defense lets be read and what it costs, and how to read the figures."""

    def change(point: Point, of: Callable[[Point, Point], Estimate | None]) -> Estimate | None:
        return None if point is none else of(point, none)

    columns: list[Column[tuple[Point, str]]] = [
        Column("Defense", lambda line: Cell("No defense" if line[0] is none else short_name(line[0]), (line[1],))),
        Column("Values read, of 100", lambda line: share_cell(line[0].cells, change(line[0], _read_change))),
        Column("More than seeing nothing, points", lambda line: points_cell(line[0].leakage)),
        Column("Model right, of 100", lambda line: share_cell(line[0].accuracy, change(line[0], _accuracy_change))),
    ]
    if any(point.granted("epsilon") is not None for point, _ in lines):
        columns.append(Column("Epsilon: training, message", lambda line: _epsilons(line[0])))
    note = (
        "In each line the attack that reads most; below “seeing nothing” it is of no use. Small figures: 95% "
        "intervals, of values over messages, of the model over trainings."
    )
    if len(lines) > 1:
        note += " ▼ measurably less, ▲ more, ○ not measurably different from no defense."
    if len(frontier.points) > len(lines):
        note += f" All {len(frontier.points) - 1} defenses follow below."
    trainings = max(len(point.accuracies) for point, _ in lines)
    size = frontier.first.batch_size
    title = text(
        '{} <span class="plain">· {}, {} for each</span>',
        joined(frontier.first.dataset or "Table not stated", f"{size} records in a message" if size else ""),
        counted(len(none.recovered), "message"),
        counted(trainings, "training"),
    )
    shown = zip([point for point, _ in lines], _details(lines, choice), strict=True)
    return table_of("Defenses compared", columns, [(title, shown)], css="risk stack"), note


def _details(lines: Sequence[_Line], choice: Choice | None) -> list[str]:
    """Why each is shown, and what it does where no sentence (of DP-SGD always one) and no line before has said it."""
    said = {"dp_sgd", choice.point.first.defense if choice else ""}
    found = []
    for point, why in lines:
        words = "" if point.first.defense in said else does(point.first)
        said.add(point.first.defense)
        found.append(joined(why, words, by="; "))
    return found


def _epsilons(point: Point) -> str:
    """Epsilon of the whole training, and of one update whose batch is known."""
    known = [one for name in ("epsilon", "release_epsilon") if (one := point.granted(name)) is not None]
    return ", ".join(map(guarantee, known)) or "none"


def _notes(frontier: Frontier, none: Point, shown: Sequence[Point]) -> tuple[str, ...]:
    notes = [INTERVAL, *LIMITS]
    if frontier.guaranteed:
        delta = frontier.guaranteed[-1].granted("delta")
        chance = f"may fail with a chance of 1 in {1 / delta:,.0f}, and " if delta and 0 < delta < 1 else ""
        notes.append(
            f"The guarantee {chance}counts on nobody knowing which records a message was made from. A server that "
            "knows is bound by the epsilon of one message, the second in the table."
        )
    notes.append(OF_INTERVALS)
    estimates = [value for point in shown for value in (point.cells, point.accuracy, point.leakage)]
    estimates += [of(point, none) for point in shown if point is not none for of in (_read_change, _accuracy_change)]
    if any(value is not None and value.n > 1 and value.low == value.high for value in estimates):
        notes.append("An interval without width means that all measurements agreed; so few of them say less than that.")
    return tuple(notes)
