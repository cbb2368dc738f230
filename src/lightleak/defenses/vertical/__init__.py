"""Defences of vertical federated learning (ProVFL Sec. VII, D1 to D5)."""
