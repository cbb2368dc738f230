"""``lightleak reproduce``: run the experiments behind a paper's table and compare the paper's numbers with ours.

With ``--plan``, nothing is run: the cells, settings, units and configs are printed, and how long they would take.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.markdown import Markdown

from lightleak.core.devices import one_thread, resolve_device
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.stored import read_json, write_json, write_whole
from lightleak.core.yaml_text import yaml_of
from lightleak.experiments.campaign import UpdatePack, packs_without_a_run
from lightleak.experiments.engine import Engine, open_engine
from lightleak.experiments.environment import write_environment
from lightleak.experiments.folder import opened_folder
from lightleak.experiments.kind import Checked
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.load import kind_of
from lightleak.experiments.pack import Pack
from lightleak.experiments.plan_text import print_probed
from lightleak.experiments.probe import PROBE_SECONDS, Cost, Estimate, Probed, estimate
from lightleak.experiments.settings import RunConfig
from lightleak.reproductions.comparison import COMPARISON_FILE, Compared, comparison_json, markdown
from lightleak.reproductions.paper.values import PaperTable, load_paper_table, paper_tables
from lightleak.reproductions.reproduction import MADE_ROWS, WHOLE, Reproduction, Stage, replaced_by, run_stages
from lightleak.reproductions.settings import Selection

RUN_FILE = "reproduction.json"
MEASURED_ON = "measured_on"
SHOWN_UNITS = 3
"""How many units other than attacks on updates the plan lists by name."""


def reproduce(
    name: str, selection: Selection, folder: Path, where: RunConfig, command: Sequence[str], console: Console
) -> list[Compared]:
    """Run a reproduction into ``folder`` and print the comparison; see `run_reproduction`."""
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
        UsageError: no such reproduction, nothing selected, or the folder holds another one or the same one measured on
            other files of its data.
    """
    reproduction = reproduction_of(load_paper_table(name), selection, engine.device)
    with _opened(folder, name, selection, data_at_hand(reproduction)):
        write_environment(folder, engine.device, command)
        compared, _, notes = run_stages(reproduction, folder, engine, quiet)
    environment = read_json(folder / "environment.json")
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
    return getattr(import_module(f"{__package__}.{module}"), name)


def list_reproductions(console: Console) -> None:
    """Print name and title of every reproduction."""
    for table in map(load_paper_table, paper_tables()):
        console.print(f"{table.name:20}{table.title}", soft_wrap=True, highlight=False)


def data_at_hand(reproduction: Reproduction) -> dict[str, str]:
    """Return what datasets of a reproduction are measured on now, of those that are replaced without their files."""
    replaceable = {cell.dataset for cell in reproduction.cells} & {*MADE_ROWS, *WHOLE}
    folder = reproduction.selection.data_folder
    return {str(one): replaced_by(one, folder) or f"{one} (its own rows)" for one in replaceable}


@contextmanager
def _opened(folder: Path, name: str, selection: Selection, here: dict[str, str]) -> Iterator[None]:
    """Create the folder, or check that it holds the same reproduction, perhaps with fewer batches or attacks.

    What datasets are measured on is noted, see `data_at_hand`.
    """
    wanted: dict[str, Any] = {"name": name, "seeds": list(selection.seeds)}
    if selection.as_published:
        wanted["as_published"] = True
    if selection.iterations is not None:
        wanted["iterations"] = selection.iterations
    saved = folder / RUN_FILE

    def begin(on: dict[str, str] = here) -> None:
        write_json(saved, wanted | ({MEASURED_ON: on} if on else {}))

    with opened_folder(folder, saved, "reproduction", begin):
        stored = read_json(saved)
        before = stored.pop(MEASURED_ON, {})  # earlier versions noted nothing
        if stored != wanted:
            raise UsageError(f"{folder} holds another reproduction ({saved.read_text()}); choose another --output")
        measured = _measured_datasets(folder) if here.items() - before.items() else ()
        for dataset, on in here.items():
            if dataset in measured and before.get(dataset, on) != on:
                raise UsageError(
                    f"{folder} holds measurements on {before[dataset]}, and the files at hand now are those of {on}; "
                    "choose another --output"
                )
        if before != before | here:
            begin(before | here)
        yield


def _measured_datasets(folder: Path) -> set[str | None]:
    """Return the datasets of finished units."""
    kept = [read_json(file) for file in folder.rglob("units/*.json")]
    rows = (row for one in kept for row in (one if isinstance(one, list) else [one]))
    return {row.get("dataset") for row in rows}


class _EnoughError(Exception):
    """Raised to stop the probe of a pack when its time is up."""


def describe_reproduction(name: str, selection: Selection, device: str, workers: int, console: Console) -> None:
    """Print what a reproduction would run and what that takes, measured by short probes of every stage.

    Args:
        name: table or figure.
        selection: what of it would be run.
        device: where.
        workers: packs at once.
        console: where to print.

    Raises:
        UsageError: no such reproduction, or nothing is selected.
    """
    write = partial(console.print, soft_wrap=True, highlight=False, markup=False)
    where = resolve_device(device)
    reproduction = reproduction_of(load_paper_table(name), selection, where)
    write(f"{name}: {reproduction.table.title}")
    metrics = Counter(cell.metric for cell in reproduction.cells)
    write(f"cells     {', '.join(f'{number} {metric}' for metric, number in metrics.items())}; on {where}")
    for problem in dict.fromkeys(reproduction.problems):
        write(f"left out  {problem}")
    if not reproduction.stages():
        write("nothing is run: the cells are read off tables and networks")
    if any(probed := probe_stages(reproduction, write)):
        print_probed(Probed(probed), where, 1 if reproduction.one_at_a_time else workers, console)


def probe_stages(
    reproduction: Reproduction, write: Callable[[str], None] = lambda line: None, known: dict[str, Cost] | None = None
) -> list[Sequence[Estimate]]:
    """Estimate every stage of a reproduction by short probes.

    Args:
        reproduction: what would be run; a stage that cannot be run is left out.
        write: called with each line that describes a stage.
        known: costs of attacks that an earlier probe has measured; what this one measures is added.
    """
    stages, where = list(reproduction.stages()), reproduction.device
    share = PROBE_SECONDS / max(1, len(stages))
    probed: list[Sequence[Estimate]] = []
    audits: dict[str, Iterator[Sequence[Estimate]]] = {}
    for stage in stages:
        with TemporaryDirectory() as folder:
            try:
                packs = stage.plan(Path(folder), where)
                for line in stage_lines(stage, packs, with_config=stage.place not in audits):
                    write(line)
                if stage.config is None or _is_part(stage, stages):
                    probed.append(estimated(reproduction, stage, packs, Path(folder), share, known))
                else:
                    audits[stage.place] = audits.get(stage.place) or audit_stages(stage.config, where, share)
                    probed.append(next(audits[stage.place], ()))
            except LightLeakError as error:
                write(f"left out  {error}")
    return probed


def _is_part(stage: Stage, stages: Sequence[Stage]) -> bool:
    """Return whether a stage runs only the trainings of an audit, whose own plan would probe its attacks as well."""
    return isinstance(stage.config, ReleasedConfig) and sum(one.place == stage.place for one in stages) == 1


def stage_lines(stage: Stage, packs: Sequence[Pack], with_config: bool = True) -> list[str]:
    """Describe a stage: its size, its units, and the config that ``lightleak audit`` would take."""
    ids = [id for pack in packs for id in pack.ids]
    place = f" in {stage.place}" if stage.place else ""
    lines = [f"stage     {stage.noun}{place}: {len(ids)} units in {len(packs)} packs"]
    settings = Counter(unit.facts["setting"] for p in packs if isinstance(p, UpdatePack) for unit in p.units)
    lines += [f"  {setting}: {number} units" for setting, number in settings.items()]
    others = [id for pack in packs if not isinstance(pack, UpdatePack) for id in pack.ids]
    lines += [f"  {id}" for id in others[:SHOWN_UNITS]]
    if len(others) > SHOWN_UNITS:
        lines.append(f"  and {len(others) - SHOWN_UNITS} more")
    if stage.config is not None and with_config:
        text = yaml_of(stage.config.to_dict(), default_flow_style=None, width=100)
        lines += ["config", *(f"  {line}" for line in text.splitlines())]
    return lines


def audit_stages(config: Any, device: torch.device, seconds: float) -> Iterator[Sequence[Estimate]]:
    """Estimate the stages of a whole audit as its own plan does."""
    yield from kind_of(config).plan(Checked(config, None), device).probe(seconds).stages


def estimated(
    reproduction: Reproduction,
    stage: Stage,
    packs: Sequence[Pack],
    folder: Path,
    seconds: float,
    known: dict[str, Cost] | None = None,
) -> list[Estimate]:
    """Estimate a stage in about so many seconds.

    Attacks on updates are probed as in an audit's plan. Of any other work the pack of median cost is run until the time
    is up; what it and the others take is extrapolated from the progress that it has reported.
    """
    device, others = reproduction.device, [pack for pack in packs if not isinstance(pack, UpdatePack)]
    units = [unit for pack in packs if isinstance(pack, UpdatePack) for unit in pack.units]
    found: list[Estimate] = []
    if units:
        found += estimate(packs_without_a_run(units, device), device, "nothing", seconds / (2 if others else 1), known)
    if others:
        if stage.rehearse is not None:
            stage.rehearse(folder)
        median = sorted(others, key=lambda pack: pack.cost)[len(others) // 2]
        rate = pack_seconds(median, folder, device, seconds) / median.cost
        for cost in dict.fromkeys(pack.cost for pack in others):
            sizes = tuple(len(pack.ids) for pack in others if pack.cost == cost)
            found.append(Estimate(stage.noun, 0, "", sizes, Cost(rate * cost / sizes[0], 0.0, 0, None)))
    return found


def pack_seconds(pack: Pack, folder: Path, device: torch.device, seconds: float) -> float:
    """Run a pack for about so many seconds after its first report, and extrapolate the time of the whole pack."""
    began = time.perf_counter()
    seen: list[tuple[float, float]] = []
    (folder / "units").mkdir(parents=True, exist_ok=True)

    def report(amount: float) -> None:
        seen.append((time.perf_counter() - began, amount))
        if amount and seen[-1][0] - seen[0][0] > seconds:
            raise _EnoughError

    try:
        with one_thread():
            pack.run(folder, device, report)
    except _EnoughError:
        (start, done), (end, _) = seen[0], seen[-1]  # before the first report the pack is also prepared
        return start + (pack.cost - done) * (end - start) / sum(amount for _, amount in seen[1:])
    return time.perf_counter() - began
