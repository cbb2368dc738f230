"""Exact inversion of FedAvg weight updates: rows are separated by the units that each leaves inactive."""
