"""Tables of the thesis on model inversion."""
