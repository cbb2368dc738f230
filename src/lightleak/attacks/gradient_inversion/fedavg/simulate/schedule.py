"""Which rows the simulated client takes in which step: the five ways the FedAvg paper compares (Sec. 5.1)."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Simulation = Literal["full", "shared", "epoch", "fedsgd"]


@dataclass(frozen=True)
class Schedule:
    """The steps that an attack simulates for one client, and the variables they take.

    Attributes:
        epochs: simulated local epochs.
        batches: simulated batches per epoch.
        rows: rows of the client, N.
        batch_size: rows of every batch but, perhaps, the last.
        copies: separate variables per row: one per epoch, or one for all.
        learning_rate: of a simulated step.
        total_rate: learning rate times steps of the real client; an update divided by it has the scale of a gradient.
    """

    epochs: int
    batches: int
    rows: int
    batch_size: int
    copies: int
    learning_rate: float
    total_rate: float

    @property
    def steps(self) -> int:
        """Simulated steps."""
        return self.epochs * self.batches

    def slices(self) -> list[slice]:
        """Positions that each batch of an epoch takes.

        >>> Schedule(1, 2, 5, 3, 1, 0.1, 0.2).slices()
        [slice(0, 3, None), slice(3, 5, None)]
        """
        bounds = [min(b * self.batch_size, self.rows) for b in range(self.batches + 1)]
        return [slice(start, stop) for start, stop in pairwise(bounds)]


def schedule_for(
    simulation: Simulation, rows: int, epochs: int, batches: int, learning_rate: float, batch_size: int | None = None
) -> Schedule:
    """The steps that stand for a client of ``epochs`` epochs of ``batches`` batches (FedAvg paper, Sec. 5.1).

    ``full`` (Ours) simulates every step, with variables of its own for every epoch; ``shared`` (Geiping et al. 2020)
    the same steps with one variable per row; ``epoch`` (FedSGD-Epoch) one step per epoch on all rows, as long as all
    its batches together; ``fedsgd`` (Geng et al. 2021) one step on all rows. Without ``batch_size`` all batches are
    taken to be equally large.

    >>> schedule_for("epoch", rows=50, epochs=10, batches=10, learning_rate=0.5).learning_rate
    5.0
    """
    total = learning_rate * epochs * batches
    if simulation == "fedsgd":
        return Schedule(1, 1, rows, rows, 1, total, total)
    if simulation == "epoch":
        return Schedule(epochs, 1, rows, rows, epochs, learning_rate * batches, total)
    copies = epochs if simulation == "full" else 1
    return Schedule(epochs, batches, rows, batch_size or math.ceil(rows / batches), copies, learning_rate, total)
