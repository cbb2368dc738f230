"""Every precision an attack can be asked for works, or is refused with what would."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize import shell
from lightleak.attacks.gradient_inversion.optimize.problem import build_matcher
from lightleak.core.errors import UnsupportedError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder

MakeUpdate = Callable[..., tuple[ClientUpdate, GroundTruth]]
CPU = torch.device("cpu")


@pytest.mark.parametrize("rows", [2, 30], ids=["Gram form", "explicit form"])
def test_bfloat16_points_the_same_way(make_update: MakeUpdate, encoder: TableEncoder, rows: int) -> None:
    update, _ = make_update(rows, hidden=[40, 30])
    x = encoder.relax(torch.rand(1, 5, rows, encoder.width, dtype=torch.float64))
    found = {}
    for precision, dtype in (("float64", torch.float64), ("float32", torch.float32), ("bfloat16", torch.float32)):
        config, labels = InversionConfig(precision=precision), update.labels.unsqueeze(0)
        found[precision] = build_matcher([update], labels, config, CPU, dtype).value_and_grad(x.to(dtype))[1].double()

    def gap(precision: str) -> float:
        return float((found[precision] - found["float64"]).norm() / found["float64"].norm())

    assert gap("float32") < 1e-4
    assert 1e-3 < gap("bfloat16") < 0.2  # it rounds, and a ReLU near zero may switch
    assert (found["bfloat16"].sign() == found["float64"].sign()).double().mean() > 0.95


def test_two_rows_come_back_in_bfloat16(
    make_update: MakeUpdate, cell_accuracy: Callable[[Reconstruction, GroundTruth], float]
) -> None:
    update, truth = make_update(2, hidden=[20, 15])
    found = ATTACKS.get("tableak")(steps=300, restarts=3, precision="bfloat16").run(update, seed=1)
    assert found.encoded.dtype == torch.float32
    assert cell_accuracy(found, truth) >= 0.8


@pytest.mark.parametrize(
    ("network", "options"), [("resnet", {}), ("mlp", {"l2_prior": 0.1})], ids=["another network", "a prior"]
)
def test_bfloat16_is_refused_beyond_the_closed_form(
    make_update: MakeUpdate, network: str, options: dict[str, Any]
) -> None:
    update, _ = make_update(4, network, hidden=[9])
    with pytest.raises(UnsupportedError, match=r"bfloat16' is for plain ReLU networks without l2_prior.*use tf32"):
        ATTACKS.get("tableak")(precision="bfloat16", **options).check(update)


def test_bfloat16_is_refused_by_attacks_on_fedavg() -> None:
    with pytest.raises(UnsupportedError, match="precision must be one of float32, float64, tf32, got 'bfloat16'"):
        ATTACKS.get("tableak_fedavg")(precision="bfloat16")


def test_tf32_is_refused_on_a_cpu_before_any_work(make_update: MakeUpdate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "invert", lambda *_: pytest.fail("worked"))
    with pytest.raises(
        UnsupportedError, match=r"'tf32' needs a GPU of compute capability 8.0 or more, got device 'cpu'"
    ):
        ATTACKS.get("tableak")(precision="tf32").run(make_update(2)[0])


@pytest.mark.parametrize(("precision", "allowed"), [("tf32", "high"), ("float32", "highest"), ("bfloat16", "highest")])
def test_tf32_is_allowed_within_the_attack_alone(
    make_update: MakeUpdate, monkeypatch: pytest.MonkeyPatch, precision: str, allowed: str
) -> None:
    seen = []
    invert = shell.invert

    def watched(*arguments: Any) -> Any:
        seen.append(torch.get_float32_matmul_precision())
        return invert(*arguments)

    monkeypatch.setattr(shell, "require_tf32", lambda device: None)
    monkeypatch.setattr(shell, "invert", watched)
    ATTACKS.get("tableak")(precision=precision, steps=2, restarts=2).run(make_update(2)[0])
    assert seen == [allowed] and torch.get_float32_matmul_precision() == "highest"


def test_the_clock_is_read_when_the_device_is_done(make_update: MakeUpdate, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(shell, "synchronize", lambda device: order.append("waited"))
    clock = shell.time.perf_counter
    monkeypatch.setattr(shell.time, "perf_counter", lambda: order.append("read") or clock())
    ATTACKS.get("tableak")(steps=2, restarts=2).run(make_update(2)[0])
    assert order == ["read", "waited", "read"]


def test_on_a_gpu_a_call_takes_most_of_what_is_free(make_update: MakeUpdate, monkeypatch: pytest.MonkeyPatch) -> None:
    update, _ = make_update(4, hidden=[9, 8])
    made, gpu = ATTACKS.get("tableak"), torch.device("cuda")
    one = made().bytes_per_restart(update)
    monkeypatch.setattr(shell, "free_memory", lambda device: 2**20 * round(300 * one / 2**20 + 1))
    attack = made(restarts=3)
    taken = attack.updates_at_once(update, gpu) * 3 * one
    assert 0.7 * 300 * one < taken <= 0.81 * (300 * one + 2**21)
    assert attack.memory(update, 5, gpu) == 15 * one
    assert attack.memory(update, 10**6, gpu) <= taken + 3 * one
    assert attack.updates_at_once(update, CPU) == made(restarts=3, memory_mb=1024).updates_at_once(update, CPU)
    assert made(restarts=3, memory_mb=1).updates_at_once(update, gpu) == int(2**20 / one) // 3
    assert attack.config.memory_mb is None
