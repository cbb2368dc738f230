"""Which steps are captured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.callbacks.capture_schedule import CaptureSchedule
from lightleak.core.errors import UsageError


@given(
    epochs=st.sets(st.integers(0, 4)),
    steps=st.sets(st.integers(0, 19)),
    per_epoch=st.integers(1, 5),
)
def test_schedule_equals_a_written_out_list(epochs: set[int], steps: set[int], per_epoch: int) -> None:
    if not epochs and not steps:
        return
    schedule = CaptureSchedule(epochs, per_epoch, steps)
    length, taken, in_epoch = 4, [], dict.fromkeys(range(5), 0)
    for step in range(20):
        if schedule.wants(step // length, step, in_epoch[step // length]):
            taken.append(step)
            in_epoch[step // length] += 1
    assert set(taken) <= steps | {step for step in range(20) if step // length in epochs}
    assert steps <= set(taken)
    assert all(in_epoch[epoch] >= min(per_epoch, length) for epoch in epochs)
    if not steps:
        assert taken == [e * length + k for e in sorted(epochs) for k in range(min(per_epoch, length))]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "nothing to capture: give epochs"),
        ({"epochs": range(0)}, "nothing to capture"),
        ({"epochs": (0,), "per_epoch": 0}, "per_epoch must be at least 1, got 0"),
        ({"epochs": (0,), "max_captures": 0}, "max_captures must be at least 1, got 0"),
        ({"epochs": (3, -1)}, "epochs are counted from 0, got -1"),
        ({"steps": (-2,)}, "steps are counted from 0, got -2"),
    ],
)
def test_settings_without_meaning_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CaptureSchedule(**settings)
