"""The summary of attacks on updates: what is at risk, which defense helps, what it costs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lightleak.report.budget import WEAK_DEFENSES, Budget, budget, fewer
from lightleak.report.change.comparison import is_undefended, reference_of, short_titles
from lightleak.report.change.settings import same_table, unlike
from lightleak.report.change.utility import Cost, Utility, utility_cost, utility_of
from lightleak.report.compare import by_key
from lightleak.report.format import (
    LESS,
    MORE,
    UNSURE,
    attack_title,
    capital,
    change_words,
    counted,
    in_brackets,
    interval,
    interval_words,
    joined,
    of_hundred,
    points,
    sign_of,
)
from lightleak.report.intervals import ENOUGH_PAIRS, Estimate
from lightleak.report.kinds.updates_exposure import Effect, Exposure, effect, exposures
from lightleak.report.kinds.updates_words import DURATION, LIMITS, PROVEN, SAFE_SIDE, attacker
from lightleak.report.page import Cell, Column, Table, Tile, table_of, text
from lightleak.report.read import Run
from lightleak.report.sections.subject import left_out
from lightleak.report.sections.summary import INTERVAL, MOST_RUNS, Summary, is_long, share_cell

ALL_OR_NONE = {0.0: "none of them", 1.0: "all of them"}
NOT_LEARNT = "the model has learned no more than the commonest outcome yet"
UNCHANGED = points(0.0)


@dataclass(frozen=True)
class Line:
    """One size and moment of one run."""

    exposure: Exposure
    effect: Effect | None


@dataclass(frozen=True)
class Measured:
    """One run: what it leaves at risk, and what its changed settings cost.

    Attributes:
        run: the run.
        title: its defense, with the run's name where another run has the same one.
        is_reference: whether the others are compared with it.
        lines: one for each size and moment, or the worst of them.
        utility: how good its network is; None where it trained none.
        cost: of its settings, against the reference; None for the reference itself, and on another table.
        unlike: table and network, by name, where the reference has others.
    """

    run: Run
    title: str
    is_reference: bool
    lines: tuple[Line, ...]
    utility: Utility | None
    cost: Cost | None
    unlike: tuple[str, ...] = ()

    @property
    def is_undefended(self) -> bool:
        """Whether the run had no defense."""
        return is_undefended(self.run)

    @property
    def worst(self) -> Line:
        """The line with most at risk."""
        return max(self.lines, key=lambda line: _order(line.exposure))


def summary(runs: Sequence[Run]) -> Summary:
    """Say in plain language what these runs measured."""
    found = _measured(runs)
    unknown = _left_out(runs)
    if not found:
        nothing = "Nothing can be said yet: no attack has finished, or none says what it recovered."
        return Summary((nothing, *unknown))
    reference = next((one for one in found if one.is_reference), found[0])
    others = [one for one in found if one is not reference]
    exposed = [line.exposure for one in found for line in one.lines]
    rows = [row for exposure in exposed for row in exposure.rows]
    spent = budget(rows)
    table, note = _table(reference, others)
    return Summary(
        sentences=(*_sentences(reference), *_caveat([reference, *_told(others)]), *unknown, spent.sentence),
        tiles=_tiles(reference, others),
        terms=(PROVEN,) if any(any(exposure.proven.values()) for exposure in exposed) else (),
        defenses=_defenses(reference, others, spent),
        table=table,
        note=note,
        attacker=attacker(rows),
        notes=_notes(found),
    )


def _measured(runs: Sequence[Run]) -> tuple[Measured, ...]:
    if not runs:
        return ()
    reference = reference_of(runs)
    own = {(one.batch_size, one.moment): one for one in exposures(reference)}
    useful = utility_of(reference)
    titles = dict(zip(map(id, runs), short_titles(runs), strict=True))
    lines = [Line(one, None) for one in own.values()]
    found = [Measured(reference, titles[id(reference)], True, tuple(lines), useful, None)]
    for run in runs:
        if run is reference:
            continue
        lines, is_comparable = [], same_table(reference, run)
        for one in exposures(run):
            before = own.get((one.batch_size, one.moment))
            lines.append(Line(one, effect(before, one) if before and is_comparable else None))
        utility = utility_of(run)
        cost = utility_cost(useful, utility) if is_comparable else None
        title, others = titles[id(run)], unlike(reference, run)
        found.append(Measured(run, title, False, tuple(lines), utility, cost, others))
    return tuple(one for one in found if one.lines)


def _order(exposure: Exposure) -> tuple[float, float]:
    cells = exposure.values
    return exposure.risk().mean, cells.mean if cells else 0.0


def _table(reference: Measured, others: Sequence[Measured]) -> tuple[Table, str]:
    """The figures, and how to read them."""
    kept = [reference, *_told(others)]
    is_short = is_long([one.lines for one in kept])
    note = (
        "A record is at risk when every value of it came back right, or when it is proven; a record that came back all "
        "but one value does not count. Small figures are 95% intervals."
    )
    if others:
        note += f" ▼ measurably less, ▲ measurably more, ○ not measurably different from {reference.title}."
    if is_short:
        note += " Of each run the worst situation is shown; all others follow further down."
    groups = [
        (_heading(capital(one.title), quality(one.utility, one.cost)), [one.worst] if is_short else one.lines)
        for one in kept
    ]
    return table_of("Records at risk", _COLUMNS, groups, css="risk stack"), note


def _heading(title: str, aside: str) -> str:
    return text('{} <span class="plain">· {}</span>', title, aside) if aside else title


_COLUMNS: tuple[Column[Line], ...] = (
    Column("Records in a message, and when it was sent", lambda line: _situation(line.exposure)),
    Column(
        "Records at risk, of 100",
        lambda line: share_cell(line.exposure.risk(), line.effect.rows if line.effect else None),
    ),
    Column("Proven, of 100", lambda line: share_cell(line.exposure.certified)),
    Column(
        "Values recovered, of 100",
        lambda line: share_cell(line.exposure.values, line.effect.values if line.effect else None),
    ),
    Column("By guessing, of 100", lambda line: share_cell(line.exposure.guess)),
)


def _situation(one: Exposure) -> Cell:
    size = "unknown" if one.batch_size is None else str(one.batch_size)
    return Cell(size, (f"{DURATION[one.moment]}; {one.n} tested",))


def _told(others: Sequence[Measured]) -> list[Measured]:
    """The runs that leave fewest records at risk, in their own order."""
    least = sorted(others, key=lambda one: _order(one.worst.exposure))[:MOST_RUNS]
    return [one for one in others if one in least]


def _sentences(block: Measured) -> tuple[str, ...]:
    worst, n_settings = block.worst.exposure, len(block.lines)
    rows, certified, values = worst.risk(), worst.certified, worst.values
    size = f"a message made from {counted(worst.batch_size, 'record')}" if worst.batch_size else "a message"
    got = "in full or with proof" if worst.knows_truth else "with proof; of the others nothing is known here"
    who = "Whoever reads" if block.is_undefended else f"With {block.title}, whoever reads"
    unit = " of every 100" if rows.mean in ALL_OR_NONE else ""
    found = [f"{who} {size} could reconstruct {_of_them(rows)}{_interval(rows, unit)} {got}."]
    if certified is not None and worst.knows_truth:
        found.append(f"Proven: {of_hundred(certified)} of every 100 records{_interval(certified)}.")
    if values is not None:
        guess = ""
        if worst.guess is not None:
            more = "more, " if worst.guess.mean > values.mean else ""
            guess = f"; guessing from general statistics gets {more}{of_hundred(worst.guess)}"
        found.append(f"Of every 100 single values, {of_hundred(values)} came back right{_interval(values)}{guess}.")
    found.append(f"Measured on {counted(worst.n, 'message')} {DURATION[worst.moment]}.")
    if n_settings > 1:
        told = f"This is the worst of {n_settings} situations measured, all listed below"
        wide = worst.risk(n_settings)
        told += f"; to allow for that choice, read {interval(wide)} as the first interval" if wide.has_interval else ""
        found.append(f"{told}.")
    return tuple(found)


def _caveat(shown: Sequence[Measured]) -> tuple[str, ...]:
    told = weakened(one.worst.exposure for one in shown)
    return (told,) if told else ()


def _left_out(runs: Sequence[Run]) -> tuple[str, ...]:
    titles = list(left_out(runs))
    if not titles:
        return ()
    return (
        f"{joined(*titles)} could not be tried on this model and {'is' if len(titles) == 1 else 'are'} left out, so "
        "what an attack of that kind would recover is unknown; the reasons are listed further down.",
    )


def _of_them(value: Estimate) -> str:
    return ALL_OR_NONE.get(value.mean, f"{of_hundred(value)} in every 100 of them")


def _interval(value: Estimate, unit: str = "") -> str:
    return f" (95% interval {interval(value)}{unit})" if value.has_interval else " (one message: no interval)"


def _tiles(reference: Measured, others: Sequence[Measured]) -> tuple[Tile, ...]:
    worst = reference.worst.exposure
    rows = worst.risk()
    words = "recovered in full or proven" if worst.knows_truth else "proven; of others the truth is unknown"
    tiles = [Tile(of_hundred(rows), "of 100 records at risk", joined(reference.title, words, interval_words(rows)))]
    best = _most_protective(others, worst)
    if best is None:
        if worst.values is not None:
            beside = f"guessing gets {of_hundred(worst.guess)}" if worst.guess else ""
            tiles.append(
                Tile(of_hundred(worst.values), "of 100 values recovered", joined(interval_words(worst.values), beside))
            )
        return tuple(tiles)
    block, line = best
    left = line.exposure.risk()
    tiles.append(Tile(of_hundred(left), f"of 100 with {block.title}", interval_words(left)))
    if block.cost is not None:
        tiles.append(price_tile(block.cost))
    return tuple(tiles)


def _most_protective(others: Sequence[Measured], worst: Exposure) -> tuple[Measured, Line] | None:
    """The run that measurably helps and leaves least at risk where the reference leaves most."""
    found = [
        (block, line)
        for block in others
        for line in block.lines
        if (line.exposure.batch_size, line.exposure.moment) == (worst.batch_size, worst.moment)
        and line.effect is not None
        and line.effect.helps
    ]
    return min(found, key=lambda pair: _order(pair[1].exposure), default=None)


def _defenses(reference: Measured, others: Sequence[Measured], spent: Budget) -> tuple[str, ...]:
    if not others:
        which = "without a defense" if reference.is_undefended else f"with {reference.title} alone"
        return (
            f"This report shows one run, {which}. What a defense would change, and what it would cost, is not known "
            "from it; a second run with a defense, reported together with this one, tells.",
        )
    if spent.is_weak:
        return (WEAK_DEFENSES,)
    worst = reference.worst.exposure
    told = _told(others)
    found = [_defense(reference, block, worst) for block in told]
    helping = [block for block in others if _most_protective([block], worst) is not None]
    best = _most_protective(others, worst)
    if len(helping) > 1 and best is not None:
        found.insert(
            0,
            f"{len(helping)} of {len(others)} changes help measurably; {best[0].title} leaves fewest records at risk. "
            "It is named after the fact: measure again, with other random draws, before you rely on it.",
        )
    if len(others) > len(told):
        found.append(
            f"Shown are the {len(told)} of {len(others)} that leave fewest records at risk; the rest follows below."
        )
    return tuple(found)


def _defense(reference: Measured, block: Measured, worst: Exposure) -> str:
    name = capital(block.title)
    line = next(
        (
            one
            for one in block.lines
            if (one.exposure.batch_size, one.exposure.moment) == (worst.batch_size, worst.moment)
        ),
        None,
    )
    others = " and ".join(block.unlike)
    if line is None or line.effect is None:
        where = f"measured on {others}" if others else "not measured in the same situation"
        return f"{name}: {where}, so it cannot be compared."
    told, rows, values = [], line.effect.rows, line.effect.values
    if rows is not None:
        told.append(
            f"records at risk go from {of_hundred(worst.risk())} to {of_hundred(line.exposure.risk())} of 100 "
            f"({_told_change(rows)})"
        )
    if values is not None:
        told.append(
            f"values recovered from {of_hundred(worst.values)} to {of_hundred(line.exposure.values)} of 100 "
            f"({_told_change(values)})"
        )
    verdict = f"{name} {_verdict(line.effect)}: {'; '.join(told)}."
    aside = f"It has {others}, so the defense is not all that differs." if others else ""
    return " ".join(part for part in (verdict, _too_few(line), aside, price(block.utility, block.cost)) if part)


def _told_change(value: Estimate) -> str:
    """The change as `change_words` has it; where the table's sign is `UNSURE`, words say so."""
    may_be_chance = sign_of(value) == UNSURE and points(value.mean) != points(0.0)
    return change_words(value) + (", which may be chance" if may_be_chance else "")


def _verdict(found: Effect) -> str:
    if found.helps:
        return "helps in one respect" if UNSURE in found.signs else "helps"
    return "makes it worse, or trades one for the other" if MORE in found.signs else "does not help measurably"


def _too_few(line: Line) -> str:
    """What so few pairs could not show whatever happened to them."""
    found = line.effect
    n = line.exposure.n
    if found is None or not found.is_paired or n >= ENOUGH_PAIRS or set(found.signs) == {LESS}:
        return ""
    return f"With {counted(n, 'message')} not even a change from all records to none would be sure: test more."


def _notes(blocks: Sequence[Measured]) -> tuple[str, ...]:
    notes = [INTERVAL, SAFE_SIDE, *LIMITS]
    if any(block.cost is not None and block.cost.accuracy.has_interval for block in blocks):
        notes.append(
            "The interval of the cost is over the choice of records on which the models were judged. Each model was "
            "trained once: another training of the same settings may differ as well."
        )
    shown = [line.exposure for block in blocks for line in block.lines]
    if any(one.n > 1 and len(set(one.at_risk.values())) == 1 for one in shown):
        notes.append(
            "Where all messages gave the same result, the interval is what so few messages leave open. With more "
            "messages it becomes narrower."
        )
    unpaired = [
        line for block in blocks for line in block.lines if line.effect is not None and not line.effect.is_paired
    ]
    if unpaired:
        notes.append("Some changes compare messages of different records, which makes their intervals wider.")
    return tuple(notes)


def weakened(exposed: Iterable[Exposure]) -> str:
    """One sentence on leading attacks that ran with fewer steps or restarts than published; empty where none did.

    Settings of a stage of a composed attack count likewise.
    """
    found: list[tuple[str, str]] = []
    for exposure in exposed:
        leading = exposure.leading
        for row in exposure.rows:
            lacking = joined(*fewer(row.attack, row.settings)) if row.attack in leading else ""
            if lacking:
                found.append((lacking, attack_title(row.attack)))
    if not found:
        return ""
    told = "; ".join(
        f"{' and '.join(dict.fromkeys(title for _, title in same))} ran with {lacking}"
        for lacking, same in by_key(found, lambda pair: pair[0]).items()
    )
    return f"{told}: less than published, so the figures are a lower bound, and the published attack may get more."


def quality(utility: Utility | None, cost: Cost | None) -> str:
    """How good a model is; empty where it is unknown.

    With it stands what always answering the commonest outcome gets, or, of a model that is compared, the change.
    """
    if utility is None:
        return ""
    accuracy = utility.accuracy
    told = f"the model judges {of_hundred(accuracy)} of 100 new records rightly{in_brackets(accuracy)}"
    if cost is None and utility.majority is not None:
        told += f", always answering the commonest outcome {of_hundred(utility.majority)}"
    if cost is not None:
        told += f"; change {points(cost.accuracy)}{in_brackets(cost.accuracy, -1.0)}"
    return told


def price(utility: Utility | None, cost: Cost | None) -> str:
    """What a change of settings cost the model, in one sentence."""
    if cost is None or utility is None:
        return "What it costs is not known: not both runs trained a model."
    if not cost.can_be_judged:
        return f"What the defense costs cannot be judged: {NOT_LEARNT} (train longer)."
    value, is_unchanged = cost.accuracy, points(cost.accuracy) == UNCHANGED
    told = "; how sure that is cannot be told, as the run does not say how many records were judged"
    if value.low is not None and value.high is not None:
        may_be_chance = value.low <= 0 <= value.high and not is_unchanged
        told = f" (95% interval {interval(value, -1.0)}{', which may be chance' if may_be_chance else ''})"
    direction = "loses" if value.mean < 0 else "gains"
    change = "unchanged" if is_unchanged else f"it {direction} {points(abs(value.mean)).lstrip('+')} points"
    return f"The model then judges {of_hundred(utility.accuracy)} of 100 new records rightly: {change}{told}."


def price_tile(cost: Cost) -> Tile:
    """The same as a large number."""
    if not cost.can_be_judged:
        return Tile("–", "price in accuracy: cannot be judged", NOT_LEARNT)
    value = cost.accuracy
    return Tile(points(value), f"points of accuracy, {_in_a_word(value)}", interval_words(value, -1.0))


def _in_a_word(cost: Estimate) -> str:
    if points(cost) == UNCHANGED:
        return "unchanged"
    if cost.low is None or cost.high is None:
        return "the price"
    return "the price" if cost.high < 0 else "a gain" if cost.low > 0 else "which may be chance"
