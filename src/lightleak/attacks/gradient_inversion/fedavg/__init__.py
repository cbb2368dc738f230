"""Inversion of FedAvg updates, by simulation of the local training (`simulate`) or exactly (`exact`)."""
