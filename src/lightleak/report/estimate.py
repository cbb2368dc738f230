"""Estimates under their old name, until the last kind of report is converted."""

from lightleak.report.intervals import Estimate, estimate

__all__ = ["Estimate", "estimate"]
