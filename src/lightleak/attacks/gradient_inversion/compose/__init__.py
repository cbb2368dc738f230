"""Composed attacks: several attacks in sequence on one update, judged without the truth."""
