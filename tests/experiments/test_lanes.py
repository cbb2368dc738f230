"""Devices and number of lanes, for machines that are not here."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.ranks import Ranks
from lightleak.experiments import lanes
from lightleak.experiments.lanes import cores_of_rank, lanes_here, plan_lanes

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def names(device: str, workers: int, waiting: int, ranks: Ranks, cores: int = 8, gpus: int = 0) -> list[str]:
    return [str(lane) for lane in plan_lanes(torch.device(device), workers, waiting, ranks, cores, gpus)]


@pytest.mark.parametrize(
    ("workers", "waiting", "cores", "lanes"),
    [(0, 100, 8, 8), (0, 3, 8, 3), (0, 0, 8, 1), (5, 100, 2, 5), (5, 4, 2, 4), (1, 100, 8, 1), (0, 100, 1, 1)],
)
def test_a_cpu_takes_a_lane_per_core_and_no_more_than_there_are_packs(
    workers: int, waiting: int, cores: int, lanes: int
) -> None:
    assert names("cpu", workers, waiting, Ranks(), cores) == ["cpu"] * lanes


@pytest.mark.parametrize(("workers", "waiting", "gpus"), [(0, 100, 4), (2, 100, 2), (9, 100, 4), (0, 3, 3), (0, 0, 1)])
def test_a_process_by_itself_takes_every_gpu(workers: int, waiting: int, gpus: int) -> None:
    assert names("cuda", workers, waiting, Ranks(), gpus=4) == [f"cuda:{i}" for i in range(gpus)]


def test_under_a_launcher_every_rank_takes_the_gpu_of_its_local_rank() -> None:
    ranks = [Ranks(rank, 8, rank % 4, 4) for rank in range(8)]
    assert [names("cuda", 0, 100, one, gpus=4) for one in ranks] == [[f"cuda:{i % 4}"] for i in range(8)]
    # srun --gpus-per-task=1: each task sees its own GPU, as number 0.
    assert [names("cuda", 0, 100, one, gpus=1) for one in ranks] == [["cuda:0"]] * 8


def test_one_rank_on_each_node_takes_the_node() -> None:
    assert names("cuda", 0, 100, Ranks(1, 2, 0, 1), gpus=3) == ["cuda:0", "cuda:1", "cuda:2"]


@pytest.mark.parametrize("ranks", [Ranks(), Ranks(3, 8, 3, 4)])
def test_a_gpu_that_is_named_is_taken_alone(ranks: Ranks) -> None:
    assert names("cuda:1", 0, 100, ranks, gpus=4) == ["cuda:1"]
    assert names("cuda:1", 7, 100, ranks, gpus=4) == ["cuda:1"]


@given(machine=st.integers(1, 300), local_world=st.integers(1, 64), bound=st.booleans(), usable=st.integers(1, 300))
def test_ranks_of_a_machine_do_not_take_more_cores_than_there_are(
    machine: int, local_world: int, bound: bool, usable: int
) -> None:
    usable = min(machine, usable)
    cores = cores_of_rank(machine, usable, local_world, bound)
    assert cores >= 1
    assert cores == 1 or cores * local_world <= machine
    assert cores <= usable
    if not bound:
        assert cores == 1 or cores * local_world <= usable


def test_here_it_asks_the_machine_and_its_container(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "LOCAL_RANK", "RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(lanes.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(lanes, "usable_cores", lambda: 48)
    monkeypatch.setattr(lanes, "core_quota", lambda: None)
    assert len(lanes_here(CPU, 0, 100)) == 48
    monkeypatch.setattr(lanes, "core_quota", lambda: 6.5)
    assert len(lanes_here(CPU, 0, 100)) == 7
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert lanes_here(CUDA, 0, 100) == [torch.device("cuda:0"), torch.device("cuda:1")]
    for name, value in {"WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert len(lanes_here(CPU, 0, 100)) == 3
    assert lanes_here(CUDA, 0, 100) == [torch.device("cuda:1")]
