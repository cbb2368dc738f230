"""On a GPU, steps that are recorded once and repeated do what steps one by one do."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.chain_step import ChainStep
from lightleak.attacks.gradient_inversion.optimize import engine
from lightleak.attacks.gradient_inversion.optimize.mlp_matcher import MLPMatcher
from lightleak.attacks.gradient_inversion.optimize.objective import OBJECTIVES
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder
from lightleak.data.relaxation import Relaxation
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.reproductions.tableak.fedsgd import Setting

FEDAVG = ProtocolConfig("fedavg", local_epochs=2, local_batches=2)


def attacked(protocol: ProtocolConfig, settings: dict[str, Any]) -> Reconstruction:
    """Sixteen rows of German Credit, attacked on the GPU."""
    options = tuple(sorted({"restarts": 4, "steps": 120, **settings}.items()))
    unit = Setting("german", "mlp-20-10", "tableak", options, "true", 16, protocol=protocol).unit(0, 0, None)
    return unit.make_attack().run(unit.observe()[0], 0, "cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("protocol", [ProtocolConfig(), FEDAVG], ids=["fedsgd", "fedavg"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"schedule": "cosine"}, {"learning_rate_decay": 0.9}, {"stop_below": 0.05}, {"precision": "float64"}],
    ids=str,
)
def test_recorded_steps_are_those_taken_one_by_one(
    protocol: ProtocolConfig, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[bool] = []
    made = torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (graphs.append(True), made(graph))[1])
    recorded = attacked(protocol, settings)
    assert graphs
    monkeypatch.setattr(engine, "RECORDED_AT", 10**9)
    one_by_one, number = attacked(protocol, settings), len(graphs)
    assert len(graphs) == number
    torch.testing.assert_close(recorded.encoded, one_by_one.encoded, rtol=0, atol=1e-4)
    assert recorded.loss == pytest.approx(one_by_one.loss, rel=1e-3)


@dataclass
class Part:
    """A relaxation or a matcher."""

    repeats: bool


@pytest.mark.parametrize(("parts", "recorded"), [([True, True], True), ([True, False], False), ([True, None], False)])
def test_only_steps_that_repeat_are_recorded(
    parts: list[bool | None], recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What decides needs no GPU."""
    done: list[str] = []

    class Graph:
        def replay(self) -> None:
            done.append("replayed")

    class Recording:
        def __init__(self, graph: Graph, capture_error_mode: str) -> None:
            assert capture_error_mode == "thread_local"

        def __enter__(self) -> None:
            done.append("recorded:")

        def __exit__(self, *_: object) -> None:
            pass

    devices: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext(devices.append(device)))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Recording)

    def advance(share: float) -> Tensor:
        done.append("run")
        return torch.zeros(1)

    second = torch.device("cuda:1")
    take = engine._Recorded(advance, [object() if part is None else Part(part) for part in parts], second)
    for _ in range(6):
        take(0.0)
    begun = ["run"] * 3
    assert devices == ([second] if recorded else [])
    assert done == [*begun, "recorded:", "run", *["replayed"] * 3] if recorded else done == ["run"] * 6


def test_what_changes_from_step_to_step_or_needs_the_host_does_not_repeat(encoder: TableEncoder) -> None:
    constants = encoder.shift, encoder.scale, *encoder.encoded_bounds()
    plain = Relaxation(encoder.layout, *constants)
    tied = plain.following([0], torch.zeros(1), torch.zeros(encoder.width, 1))
    assert plain.repeats and not tied.repeats
    assert not Relaxation(encoder.layout, *constants, temperature_end=0.1).repeats

    layers: list[list[Tensor]] = [[torch.zeros(1, 2, 3)], [torch.zeros(1, 2)]]
    chain = [*layers, *layers, torch.zeros(1, 4, dtype=torch.long), OBJECTIVES["cosine"]]
    changing: Any = object()
    assert MLPMatcher(*chain).repeats
    assert not MLPMatcher(*chain, straight_through=changing).repeats
    assert not MLPMatcher(*chain, whitening=changing).repeats
    assert ChainStep([None]).repeats and not ChainStep([None], changing).repeats
