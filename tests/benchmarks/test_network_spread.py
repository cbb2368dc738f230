"""The spread between networks is told from that between batches."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "network_spread.py"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("network_spread", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))  # as Python does for a script: the others lie beside it
        spec.loader.exec_module(module)
        yield module


@pytest.mark.parametrize("deviation", [0.0, 1.5])
def test_the_deviation_between_networks_is_that_of_cells_drawn_with_it(script: ModuleType, deviation: float) -> None:
    random = np.random.default_rng(0)
    drawn = [
        script.between_networks(
            random.normal(size=(6, 8)) + 5 * random.normal(size=8) + deviation * random.normal(size=(6, 1))
        )
        for _ in range(500)
    ]
    found, chances = (np.array(values) for values in zip(*drawn, strict=True))
    assert np.square(found).mean() == pytest.approx(deviation**2, abs=0.25)
    if deviation:
        assert (chances < 0.05).mean() > 0.9
    else:
        assert (chances < 0.05).mean() == pytest.approx(0.05, abs=0.03)


def test_a_table_has_a_line_per_setting_of_the_batches_that_all_networks_have(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(network: int, batch: int, cells: float) -> dict[str, object]:
        return {"dataset": "adult", "rows": 16, "attack": "tableak", "network": network, "batch": batch, "cells": cells}

    lines = [line(0, 0, 0.8), line(0, 1, 0.9), line(1, 0, 0.7), line(1, 1, 0.82), line(0, 2, 0.1)]
    script.print_table(lines)
    assert "| adult | 16 | tableak | 2 x 2 | 85.0, 76.0 |" in capsys.readouterr().out
