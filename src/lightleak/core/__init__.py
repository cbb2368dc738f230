"""The vocabulary every layer shares: observations, reconstructions, matching, seeds, errors."""
