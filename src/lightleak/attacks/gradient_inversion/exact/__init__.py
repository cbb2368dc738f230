"""Exact inversion: rows of a table tested against the spaces that a ReLU network's gradient spans."""
