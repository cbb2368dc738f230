"""What ``lightleak audit --plan`` prints: the work of a run and what it will take, before any of it is done."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from rich.console import Console

from lightleak.core.devices import resolve_device
from lightleak.experiments.engine import worker_devices
from lightleak.experiments.load import kind_of
from lightleak.experiments.probe import PROBE_SECONDS, Estimate, Probed, bytes_words, makespan, seconds_words

DEVICES = (1, 2, 4, 8)
"""Numbers of devices of this kind for which the time is estimated."""

COLUMNS: Mapping[str, Callable[[Estimate], str]] = {
    "attack": lambda one: one.attack,
    "rows": lambda one: str(one.batch_size),
    "source": lambda one: one.source,
    "defense": lambda one: one.defense,
    "units": lambda one: str(one.units),
    "packs": lambda one: str(len(one.packs)),
    "memory": lambda one: bytes_words(one.cost.memory),
    "a unit": lambda one: seconds_words(one.cost.seconds),
    "in all": lambda one: seconds_words(sum(one.durations)),
}
"""Titles and cells of the table of estimates; columns without any text are left out."""


def describe_plan(config: Any, console: Console, seconds: float = PROBE_SECONDS) -> None:
    """Print what a run of any kind would do, without doing it, and what that would take, measured by a short probe.

    Args:
        config: the experiment.
        console: where to print.
        seconds: about what to spend on probing; a unit that takes longer is still run once.

    Raises:
        UsageError: what cannot be served, and why.
    """
    kind, device = kind_of(config), resolve_device(config.device)
    checked = kind.check(config)
    plan = kind.plan(checked, device)
    _print_lines(plan.lines, console)
    print_probed(plan.probe(seconds), device, checked.config.workers, console)


def print_probed(probed: Probed, device: torch.device, workers: int, console: Console) -> None:
    """Print the table of estimates and the time of the whole run.

    Args:
        probed: the estimates.
        device: where the work will run.
        workers: of the run; see `lightleak.experiments.engine.worker_devices`.
        console: where to print.
    """
    console.print()
    for line in table_lines([*(one for stage in probed.stages for one in stage), *probed.within]):
        console.print(line, soft_wrap=True, highlight=False)
    console.print()
    packs = max((sum(len(one.packs) for one in stage) for stage in probed.stages), default=0)
    lanes = max(1, min(len(worker_devices(device, workers)), packs))
    _print_lines([*probed.lines, *time_lines(probed, lanes, device)], console)


def table_lines(found: Sequence[Estimate]) -> list[str]:
    """One line per kind of work under a line of titles, at most 100 columns wide where no defense is named."""
    columns = [[title, *map(cell, found)] for title, cell in COLUMNS.items()]
    columns = [column for column in columns if any(column[1:])]
    aligned = []
    for column in columns:
        width, is_text = max(map(len, column)), column[0] in ("attack", "source", "defense")
        aligned.append([text.ljust(width) if is_text else text.rjust(width) for text in column])
    return ["  ".join(cells).rstrip() for cells in zip(*aligned, strict=True)]


def time_lines(probed: Probed, lanes: int, device: torch.device) -> list[tuple[str, str]]:
    """Wall time: as the run would be now, and on other numbers of devices of this kind."""
    noun = "core" if device.type == "cpu" else "GPU"

    def on(devices: int, noun: str = "") -> str:
        stages = ([duration for one in stage for duration in one.durations] for stage in probed.stages)
        wall = seconds_words(probed.before + sum(makespan(durations, devices) for durations in stages))
        return f"{wall} on {devices}" + (f" {noun}{'s' if devices > 1 else ''}" if noun else "")

    others = ", ".join(on(number, noun if number == 1 else "") for number in DEVICES)
    return [("time", f"{on(lanes, noun)} of this run, without its start and its report"), ("elsewhere", others)]


def _print_lines(lines: Iterable[tuple[str, str]], console: Console) -> None:
    for name, text in lines:
        console.print(f"{name:10}{text}", soft_wrap=True, highlight=False, markup=False)
