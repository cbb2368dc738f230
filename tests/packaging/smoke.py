"""Tries an installed LightLeak with all extras, without pytest and away from the checkout: ``python smoke.py``."""

import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path
from tempfile import TemporaryDirectory

EXTRAS = {
    "cluster": "ray",
    "dp": "opacus",
    "tracking": "mlflow",
    "flower": "flwr",
    "nvflare": "nvflare",
    "images": "PIL",
    "scores": "sdmetrics",
    "tabnet": "pytorch_tabnet",
    "zoo": "tabm",
}
"""One package of every extra in ``all``."""

CONFIG = """
data: {table: people.csv, label: ill}
target: {options: {hidden: [8]}}
training: {epochs: 1, batch_size: 4}
capture: {epochs: [0], per_epoch: 1}
initial: {batch_sizes: [4], batches: 1}
attacks: {tableak: {restarts: 2, steps: 5}, random: {}}
device: cpu
workers: 1
"""
ROWS = "".join(f"{20 + i % 50},{'fm'[i % 2]},{('no', 'yes')[i % 3 == 0]}\n" for i in range(60))
COMMANDS = (
    ["--version"],
    ["list", "attacks"],
    ["explain", "tableak"],
    ["data", "describe", "people.csv", "--label", "ill"],
    ["audit", "people.yaml", "--output", "run"],
    ["report", "run", "--redact", "--output", "redacted.html"],
)


def lightleak(*arguments: str, folder: str) -> str:
    """What the command prints; an exit code other than 0 ends the program."""
    command = [sys.executable, "-m", "lightleak", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"lightleak {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main() -> None:
    """Import every extra, then go from a table to a report."""
    package = Path(import_module("lightleak").__file__).parent
    if not (package / "py.typed").is_file():
        sys.exit(f"py.typed is missing in {package}")
    for extra, name in EXTRAS.items():
        try:
            import_module(name)
        except ImportError as error:
            sys.exit(f"extra {extra!r}: {name} cannot be imported ({error})")
    with TemporaryDirectory() as folder:
        (Path(folder) / "people.csv").write_text(f"age,sex,ill\n{ROWS}")
        (Path(folder) / "people.yaml").write_text(CONFIG)
        for arguments in COMMANDS:
            lightleak(*arguments, folder=folder)
        for name in ("run/report.html", "run/results.json", "redacted.html"):
            if not (Path(folder) / name).stat().st_size:
                sys.exit(f"{name} is empty")
    sys.stdout.write(f"lightleak {metadata.version('lightleak')} of {package}: all is well\n")


if __name__ == "__main__":
    main()
