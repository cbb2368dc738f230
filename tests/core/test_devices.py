"""A device by name, or one clear error; and the allocator setting, which is never needed for a right result."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from lightleak.core.devices import (
    free_memory,
    keep_freed_memory,
    one_thread,
    require_tf32,
    resolve_device,
    synchronize,
    tf32_products,
)
from lightleak.core.errors import UnsupportedError, UsageError


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let torch report ``count`` CUDA devices."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_names_become_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    pretend_gpus(monkeypatch, 0)
    assert resolve_device() == torch.device("cpu")
    pretend_gpus(monkeypatch, 2)
    assert resolve_device("auto") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize("name", ["", "gpu", "cuda:x", "meta", "mps", "cuda:-1"])
def test_names_of_no_device_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"device must be auto, cpu, cuda or cuda:N, got {name!r}"):
        resolve_device(name)


@pytest.mark.parametrize(("name", "count"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2)])
def test_devices_this_machine_lacks_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, count: int) -> None:
    pretend_gpus(monkeypatch, count)
    with pytest.raises(UsageError, match=rf"device {name!r} is not on this machine \({count} CUDA devices found\)"):
        resolve_device(name)


@pytest.mark.parametrize(
    ("largest", "kept", "calls"),
    [
        (2**40, True, [(-3, 2**30), (-1, 2**31 - 1)]),
        (2**25, True, [(-3, 2**30), (-3, 2**25), (-1, 2**31 - 1)]),  # glibc before 2.35
        (0, False, [(-3, 2**30), (-3, 2**25)]),
    ],
)
def test_freed_memory_is_kept_as_far_as_glibc_allows(
    monkeypatch: pytest.MonkeyPatch, largest: int, kept: bool, calls: list[tuple[int, int]]
) -> None:
    made: list[tuple[int, int]] = []

    def mallopt(which: int, size: int) -> int:
        made.append((which, size))
        return int(which != -3 or size <= largest)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert keep_freed_memory.__wrapped__() is kept
    assert made == calls


def test_a_system_without_glibc_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    for library in (missing, lambda name: SimpleNamespace()):
        monkeypatch.setattr(ctypes, "CDLL", library)
        assert keep_freed_memory.__wrapped__() is False


@pytest.mark.parametrize(("capability", "refused"), [((7, 5), True), ((8, 0), False), ((9, 0), False)])
def test_tf32_needs_a_gpu_that_has_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], refused: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    if refused:
        with pytest.raises(UnsupportedError, match=r"compute capability 8.0 or more, got 7.5 \(Tesla T4\)"):
            require_tf32(torch.device("cuda"))
    else:
        require_tf32(torch.device("cuda"))


def test_settings_of_a_block_end_with_it() -> None:
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError), one_thread(), tf32_products(True):
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (1, "high")
        raise ZeroDivisionError
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (2, "highest")
    torch.set_num_threads(1)


def test_products_that_stay_as_they_are_ask_torch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch refuses to answer a program that has chosen by its newer settings."""
    for name in ("get_float32_matmul_precision", "set_float32_matmul_precision"):
        monkeypatch.delattr(torch, name)
    with tf32_products(False):
        pass


def test_free_memory_counts_what_this_process_holds_without_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    assert free_memory(torch.device("cuda")) == 130


def test_only_a_gpu_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    synchronize(torch.device("cpu"))
    synchronize(torch.device("cuda", 1))
    assert waited == [torch.device("cuda", 1)]
