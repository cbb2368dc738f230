"""``lightleak reproduce``: run what stands behind a paper's table and print paper and ours side by side."""

import json
import math
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from scipy.stats import kendalltau

from lightleak.attacks import ATTACKS
from lightleak.core.devices import resolve_device
from lightleak.core.errors import UsageError
from lightleak.experiments.campaign import finished_rows, run_units
from lightleak.experiments.clients import Federation, FreshClients
from lightleak.experiments.environment import write_environment
from lightleak.experiments.finish import console_of_rank
from lightleak.experiments.folder import begin_folder
from lightleak.experiments.kinds.vertical.run import SUMMARY_KEYS as VERTICAL_KEYS
from lightleak.experiments.results import write_results
from lightleak.experiments.settings import at_least, at_most
from lightleak.experiments.unit import Unit, write_whole
from lightleak.metrics.summary import Summary, summarize
from lightleak.reproductions.comparison import Compared, markdown
from lightleak.reproductions.fedavg_study.reproduce import FEDAVG
from lightleak.reproductions.paper.values import PaperCell, PaperTable, load_paper_table, paper_tables
from lightleak.reproductions.released.images import IMAGE_REPRODUCTIONS
from lightleak.reproductions.released.reproduce import RELEASED
from lightleak.reproductions.settings import (
    BATCHES,
    DEVIATIONS,
    ROW_METRICS,
    Selection,
    Setting,
    attacked,
    experiment_of,
    figure_cells,
    offered,
    population_of,
    setting_of,
)
from lightleak.reproductions.special import SPECIAL as SPECIAL_HORIZONTAL
from lightleak.reproductions.vertical.reproduce import VERTICAL

RUN_FILE = "reproduction.json"
SPECIAL = {**SPECIAL_HORIZONTAL, **VERTICAL, **RELEASED, **IMAGE_REPRODUCTIONS, **FEDAVG}
"""Reproductions that are no campaign of attacks on client updates."""


def reproduce(
    name: str,
    selection: Selection,
    folder: Path,
    device: str = "auto",
    workers: int = 0,
    command: Sequence[str] = (),
    console: Console | None = None,
) -> list[Compared]:
    """Run a reproduction into ``folder``: ``results.json`` and ``comparison.md``.

    The same call again goes on where it stopped; one with more batches, sizes or attacks adds to it.

    Args:
        name: table or figure, such as ``tableak-table17``.
        selection: what of it is run.
        folder: run folder.
        device: where attacks run.
        workers: attacks at once on a CPU.
        command: recorded in the comparison.
        console: where progress goes.

    Raises:
        UsageError: no such reproduction, nothing selected, or the folder holds another one.
    """
    console = console_of_rank(console)
    where = resolve_device(device)
    table = load_paper_table(name)
    cells = [cell for cell in reproducible_cells(table) if selection.keeps(cell)]
    if not cells and name not in SPECIAL:
        raise UsageError(
            f"nothing of {name} is left to run with {selection.chosen()}; {offered(reproducible_cells(table))}"
        )
    at_least("--workers", workers, 0)
    at_most("--workers", workers)
    units = [] if name in SPECIAL else _units(cells, selection)
    for dataset, network in dict.fromkeys((unit.facts["dataset"], unit.facts["target"]) for unit in units):
        experiment_of(dataset, network, selection.data_folder)  # a table that is missing begins nothing
    _open(folder, name, selection)
    write_environment(folder, where, command)
    if name in SPECIAL:
        compared, rows, notes = SPECIAL[name](table, selection, folder, where, workers, not console.is_interactive)
        keys = ("metric", "column", "setting", "epoch_prior", "label", "latent_search")
        per = "seed" if name in RELEASED else None  # evaluations of one training are no trainings
        write_results(folder, rows, extra_keys=(*keys, *VERTICAL_KEYS), per=per)
    else:
        try:
            run_units(
                partial(_units, cells, selection),
                folder,
                where,
                workers,
                kept="nothing",
                quiet=not console.is_interactive,
            )
        finally:
            rows = finished_rows(units, folder)
            write_results(folder, rows, extra_keys=("setting",))
        compared, notes = [Compared(cell, measured(cell, rows)) for cell in cells], _notes(cells)
    environment = json.loads((folder / "environment.json").read_text())
    page = markdown(table, compared, environment, " ".join(command), notes)
    write_whole(folder / "comparison.md", page)
    console.print(Markdown(page))
    return compared


def reproducible_cells(table: PaperTable) -> list[PaperCell]:
    """Cells of a table or figure that can be run."""
    return attacked(table.cells) or figure_cells(table)


def reproductions() -> tuple[str, ...]:
    """Names of the tables and figures that can be run."""
    return tuple(table.name for table in _runnable())


def list_reproductions(console: Console) -> None:
    """Print name and title of every reproduction."""
    for table in _runnable():
        console.print(f"{table.name:20}{table.title}", soft_wrap=True, highlight=False)


def _runnable() -> list[PaperTable]:
    tables = [load_paper_table(name) for name in paper_tables()]
    return [table for table in tables if table.name in SPECIAL or reproducible_cells(table)]


def measured(cell: PaperCell, rows: Sequence[dict[str, Any]]) -> Summary:
    """Our result for a cell, in the cell's unit, over the rows of its setting."""
    of_setting = [row for row in rows if row["setting"] == _name(_as_run(setting_of(cell)))]
    if cell.metric == "kendall_tau":
        return _rank_correlation(of_setting, cell.feature_kind or "categorical")
    scale = 100.0 if cell.unit == "percent" else 1.0
    values = [scale * value for row in of_setting if (value := row.get(ROW_METRICS[cell.metric])) is not None]
    return summarize(values)


def _rank_correlation(rows: Sequence[dict[str, Any]], kind: str) -> Summary:
    """Kendall's tau over batches between mean entropy and mean accuracy (Tables 25-28)."""
    pairs = [(row[f"mean_entropy_{kind}"], row[f"{kind}_accuracy"]) for row in rows]
    known = [(entropy, accuracy) for entropy, accuracy in pairs if entropy is not None and accuracy is not None]
    tau = float(kendalltau(*zip(*known, strict=True)).statistic) if len(known) > 1 else math.nan
    return Summary(mean=tau, std=math.nan, n=len(known), low=math.nan, high=math.nan)


def _units(cells: Sequence[PaperCell], selection: Selection) -> list[Unit]:
    batches = selection.batches or BATCHES
    settings = list(dict.fromkeys(_as_run(setting_of(cell)) for cell in cells))
    clients = Federation.clients
    if batches > clients and any(setting.epoch for setting in settings):
        raise UsageError(f"--batches must be at most {clients}, the clients of the federation; got {batches}")
    for setting in settings:
        ATTACKS.get(setting.attack)(**dict(setting.options))
    return [
        Unit(
            id=f"{_name(setting)}-s{seed}-{index:03d}",
            attack=setting.attack,
            options=dict(setting.options),
            observe=partial(_observe, setting, seed, selection.data_folder, index),
            facts={
                "setting": _name(setting),
                "dataset": setting.dataset,
                "target": setting.network,
                "protocol": "fedsgd",
                "labels": setting.labels,
                "defense": "none",
                "batch_size": setting.batch_size,
                "batch_index": index,
                "source": "training" if setting.epoch else "initial",
                "epoch": setting.epoch,
            },
            seed=seed,
        )
        for setting in settings
        for seed in selection.seeds
        for index in range(batches)
    ]


def _as_run(setting: Setting) -> Setting:
    """German Credit's federation leaves its clients 16 rows, in the published code as here (see `Federation`)."""
    if setting.epoch and setting.dataset == "german":
        return Setting(**{**vars(setting), "batch_size": 16})
    return setting


def _observe(setting: Setting, seed: int, data_folder: str | None, index: int) -> Any:
    experiment = experiment_of(setting.dataset, setting.network, data_folder)
    if setting.epoch:
        return _federation(setting.dataset, setting.network, seed, data_folder).observe(setting.epoch, index)
    statistics = setting.attack == "gradinversion"
    people = population_of(setting.dataset, setting.network, data_folder)
    clients = FreshClients(people, experiment.spec, seed, True, statistics)
    return clients.observe(setting.batch_size, index)


@cache
def _federation(dataset: str, network: str, seed: int, data_folder: str | None) -> Federation:
    experiment = experiment_of(dataset, network, data_folder)
    return Federation(population_of(dataset, network, data_folder), experiment.spec, seed, share_labels=True)


def _name(setting: Setting) -> str:
    """A file name for a setting."""
    options = [f"{key}-{value}" for key, value in setting.options]
    epoch = [f"e{setting.epoch}"] if setting.epoch else []
    parts = [
        setting.dataset,
        setting.network,
        setting.attack,
        f"{setting.labels}-labels",
        *options,
        *epoch,
        f"b{setting.batch_size}",
    ]
    return "_".join(parts)


def _notes(cells: Sequence[PaperCell]) -> list[str]:
    """Where a run departs from the paper or from our defaults, and why; only what concerns these cells."""
    concerned = {
        "always": True,
        "random": any(cell.attack == "random" for cell in cells),
        "gradinversion": any(cell.attack == "gradinversion" for cell in cells),
        "training_epochs": any(cell.training_epochs for cell in cells),
    }
    return [text for topic, texts in DEVIATIONS.items() if concerned[topic] for text in texts]


def _open(folder: Path, name: str, selection: Selection) -> None:
    """Create the folder, or check that it holds the same reproduction, perhaps with fewer batches or attacks."""
    wanted: dict[str, Any] = {"name": name, "seeds": list(selection.seeds)}
    if selection.as_published:
        wanted["as_published"] = True
    if selection.iterations is not None:
        wanted["iterations"] = selection.iterations
    saved = folder / RUN_FILE
    begin_folder(folder, saved, "reproduction", lambda: write_whole(saved, json.dumps(wanted)))
    if json.loads(saved.read_text()) != wanted:
        raise UsageError(f"{folder} holds another reproduction ({saved.read_text()}); choose another --output")
