"""Tiles under their old name, until the last kind of report is converted."""

from lightleak.report.page import Tile

__all__ = ["Tile"]
