"""Exact inversion of FedAvg weight updates: rows told by the units that they leave silent."""
