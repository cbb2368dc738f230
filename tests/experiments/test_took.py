"""What an attack takes is its own: not what an attack before it in the same process took."""

from pathlib import Path

import pytest
import torch

from lightleak.core import devices
from lightleak.experiments.took import Took

MEBIBYTES = 2**20


@pytest.mark.skipif(not devices.CLEAR_REFS.exists(), reason="this system cannot reset the peak of a process")
def test_memory_of_an_earlier_attack_does_not_count() -> None:
    devices.keep_freed_memory()  # as every audit does
    with Took() as large:
        torch.ones(400 * MEBIBYTES, dtype=torch.uint8)
    with Took() as small:
        torch.ones(MEBIBYTES, dtype=torch.uint8)
    assert large.peak_memory is not None and small.peak_memory is not None
    assert small.peak_memory < large.peak_memory - 200 * MEBIBYTES


@pytest.mark.skipif(not devices.CLEAR_REFS.exists(), reason="this system cannot reset the peak of a process")
def test_what_surrounds_an_attack_keeps_its_peak() -> None:
    with devices.peak_resident() as whole:
        torch.ones(400 * MEBIBYTES, dtype=torch.uint8)
        with Took() as inner:
            pass
    outer = whole()
    assert outer is not None and inner.peak_memory is not None and outer > inner.peak_memory + 200 * MEBIBYTES


def test_a_peak_that_may_be_of_earlier_work_is_not_stated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "CLEAR_REFS", tmp_path / "missing" / "clear_refs")
    with Took() as took:
        pass
    assert took.facts()["peak_memory"] is None
