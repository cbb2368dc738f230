"""Row and column space of each layer's gradient, or of what is left of it."""
