"""What every reproduction is: the cells of a paper's table, the work behind them, and our value for each.

A reproduction describes its work as stages of packs; `run_stages` runs them as every campaign runs its packs, so that
device, workers, resume, progress and interruption are the same for all.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from lightleak.core.errors import LightLeakError
from lightleak.experiments.campaign import run_packs
from lightleak.experiments.engine import Engine, LocalEngine
from lightleak.experiments.kinds.vertical.kind import VerticalKind
from lightleak.experiments.pack import Pack, Shared
from lightleak.experiments.results import write_results
from lightleak.experiments.unit import finished_files, unit_file, without_nan, write_whole
from lightleak.metrics.summary import Summary, summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import Selection, selected

Row = dict[str, Any]
Rows = list[Row]
Report = Callable[[float], None]
Outcome = tuple[list[Compared], Rows, list[str]]
"""Cells with our values, rows of ``results.json``, notes on our values."""

CPU = torch.device("cpu")
SUMMARY_KEYS = ("metric", "column", "setting", "epoch_prior", "label", "latent_search", *VerticalKind.keys)
"""Columns of rows that separate the groups of a summary, besides those of every audit."""


@dataclass(frozen=True)
class Work(Pack):
    """A pack whose units one function computes.

    Attributes:
        units: ids of its units.
        compute: given run folder, device and a function to report progress to, returns what is kept of each unit.
        effort: relative work; the total that ``compute`` reports.
    """

    units: Sequence[str]
    compute: Callable[[Path, torch.device, Report], Iterable[Any]]
    effort: float = 1.0

    @property
    def ids(self) -> Sequence[str]:
        """Its units."""
        return self.units

    @property
    def cost(self) -> float:
        """Its effort."""
        return self.effort

    def inputs(self, folder: Path) -> Mapping[str, Path]:
        """See `Pack.inputs`: the networks that earlier stages have trained, and their scores."""
        found = (*folder.glob("models/*"), *folder.glob("units/model-*.json"))
        return {str(path.relative_to(folder)): path for path in found}

    def run(self, folder: Path, device: torch.device, report: Report) -> None:
        """Compute, and write the files of units that are not there yet."""
        contents = self.compute(folder, device, report)
        present = finished_files(folder)
        for id, content in zip(self.ids, contents, strict=True):
            if unit_file(folder, id).name not in present:
                write_whole(unit_file(folder, id), json.dumps(without_nan(content)))


@dataclass(frozen=True)
class Stage:
    """Packs that may run side by side, after those of the stages before it.

    Attributes:
        plan: makes the packs for a folder and a device.
        noun: what the progress bar counts.
        place: subfolder of the run folder, itself where empty.
        reported: its rows are rows of the reproduction.
        config: the audit behind it, for ``--plan``.
        needs: a dataset whose absence is noted in the comparison instead of ending the run.
    """

    plan: Callable[[Path, torch.device], Sequence[Pack]]
    noun: str = "attacks"
    place: str = ""
    reported: bool = True
    config: Any = None
    needs: str | None = None


class Reproduction(Shared):
    """A table or figure of a paper, or what is selected of it. Subclasses say what is run and what a cell becomes.

    Args:
        table: the paper's.
        selection: what of it is run.
        device: where packs will run.

    Raises:
        UsageError: nothing is selected, or something that cannot be run.
    """

    per: ClassVar[str | None] = None
    """See `lightleak.metrics.summary.summarize_rows`."""
    one_at_a_time: ClassVar[bool] = False
    """Packs would disturb each other's measured seconds."""
    same_data: ClassVar[bool] = True
    """Whether our values are measured on the paper's own table."""

    def __init__(self, table: PaperTable, selection: Selection, device: torch.device = CPU) -> None:
        self.table, self.selection, self.device = table, selection, device
        self.problems: list[str] = []
        """What could not be run, for the notes."""
        self.cells = self.choose()
        self.prepare()

    def choose(self) -> list[PaperCell]:
        """The cells that are compared."""
        return selected(self.table, self.table.cells or self.table.drawn, self.selection)

    def prepare(self) -> None:
        """Work out what is run, and raise for what would fail in the middle of it; nothing is written yet."""

    def stages(self) -> Sequence[Stage]:
        """The work, in order."""
        return ()

    def row(self, row: Row, stage: Stage, unit: str) -> Row | None:
        """A row of ``results.json`` from one of a finished unit; None leaves it out."""
        return row

    def finish(self, rows: Rows) -> Rows:
        """All rows of ``results.json``, from those of the stages."""
        return rows

    def values(self, cell: PaperCell, rows: Rows) -> Iterable[float]:
        """Our measurements of a cell, in its unit."""
        raise NotImplementedError

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """Our value of a cell."""
        return summarize(self.values(cell, rows))

    def compare(self, rows: Rows) -> list[Compared]:
        """Compare every cell with our value."""
        return [Compared(cell, self.measured(cell, rows), same_data=self.same_data) for cell in self.cells]

    def notes(self, rows: Rows) -> list[str]:
        """What a reader of the comparison must know of our values."""
        return list(self.table.ours)

    def leave(self, rows: Rows, folder: Path) -> None:
        """Write what belongs in the run folder besides results and comparison."""


class FactTable(Reproduction):
    """A table of numbers that are read off tables or networks: there is nothing to sample and little to run."""

    def fact(self, cell: PaperCell, rows: Rows) -> float | None:
        """The number of a cell, None where it is not known; ``rows`` are those of the stages."""
        raise NotImplementedError

    def fact_row(self, cell: PaperCell, value: float) -> Row:
        """The row of a cell."""
        return {"dataset": cell.dataset, "metric": cell.metric, "column": cell.column, "value": value}

    def is_fact(self, cell: PaperCell) -> bool:
        """Whether one value is all there is."""
        return True

    def finish(self, rows: Rows) -> Rows:
        """The facts, without those of tables that are not on this machine, which become problems."""
        self.facts: dict[PaperCell, float] = {}
        for cell in self.cells:
            try:
                found = self.fact(cell, rows)
            except LightLeakError as error:
                self.problems.append(f"{cell.dataset}: {error}")
                continue
            if found is not None:
                self.facts[cell] = found
        return [self.fact_row(cell, value) for cell, value in self.facts.items()]

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """The one value, without a spread."""
        return one_value(self.facts[cell]) if cell in self.facts else summarize([])

    def compare(self, rows: Rows) -> list[Compared]:
        """See `Reproduction.compare`."""
        return [replace(one, is_fact=one.ours.n > 0 and self.is_fact(one.cell)) for one in super().compare(rows)]


def one_value(value: float) -> Summary:
    """A number without a spread."""
    return Summary(value, math.nan, 1, math.nan, math.nan)


def run_stages(reproduction: Reproduction, folder: Path, engine: Engine | None = None, quiet: bool = False) -> Outcome:
    """Run what of a reproduction is not done yet and write its ``results.json``, also after an interruption.

    Args:
        reproduction: what is run.
        folder: the run folder.
        engine: where packs run; this process where it is left out.
        quiet: no progress bar.
    """
    rows: Rows = []
    engine = engine or LocalEngine(reproduction.device)
    try:
        for stage in reproduction.stages():
            try:
                _run_stage(reproduction, stage, folder, engine, quiet, rows)
            except LightLeakError as error:
                if stage.needs is None:
                    raise
                reproduction.problems.append(f"{stage.needs}: {error}")
    finally:
        rows = reproduction.finish(rows)
        write_results(folder, rows, extra_keys=SUMMARY_KEYS, per=reproduction.per)
    reproduction.leave(rows, folder)
    notes = [*reproduction.problems, *reproduction.notes(rows)]
    return reproduction.compare(rows), rows, list(dict.fromkeys(notes))


def _run_stage(reproduction: Reproduction, stage: Stage, folder: Path, engine: Engine, quiet: bool, rows: Rows) -> None:
    """Run a stage and add the rows of its finished units to ``rows``, whatever ends it."""
    place = folder / stage.place
    place.mkdir(parents=True, exist_ok=True)
    packs = stage.plan(place, reproduction.device)
    ids = [id for pack in packs for id in pack.ids]
    if reproduction.one_at_a_time:
        engine = LocalEngine(reproduction.device)
    try:
        run_packs(packs, place, engine, stage.noun, quiet)
    finally:
        present = finished_files(place)
        for id in ids if stage.reported else ():
            if unit_file(place, id).name in present:
                content = json.loads(unit_file(place, id).read_text())
                content = content if isinstance(content, list) else [content]
                rows += [row for one in content if (row := reproduction.row(one, stage, id)) is not None]
