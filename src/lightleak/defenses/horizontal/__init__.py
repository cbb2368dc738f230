"""Defences of horizontal federated learning: what a client does to its update before it leaves."""

from lightleak.defenses.horizontal import gaussian_noise
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense

__all__ = ["UPDATE_DEFENSES", "UpdateDefense", "gaussian_noise"]
