"""The audit of what clients send in federated learning: gradients and weight updates."""
