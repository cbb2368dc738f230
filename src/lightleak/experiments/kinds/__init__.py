"""The kinds of audit."""
