"""The throughput script runs at a small size anywhere, and counts the operations that a step does."""

import importlib.util
import json
import math
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightleak.attacks.gradient_inversion.optimize.mlp_matcher import MLPMatcher
from lightleak.attacks.gradient_inversion.optimize.objective import cosine
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_inversion.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_inversion", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("rows", [2, 7, 40])
@pytest.mark.parametrize("hidden", [(), (9,), (30, 20)], ids=str)
def test_counted_operations_are_those_that_are_done(script: ModuleType, rows: int, hidden: tuple[int, ...]) -> None:
    encoder = TableEncoder((table := load_dataset("synthetic", n_rows=100)).schema).fit(table.train)
    updates, restarts, widths = 2, 3, (encoder.width, *hidden, 2)
    shapes = [(updates, out, into) for into, out in pairwise(widths)]
    weights, targets = ([torch.rand(shape) for shape in shapes] for _ in range(2))
    biases, bias_targets = ([torch.rand(shape[:2]) for shape in shapes] for _ in range(2))
    labels = torch.zeros(updates, rows, dtype=torch.long)
    matcher = MLPMatcher(weights, biases, targets, bias_targets, labels, cosine)
    relaxation = encoder.relaxation()
    # PyTorch counts sums in place only where it is told to.
    in_place = {torch.ops.aten.baddbmm_: lambda _, left, right, **__: 2 * math.prod(left) * right[-1]}
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter, torch.no_grad():
        x, state = relaxation.forward(torch.rand(updates, restarts, rows, encoder.width))
        relaxation.backward(matcher.value_and_grad(x)[1], state)
    blocks = len(encoder.layout.blocks)
    assert script.step_flops(widths, blocks, rows, updates * restarts) == counter.get_total_flops()


def test_the_quick_size_runs_and_ends_with_its_numbers(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(["--quick", "--dataset", "fair", "--device", "cpu", "--attack", "inverting_gradients"])
    *table, last = capsys.readouterr().out.splitlines()
    numbers = json.loads(last)
    assert [one["batch_size"] for one in numbers["sizes"]] == [4, 8]
    for one in numbers["sizes"]:
        assert one["flops_per_second"] * one["seconds"] == pytest.approx(one["flops"])
        assert one["of_peak"] * numbers["peak_flops"] == pytest.approx(one["flops_per_second"])
        assert 0 < one["cell_accuracy"]["mean"] <= 1 and one["cell_accuracy"]["n"] == 2
    assert numbers["total"]["seconds"] == pytest.approx(sum(one["seconds"] for one in numbers["sizes"]))
    assert numbers["total"]["batches_per_second"] == pytest.approx(4 / numbers["total"]["seconds"])
    assert len(table) == 2 + 1 + 2 + 1 and table[-1].split()[0] == "all"


def test_attacks_that_are_not_counted_are_refused(script: ModuleType) -> None:
    with pytest.raises(SystemExit):
        script.main(["--quick", "--attack", "gradinversion"])
