"""Joint inversion: all rows of a batch moved against the whole gradient, beyond the rank limit and under noise."""
