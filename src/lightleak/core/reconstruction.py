"""What a record-level attack returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from torch import Tensor

from lightleak.core.certificate import Certificate
from lightleak.core.threat_model import ThreatModel


@dataclass(frozen=True)
class Reconstruction:
    """Rows an attack recovered from one observation.

    Attributes:
        attack: name of the attack.
        threat_model: what it was allowed to know.
        rows: ``[n, columns]`` as a table with the schema's column names and values.
        labels: LongTensor ``[n]`` the attack used or restored.
        encoded: ``[n, d]`` pooled reconstruction before projection to the table.
        uncertainty: ``[n, columns]`` entropy of each cell (TabLeak Sec. 3.2); NaN where the attack has none.
        loss: the attack's objective at its best restart after projection.
        seconds: wall time of the attack, shared equally among the updates of one vectorized call.
        ensemble: ``[restarts, n, d]`` the pooled restarts, matched row by row; ``None`` unless asked for.
        certificate: what the attack knows of its success; ``None`` where it knows nothing.
        settings: settings that the attack chose itself for this observation, by name.
    """

    attack: str
    threat_model: ThreatModel
    rows: pd.DataFrame
    labels: Tensor
    encoded: Tensor
    uncertainty: pd.DataFrame
    loss: float
    seconds: float
    ensemble: Tensor | None = None
    certificate: Certificate | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
