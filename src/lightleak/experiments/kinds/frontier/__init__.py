"""The audit of a defense frontier: every defense and strength, measured in training and under attack."""
