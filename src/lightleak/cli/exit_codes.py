"""What the command returns."""

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
