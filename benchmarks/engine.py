"""Engines compared: wall time on one worker, on several and on Ray, and what an engine adds to the work.

    python benchmarks/engine.py --units 40 --steps 300

One worker is this process. ``start`` is what the first packs take more than later ones: worker processes load their
libraries. ``a pack`` is what a pack of next to no work takes. ``wall`` is of the attacks, on workers that have started.
"""

import argparse
import json
import platform
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lightleak.experiments.campaign import UpdatePack, run_packs, run_units
from lightleak.experiments.engine import Engine, open_engine
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.load import parse_config
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.took import TOOK
from lightleak.experiments.unit import Unit

EMPTY_PACKS = 50


def units_of(options: argparse.Namespace, attack: str, settings: dict[str, Any]) -> list[Unit]:
    """An attack on fresh clients of one size."""
    tree = {
        "data": {"name": options.data},
        "target": {"network": "mlp", "options": {"hidden": [100, 100]}},
        "training": {"epochs": 0},
        "initial": {"batch_sizes": [options.rows], "batches": options.units},
        "attacks": {attack: settings},
    }
    config = parse_config(tree)
    return plan_units(config, prepare_experiment(config), Path())


def empty(unit: Unit, name: str, number: int) -> list[UpdatePack]:
    """Packs of next to no work."""
    return [UpdatePack([replace(unit, id=f"{name}-{i}")], "nothing") for i in range(number)]


def seconds_of(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(engine: Engine, units: list[Unit], baseline: Unit, folder: Path) -> tuple[float, float, float, list[Any]]:
    """Seconds of the start, of an empty pack and of the attacks; and the rows without their seconds."""
    first = seconds_of(lambda: run_packs(empty(baseline, "first", engine.slots), folder, engine, quiet=True))
    again = seconds_of(lambda: run_packs(empty(baseline, "again", engine.slots), folder, engine, quiet=True))
    pack = seconds_of(lambda: run_packs(empty(baseline, "empty", EMPTY_PACKS), folder, engine, quiet=True))
    rows: list[Any] = []
    wall = seconds_of(lambda: rows.extend(run_units(units, folder, engine, "nothing", quiet=True)))
    kept = [{key: value for key, value in row.items() if key not in TOOK} for row in rows]
    return first - again, pack / EMPTY_PACKS, wall, kept


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="adult")
    parser.add_argument("--units", type=int, default=40)
    parser.add_argument("--rows", type=int, default=32, help="rows of a client")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--restarts", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="measurements of each, in turns")
    options = parser.parse_args()
    torch.set_num_threads(1)
    units = units_of(options, "tableak", {"steps": options.steps, "restarts": options.restarts})
    (baseline, *_) = units_of(options, "random", {})
    print(f"{options.units} units of tableak, {options.rows} rows of {options.data}; {platform.machine()}")
    print(f"{'engine':8}{'workers':>8}{'connect':>9}{'start':>8}{'a pack':>9}{'wall':>9}{'ratio':>7}  results")
    expected, alone = None, 0.0
    for _ in range(options.repeats):
        for engine, workers in (("local", 1), ("local", options.workers), ("ray", options.workers)):
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                with open_engine(RunConfig(engine=engine, device="cpu", workers=workers)) as opened:
                    connect = time.perf_counter() - began
                    start, pack, wall, rows = measure(opened, units, baseline, Path(folder))
            text = json.dumps(rows, sort_keys=True)
            expected, alone = expected or text, wall if (engine, workers) == ("local", 1) else alone
            equal = "equal" if text == expected else "DIFFERENT"
            times = f"{connect:8.2f}s{start:7.2f}s{pack * 1000:7.1f}ms{wall:8.2f}s{wall / alone:7.3f}"
            print(f"{engine:8}{workers:8}{times}  {equal}", flush=True)


if __name__ == "__main__":
    main()
