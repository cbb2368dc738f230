"""Many attacks on many observations: planned in packs, run by an engine, resumed where they stopped.

A pack is what one vectorized call takes, or one training with all that is attacked in it. Packs are fixed in the plan.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.grouping import by_key
from lightleak.experiments.engine import SCRATCH, Engine, scratch_folder
from lightleak.experiments.pack import Finished, Pack, Report, files_of
from lightleak.experiments.progress import PackBar, console_of
from lightleak.experiments.unit import Kept, Unit, candidates, finished_files, largest, run_pack, unit_file, write_whole

LISTED = 5
"""Failed packs that an error lists."""


ERRORS_FILE = "errors.txt"
"""Tracebacks of the packs of a run folder that failed, until all have run."""


class PackError(LightLeakError):
    """Packs failed; the results of all others are kept."""


@dataclass(frozen=True)
class UpdatePack(Pack):
    """Units of one attack on updates of the same shape."""

    units: Sequence[Unit]
    kept: Kept

    @property
    def ids(self) -> Sequence[str]:
        """Unit ids."""
        return [unit.id for unit in self.units]

    @property
    def kind(self) -> str:
        """The attack."""
        return self.units[0].attack

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """See `Pack.facts`: captures may have been added, which changes the numbers of others."""
        return {unit.id: unit.facts for unit in self.units}

    @property
    def cost(self) -> float:
        """Sum over the units."""
        return sum(unit.cost for unit in self.units)

    def run(self, folder: Path, device: torch.device, report: Report) -> None:
        """See `run_pack`."""
        run_pack(self.units, folder, device, self.kept, report)

    def shipped(self) -> "UpdatePack":
        """Return the pack with the stored updates loaded."""
        return replace(self, units=[unit.shipped() for unit in self.units])


def update_packs(units: Sequence[Unit], kept: Kept, folder: Path, device: torch.device) -> list[UpdatePack]:
    """Cut units into packs.

    Args:
        units: the plan.
        kept: what is kept of each cell.
        folder: the run folder.
        device: where attacks run.
    """
    return [UpdatePack(members, kept) for members in plan_packs(units, device, find_sizes(units, device, folder))]


def run_units(
    units: Sequence[Unit], folder: Path, engine: Engine, kept: Kept = "values", quiet: bool = False
) -> list[dict[str, Any]]:
    """Run what is not done yet and return all rows in the order of the plan; errors as for `run_packs`."""
    return rows_of(run_packs(update_packs(units, kept, folder, engine.device), folder, engine, quiet=quiet), folder)


def run_packs(
    packs: Sequence[Pack], folder: Path, engine: Engine, noun: str = "attacks", quiet: bool = False
) -> list[str]:
    """Run the packs of which a unit is not done yet, write their results, and return all unit ids.

    The costliest begin first, so that no long one is left to run alone at the end. A pack with a unit missing runs
    whole: with other neighbors its units could round differently.

    Args:
        packs: the plan.
        folder: the run folder.
        engine: where they run.
        noun: what the units are called.
        quiet: show no progress.

    Raises:
        PackError: packs failed; all others have run.
        KeyboardInterrupt: passed on; what is finished is kept.
    """
    present, ids = finished_files(folder), [id for pack in packs for id in pack.ids]
    waiting = [pack for pack in packs if not all(unit_file(folder, id).name in present for id in pack.ids)]
    waiting.sort(key=lambda pack: -pack.cost)
    before, console = len(ids) - sum(len(pack.ids) for pack in waiting), console_of(quiet or not waiting)
    failed: list[Finished] = []
    with PackBar(noun, waiting, before, console) as bar:
        try:
            for finished in engine.run(waiting, folder, bar.reach):
                if finished.error is None:
                    keep(finished, folder)
                else:
                    failed.append(finished)
                bar.finish(finished.pack, 0 if finished.error else len(finished.pack.ids))
        except BaseException:
            keep_finished_units(waiting, folder)
            raise
    if failed:
        traces = ("\n".join((pack_name(one.pack), *getattr(one.error, "__notes__", [])[-1:])) for one in failed)
        write_whole(folder / ERRORS_FILE, "\n\n".join(traces))
        raise _error_of(failed, len(waiting), folder / ERRORS_FILE) from failed[0].error
    (folder / ERRORS_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    return ids


def keep(finished: Finished, folder: Path) -> None:
    """Write the results of a pack into the run folder, the files of its units last; units that are there stay."""
    units = {f"units/{unit_file(folder, id).name}" for id in finished.pack.ids}
    for name in sorted(finished.files, key=lambda name: name in units):
        if not (name in units and (folder / name).exists()):
            write_whole(folder / name, finished.files[name])


def keep_finished_units(packs: Iterable[Pack], folder: Path) -> None:
    """Write the results of those units that interrupted packs had finished on this machine.

    Of a pack whose units had all finished everything is kept, such as the weights of a network that was scored.
    """
    for pack in packs:
        files = files_of(scratch_folder(pack, folder))
        units = [unit_file(folder, id) for id in pack.ids]
        stems = {unit.stem for unit in units if f"units/{unit.name}" in files}
        is_whole = len(stems) == len(units)
        kept = {name: file for name, file in files.items() if is_whole or Path(name).stem in stems}
        keep(Finished(pack, kept), folder)


def _error_of(failed: Sequence[Finished], of: int, traces: Path) -> PackError:
    listed = [f"{pack_name(one.pack)}: {_words(one.error)}" for one in failed[:LISTED]]
    more = [f"and {len(failed) - LISTED} more"] if len(failed) > LISTED else []
    return PackError(f"{len(failed)} of {of} packs failed: {'; '.join([*listed, *more])} (tracebacks: {traces})")


def _words(error: Exception | None) -> str:
    """What went wrong, and where unless the message says so on purpose."""
    places = [] if isinstance(error, LightLeakError) else getattr(error, "__notes__", [])[-2:-1]
    return " at ".join([f"{type(error).__name__}: {error}", *places])


def pack_name(pack: Pack) -> str:
    """Return what a pack is called in messages."""
    first, *others = pack.ids
    return f"{first} to {others[-1]} ({len(pack.ids)} units)" if others else first


def finished_rows(units: Sequence[Unit], folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the units that are done, in the order of the plan."""
    return rows_of([unit.id for unit in units], folder)


def rows_of(ids: Iterable[str], folder: Path) -> list[dict[str, Any]]:
    """Return the rows of those units that are done."""
    return [row for _, row in rows_by_unit(ids, folder)]


def rows_by_unit(ids: Iterable[str], folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of those units that are done, each with the id of its unit; a unit may hold a list of rows."""
    present = finished_files(folder)
    for id in ids:
        if (file := unit_file(folder, id)).name in present:
            kept = json.loads(file.read_text())
            yield from ((id, row) for row in (kept if isinstance(kept, list) else [kept]))


ROWS_PER_PACK = {"cpu": 1024, "cuda": 2**17}
"""Rows of one call, over all its updates and restarts. On a CPU more leaves the cache and less goes into overhead. On a
GPU it bounds the search of `find_sizes`: at so many rows a kernel takes several times as long as its launch (on an H200
50 batches of 8 and of 32 rows take the same time, of 128 rows twice that), so more would save nothing and leave the
other devices of a run without work."""

PACKS_FILE = "packs.json"

TRIAL_STEPS = 2
MARGIN = 1.25
"""A GPU must run this many times the units of a call in a trial: memory in use there is not always the same."""
FEW, ROOMY = 16, 0.5
"""Units of the first trial, and the share of the memory below which what is foreseen from it is not tried: restoring
the rows of thousands of units takes minutes."""

SHAPE = (
    "dataset",
    "target",
    "batch_size",
    "source",
    "epoch",
    "protocol",
    "local_epochs",
    "local_batch_size",
    "n_clients",
    "defense_strength",
)
"""Facts in which the units of a pack agree."""

Trial = Callable[[Unit, int, torch.device], float]
"""The share of a device's free memory that one call takes on so many units like this one; more than 1: too much."""


def plan_packs(units: Iterable[Unit], device: torch.device, sizes: Mapping[str, int] | None = None) -> list[list[Unit]]:
    """Cut neighbouring units of the same attack, settings and shape into packs, in the order of the plan.

    Args:
        units: the plan.
        device: where packs run.
        sizes: units of a pack by `pack_key`, from `find_sizes`; `ROWS_PER_PACK` says it for those left out.
    """
    packs: list[list[Unit]] = []
    for key, group in groupby(units, pack_key):
        members = list(group)
        size = (sizes or {}).get(key) or _size_by_rows(members[0], device)
        packs += [members[i : i + size] for i in range(0, len(members), size)]
    return packs


def find_sizes(units: Sequence[Unit], device: torch.device, folder: Path, taken: Trial | None = None) -> dict[str, int]:
    """How many units of each kind one call takes on a GPU, for `plan_packs`; empty for a CPU, where nothing is tried.

    The number is that of the device, however few units there are: more may come to the same folder later. The result
    is kept in ``folder/packs.json``. Where this process has no GPU, as on the head node of a cluster, nothing is tried.

    Args:
        units: the plan.
        device: where packs run.
        folder: the run folder.
        taken: tries a number of units; by default `memory_taken`.

    Returns:
        Units by `pack_key`.

    Raises:
        UsageError: not even one unit fits into the memory of the device.
    """
    if device.type == "cpu" or not (taken or torch.cuda.is_available()):
        return {}
    file = folder / PACKS_FILE
    firsts = {key: alike[0] for key, alike in by_key(units, pack_key).items()}
    tried = [key for key in firsts if firsts[key].make_attack().packs_updates]

    known = _read_sizes(file)
    if missing := [key for key in tried if key not in known]:
        known |= {key: _find_size(firsts[key], device, taken or memory_taken) for key in missing}
        entries = [{**json.loads(key), "units": size} for key, size in known.items()]
        write_whole(file, json.dumps({"units_of_a_call": entries}, indent=1))
    return known


def memory_taken(unit: Unit, number: int, device: torch.device) -> float:
    """The share of the GPU's free memory that the attack of ``unit`` takes on so many copies of its observation.

    A few steps are run; infinite where memory does not suffice.
    """
    update, _ = unit.observe()
    attack = unit.make_attack(steps=TRIAL_STEPS).on_card(device)
    if not attack.is_cut(update, device):
        attack = attack.uncut(update, number)  # else a trial beyond the budget would be several small calls
    free, before = torch.cuda.mem_get_info(device)[0], torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        attack.run_many([update] * number, range(number), device)
    except torch.OutOfMemoryError:
        return math.inf
    finally:
        torch.cuda.empty_cache()
    return (torch.cuda.max_memory_allocated(device) - before) / free


def pack_key(unit: Unit) -> str:
    """Attack, settings and shape of a unit as JSON: equal for the units that may share a pack."""
    shape = {key: unit.facts.get(key) for key in SHAPE}
    return json.dumps({"attack": unit.attack, "options": unit.options, "shape": shape}, sort_keys=True, default=str)


def largest_that_fits(taken: Callable[[int], float], most: int) -> int:
    """The number of units to take, at most ``most``, such that `MARGIN` times as many fit; at least one, if one fits.

    Where `FEW` units leave no doubt that ``most`` fit, nothing else is tried. Else numbers are doubled until one is too
    large; then the middle is tried, once.

    Args:
        taken: the share of the memory that a number of units takes.
        most: units.

    >>> largest_that_fits(lambda units: units / 20, most=100)
    16
    """

    def fits(number: int) -> bool:
        return taken(math.ceil(MARGIN * number)) <= 1

    few = min(FEW, most)
    if taken(few) * MARGIN * most / few <= ROOMY:
        return most
    found, tried = 0, 1
    while found < most and fits(tried):
        found, tried = tried, min(2 * tried, most)
    if not found:
        return int(taken(1) <= 1)
    middle = (found + tried) // 2
    return middle if middle > found and fits(middle) else found


def _find_size(unit: Unit, device: torch.device, taken: Trial) -> int:
    uncut = unit.make_attack().on_card(device).updates_at_once(unit.observe()[0], device)
    most = min(uncut, _size_by_rows(unit, device))
    found = largest_that_fits(lambda number: taken(unit, number, device), most)
    if not found:
        raise UsageError(
            f"one call of {unit.attack} on an update of batch size {unit.facts['batch_size']} does not fit into the "
            f"memory that {device} has free: set memory_mb of the attack, or take fewer restarts"
        )
    return found


def _size_by_rows(unit: Unit, device: torch.device) -> int:
    attack = unit.make_attack()
    settings = attack.options()
    # Updates that are worked on one after the other would keep other cores waiting: every step counts.
    steps = 1 if attack.packs_updates or device.type != "cpu" else largest(settings, "steps")
    return max(1, int(ROWS_PER_PACK[device.type] // (candidates(settings) * steps * unit.rows)))


def _read_sizes(file: Path) -> dict[str, int]:
    if not file.is_file():
        return {}
    entries = json.loads(file.read_text())["units_of_a_call"]
    return {json.dumps({k: v for k, v in e.items() if k != "units"}, sort_keys=True): e["units"] for e in entries}


def packs_without_a_run(units: Sequence[Unit], device: torch.device) -> list[list[Unit]]:
    """The packs that a run would have; no folder remembers what was found for them."""
    with TemporaryDirectory() as folder:
        return plan_packs(units, device, find_sizes(units, device, Path(folder)))
