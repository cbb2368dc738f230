"""How many trials several workers of a study finish in the time in which one finishes some.

    python benchmarks/tuning.py --workers 1 2 --trials 12

Every trial is the same attack on the same clients at the same budget of steps, so that trials cost the same: the number
of workers is all that differs. The first number of workers is asked for ``--trials`` trials and sets the time, that of
the whole command with imports, the table and the start of processes; the others are asked for as many times more as
they are, and the trials that end within that time are counted.
"""

import argparse
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import yaml

from lightleak.tuning.config import load_tune_config
from lightleak.tuning.study import Study


def study(dataset: str, trials: int, clients: int, restart_steps: int) -> dict[str, object]:
    """The config: TabLeak's step searched at random, nothing pruned, no held-out comparison."""
    rate = {"search": "float", "low": 0.05, "high": 0.07, "default": 0.06}
    return {
        "data": {"name": dataset},
        "target": {"network": "mlp", "options": {"hidden": [100, 100]}},
        "training": {"epochs": 0},
        "initial": {"batch_sizes": [32], "batches": clients},
        "attacks": {"tableak": {"restarts": 30, "learning_rate": rate}},
        "device": "cpu",
        "study": {
            "objectives": {"metric": "cell_accuracy", "where": {"attack": "tableak"}},
            "trials": trials,
            "budget": {"restart_steps": restart_steps},
            "report_every": clients,
            "sampler": "random",
            "held_out": 0,
        },
    }


def measure(config: dict[str, object], workers: int) -> tuple[float, list[float]]:
    """Seconds of the whole command, and the seconds after its start at which its trials ended."""
    with tempfile.TemporaryDirectory() as name:
        file, folder = Path(name) / "study.yaml", Path(name) / "study"
        file.write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "lightleak", "tune", str(file), "--output", str(folder)]
        began = datetime.now()
        subprocess.run([*command, "--workers", str(workers)], check=True, stdout=subprocess.DEVNULL)
        seconds = (datetime.now() - began).total_seconds()
        trials = Study(load_tune_config(file), folder).trials
        return seconds, [(trial.datetime_complete - began).total_seconds() for trial in trials]


def main() -> None:
    """Print a line per number of workers, and what each gains over the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--restart-steps", type=int, default=22_500)
    chosen = parser.parse_args()
    limit, first = None, 0
    for workers in chosen.workers:
        trials = chosen.trials * workers // chosen.workers[0]
        seconds, ends = measure(study(chosen.dataset, trials, chosen.clients, chosen.restart_steps), workers)
        limit = limit or seconds
        inside = sum(end <= limit for end in ends)
        first = first or inside
        print(f"{workers} workers: {inside} trials in {limit:.1f} s, {inside / first:.2f} times the first", flush=True)


if __name__ == "__main__":
    main()
