"""Tables of the ProVFL paper."""
