"""Every block of Python in README.md and below docs/ runs, page by page, in a folder with what the pages speak of."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lightleak

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"# (\w[\w-]*\.yaml)\n")
SHORT = 15


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text()) if found == language]


ELSEWHERE = {"other-frameworks.md"}
"""Pages whose blocks need frameworks that may be absent; tests/integrations runs them."""

PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if blocks(page, "python") and page.name not in ELSEWHERE
]


def patients(n: int = 160, diagnoses: tuple[str, ...] = ("benign", "malign")) -> pd.DataFrame:
    """The table that the pages call patients.csv: twelve columns, dates, gaps and free text among them."""
    rng = np.random.default_rng(0)
    pressure = rng.normal(120, 15, n).round()
    pressure[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "patient_id": rng.integers(1, 60, n),
            "age": rng.integers(18, 95, n),
            "sex": rng.choice(["f", "m"], n),
            "admitted": pd.date_range("2024-01-01", periods=n).strftime("%Y-%m-%d"),
            "ward": rng.choice(["A", "B", "C"], n),
            "weight": rng.normal(75, 12, n).round(1),
            "pressure": pressure,
            "smoker": rng.choice(["yes", "no"], n),
            "note": [f"patient {i} has no complaint" for i in range(n)],
            "insurance": rng.choice(["public", "private"], n),
            "visits": rng.integers(0, 9, n),
            "diagnosis": rng.choice(diagnoses, n),
        }
    )


@pytest.mark.usefixtures("quick_by_default")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    patients(diagnoses=("benign", "malign", "unclear")).to_csv("patients.csv", index=False)
    for text in blocks(page, "yaml"):
        if named := NAMED_FILE.match(text):
            Path(named[1]).write_text(text)
    namespace: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(blocks(page, "python"), 1):
        exec(compile(block, f"{page.name}, python block {number}", "exec"), namespace)
    assert capsys.readouterr().out.strip()


def test_the_schema_describes_the_table(tmp_path: Path) -> None:
    schemas = [text for text in blocks(ROOT / "docs" / "index.md", "yaml") if text.startswith("# schema.yaml")]
    file = tmp_path / "schema.yaml"
    file.write_text(*schemas)
    data = lightleak.prepare(patients(), label="diagnosis", schema=file)
    assert data.schema.names == ("age", "sex", "pressure") and data.schema.secrets == ("sex", "diagnosis")


def test_a_module_is_audited_in_as_few_lines_as_promised() -> None:
    assert PAGES[0].name == "README.md"
    (first,) = blocks(PAGES[0], "python")
    assert "audit_model" in first and len([line for line in first.splitlines() if line]) <= SHORT
    assert first == blocks(ROOT / "docs" / "python.md", "python")[0]


def test_the_callback_is_as_few_lines_as_promised() -> None:
    project, watched = blocks(ROOT / "docs" / "python.md", "python")[1:3]
    added = [line for line in watched.splitlines() if "lightleak" in line or "callbacks=" in line]
    assert "lightleak" not in project and "LeakageCallback" in watched and len(added) + 1 <= 3  # and the import
