"""A campaign shared by processes: wall time on one process and on several, one thread each, and whether results agree.

    python benchmarks/campaign.py --units 40 --steps 300

Every process is started like a rank of torchrun and works in a run folder of the same config; the clock runs from the
moment at which all have loaded their libraries, as a campaign of hours would not notice those seconds, until the last
one has returned. ``--with-start`` counts them.
"""

import argparse
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def config_of(options: argparse.Namespace) -> dict[str, Any]:
    """The audit: fresh clients of one size, one attack."""
    return {
        "data": {"name": options.data},
        "target": {"network": "mlp", "options": {"hidden": [100, 100]}},
        "training": {"epochs": 0},
        "initial": {"batch_sizes": [options.rows], "batches": options.units},
        "attacks": {"tableak": {"steps": options.steps, "restarts": options.restarts}},
        "device": "cpu",
        "workers": 1,
    }


def be_a_rank(folder: Path, go: Path) -> None:
    """What one process does: load, say so, wait for the start, audit."""
    import torch
    from rich.console import Console

    from lightleak.experiments.load import parse_config
    from lightleak.experiments.run import run_audit

    torch.set_num_threads(1)
    config = parse_config(json.loads((folder / "config.json").read_text()))
    (folder / f"ready-{os.getpid()}").touch()
    while not go.is_file():
        time.sleep(0.01)
    run_audit(config, folder / "run", console=Console(file=io.StringIO()))


def measure(config: dict[str, Any], processes: int, folder: Path, with_start: bool) -> tuple[float, float, list[Any]]:
    """Seconds on so many processes, the sum of all attacks' seconds, and the rows without their seconds."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    go = folder / "go"
    if with_start:
        go.touch()
    began = time.perf_counter()
    started = []
    for rank in range(processes):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        environment = {**os.environ, **place, "LOCAL_WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--rank-of", str(folder)]
        started.append(subprocess.Popen(command, env=environment))
    if not with_start:
        while len(list(folder.glob("ready-*"))) < processes and all(one.poll() is None for one in started):
            time.sleep(0.02)
        began = time.perf_counter()
        go.touch()
    if codes := [one.wait() for one in started if one.wait()]:
        raise SystemExit(f"a process ended with code {codes[0]}")
    seconds = time.perf_counter() - began
    rows = json.loads((folder / "run" / "results.json").read_text())["rows"]
    in_attacks = sum(row.pop("seconds") for row in rows)
    return seconds, in_attacks, rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="adult")
    parser.add_argument("--units", type=int, default=40)
    parser.add_argument("--rows", type=int, default=32, help="rows of a client")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--restarts", type=int, default=30)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="measurements of each, in turns")
    parser.add_argument("--with-start", action="store_true", help="count the loading of libraries as well")
    parser.add_argument("--rank-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of is not None:
        be_a_rank(options.rank_of, options.rank_of / "go")
        return
    config = config_of(options)
    print(f"{options.units} units, {config['attacks']}, {options.rows} rows of {options.data}; {platform.machine()}")
    expected, ratios = None, []
    with tempfile.TemporaryDirectory() as made:
        for repeat in range(options.repeats):
            taken = {}
            for processes in (1, options.processes):
                place = Path(made) / f"{repeat}-{processes}"
                taken[processes], in_attacks, rows = measure(config, processes, place, options.with_start)
                expected = expected or rows
                equal = "equal" if rows == expected else "DIFFERENT"
                print(
                    f"{processes} processes: {taken[processes]:7.2f} s wall, {in_attacks:7.2f} s in attacks, "
                    f"results {equal}",
                    flush=True,
                )
            ratios.append(taken[options.processes] / taken[1])
            print(f"ratio {ratios[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
