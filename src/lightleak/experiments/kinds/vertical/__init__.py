"""Audits of vertical federated learning: split training, property inference, defenses (``kind: vertical``)."""
