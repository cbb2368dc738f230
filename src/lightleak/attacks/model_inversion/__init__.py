"""Model inversion: rows typical of a released model's private classes."""
