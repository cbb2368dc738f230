"""Audits of vertical federated learning: split training, property inference, defences (``kind: vertical``)."""
