"""Gradient inversion: reconstruct a batch from the gradient it produced."""
