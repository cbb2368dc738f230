"""Rows of a table: their encoding, their prior, and what the first layer's gradient says of the columns."""
