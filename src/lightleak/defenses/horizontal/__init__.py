"""Defenses of horizontal federated learning: what a client does to its update before it leaves, or as it trains."""

from lightleak.defenses.horizontal import (  # noqa: F401  registers
    dp_sgd,
    noise,
    rounding,
    shipped,
    sparsification,
)
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, HorizontalDefense, UpdateDefense
from lightleak.defenses.horizontal.dp_sgd import DPSGD
from lightleak.defenses.horizontal.optimizer import DefendedOptimizer
from lightleak.defenses.horizontal.training import defend_training
from lightleak.defenses.horizontal.training_defense import TRAINING_DEFENSES, DefendedTraining, TrainingDefense

__all__ = [
    "DPSGD",
    "TRAINING_DEFENSES",
    "UPDATE_DEFENSES",
    "DefendedOptimizer",
    "DefendedTraining",
    "HorizontalDefense",
    "TrainingDefense",
    "UpdateDefense",
    "defend_training",
]
