"""Local training of FedAvg (McMahan et al. 2017; Dimitrov et al. 2022, Algorithm 1) as settings."""

import math
from dataclasses import dataclass

from lightleak.core.errors import UsageError


@dataclass(frozen=True)
class LocalTraining:
    """What a client does between receiving the weights and sending them back: SGD on its own rows.

    Attributes:
        epochs: passes over the client's rows (E).
        batch_size: rows per step (m); the last batch of an epoch may be smaller.
        learning_rate: local learning rate (eta).
        momentum: of the local SGD; its state is reset every round.
        weight_decay: of the local SGD.
        reshuffle: draw a new order for every epoch; False keeps the batches of the first.

    Raises:
        UsageError: a value out of range.
    """

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    reshuffle: bool = True

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise UsageError(f"learning_rate must be above 0, got {self.learning_rate}")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise UsageError(f"weight_decay must be at least 0, got {self.weight_decay}")

    def steps(self, n_rows: int) -> int:
        """Optimizer steps of a client with ``n_rows`` rows (U).

        >>> LocalTraining(epochs=10, batch_size=5).steps(50)
        100
        """
        return self.epochs * -(-n_rows // self.batch_size)
