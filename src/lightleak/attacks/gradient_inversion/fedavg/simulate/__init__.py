"""Inversion of FedAvg updates: the client's local training is simulated and differentiated through."""
