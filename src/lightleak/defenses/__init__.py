"""Transforms of what leaves a client or a party, to be judged by what they protect and what they cost."""
