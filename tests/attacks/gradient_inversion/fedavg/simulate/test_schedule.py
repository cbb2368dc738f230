"""Which steps are simulated, and what they add up to."""

import pytest

from lightleak.attacks.gradient_inversion.fedavg.simulate.schedule import Simulation, schedule_for


@pytest.mark.parametrize("simulation", ["full", "shared", "epoch", "fedsgd"])
def test_every_simulation_moves_as_far_as_the_client(simulation: Simulation) -> None:
    schedule = schedule_for(simulation, rows=50, epochs=10, batches=5, learning_rate=0.1)
    assert schedule.learning_rate * schedule.steps == pytest.approx(schedule.total_rate) == pytest.approx(5.0)
    assert schedule.copies == (10 if simulation in ("full", "epoch") else 1)


def test_batches_cover_every_row_once_and_the_last_may_be_smaller() -> None:
    schedule = schedule_for("full", rows=32, epochs=1, batches=3, learning_rate=0.1, batch_size=12)
    assert [(part.start, part.stop) for part in schedule.slices()] == [(0, 12), (12, 24), (24, 32)]
    even = schedule_for("full", rows=32, epochs=1, batches=3, learning_rate=0.1)
    assert [part.stop - part.start for part in even.slices()] == [11, 11, 10]
