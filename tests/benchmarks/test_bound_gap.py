"""The benchmark of the gap between attack and bound prints every game and says whether a bound is exceeded."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from lightleak.experiments.kinds.frontier import games

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bound_gap.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_bound_gap", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SIGMAS", (1.0,))
    monkeypatch.setattr(games, "WHOLE", 30)
    return module


@pytest.mark.parametrize("cheats", [False, True])
def test_it_plays_prints_and_draws(script: Any, cheats: bool, monkeypatch, tmp_path, capsys) -> None:
    """An attack that is given the truth exceeds the bound, and the exit status says so."""
    if cheats:
        monkeypatch.setattr(games, "play", lambda at, noise, prior, trials, *_: prior.new_ones(trials).bool())
    page = tmp_path / "gap.html"
    monkeypatch.setattr(
        sys, "argv", ["bound_gap.py", "--data", "synthetic", "--sets", "2", "--trials", "50", "--page", str(page)]
    )
    assert script.main() == cheats
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("| which of")]
    assert [line.split(" |")[0] for line in lines] == ["| which of 2 rows", "| which of 10 rows", "| which of 100 rows"]
    assert lines[0].endswith("84.1 |") and "| whole row of 30 |" in printed
    assert ("no bound is exceeded" in printed) is not cheats
    assert ("more often than the bound explains" in page.read_text()) is cheats
