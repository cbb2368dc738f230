"""The audit of a defence frontier: every defence and strength, measured in training and under attack."""
