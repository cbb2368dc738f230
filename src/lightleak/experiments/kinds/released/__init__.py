"""Audits of released models by model inversion."""
