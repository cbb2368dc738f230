"""The first page of a report, for a data-protection officer: what is at risk, which defence helps, what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.budget import WEAK_DEFENSES, Budget, budget
from lightleak.report.change.comparison import UNDEFENDED, defense_of, reference_of, short_titles
from lightleak.report.change.cost import price, price_tile, quality
from lightleak.report.change.exposure import Effect, Exposure, effect, exposures
from lightleak.report.change.plain import DURATION, LIMITS, PROVEN, SAFE_SIDE, attacker
from lightleak.report.change.settings import same_table, unlike
from lightleak.report.change.strength import weakened
from lightleak.report.change.utility import Cost, Utility, utility_cost, utility_of
from lightleak.report.estimate import Estimate
from lightleak.report.headline import Tile
from lightleak.report.intervals import ENOUGH_PAIRS
from lightleak.report.plain import (
    INTERVAL,
    LESS,
    MORE,
    MOST_TOLD,
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
    range_of,
    sign_of,
)
from lightleak.report.run_folder import RunFolder
from lightleak.report.wording import attack_title, points

ALL_OR_NONE = {0.0: "none of them", 1.0: "all of them"}
COLUMNS = ("Records at risk, of 100", "Proven, of 100", "Values recovered, of 100", "By guessing, of 100")


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
        title: its defence, with the run's name where another run has the same one.
        is_reference: whether the others are compared with it.
        lines: one for each size and moment, or the worst of them.
        utility: how good its network is; None where it trained none.
        cost: of its settings, against the reference; None for the reference itself, and on another table.
        unlike: table and network, by name, where the reference has others.
    """

    run: RunFolder
    title: str
    is_reference: bool
    lines: tuple[Line, ...]
    utility: Utility | None
    cost: Cost | None
    unlike: tuple[str, ...] = ()

    @property
    def is_undefended(self) -> bool:
        """Whether the run had no defence."""
        return defense_of(self.run) in UNDEFENDED

    @property
    def worst(self) -> Line:
        """The line with most at risk."""
        return max(self.lines, key=lambda line: _order(line.exposure))


def summary(runs: Sequence[RunFolder]) -> Summary:
    """Say in plain language what these runs measured."""
    found = _measured(runs)
    left_out = _left_out(runs)
    if not found:
        nothing = "Nothing can be said yet: no attack has finished, or none says what it recovered."
        return Summary((nothing, *left_out))
    reference = next((one for one in found if one.is_reference), found[0])
    others = [one for one in found if one is not reference]
    exposed = [line.exposure for one in found for line in one.lines]
    results = [result for exposure in exposed for result in exposure.results]
    spent = budget(results)
    return Summary(
        sentences=(*_sentences(reference), *_caveat([reference, *_told(others)]), *left_out),
        tiles=_tiles(reference, others),
        terms=(PROVEN,) if any(any(exposure.proven.values()) for exposure in exposed) else (),
        defences=_defenses(reference, others, spent),
        table=_table(reference, others),
        attacker=attacker([result.setting for result in results], results),
        notes=_notes(found),
        budget=spent.sentence,
    )


def _measured(runs: Sequence[RunFolder]) -> tuple[Measured, ...]:
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
    return exposure.rows().mean, cells.mean if cells else 0.0


def _table(reference: Measured, others: Sequence[Measured]) -> Table:
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
    blocks = tuple(
        Block(
            capital(one.title), quality(one.utility, one.cost), tuple(map(_row, [one.worst] if is_short else one.lines))
        )
        for one in kept
    )
    return Table("Records at risk", "Records in a message, and when it was sent", COLUMNS, blocks, note)


def _told(others: Sequence[Measured]) -> list[Measured]:
    """The runs that leave fewest records at risk, in their own order."""
    least = sorted(others, key=lambda one: _order(one.worst.exposure))[:MOST_TOLD]
    return [one for one in others if one in least]


def _row(line: Line) -> Row:
    one, change = line.exposure, line.effect
    return Row(
        title="unknown" if one.batch_size is None else str(one.batch_size),
        detail=f"{DURATION[one.moment]}; {one.n} tested",
        cells=(
            cell_of(one.rows(), change.rows if change else None),
            cell_of(one.certified),
            cell_of(one.values, change.values if change else None),
            cell_of(one.guess),
        ),
        unit="records in a message",
    )


def _sentences(block: Measured) -> tuple[str, ...]:
    worst, n_settings = block.worst.exposure, len(block.lines)
    rows, certified, values = worst.rows(), worst.certified, worst.values
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
        wide = worst.rows(n_settings)
        told += f"; to allow for that choice, read {range_of(wide)} as the first interval" if wide.has_interval else ""
        found.append(f"{told}.")
    return tuple(found)


def _caveat(shown: Sequence[Measured]) -> tuple[str, ...]:
    told = weakened(one.worst.exposure for one in shown)
    return (told,) if told else ()


def _left_out(runs: Sequence[RunFolder]) -> tuple[str, ...]:
    titles = list(dict.fromkeys(attack_title(name) for run in runs for name in run.left_out))
    if not titles:
        return ()
    return (
        f"{joined(*titles)} could not be tried on this model and {'is' if len(titles) == 1 else 'are'} left out, so "
        "what an attack of that kind would recover is unknown; the reasons are listed further down.",
    )


def _of_them(value: Estimate) -> str:
    return ALL_OR_NONE.get(value.mean, f"{of_hundred(value)} in every 100 of them")


def _interval(value: Estimate, unit: str = "") -> str:
    return f" (95% interval {range_of(value)}{unit})" if value.has_interval else " (one message: no interval)"


def _tiles(reference: Measured, others: Sequence[Measured]) -> tuple[Tile, ...]:
    worst = reference.worst.exposure
    rows = worst.rows()
    words = "recovered in full or proven" if worst.knows_truth else "proven; of others the truth is unknown"
    tiles = [Tile(of_hundred(rows), "of 100 records at risk", joined(reference.title, words, interval_of(rows)))]
    best = _most_protective(others, worst)
    if best is None:
        if worst.values is not None:
            beside = f"guessing gets {of_hundred(worst.guess)}" if worst.guess else ""
            tiles.append(
                Tile(of_hundred(worst.values), "of 100 values recovered", joined(interval_of(worst.values), beside))
            )
        return tuple(tiles)
    block, line = best
    left = line.exposure.rows()
    tiles.append(Tile(of_hundred(left), f"of 100 with {block.title}", interval_of(left)))
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
        which = "without a defence" if reference.is_undefended else f"with {reference.title} alone"
        return (
            f"This report shows one run, {which}. What a defence would change, and what it would cost, is not known "
            "from it; a second run with a defence, reported together with this one, tells.",
        )
    if spent.is_weak:
        return (WEAK_DEFENSES,)
    worst = reference.worst.exposure
    told = _told(others)
    found = [_defence(reference, block, worst) for block in told]
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


def _defence(reference: Measured, block: Measured, worst: Exposure) -> str:
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
            f"records at risk go from {of_hundred(worst.rows())} to {of_hundred(line.exposure.rows())} of 100 "
            f"({_told_change(rows)})"
        )
    if values is not None:
        told.append(
            f"values recovered from {of_hundred(worst.values)} to {of_hundred(line.exposure.values)} of 100 "
            f"({_told_change(values)})"
        )
    verdict = f"{name} {_verdict(line.effect)}: {'; '.join(told)}."
    aside = f"It has {others}, so the defence is not all that differs." if others else ""
    return " ".join(part for part in (verdict, _too_few(line), aside, price(block.utility, block.cost)) if part)


def _told_change(value: Estimate) -> str:
    """The change as `change_of` has it; where the table's sign is `UNSURE`, words say so."""
    may_be_chance = sign_of(value) == UNSURE and points(value.mean) != points(0.0)
    return change_of(value) + (", which may be chance" if may_be_chance else "")


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
