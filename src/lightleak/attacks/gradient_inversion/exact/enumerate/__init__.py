"""Enumeration of the rows whose categories satisfy the equations of a gradient."""
