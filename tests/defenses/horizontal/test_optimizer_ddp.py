"""Under DDP a rank is a client: its own gradient is defended with its own draws, and all ranks take one step."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lightleak.core.seeds import generator
from lightleak.data.layout import EncodedLayout
from lightleak.defenses.horizontal import UpdateDefense
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.defenses.horizontal.rounding import Clipping
from lightleak.targets import NetworkSpec, build_network
from lightleak.targets.functional import gradients

SCRIPT = Path(__file__).with_name("train_defended_on_two_processes.py")
SEED, LEARNING_RATE = 3, 0.5
DEFENSES: dict[str, UpdateDefense] = {"noise": GaussianNoise(0.1), "clipping": Clipping(0.05)}


@pytest.fixture(scope="module")
def out(leave_results: Callable[[Path], Path]) -> Path:
    return leave_results(SCRIPT)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "accumulate"), [("noise", 1), ("clipping", 2)])
def test_every_rank_steps_along_the_mean_of_what_the_ranks_send(out: Path, name: str, accumulate: int) -> None:
    network = build_network(NetworkSpec("mlp", 2, EncodedLayout.of_numerical(3), {"hidden": [5]}))
    ranks = [torch.load(out / f"{name}-{accumulate}-{rank}.pt", weights_only=True) for rank in (0, 1)]
    batches = len(ranks[0]["batches"])
    assert batches == 4
    for step, first in enumerate(range(0, batches, accumulate)):
        before, after = ranks[0]["weights"][first], ranks[0]["weights"][first + accumulate]
        sent = []
        for rank, left in enumerate(ranks):
            parts = [gradients(network, before, {}, *batch) for batch in left["batches"][first : first + accumulate]]
            own = {key: torch.stack([part[key] for part in parts]).mean(0) for key in before}
            sent.append(DEFENSES[name].apply(own, generator(SEED, "defense", rank, step)))
        for key, value in before.items():
            expected: Tensor = value - LEARNING_RATE * (sent[0][key] + sent[1][key]) / 2
            torch.testing.assert_close(after[key], expected, rtol=1e-4, atol=1e-6)
    for mine, other in zip(ranks[0]["weights"], ranks[1]["weights"], strict=True):
        assert all(torch.equal(mine[key], other[key]) for key in mine)
