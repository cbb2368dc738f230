"""The first page of a report, for a data-protection officer: what is at risk, which defence helps, what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.change.comparison import UNDEFENDED, defense_of, reference_of, run_title
from lightleak.report.change.exposure import Effect, Exposure, effect, exposures
from lightleak.report.change.plain import DURATION, LIMITS, PROVEN, SAFE_SIDE, attacker, of_hundred, range_of
from lightleak.report.change.utility import Cost, Utility, utility_cost, utility_of
from lightleak.report.estimate import Estimate
from lightleak.report.headline import Tile
from lightleak.report.run_folder import RunFolder
from lightleak.report.wording import points

MOST_LINES = 6
"""Lines of the summary's table; with more, only the worst of each run is shown, so that it stays one sheet."""


@dataclass(frozen=True)
class Line:
    """One size and moment of one run."""

    exposure: Exposure
    effect: Effect | None


@dataclass(frozen=True)
class Block:
    """One run: what it leaves at risk, and what its changed settings cost.

    Attributes:
        run: the run.
        title: its defence.
        is_reference: whether the others are compared with it.
        lines: one for each size and moment, or the worst of them.
        utility: how good its network is; None where it trained none.
        cost: of its settings, against the reference; None for the reference itself.
    """

    run: RunFolder
    title: str
    is_reference: bool
    lines: tuple[Line, ...]
    utility: Utility | None
    cost: Cost | None

    @property
    def is_undefended(self) -> bool:
        """Whether the run had no defence."""
        return defense_of(self.run) in UNDEFENDED

    @property
    def worst(self) -> Line:
        """The line with most at risk."""
        return max(self.lines, key=lambda line: _order(line.exposure))


@dataclass(frozen=True)
class Summary:
    """The first page.

    Attributes:
        sentences: what is at risk without a change.
        tiles: the numbers of it.
        defences: what each other run changed, in words; one sentence that says so where there is none.
        attacker: the threat model as questions and answers.
        blocks: the table.
        is_shortened: whether the table shows only the worst line of each run.
        proven: what "proven" means; empty where nothing is.
        notes: how the figures are to be read.
    """

    sentences: tuple[str, ...]
    tiles: tuple[Tile, ...] = ()
    defences: tuple[str, ...] = ()
    attacker: tuple[tuple[str, str], ...] = ()
    blocks: tuple[Block, ...] = ()
    is_shortened: bool = False
    proven: str = ""
    notes: tuple[str, ...] = ()


def summary(runs: Sequence[RunFolder]) -> Summary:
    """Say in plain language what these runs measured."""
    blocks = _blocks(runs)
    if not blocks:
        return Summary(("Nothing can be said yet: no attack has finished, or none says what it recovered.",))
    reference = next((block for block in blocks if block.is_reference), blocks[0])
    lines = sum(len(block.lines) for block in blocks)
    measured = [line.exposure for block in blocks for line in block.lines]
    results = [result for exposure in measured for result in exposure.results]
    has_proof = any(any(exposure.proven.values()) for exposure in measured)
    return Summary(
        sentences=_sentences(reference),
        tiles=_tiles(reference, [block for block in blocks if block is not reference]),
        defences=_defences(reference, [block for block in blocks if block is not reference]),
        attacker=attacker([result.setting for result in results], results),
        blocks=tuple(_worst_only(block) for block in blocks) if lines > MOST_LINES else blocks,
        is_shortened=lines > MOST_LINES,
        proven=PROVEN if has_proof else "",
        notes=_notes(blocks),
    )


def _blocks(runs: Sequence[RunFolder]) -> tuple[Block, ...]:
    if not runs:
        return ()
    reference = reference_of(runs)
    own = {(one.batch_size, one.moment): one for one in exposures(reference)}
    useful = utility_of(reference)
    found = [Block(reference, run_title(reference), True, tuple(Line(one, None) for one in own.values()), useful, None)]
    for run in runs:
        if run is reference:
            continue
        lines = []
        for one in exposures(run):
            before = own.get((one.batch_size, one.moment))
            lines.append(Line(one, effect(before, one) if before and _same_table(before, one) else None))
        utility = utility_of(run)
        found.append(Block(run, run_title(run), False, tuple(lines), utility, utility_cost(useful, utility)))
    return tuple(block for block in found if block.lines)


def _same_table(before: Exposure, after: Exposure) -> bool:
    """Runs of different tables stand side by side, but nothing follows from their difference."""
    return before.results[0].setting.dataset == after.results[0].setting.dataset


def _order(exposure: Exposure) -> tuple[float, float]:
    cells = exposure.values
    return exposure.rows().mean, cells.mean if cells else 0.0


def _worst_only(block: Block) -> Block:
    return Block(block.run, block.title, block.is_reference, (block.worst,), block.utility, block.cost)


def _sentences(block: Block) -> tuple[str, ...]:
    worst, n_settings = block.worst.exposure, len(block.lines)
    rows, certified, values = worst.rows(n_settings), worst.certified, worst.values
    size = f"a message made from {_counted(worst.batch_size, 'record')}" if worst.batch_size else "a message"
    got = "in full or with proof" if worst.knows_truth else "with proof; of the others nothing is known here"
    who = "Whoever reads" if block.is_undefended else f"With {block.title}, whoever reads"
    found = [f"{who} {size} could reconstruct {_of_them(rows)}{_interval(rows)} {got}."]
    if certified is not None and worst.knows_truth:
        found.append(f"Proven: {of_hundred(certified)} of every 100 records{_interval(certified)}.")
    if values is not None:
        guess = f"; guessing from general statistics gets {of_hundred(worst.guess)}" if worst.guess else ""
        found.append(f"Of every 100 single values, {of_hundred(values)} came back right{_interval(values)}{guess}.")
    found.append(f"Measured on {_counted(worst.n, 'message')} {DURATION[worst.moment]}.")
    if n_settings > 1:
        found.append(
            f"This is the worst of {n_settings} situations measured, all listed below; the first interval is widened "
            "to allow for that choice."
        )
    return tuple(found)


def _of_them(value: Estimate) -> str:
    return {0.0: "none of them", 1.0: "all of them"}.get(value.mean, f"{of_hundred(value)} in every 100 of them")


def _interval(value: Estimate) -> str:
    return f" (95% interval {range_of(value)})" if value.has_interval else " (one message: no interval)"


def _counted(n: int, one: str) -> str:
    return f"{n} {one if n == 1 else one + 's'}"


def _tiles(reference: Block, others: Sequence[Block]) -> tuple[Tile, ...]:
    worst = reference.worst.exposure
    rows = worst.rows(len(reference.lines))
    words = "recovered in full or proven" if worst.knows_truth else "proven; of others the truth is unknown"
    tiles = [Tile(of_hundred(rows), "of 100 records at risk", _joined(reference.title, words, _range(rows)))]
    best = _most_protective(others, worst)
    if best is None:
        if worst.values is not None:
            beside = f"guessing gets {of_hundred(worst.guess)}" if worst.guess else ""
            tiles.append(
                Tile(of_hundred(worst.values), "of 100 values recovered", _joined(_range(worst.values), beside))
            )
        return tuple(tiles)
    block, line = best
    left = line.exposure.rows()
    tiles.append(Tile(of_hundred(left), f"of 100 with {block.title}", _range(left)))
    if block.cost is not None:
        cost = block.cost.accuracy
        tiles.append(Tile(points(cost.mean), f"points of accuracy, {_price_in_a_word(cost)}", _range(cost, -1.0)))
    return tuple(tiles)


def _price_in_a_word(cost: Estimate) -> str:
    if cost.low is None or cost.high is None:
        return "the price"
    return "the price" if cost.high < 0 else "a gain" if cost.low > 0 else "which may be chance"


def _range(value: Estimate, lowest: float = 0.0) -> str:
    return f"95% interval {range_of(value, lowest)}" if value.has_interval else "no interval"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _most_protective(others: Sequence[Block], worst: Exposure) -> tuple[Block, Line] | None:
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


def _defences(reference: Block, others: Sequence[Block]) -> tuple[str, ...]:
    if not others:
        which = "without a defence" if reference.is_undefended else f"with {reference.title} alone"
        return (
            f"This report shows one run, {which}. What a defence would change, and what it would cost, is not known "
            "from it; a second run with a defence, reported together with this one, tells.",
        )
    worst = reference.worst.exposure
    found = [_defence(reference, block, worst) for block in others]
    helping = [block for block in others if _most_protective([block], worst) is not None]
    best = _most_protective(others, worst)
    if len(helping) > 1 and best is not None:
        found.insert(
            0,
            f"{len(helping)} of {len(others)} changes help measurably; {best[0].title} leaves fewest records at risk. "
            "It is named after the fact: run it again with another seed before you rely on it.",
        )
    return tuple(found)


def _defence(reference: Block, block: Block, worst: Exposure) -> str:
    name = block.title[0].upper() + block.title[1:]
    line = next(
        (
            one
            for one in block.lines
            if (one.exposure.batch_size, one.exposure.moment) == (worst.batch_size, worst.moment)
        ),
        None,
    )
    if line is None or line.effect is None:
        return f"{name}: not measured in the same situation, so it cannot be compared."
    told, rows, values = [], line.effect.rows, line.effect.values
    if rows is not None:
        told.append(
            f"records at risk go from {of_hundred(worst.rows())} to {of_hundred(line.exposure.rows())} of 100 "
            f"({_change(rows)})"
        )
    if values is not None:
        told.append(
            f"values recovered from {of_hundred(worst.values)} to {of_hundred(line.exposure.values)} of 100 "
            f"({_change(values)})"
        )
    verdict = _verdict(line.effect, reference, block)
    return f"{name} {verdict}: {'; '.join(told)}. {_price(block)}"


def _verdict(found: Effect, reference: Block, block: Block) -> str:
    if found.helps:
        return "helps"
    raises = any(one.low is not None and one.low > 0 for one in (found.rows, found.values) if one is not None)
    return "makes it worse, or trades one for the other" if raises else "does not help measurably"


def _change(value: Estimate) -> str:
    return f"change {points(value.mean)}" + (f", 95% interval {range_of(value, -1.0)}" if value.has_interval else "")


def _price(block: Block) -> str:
    if block.cost is None or block.utility is None:
        return "What it costs is not known: not both runs trained a model."
    value = block.cost.accuracy
    told = "; how sure that is cannot be told, as the run does not say how many records were judged"
    if value.low is not None and value.high is not None:
        measurable = "" if value.low > 0 or value.high < 0 else ", which may be chance"
        told = f" (95% interval {range_of(value, -1.0)}{measurable})"
    direction = "loses" if value.mean < 0 else "gains"
    return (
        f"The model then judges {of_hundred(block.utility.accuracy)} of 100 new records rightly: it {direction} "
        f"{points(abs(value.mean)).lstrip('+')} points{told}."
    )


def _notes(blocks: Sequence[Block]) -> tuple[str, ...]:
    notes = [SAFE_SIDE, *LIMITS]
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
