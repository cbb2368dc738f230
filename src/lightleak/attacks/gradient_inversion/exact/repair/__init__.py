"""Rows that no single test finds: explained together, or guessed from the prior."""
