"""What units of work will take, measured by a few steps of each kind before anything runs."""

import heapq
import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import lightning
import torch
from lightning.pytorch.callbacks import LambdaCallback

from lightleak.core.devices import one_thread, peak_resident, resident_bytes, synchronize
from lightleak.core.grouping import by_key
from lightleak.core.results import NONE
from lightleak.experiments.campaign import pack_key
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.launch import places_of
from lightleak.experiments.pack import Pack
from lightleak.experiments.training import one_training, prepare_training
from lightleak.experiments.unit import Kept, Unit, run_pack

PROBE_SECONDS = 10.0
"""About what the probes of a plan take together; a kind of unit of which one step takes longer gets that step, and an
attack without steps, such as exact inversion, runs one unit whole, also as a stage of a composed one."""

SETUP_UNITS = 4
"""Units that are observed, scored and written to measure the time spent outside the steps."""

GROWTH = 4
"""Factor between the numbers of steps that are tried."""


@dataclass(frozen=True)
class Cost:
    """What units of one kind take on one device.

    Attributes:
        unit: seconds of a unit outside the steps: to observe, initialize, match, score and write it.
        step: seconds of a step per unit of a full pack.
        steps: steps of the attack; 0 where it has none.
        memory: bytes of one call: the peak on a GPU; on a CPU the attack's estimate, or the growth of the process;
            ``None`` where it is unknown.
    """

    unit: float
    step: float
    steps: int
    memory: int | None

    @property
    def seconds(self) -> float:
        """Of one unit, steps and all."""
        return self.unit + self.steps * self.step


@dataclass(frozen=True)
class Estimate:
    """Packs of one kind and what they take.

    Attributes:
        attack: its name.
        batch_size: rows behind an update.
        source: where the updates come from.
        packs: units of each pack.
        cost: of a unit.
        defense: of the updates; empty without one.
    """

    attack: str
    batch_size: int
    source: str
    packs: tuple[int, ...]
    cost: Cost
    defense: str = ""

    @property
    def units(self) -> int:
        """In all packs."""
        return sum(self.packs)

    @property
    def durations(self) -> list[float]:
        """Seconds of each pack."""
        return [units * self.cost.seconds for units in self.packs]


@dataclass(frozen=True)
class Probed:
    """What a run takes, by a probe.

    Attributes:
        stages: the work of each stage; all of it ends before the next stage begins.
        before: seconds of work that is not divided among devices.
        lines: names and texts printed below the table.
        within: work that is shown in the table and counted in ``before``.
    """

    stages: Sequence[Sequence[Estimate]]
    before: float = 0.0
    lines: Sequence[tuple[str, str]] = ()
    within: Sequence[Estimate] = ()


@dataclass(frozen=True)
class RunPlan:
    """What a run would do.

    Attributes:
        lines: names and texts.
        probe: measures a small part of the work, in about so many seconds, and estimates the rest.
    """

    lines: Sequence[tuple[str, str]]
    probe: Callable[[float], Probed]


def estimate(
    packs: Iterable[Sequence[Unit]],
    device: torch.device,
    kept: Kept,
    seconds: float = PROBE_SECONDS,
    known: dict[str, Cost] | None = None,
) -> list[Estimate]:
    """Measure one pack of every kind, and say what all will take; attacks run on one thread, as in a campaign.

    Args:
        packs: of the plan.
        device: where they will run.
        kept: what will be kept of each cell.
        seconds: about what to spend.
        known: costs measured before on this device, by the work of a pack; what is measured here is added.
    """
    known = {} if known is None else known
    packs = sorted(packs, key=_row_key)
    largest = {work: max(alike, key=len) for work, alike in by_key(packs, _work_key).items()}
    new = {work: pack for work, pack in largest.items() if work not in known}
    with one_thread():
        known.update({work: measure(pack, device, kept, seconds / len(new)) for work, pack in new.items()})
    found = []
    for of_kind in by_key(packs, _row_key).values():
        attack, rows, source, defense, work = _row_key(of_kind[0])
        found.append(Estimate(attack, rows, source, tuple(map(len, of_kind)), known[work], defense))
    return found


def measure(pack: Sequence[Unit], device: torch.device, kept: Kept, seconds: float) -> Cost:
    """What a unit of this pack takes, from runs of few steps that take about ``seconds`` together."""
    attack, (update, _) = pack[0].make_attack(), pack[0].observe()
    began = time.perf_counter()
    stepped = attack.stepped(update, pack[0].seed, device)
    before = time.perf_counter() - began  # what a composed attack does ahead of the one with steps
    stage = None if stepped is None or stepped[0] is attack else stepped[0].name
    few = pack[:SETUP_UNITS] if stepped is None else [_of_one_step(unit, stage) for unit in pack[:SETUP_UNITS]]
    of_unit = before
    if before < seconds / 4:
        of_unit = _timed(lambda: _run(few[:1], device, kept), device)
    if of_unit * len(few) < seconds / 4:
        of_unit = _timed(lambda: _run(few, device, kept), device) / len(few)
    if stepped is None:
        return Cost(of_unit, 0.0, 0, None)
    last, seen = stepped

    def run(number: int) -> float:
        limited = replace(pack[0], attack=last.name, options={**last.options(), "steps": number}).make_attack()
        called = limited.on_card(device)
        return _timed(lambda: called.run_many([seen] * len(pack), range(len(pack)), device), device)

    steps = int(last.options()["steps"])
    with peak_memory(device) as peak:
        of_step = slope(run, steps, seconds) / len(pack)
    memory = peak() if device.type == "cuda" else last.memory(seen, len(pack), device)
    return Cost(max(0.0, of_unit - of_step), of_step, steps, memory)


def _of_one_step(unit: Unit, stage: str | None) -> Unit:
    """The unit with one step of its attack, or of a stage of it."""
    limited: dict[str, object] = {"steps": 1}
    if stage is not None:
        limited = {stage: {**(unit.options.get(stage) or {}), **limited}}
    return replace(unit, options={**unit.options, **limited})


def measure_pack(
    make: Callable[[int], Pack],
    steps: int,
    device: torch.device,
    folder: Path,
    seconds: float,
    reports_steps: bool = False,
) -> Cost:
    """What a pack takes whose work has steps, such as the epochs of its training, from packs of few steps.

    Args:
        make: makes the pack with a number of steps.
        steps: those of the whole pack; 0 where it has none.
        device: where it runs.
        folder: a run folder with what the pack needs; one that may be thrown away.
        seconds: about what to spend; at least one pack is run.
        reports_steps: the progress of a pack is its steps, in shares, so that one step tells what others will take.
    """
    seen: list[tuple[float, float]] = []

    def run(number: int) -> float:
        shutil.rmtree(folder / "units", ignore_errors=True)
        (folder / "units").mkdir(parents=True)
        seen.clear()
        return _timed(
            lambda: make(number).run(folder, device, lambda done: seen.append((time.perf_counter(), done))), device
        )

    with one_thread(), peak_memory(device) as peak:
        base = run(1)
        if base < seconds:
            base = run(1)  # what is loaded and allocated once is not counted
        if reports_steps and len(seen) > 1:
            of_step = (seen[-1][0] - seen[0][0]) / sum(done for _, done in seen[1:])
        else:
            more = min(GROWTH, steps - 1)
            of_step = max(0.0, run(1 + more) - base) / more if more > 0 else 0.0
    return Cost(max(0.0, base - of_step), of_step, steps, peak())


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Callable[[], int | None]]:
    """Measure peak memory: of tensors on a GPU, the growth of the process since the first probe on a CPU.

    Yields:
        Returns bytes; None where the system does not say.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield lambda: torch.cuda.max_memory_allocated(device)
        return
    before = _baseline()
    with peak_resident() as peak:
        yield lambda: None if before is None or (greatest := peak()) is None else max(0, greatest - before)


@cache
def _baseline() -> int | None:
    """Resident size before the first probe; what a probe has freed may be kept by the allocator and reused."""
    return resident_bytes("VmRSS")


def slope(run: Callable[[int], float], steps: int, seconds: float) -> float:
    """Seconds of a step, apart from what a call takes before and after its steps.

    Runs of more and more steps are compared with one of a single step, until the next would not fit into ``seconds``.

    Args:
        run: runs a number of steps and returns the seconds they took.
        steps: those of the whole attack, at least 1.
        seconds: about what to spend.

    >>> slope(lambda steps: 3 + 0.5 * steps, steps=1500, seconds=100)
    0.5
    """
    run(1)  # what is loaded and allocated once is no part of any step
    base = run(1)
    more, spent, found = min(GROWTH, steps - 1), 2 * base, 0.0
    while more:
        took = run(1 + more)
        found, spent = max(0.0, took - base) / more, spent + took
        next_more = min(GROWTH * more, steps - 1)
        if next_more == more or spent + base + next_more * found > seconds:
            break
        more = next_more
    return found


def makespan(durations: Iterable[float], devices: int) -> float:
    """Seconds until all is done, the longest pack first to the device that is free first.

    >>> makespan([3, 3, 2, 2, 2], devices=2)
    7.0
    """
    free = [0.0] * devices
    for duration in sorted(durations, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def _row_key(pack: Sequence[Unit]) -> tuple[str, int, str, str, str]:
    facts = pack[0].facts
    defense = str(facts.get("defense") or NONE)
    of = str(facts.get("source", "")), "" if defense == NONE else defense
    return pack[0].attack, int(facts["batch_size"]), *of, _work_key(pack)


def _work_key(pack: Sequence[Unit]) -> str:
    """Equal for packs whose units take about the same time, wherever an update comes from.

    Of a defense one strength stands for all: each may take a whole search of half a minute.
    """
    known, left_out = json.loads(pack_key(pack[0])), ("source", "epoch", "defense_strength")
    same = {name: value for name, value in known["shape"].items() if name not in left_out}
    return json.dumps({**known, "shape": {**same, "defense": pack[0].facts.get("defense")}}, sort_keys=True)


def _run(units: Sequence[Unit], device: torch.device, kept: Kept) -> None:
    with TemporaryDirectory() as folder:
        run_pack(units, Path(folder), device, kept, lambda _: None)


def _timed(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


PROBE_BATCHES = 40
WARM_BATCHES = 5
"""The first batches, in which memory is allocated and kernels are chosen; they are not counted where others follow."""

ONE_DEVICE = {"devices": 1, "num_nodes": 1, "strategy": "auto"}


def probe_training(config: AuditConfig, experiment: Experiment, processes: int = 1) -> Cost:
    """Train a few batches and validate once, on one device; nothing of it is kept.

    Args:
        config: the audit.
        experiment: its parts.
        processes: that will train together; each takes its share of the batches.

    Returns:
        What an epoch takes: its steps are batches (a round of FedAvg is one), and what is outside them is the
        validation. What is captured or attacked in an epoch comes on top.

    Raises:
        UsageError: settings that the Trainer or the defense refuses.
    """
    alone = {name: value for name, value in config.training.trainer.items() if name not in ONE_DEVICE}
    config = replace(config, training=replace(config.training, trainer=alone))
    prepared, batches, validation = prepare_training(config, experiment), list[float](), list[float]()

    def note_batch(trainer: lightning.Trainer, *_: object) -> None:
        synchronize(trainer.strategy.root_device)
        batches.append(time.perf_counter())

    def note_validation(*_: object) -> None:
        validation.append(time.perf_counter())

    clock = LambdaCallback(
        on_train_start=note_batch,
        on_train_batch_end=note_batch,
        on_validation_start=note_validation,
        on_validation_end=note_validation,
    )
    device = places_of(alone, config.device).strategy.root_device
    # Only this device's generator: torch's default touches every GPU of the machine.
    kept = torch.random.fork_rng([device] if device.type == "cuda" else [])
    with (
        TemporaryDirectory() as folder,
        kept,
        peak_memory(device) as peak,
        one_training(
            alone,
            config.device,
            1,
            [*prepared.callbacks, clock],
            limit_train_batches=PROBE_BATCHES,
            num_sanity_val_steps=0,
            default_root_dir=folder,
        ) as trainer,
    ):
        trainer.fit(prepared.model, datamodule=prepared.data)
        memory = peak()
        number = len(prepared.data.train_dataloader())
    warm = min(WARM_BATCHES, len(batches) - 2)
    of_batch = (batches[-1] - batches[warm]) / (len(batches) - 1 - warm)
    of_validation = validation[-1] - validation[-2] if validation else 0.0
    return Cost(of_validation, of_batch, -(-number // processes), memory)


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
