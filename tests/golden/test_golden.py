"""Small runs of every kind give the rows, summaries and printed numbers that they gave when they were recorded.

A redesign must not change a result. To record again after a change that is meant to, run
``LIGHTLEAK_RECORD_GOLDEN=new pytest tests/golden -n0``, then the same with ``=again``, which keeps the printed numbers
that both runs share (the others are times), and say in the commit why the numbers changed.
"""

import json
import math
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.cli import main

HERE = Path(__file__).parent
RECORD = os.environ.get("LIGHTLEAK_RECORD_GOLDEN")
CPU_INFO = Path("/proc/cpuinfo")
MAKER = re.search(r"vendor_id\s*: (\S+)", CPU_INFO.read_text() if CPU_INFO.is_file() else "")
MADE_ON = {
    "torch": torch.__version__,
    "cpu": torch.backends.cpu.get_cpu_capability(),
    "maker": MAKER.group(1) if MAKER else "",  # matrix products of one torch differ between AMD's and Intel's AVX512
}
TIMES = re.compile(r"seconds|^(peak_memory|worker|command)$")
"""Keys whose values are times, or say who did the work."""
LOOSE = {"rel": 0.1, "abs": 0.1}
"""Another torch or processor rounds otherwise, and some attacks follow the sign of a gradient."""


class Tables(HTMLParser):
    """Text of a page, and of the cells of its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.text: list[str] = []
        self.inside = False
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.hidden += tag in ("style", "script")
        if tag in ("td", "th"):
            self.inside = True
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("style", "script")
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.text.append(data)
            if self.inside:
                self.cells[-1] += f" {data}"


def numbers(text: str) -> Iterator[str]:
    yield from re.findall(r"\d+(?:\.\d+)?", text.replace("−", "-"))


def facts_of(page: Path) -> list[str]:
    """Decimal numbers of the tables of a page but for versions; whole ones may be seconds, ranks or years."""
    found = Tables()
    found.feed(re.sub(r"<summary>Versions and machine</summary>.*?</details>", "", page.read_text(), flags=re.DOTALL))
    return sorted({one for cell in found.cells for one in numbers(cell) if "." in one}, key=float)


def shown_in(page: Path) -> set[str]:
    found = Tables()
    found.feed(page.read_text())
    return set(numbers(" ".join(found.text)))


def untimed(value: Any) -> Any:
    """Without times and paths, floats to twelve digits."""
    if isinstance(value, dict):
        return {key: untimed(one) for key, one in value.items() if not TIMES.search(key)}
    if isinstance(value, list):
        return [untimed(one) for one in value]
    return float(f"{value:.12g}") if isinstance(value, float) and math.isfinite(value) else value


def held(found: Any, expected: Any, exact: bool, where: str) -> None:
    """Every key and value of ``expected`` is in ``found``; new keys may be added."""
    if isinstance(expected, dict):
        assert isinstance(found, dict), where
        assert set(expected) <= set(found), f"{where}: {sorted(set(expected) - set(found))} lost"
        for key, one in expected.items():
            held(found[key], one, exact, f"{where}.{key}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), where
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            held(one, other, exact, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, **({"rel": 1e-9, "abs": 1e-12} if exact else LOOSE)), where
    elif exact:
        assert found == expected, where
    else:
        assert isinstance(found, type(expected)) or isinstance(expected, int | type(None)), where


def visits(folder: Path) -> None:
    """900 visits of 500 patients: a number, a count and two categories that depend on the diagnosis."""
    random, n, patients = np.random.default_rng(0), 900, 500
    label = random.choice(6, n, p=[0.25, 0.2, 0.18, 0.15, 0.12, 0.1])
    columns = {
        "patient": [f"P{number:05d}" for number in random.integers(0, patients, n)],
        "glucose": (5 + 1.5 * (label % 3) + random.normal(0, 1, n)).round(2),
        "visits": random.poisson(1 + label % 3, n),
        "ward": np.array(["a", "b", "c"])[(label + (random.random(n) < 0.2)) % 3],
        "smoker": np.where(random.random(n) < 0.2 + 0.1 * label, "yes", "no"),
        "diagnosis": [f"d{one}" for one in label],
    }
    pd.DataFrame(columns).to_csv(folder / "visits.csv", index=False)


RUNS: dict[str, list[str]] = {
    "updates": ["audit", "updates.yaml"],
    "fedavg": ["audit", "fedavg.yaml"],
    "vertical": ["audit", "vertical.yaml"],
    "released": ["audit", "released.yaml"],
    "frontier": ["audit", "frontier.yaml"],
    "study": ["tune", "study.yaml", "--workers", "1"],
    "reproduction": ["reproduce", "tableak-table18", "--attacks", "random", "--batches", "2", "--batch-sizes", "8,16"],
    "network_facts": ["reproduce", "fedavg-table5"],
    "attack_updates": ["attack", "updates.yaml", "--capture", "updates/captures"],
    "attack_vertical": ["attack", "vertical.yaml", "--capture", "vertical/captures"],
    "attack_released": ["attack", "released.yaml", "--capture", "released/captures"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    for config in HERE.glob("*.yaml"):
        (folder / config.name).write_text(config.read_text())
    visits(folder)
    return folder


@pytest.fixture(scope="module")
def ran(place: Path) -> Any:
    """Runs by name, each once; what is attacked offline is run before."""

    def run(name: str) -> Path:
        folder = place / name
        if not folder.exists():
            if name.startswith("attack_"):
                run(name.removeprefix("attack_"))
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(place)
                assert main([*RUNS[name], "--output", name]) == 0
        return folder

    return run


@pytest.mark.slow
@pytest.mark.xdist_group("golden")
@pytest.mark.parametrize("name", RUNS)
def test_results_are_those_recorded(name: str, ran: Any) -> None:
    folder, file = ran(name), HERE / f"{name}.json"
    raw = json.loads((folder / "results.json").read_text())
    found = untimed(raw)
    page = folder / "report.html"
    if RECORD:
        before = set(json.loads(file.read_text())["facts"]) if RECORD == "again" else None
        facts = [one for one in facts_of(page) if before is None or one in before] if page.exists() else []
        file.write_text(json.dumps({"made_on": MADE_ON, "results": found, "facts": facts}) + "\n")
    expected = json.loads(file.read_text())
    exact = expected["made_on"] == MADE_ON
    held(found, expected["results"], exact, name)
    if exact and page.exists():
        assert set(expected["facts"]) <= shown_in(page), sorted(set(expected["facts"]) - shown_in(page), key=float)


@pytest.mark.parametrize("name", ["updates", "vertical"])
def test_a_changed_number_would_be_seen(name: str) -> None:
    results = json.loads((HERE / f"{name}.json").read_text())["results"]
    changed = json.loads(json.dumps(results))
    number = next(key for key in ("cell_accuracy", "estimated_fraction") if key in changed["rows"][0])
    changed["rows"][0][number] += 1e-6
    with pytest.raises(AssertionError, match=number):
        held(changed, results, True, name)
    del changed["rows"][0][number]
    with pytest.raises(AssertionError, match="lost"):
        held(changed, results, True, name)
