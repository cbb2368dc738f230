"""What the table of filters says of the best attack."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def filters() -> Iterator[ModuleType]:
    for framework in ("nvflare", "flwr"):
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
        yield importlib.import_module("filters")


def row(attack: str, seed: int, cells: float, certified: int | None = 0) -> dict[str, Any]:
    return {"attack": attack, "seed": seed, "cells": cells, "certified_rows": certified, "certified_wrong": 0}


def test_a_cell_names_the_best_attack_and_what_is_proven(filters: ModuleType) -> None:
    rows = [row("exact", 0, 0.5, 3), row("exact_pruned", 0, 0.9, 0), row("random", 0, 0.6, None)]
    assert filters.cell(rows) == "3 of 32; 90.0 (exact_pruned, n = 1)"
    assert filters.cell([]) == "-" == filters.cell([rows[-1]])


def test_where_nothing_beats_guessing_the_same_clients_are_guessed(filters: ModuleType) -> None:
    rows = [row("exact_pruned", seed, 0.6) for seed in (0, 1)]
    rows += [row("random", seed, cells, None) for seed, cells in ((0, 0.64), (1, 0.66), (2, 0.9))]
    assert filters.cell(rows) == "0 of 64; 65.0 [52.3, 77.7] (random; 60.0 by exact_pruned, n = 2)"
