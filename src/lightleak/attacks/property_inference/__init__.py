"""Property inference in vertical federated learning (ProVFL, Bai et al. 2025) and its rivals."""
