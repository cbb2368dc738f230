"""The base of all reproductions: the cells of a paper's table, the work behind them, and our value for each.

A reproduction describes its work as stages of packs; `run_stages` runs them as every campaign runs its packs, so that
device, workers, resume, progress and interruption are the same for all. A subclass says which rows are behind a cell
(`Reproduction.where`) and in which column its number is found; comparison, notes and timing follow from that.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning
import torch

from lightleak.core.errors import DataError, LightLeakError, UsageError
from lightleak.core.seeds import CPU
from lightleak.core.summary import Summary, summarize
from lightleak.data.datasets import DATASETS
from lightleak.data.sources import dataset_folder, find_file
from lightleak.experiments.campaign import rows_by_unit, run_packs
from lightleak.experiments.engine import Engine, LocalEngine
from lightleak.experiments.kinds.vertical.kind import VerticalKind
from lightleak.experiments.pack import Pack, Shared, Task
from lightleak.experiments.pack import Place as Place
from lightleak.experiments.results import write_results
from lightleak.experiments.training import one_training
from lightleak.reproductions.comparison import FEWEST, Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable, measurements, note
from lightleak.reproductions.settings import Selection, selected, with_seeds
from lightleak.targets.checkpoints import LastCheckpoint

Row = dict[str, Any]
Rows = list[Row]
Outcome = tuple[list[Compared], Rows, list[str]]
"""Cells with our values, rows of ``results.json``, notes on our values."""

Plan = Callable[[Path, torch.device], Sequence[Pack]]
"""Makes packs for a run folder and a device."""

STRETCH = 3
"""Times its budget that a table may take where less would say nothing."""
FEWEST_TRAININGS = 2
COMPARED_WITH_STRONGEST = ("cell_accuracy", "categorical_accuracy", "numerical_accuracy", "absolute_error", "rmse")
SET_BY_THE_PAPER = ("variant", "pooling", "steps", "restarts", "sigmoid_bounds")
"""Coordinates of a cell that are settings of the paper's attack: `Reproduction.strongest` has its own."""
MOST_TRAININGS = 5
"""Of a network with a generator; the thesis has one."""
SUMMARY_KEYS = ("metric", "column", "setting", "epoch_prior", "label", "latent_search", *VerticalKind.keys)
"""Columns of rows that separate the groups of a summary, in addition to those of every audit."""


MADE_ROWS: Mapping[str, int] = {"health-heritage": 20_000, "texas100": 10_000}
"""Tables whose files cannot be passed on, and how many rows are made in their columns where these are missing.

Of Texas-100 enough for ProVFL's 4,000 auxiliary rows after half of the rows with a property are withdrawn.
"""

WHOLE: Mapping[str, str] = {"lawschool": "lawschs1_1.dta", "census": "census-income.data.gz"}
"""Files without which only a part of a table's rows is at hand: another population than the paper's."""


def options_at_hand(dataset: str | None, data_folder: str | None) -> dict[str, Any]:
    """Return the options with which a table is loaded: made rows for one of `MADE_ROWS` whose files are missing."""
    if dataset is None or dataset not in MADE_ROWS:
        return {}
    files = DATASETS.get(dataset).card.files
    is_here = all(_is_here(dataset, data_folder, name, Path(name).name, f"{name}.gz") for name in files)
    return {} if is_here else {"made": MADE_ROWS[dataset]}


def is_in_part(dataset: str | None, data_folder: str | None) -> bool:
    """Return whether a file of `WHOLE` is missing."""
    if dataset is None or dataset not in WHOLE:
        return False
    return not _is_here(dataset, data_folder, WHOLE[dataset], WHOLE[dataset].removesuffix(".gz"))


def replaced_by(dataset: str | None, data_folder: str | None) -> str | None:
    """Return what a dataset whose own files are missing is measured on; None where they are here."""
    if options_at_hand(dataset, data_folder):
        return f"{dataset} (made rows)"
    return f"{dataset} (part of its rows)" if is_in_part(dataset, data_folder) else None


def _is_here(dataset: str, data_folder: str | None, *names: str) -> bool:
    """Whether the file of a dataset that has one of these names is on this machine."""
    try:
        find_file(dataset_folder(dataset, data_folder), *names)
    except DataError:
        return False
    return True


def fit(
    module: lightning.LightningModule,
    at: Place,
    epochs: int,
    cost: float = 1.0,
    callbacks: Sequence[lightning.Callback] = (),
    checkpoint: LastCheckpoint | None = None,
    **data: Any,
) -> None:
    """Train a module on one device, in this process.

    Args:
        module: what is trained.
        at: where.
        epochs: how long.
        cost: progress of an epoch, reported in shares.
        callbacks: further callbacks.
        checkpoint: where the training resumes from; without one an interrupted training starts again.
        data: loaders or ``datamodule``, as ``Trainer.fit`` takes them.
    """
    kept, resumed = ([], None) if checkpoint is None else ([checkpoint], checkpoint.resumed())
    ours = {"enable_checkpointing": bool(kept), "num_sanity_val_steps": 0}
    with one_training(
        {}, str(at.device), epochs, [*callbacks, *kept], lambda n: at.report(n * cost), **ours
    ) as trainer:
        trainer.fit(module, ckpt_path=resumed, weights_only=True, **data)


class Work(Task):
    """Work of a reproduction, which may read what its earlier stages have left."""

    def inputs(self, folder: Path) -> Mapping[str, Path]:
        """See `Pack.inputs`: the networks that earlier stages have trained, and their scores."""
        found = (*folder.glob("models/*"), *folder.glob("units/model-*.json"))
        return {str(path.relative_to(folder)): path for path in found}


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
        rehearse: writes untrained stand-ins for what earlier stages leave in a folder, so that ``--plan`` can time it.
        share: of the time that is left within a budget, what it may take at most.
    """

    plan: Plan
    noun: str = "attacks"
    place: str = ""
    reported: bool = True
    config: Any = None
    needs: str | None = None
    rehearse: Callable[[Path], None] | None = None
    share: float = 1.0

    @classmethod
    def of_audit(cls, make: Callable[[Any], Sequence[Pack]], config: Any, **settings: Any) -> "Stage":
        """Return a stage with these settings that runs packs of an audit, which ``make`` makes from its config."""
        return cls(lambda folder, device: make(config), config=config, **settings)


class Reproduction(Shared, ABC):
    """A table or figure of a paper, or what is selected of it. Subclasses say what is run and what a cell becomes.

    Args:
        table: the paper's.
        selection: what of it is run.
        device: where packs will run.

    Raises:
        UsageError: nothing is selected, or something that cannot be run.
    """

    noun: ClassVar[str] = "attacks"
    """What the progress bar counts."""
    columns: ClassVar[Mapping[str, str]] = {}
    """Column of ``results.json`` behind a metric, where it has another name."""
    matched: ClassVar[Mapping[str, str]] = {}
    """Columns of ``results.json`` that must equal a coordinate of a cell, with its name: see `where`."""
    per: ClassVar[str | None] = None
    """See `lightleak.core.summary.summarize_rows`."""
    one_at_a_time: ClassVar[bool] = False
    """Packs would disturb each other's measured seconds."""
    repeats: ClassVar[Literal["batches", "seeds"]] = "batches"
    """What of a selection says how often a cell is measured."""
    most: int = 1
    """Measurements of a cell behind the paper's numbers, as far as they can be had here."""
    strongest: ClassVar[Mapping[str, str]] = {}
    """This project's strongest attack, by the name of the paper's own."""
    iterations: int | None = None
    has_code: ClassVar[bool] = True
    """Whether ``--as-published`` says what to do."""
    """Iterations of the paper's generator, where there is one; a small budget takes fewer."""

    def __init__(self, table: PaperTable, selection: Selection, device: torch.device = CPU) -> None:
        if selection.as_published and not self.has_code:
            raise UsageError(f"--as-published: no published code that is followed goes with {table.name}")
        self.table, self.selection, self.device = table, selection, device
        self.problems: list[str] = []
        """What could not be run, for the notes."""
        self.cells = self.choose()
        self.prepare()

    def afforded(self, measurements: float) -> Selection | None:
        """Return the selection with as many measurements of every cell as a budget allows, but not more than `most`.

        Up to `STRETCH` times the budget is taken where less would not be judged. Where not even `FEWEST_TRAININGS` of
        the full length are possible, generators are trained for fewer iterations.

        Args:
            measurements: of every cell, within the budget; may be a fraction.

        Returns:
            None where one measurement takes more than `STRETCH` times the budget.
        """
        times = min(self.most, max(int(measurements), min(FEWEST, int(STRETCH * measurements))))
        if self.iterations is not None and times < FEWEST_TRAININGS:
            share = STRETCH * measurements / FEWEST_TRAININGS
            return replace(with_seeds(self.selection, FEWEST_TRAININGS), iterations=math.ceil(share * self.iterations))
        if times < 1:
            return None
        return self.measured_times(times)

    def in_part(self) -> Selection:
        """Return the selection of a run that begins only the cells for which its budget suffices."""
        return self.measured_times(FEWEST)

    @property
    def asked(self) -> int | None:
        """How often the selection says that every cell is measured; one seed, the default, says nothing."""
        if self.repeats == "batches":
            return self.selection.batches
        return len(self.selection.seeds) if len(self.selection.seeds) > 1 else None

    def measured_times(self, times: int) -> Selection:
        """Return the selection with so many measurements of every cell, but not more than `most`."""
        times = min(times, self.most)
        if self.repeats == "batches":
            return replace(self.selection, batches=times)
        return with_seeds(self.selection, times)

    def choose(self) -> list[PaperCell]:
        """The cells that are compared, with those of `strongest` if they are asked for."""
        return selected(self.table, self.with_strongest(self.table.cells or self.table.drawn), self.selection)

    def with_strongest(self, cells: Sequence[PaperCell]) -> list[PaperCell]:
        """Return the cells and, if asked for, those of `strongest` in place of the paper's attacks, each once."""
        if not self.selection.strongest:
            return [*cells]
        # NaN differs from itself: cells are compared with a number in its place.
        stronger = dict.fromkeys(
            replace(self.stronger(cell), mean=0.0, std=None) for cell in cells if self.has_stronger(cell)
        )
        return [*cells, *(replace(cell, mean=math.nan) for cell in stronger)]

    def has_stronger(self, cell: PaperCell) -> bool:
        """Return whether the figure of an attack of `strongest` can be compared with this cell's."""
        return cell.metric in COMPARED_WITH_STRONGEST and cell.attack in self.strongest

    def stronger(self, cell: PaperCell) -> PaperCell:
        """Return the cell with the attack of `strongest`, with none of the settings of the paper's attack."""
        unset: dict[str, Any] = dict.fromkeys(SET_BY_THE_PAPER)
        return replace(cell, attack=self.strongest[str(cell.attack)], **unset)

    def prepare(self) -> None:
        """Plan the work and raise for anything that would fail in the middle of it; nothing is written yet."""

    @contextmanager
    def noting_problems(self, dataset: str | None) -> Iterator[None]:
        """Within the block an error ends nothing but the block, and becomes a problem of a dataset."""
        try:
            yield
        except LightLeakError as error:
            self.problems.append(f"{dataset}: {error}")

    def stages(self) -> Sequence[Stage]:
        """The work, in order."""
        return [Stage(self.packs, self.noun)]

    def packs(self, folder: Path, device: torch.device) -> Sequence[Pack]:
        """The work of a reproduction with one stage."""
        return ()

    def repeated(self, most: int) -> list[tuple[int, int]]:
        """Return every root seed with the numbers of its batches: as many as ``--batches`` says, or ``most``."""
        return [(seed, i) for seed in self.selection.seeds for i in range(self.selection.batches or most)]

    def row(self, row: Row, stage: Stage, unit: str) -> Row | None:
        """Return a row of a finished unit as a row of ``results.json``; None leaves it out."""
        return row

    def finish(self, rows: Rows) -> Rows:
        """Return all rows of ``results.json``, given those of the stages."""
        return rows

    def where(self, cell: PaperCell) -> Mapping[str, Any] | None:
        """Return the keys and values that identify the rows behind a cell; None where nothing is run for it."""
        return {column: getattr(cell, coordinate) for column, coordinate in self.matched.items()}

    def column(self, cell: PaperCell) -> str:
        """Return the key of ``results.json`` that holds the cell's number."""
        return self.columns.get(cell.metric, cell.metric)

    def behind(self, cell: PaperCell, rows: Rows) -> Rows:
        """The rows behind a cell."""
        wanted = self.where(cell)
        if wanted is None:
            return []
        return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]

    def values(self, cell: PaperCell, rows: Rows) -> Iterable[float]:
        """Our measurements of a cell, in its unit."""
        found = (row.get(self.column(cell)) for row in self.behind(cell, rows))
        return [scale(cell) * value for value in found if value is not None]

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """Our value of a cell."""
        return summarize(self.values(cell, rows))

    def is_comparable(self, cell: PaperCell) -> bool:
        """Return whether our value was measured on the paper's own data, so that agreement can be judged."""
        return self.stand_in(cell) is None

    def stand_in(self, cell: PaperCell) -> str | None:
        """Return the data that replace the paper's; None where they are the paper's."""
        return replaced_by(cell.dataset, self.selection.data_folder)

    def is_fact(self, cell: PaperCell) -> bool:
        """Return whether the value is a fact without sampling error."""
        return False

    def compare(self, rows: Rows) -> list[Compared]:
        """Compare every cell with our value."""
        return [
            Compared(
                cell,
                self.measured(cell, rows),
                self.is_comparable(cell),
                self.stand_in(cell),
                self.is_fact(cell),
                sum(row.get("seconds") or 0.0 for row in self.behind(cell, rows)),
                measurements(self.table.paper, cell.metric),
            )
            for cell in self.cells
        ]

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """Return the notes of the paper's file by name: whether each applies, or the values to fill in."""
        return {}

    def notes(self, rows: Rows) -> list[str]:
        """Return the notes below the comparison."""
        paper, remarks = self.table.paper, self.remarks(rows)
        filled = {name: {} if said is True else said for name, said in remarks.items() if said is not False}
        return [*self.table.ours, *(note(paper, name, **values) for name, values in filled.items())]

    def leave(self, rows: Rows, folder: Path) -> None:
        """Write further files of the run folder, once all rows are known."""


class FactTable(Reproduction):
    """A table of numbers that are read off tables or networks: there is nothing to sample and little to run."""

    def stages(self) -> Sequence[Stage]:
        """Nothing."""
        return ()

    @abstractmethod
    def fact(self, cell: PaperCell, rows: Rows) -> float | None:
        """Return the number of a cell, None where it is unknown; ``rows`` are those of the stages."""

    def where(self, cell: PaperCell) -> Row:
        """The row of a cell, without the value."""
        return {"dataset": cell.dataset, "metric": cell.metric, "column": cell.column}

    def column(self, cell: PaperCell) -> str:
        """See `Reproduction.column`."""
        return "value"

    def is_fact(self, cell: PaperCell) -> bool:
        """See `Reproduction.is_fact`."""
        return True

    def finish(self, rows: Rows) -> Rows:
        """Return the facts; tables that are not on this machine become problems."""
        facts: Rows = []
        for cell in self.cells:
            with self.noting_problems(cell.dataset):
                if (found := self.fact(cell, rows)) is not None:
                    facts.append({**self.where(cell), "value": found})
        return facts


def scale(cell: PaperCell) -> float:
    """Return the factor from a share to the unit of a cell."""
    return 100.0 if cell.unit == "percent" else 1.0


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
            noting = nullcontext() if stage.needs is None else reproduction.noting_problems(stage.needs)
            with noting:
                _run_stage(reproduction, stage, folder, engine, quiet, rows)
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
    engine = LocalEngine(reproduction.device) if reproduction.one_at_a_time else engine.within(stage.share)
    try:
        run_packs(packs, place, engine, stage.noun, quiet)
    finally:
        found = rows_by_unit(ids, place) if stage.reported else ()
        rows += [made for id, row in found if (made := reproduction.row(row, stage, id)) is not None]
