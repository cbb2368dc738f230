"""The parties of vertical federated learning as adversaries, and which intermediate results each of them sees."""

from collections.abc import Mapping
from typing import Literal, get_args

Kind = Literal["AO", "AG", "VO", "VG"]
"""Adversary's output and gradient, victim's output and gradient, one vector per record (ProVFL Sec. III-B)."""

Adversary = Literal["C1", "C2"]
"""C1: the active party, which has labels and top model. C2: a passive party (ProVFL Sec. III-D)."""

ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)
KINDS: tuple[Kind, ...] = get_args(Kind)
VISIBLE: Mapping[Adversary, tuple[Kind, ...]] = {"C1": KINDS, "C2": ("AO",)}
"""A passive party sees no gradient per record: it lacks the top model, and what comes back is the batch's."""
