"""A newcomer's path, timed: an empty folder, an installation, a CSV of one's own with 12 mixed columns, the report.

    python benchmarks/newcomer.py             # with this interpreter's installation
    python benchmarks/newcomer.py --install   # into a fresh environment first

The table is made: numbers and categories, dates, free text, missing values. The first command is refused with a
message that says what to write; the second writes that.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

ROOT = Path(__file__).parents[1]
ROWS = 600


def table(rows: int = ROWS) -> pd.DataFrame:
    """Patients of a made hospital."""
    rng = np.random.default_rng(5)
    age = rng.integers(18, 95, rows)
    frame = pd.DataFrame(
        {
            "admitted": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), unit="D"),
            "age": age,
            "sex": rng.choice(["f", "m"], rows),
            "ward": rng.choice(["cardiology", "surgery", "icu", "geriatrics", "ent"], rows),
            "bmi": rng.normal(27, 5, rows).round(1),
            "systolic": rng.integers(90, 190, rows),
            "smoker": rng.choice(["yes", "no", "former"], rows),
            "insurance": rng.choice(["public", "private", "none"], rows, p=[0.7, 0.25, 0.05]),
            "drugs": rng.poisson(3, rows),
            "creatinine": rng.lognormal(0, 0.4, rows).round(2),
            "note": [f"patient {i} came with {what}" for i, what in enumerate(rng.choice(["pain", "fever"], rows))],
            "diagnosis": np.where((age > 60) ^ (rng.random(rows) < 0.2), "heart", "other"),
        }
    )
    for name, share in {"bmi": 0.05, "smoker": 0.03, "creatinine": 0.03}.items():
        frame.loc[rng.random(rows) < share, name] = None
    return frame


def timed(what: str, command: list[str], folder: Path, expected: int = 0) -> str:
    """Run a command, print how long it took, return what it said."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    print(f"{what}: {time.perf_counter() - began:.1f} s", flush=True)
    if done.returncode != expected:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def main() -> None:
    """Time every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, python = Path(name), sys.executable
        if options.install:
            venv.create(folder / "venv", with_pip=True)
            python = str(folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python")
            given = ["-c", str(ROOT / "constraints.txt"), str(ROOT)]
            timed("pip install", [python, "-m", "pip", "install", "-q", *given], folder)
        table().to_csv(folder / "patients.csv", index=False)
        config = {"data": {"table": "patients.csv", "label": "diagnosis"}, "training": {"epochs": 3, "batch_size": 32}}
        audit = [python, "-m", "lightleak", "audit", "mine.yaml", "--output", "runs/mine"]
        (folder / "mine.yaml").write_text(yaml.safe_dump(config))
        print(timed("refusal", audit, folder, expected=2))
        config["data"] |= {"drop": ["admitted", "note"], "missing": "impute"}
        (folder / "mine.yaml").write_text(yaml.safe_dump(config))
        print(timed("audit to its report", audit, folder))


if __name__ == "__main__":
    main()
