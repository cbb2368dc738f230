"""Search for candidates that pass the tests of a row."""
