"""What a model inversion attack returns: rows that are typical of each private class, as the attacker believes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
from torch import Tensor

from lightleak.core.threat_model import Threat


@dataclass(frozen=True)
class ClassSamples:
    """Reconstructed rows with the class that each was made for.

    Attributes:
        rows: table rows with real column names and values, ``n`` of them.
        labels: LongTensor ``[n]``, index of the private class.
        loss: ``[n]`` cross-entropy of the target on the decoded row and its class: the inversion loss, in nats.
        search: latent search that chose the rows (``random``, ``gradient``, ``tpe``).
        threat_model: one plain sentence.
        excluded: classes that could not be attacked, by index, with the reason.
        seconds: wall time of the search.
        details: further figures of the search, such as the loss it started from.
        warnings: what the reader must know.
        threat: the threat model as data; None where the attack states a sentence alone.
    """

    rows: pd.DataFrame
    labels: Tensor
    loss: Tensor
    search: str
    threat_model: str
    excluded: Mapping[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    details: Mapping[str, float] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    threat: Threat | None = None
