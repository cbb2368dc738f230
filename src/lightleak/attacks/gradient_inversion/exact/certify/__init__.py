"""Certificates: what to expect of an update, and which rows are proven."""
