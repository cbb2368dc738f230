"""What ``lightleak reproduce --plan`` prints: cells, settings, units and configs of a reproduction, and its time."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from rich.console import Console

from lightleak.core.devices import resolve_device
from lightleak.core.errors import LightLeakError
from lightleak.experiments.campaign import UpdatePack
from lightleak.experiments.pack import Pack
from lightleak.experiments.plan_text import print_estimate
from lightleak.reproductions.paper.values import load_paper_table
from lightleak.reproductions.reproduce import reproduction_of
from lightleak.reproductions.reproduction import Stage
from lightleak.reproductions.settings import Selection

SHOWN_UNITS = 3


def describe_reproduction(name: str, selection: Selection, device: str, workers: int, console: Console) -> None:
    """Print what a reproduction would run, without running it; the time of attacks on updates is probed briefly.

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
    units = []
    stages = reproduction.stages()
    for stage in stages:
        with TemporaryDirectory() as folder:
            try:
                packs = stage.plan(Path(folder), where)
            except LightLeakError as error:
                write(f"left out  {error}")
                continue
        for line in stage_lines(stage, packs):
            write(line)
        units += [unit for pack in packs if isinstance(pack, UpdatePack) for unit in pack.units]
    if not stages:
        write("nothing is run: the cells are read off tables and networks")
    if units:
        print_estimate(units, where, "nothing", workers, console)
    elif stages:
        write("time      not estimated for this kind of reproduction")


def stage_lines(stage: Stage, packs: Sequence[Pack]) -> list[str]:
    """A stage: how much it is, what it is, and the config that ``lightleak audit`` would take."""
    ids = [id for pack in packs for id in pack.ids]
    place = f" in {stage.place}" if stage.place else ""
    lines = [f"stage     {stage.noun}{place}: {len(ids)} units in {len(packs)} packs"]
    settings = Counter(unit.facts["setting"] for p in packs if isinstance(p, UpdatePack) for unit in p.units)
    lines += [f"  {setting}: {number} units" for setting, number in settings.items()]
    others = [id for pack in packs if not isinstance(pack, UpdatePack) for id in pack.ids]
    lines += [f"  {id}" for id in others[:SHOWN_UNITS]]
    if len(others) > SHOWN_UNITS:
        lines.append(f"  and {len(others) - SHOWN_UNITS} more")
    if stage.config is not None:
        text = yaml.safe_dump(stage.config.to_dict(), sort_keys=False, default_flow_style=None, width=100)
        lines += ["config", *(f"  {line}" for line in text.splitlines())]
    return lines
