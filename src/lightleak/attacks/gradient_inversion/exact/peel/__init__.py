"""Subtraction of found rows from the gradient."""
