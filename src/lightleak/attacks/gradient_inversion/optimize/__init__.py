"""Inversion by optimization: candidates move until the gradient they produce matches the observed one."""
