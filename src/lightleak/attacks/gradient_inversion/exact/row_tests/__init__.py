"""Tests of single rows against the spaces of a gradient."""
