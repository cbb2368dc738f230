"""What ``lightleak audit --plan`` prints: the work of an audit and what it will take, before any of it is done."""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console

from lightleak.core.devices import resolve_device
from lightleak.core.ranks import detect_ranks
from lightleak.data.codes import codes_notice
from lightleak.experiments.attack_settings import check_attacks
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment, prepare_experiment, target_name
from lightleak.experiments.federation_config import defense_of
from lightleak.experiments.kinds.updates.check import check_served
from lightleak.experiments.kinds.updates.feasibility_text import feasibility_lines
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.lanes import lanes_here
from lightleak.experiments.launch import places_of
from lightleak.experiments.packing import find_sizes, plan_packs
from lightleak.experiments.probe import PROBE_SECONDS, Estimate, estimate, makespan
from lightleak.experiments.training import rows_of_clients
from lightleak.experiments.training_probe import TrainingCost, probe_training
from lightleak.experiments.unit import Kept, Unit, kept_cells

DEVICES = (1, 2, 4, 8)
"""Numbers of devices of this kind that the time is told for."""

MONITOR = "monitor"


def describe_plan(config: AuditConfig, console: Console, seconds: float = PROBE_SECONDS) -> None:
    """Print what an audit would do, without doing it, and what that would take, by a short probe.

    Args:
        config: the audit.
        console: where to print.
        seconds: about what to spend on probing attacks.

    Raises:
        UsageError: what cannot be served, and why.
    """
    check_attacks(config.attacks)
    device = resolve_device(config.device)
    experiment = prepare_experiment(config)
    check_served(config, experiment)
    fresh = plan_units(config, experiment, Path(os.devnull))
    captured, monitored = captured_units(config, experiment), monitored_units(config, experiment)
    packs = packs_without_a_run([*fresh, *captured], device)
    table, protocol = experiment.table, config.protocol
    of_fresh = sum(pack[0].facts["source"] != "training" for pack in packs)
    lines = {
        "table": f"{table.card.name}: {len(table.train)} training and {len(table.test)} test rows, "
        f"encoded width {experiment.encoder.width}",
        "target": f"{target_name(experiment.spec)}, {config.rounds} epochs at batch size {config.training.batch_size}",
        "attacks": f"{', '.join(config.attacks)}, labels {config.labels}, on {device}",
        "units": f"{len(fresh)} on fresh clients in {of_fresh} packs, {len(captured)} on the training run",
    }
    if protocol.is_fedavg:
        rows = rows_of_clients(config, experiment)
        lines["target"] = (
            f"{target_name(experiment.spec)}, {config.rounds} rounds of {protocol.clients_of_round} of "
            f"{protocol.clients} clients with {rows} rows, {protocol.local_epochs} local epochs in batches of "
            f"{protocol.local_batch_of(rows)}"
        )
    if table.possible_codes:
        lines["columns"] = codes_notice(table.possible_codes)
    defense = defense_of(config.defense)
    if defense is not None:
        lines["defence"] = defense.describe()
    _print_lines(lines, console)
    for i, line in enumerate(feasibility_lines(config, experiment)):
        _print_lines({"exact" if i == 0 else "": line}, console)
    alone = [[unit] for unit in monitored]
    found = estimate([*packs, *alone], device, kept_cells(config.redact), seconds)
    attacks = [one for one in found if one.source != MONITOR]
    training = 0.0
    lines = {}
    if config.rounds:
        cost = probe_training(config, experiment, _processes(config))
        training = config.rounds * cost.epoch + sum(sum(one.durations) for one in found if one.source == MONITOR)
        lines["training"] = training_words(
            f"{config.rounds} {'rounds' if protocol.is_fedavg else 'epochs'}", cost, training, bool(monitored)
        )
    lanes = len(lanes_here(device, config.workers, len(packs))) * detect_ranks().world
    lines |= time_lines(attacks, lanes, device, training)
    console.print()
    for line in table_lines(found):
        console.print(line, soft_wrap=True, highlight=False)
    console.print()
    _print_lines(lines, console)


def print_estimate(units: Sequence[Unit], device: torch.device, kept: Kept, workers: int, console: Console) -> None:
    """Print what attacks take, for plans of other kinds of audit: the table of `describe_plan` and the line below it.

    Args:
        units: the plan.
        device: where they will run.
        kept: what will be kept of each cell.
        workers: of the run; see `lightleak.experiments.lanes.plan_lanes`.
        console: where to print.
    """
    packs = packs_without_a_run(units, device)
    found = estimate(packs, device, kept)
    console.print()
    for line in table_lines(found):
        console.print(line, soft_wrap=True, highlight=False)
    console.print()
    lanes = len(lanes_here(device, workers, len(packs))) * detect_ranks().world
    _print_lines(time_lines(found, lanes, device), console)


def packs_without_a_run(units: Sequence[Unit], device: torch.device) -> list[list[Unit]]:
    """The packs that a run would have; no folder remembers what was found for them."""
    with TemporaryDirectory() as folder:
        return plan_packs(units, device, find_sizes(units, device, Path(folder)))


def captured_units(config: AuditConfig, experiment: Experiment) -> list[Unit]:
    """Stand-ins for the attacks on updates that the training will record: fresh clients with as many rows."""
    if not config.rounds:
        return []
    epochs = sorted({epoch for epoch in config.capture.epochs if epoch < config.rounds})
    alike = _like_captured(config, experiment)
    return [
        replace(unit, id=f"{unit.id}-{epoch}", facts={**unit.facts, "source": "training", "epoch": epoch})
        for attack in config.attacks
        for epoch in epochs
        for unit in alike
        if unit.attack == attack
    ]


def monitored_units(config: AuditConfig, experiment: Experiment) -> list[Unit]:
    """The same for the attacks of the monitor."""
    monitor = config.monitor
    if not config.rounds or monitor.attack is None:
        return []
    looks = {epoch for epoch in config.capture.epochs if epoch < config.rounds and epoch % monitor.every == 0}
    changed = replace(config, attacks={monitor.attack: monitor.options})
    alike = _like_captured(changed, experiment)
    return [replace(unit, facts={**unit.facts, "source": MONITOR, "epoch": e}) for e in sorted(looks) for unit in alike]


def _like_captured(config: AuditConfig, experiment: Experiment) -> list[Unit]:
    rows = rows_of_clients(config, experiment)
    of_an_epoch = config.capture.per_epoch * _processes(config)
    initial = replace(config.initial, batch_sizes=(rows,), batches=of_an_epoch)
    return plan_units(replace(config, initial=initial), experiment, Path(os.devnull))


def _processes(config: AuditConfig) -> int:
    return places_of(config.training.trainer, config.device).world


def table_lines(found: Sequence[Estimate]) -> list[str]:
    """One line per kind of work, at most 100 columns wide, under a line of titles."""
    titles = ("attack", "rows", "updates", "units", "packs", "memory", "a unit", "in all")
    rows = [
        (
            one.attack,
            str(one.batch_size),
            one.source,
            str(one.units),
            str(len(one.packs)),
            bytes_words(one.cost.memory),
            seconds_words(one.cost.seconds),
            seconds_words(sum(one.durations)),
        )
        for one in found
    ]
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    lines = []
    for row in (titles, *rows):
        cells = [
            text.ljust(w) if i in (0, 2) else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def training_words(epochs: str, cost: TrainingCost, total: float, monitored: bool) -> str:
    """What the training takes."""
    batches = "" if cost.batches == 1 else f" of {cost.batches} batches"
    extra = ", with the monitor's attacks" if monitored else ""
    return f"{epochs}{batches}, {seconds_words(cost.epoch)} each{extra}: {seconds_words(total)}"


def time_lines(found: Sequence[Estimate], lanes: int, device: torch.device, training: float = 0.0) -> dict[str, str]:
    """Wall time of training and attacks: as the run would be now, and on other numbers of devices of this kind."""
    durations = [duration for one in found for duration in one.durations]
    noun = "core" if device.type == "cpu" else "GPU"

    def on(devices: int, noun: str = "") -> str:
        wall = seconds_words(training + makespan(durations, devices))
        return f"{wall} on {devices}" + (f" {noun}{'s' if devices > 1 else ''}" if noun else "")

    others = ", ".join(on(number, noun if number == 1 else "") for number in DEVICES)
    return {"time": f"{on(lanes, noun)} of this run, beside its start and its report", "elsewhere": others}


def seconds_words(seconds: float) -> str:
    """Seconds as a person reads an estimate: two digits.

    >>> [seconds_words(s) for s in (0.0004, 0.043, 4.31, 62, 59.7, 720, 11100, 200_000)]
    ['<1 ms', '43 ms', '4.3 s', '1.0 min', '1.0 min', '12 min', '3.1 h', '2.3 days']
    """
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.0005 else "<1 ms"
    scales = ((1, "s", 59.5), (60, "min", 3570), (3600, "h", 84600), (86400, "days", math.inf))
    size, name = next((size, name) for size, name, below in scales if seconds < below)
    return _two_digits(seconds / size, name)


def bytes_words(size: int | None) -> str:
    """Memory as a person reads it; a dash where it is not known.

    >>> bytes_words(3_500_000), bytes_words(80 * 2**30), bytes_words(None)
    ('3.3 MiB', '80 GiB', '–')
    """
    if size is None:
        return "–"
    number, name = (size / 2**30, "GiB") if size >= 2**30 else (size / 2**20, "MiB")
    return _two_digits(number, name)


def _two_digits(number: float, name: str) -> str:
    return f"{number:.1f} {name}" if number < 9.95 else f"{number:.0f} {name}"


def _print_lines(lines: dict[str, str], console: Console) -> None:
    for name, text in lines.items():
        console.print(f"{name:10}{text}", soft_wrap=True, highlight=False)
