"""What the command returns."""

DONE, FAILED, WRONG_USE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
