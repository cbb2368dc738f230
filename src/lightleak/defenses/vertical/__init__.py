"""Defenses of vertical federated learning (ProVFL, Sec. VII); importing this package fills the registry."""

from lightleak.defenses.vertical import laplace, ppdl, r3elu, shuffle, withdraw  # noqa: F401  registers
from lightleak.defenses.vertical.defense import VERTICAL_DEFENSES, PreparedRows, VerticalDefense, make_defense

__all__ = ["VERTICAL_DEFENSES", "PreparedRows", "VerticalDefense", "make_defense"]
