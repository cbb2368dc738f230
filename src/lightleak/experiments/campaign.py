"""Many attacks on many observations: planned in packs, run by an engine, resumed where they stopped.

A pack is what one vectorized call takes, or one training with all that is attacked in it. Packs are fixed in the plan.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lightleak.core.errors import LightLeakError
from lightleak.experiments.engine import SCRATCH, Engine, scratch_folder
from lightleak.experiments.pack import Finished, Pack, Report, files_of
from lightleak.experiments.packing import find_sizes, plan_packs
from lightleak.experiments.progress import progress_bar as progress_bar
from lightleak.experiments.unit import Kept, Unit, finished_files, run_pack, unit_file, write_whole

LISTED = 5
"""Failed packs that an error lists."""


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
    total, before = sum(pack.cost for pack in waiting), len(ids) - sum(len(pack.ids) for pack in waiting)
    failed: list[Finished] = []
    with progress_bar(noun, total, quiet or not waiting, len(ids), before) as bar:
        try:
            for finished in engine.run(
                waiting, folder, lambda pack, work: bar.reach(pack.ids[0], min(work, pack.cost))
            ):
                if finished.error is None:
                    keep(finished, folder)
                else:
                    failed.append(finished)
                bar.reach(finished.pack.ids[0], finished.pack.cost, 0 if finished.error else len(finished.pack.ids))
        except BaseException:
            keep_finished_units(waiting, folder)
            raise
    if failed:
        raise _error_of(failed, len(waiting)) from failed[0].error
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    return ids


def keep(finished: Finished, folder: Path) -> None:
    """Write the results of a pack into the run folder, the files of its units last; units that are there stay."""
    units = {f"units/{unit_file(folder, id).name}" for id in finished.pack.ids}
    for name in sorted(finished.files, key=lambda name: name in units):
        if not (name in units and (folder / name).exists()):
            write_whole(folder / name, finished.files[name])


def keep_finished_units(packs: Iterable[Pack], folder: Path) -> None:
    """Write the results of those units that interrupted packs had finished on this machine."""
    for pack in packs:
        files = files_of(scratch_folder(pack, folder))
        units = [unit_file(folder, id) for id in pack.ids]
        stems = {unit.stem for unit in units if f"units/{unit.name}" in files}
        keep(Finished(pack, {name: files[name] for name in files if Path(name).stem in stems}), folder)


def _error_of(failed: Sequence[Finished], of: int) -> PackError:
    listed = [f"{_named(one.pack)}: {type(one.error).__name__}: {one.error}" for one in failed[:LISTED]]
    more = [f"and {len(failed) - LISTED} more"] if len(failed) > LISTED else []
    return PackError(f"{len(failed)} of {of} packs failed: " + "; ".join([*listed, *more]))


def _named(pack: Pack) -> str:
    first, *others = pack.ids
    return f"{first} to {others[-1]} ({len(pack.ids)} units)" if others else first


def finished_rows(units: Sequence[Unit], folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the units that are done, in the order of the plan."""
    return rows_of([unit.id for unit in units], folder)


def rows_of(ids: Iterable[str], folder: Path) -> list[dict[str, Any]]:
    """Return the rows of those units that are done; a unit may hold a list of rows."""
    present = finished_files(folder)
    files = (unit_file(folder, id) for id in ids)
    kept = (json.loads(file.read_text()) for file in files if file.name in present)
    return [row for rows in kept for row in (rows if isinstance(rows, list) else [rows])]
