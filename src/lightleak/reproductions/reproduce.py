"""``lightleak reproduce``: run the experiments behind a paper's table and compare the paper's numbers with ours."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markdown import Markdown

from lightleak.core.errors import UsageError
from lightleak.experiments.engine import Engine, open_engine
from lightleak.experiments.environment import write_environment
from lightleak.experiments.folder import opened_folder
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.unit import write_whole
from lightleak.reproductions.comparison import COMPARISON_FILE, Compared, comparison_json, markdown
from lightleak.reproductions.paper.values import PaperTable, load_paper_table, paper_tables
from lightleak.reproductions.reproduction import Reproduction, run_stages
from lightleak.reproductions.settings import Selection

RUN_FILE = "reproduction.json"


def reproduce(
    name: str,
    selection: Selection,
    folder: Path,
    where: RunConfig,
    command: Sequence[str] = (),
    console: Console | None = None,
) -> list[Compared]:
    """Run a reproduction into ``folder`` and print the comparison; see `run_reproduction`."""
    console = console or Console()
    with open_engine(where) as engine:
        compared, page = run_reproduction(name, selection, folder, engine, command, console.quiet)
    console.print(Markdown(page))
    return compared


def run_reproduction(
    name: str, selection: Selection, folder: Path, engine: Engine, command: Sequence[str] = (), quiet: bool = False
) -> tuple[list[Compared], str]:
    """Run a reproduction into ``folder``: ``results.json``, ``comparison.md`` and ``comparison.json``.

    The same call resumes where it stopped; one with more batches, sizes or attacks adds to it.

    Args:
        name: table or figure, such as ``tableak-table17``.
        selection: what of it is run.
        folder: run folder.
        engine: where packs run.
        command: recorded in the comparison.
        quiet: no progress bar.

    Returns:
        The cells with our values, and the text of ``comparison.md``.

    Raises:
        UsageError: no such reproduction, nothing selected, or the folder holds another one.
    """
    reproduction = reproduction_of(load_paper_table(name), selection, engine.device)
    with _opened(folder, name, selection):
        write_environment(folder, engine.device, command)
        compared, _, notes = run_stages(reproduction, folder, engine, quiet)
    environment = json.loads((folder / "environment.json").read_text())
    page = markdown(reproduction.table, compared, environment, " ".join(command), notes)
    write_whole(folder / "comparison.md", page)
    write_whole(folder / COMPARISON_FILE, comparison_json(reproduction.table, compared, notes))
    return compared, page


def reproduction_of(table: PaperTable, selection: Selection, device: torch.device) -> Reproduction:
    """What of a table a selection runs on a device; nothing is run or written yet.

    Raises:
        UsageError: nothing is selected.
    """
    return reproduction_class(table.run)(table, selection, device)


def reproduction_class(run: str) -> type[Reproduction]:
    """The class that a paper's table names under ``run``."""
    module, _, name = run.rpartition(".")
    found: type[Reproduction] = getattr(import_module(f"{__package__}.{module}"), name)
    return found


def list_reproductions(console: Console) -> None:
    """Print name and title of every reproduction."""
    for table in map(load_paper_table, paper_tables()):
        console.print(f"{table.name:20}{table.title}", soft_wrap=True, highlight=False)


@contextmanager
def _opened(folder: Path, name: str, selection: Selection) -> Iterator[None]:
    """Create the folder, or check that it holds the same reproduction, perhaps with fewer batches or attacks."""
    wanted: dict[str, Any] = {"name": name, "seeds": list(selection.seeds)}
    if selection.as_published:
        wanted["as_published"] = True
    if selection.iterations is not None:
        wanted["iterations"] = selection.iterations
    saved = folder / RUN_FILE
    with opened_folder(folder, saved, "reproduction", lambda: write_whole(saved, json.dumps(wanted))):
        if json.loads(saved.read_text()) != wanted:
            raise UsageError(f"{folder} holds another reproduction ({saved.read_text()}); choose another --output")
        yield
