"""One row of ``results.json``: what one attack got out of one observation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.report.row_values import number, text, whole

METRICS = (
    "cell_accuracy",
    "categorical_accuracy",
    "numerical_accuracy",
    "exact_match_rate",
    "rmse",
    "top25_categorical",
    "bottom25_categorical",
    "top25_numerical",
    "bottom25_numerical",
    "label_count_error",
    "seconds",
)


@dataclass(frozen=True)
class Setting:
    """Everything that was held fixed while attacks and batch sizes were compared; None where the run does not say.

    ``source`` is ``initial`` (a fresh client against the untrained network) or ``training`` (captured while the target
    trained, in ``epoch``, which under FedAvg counts rounds). What is FedAvg's alone is None under FedSGD, which has
    nothing of the kind.

    Attributes:
        run: name of the run.
        dataset: name of the table.
        target: name of the network.
        protocol: ``fedsgd`` or ``fedavg``.
        defense: what clients did to their updates.
        labels: ``true`` or ``restored``.
        source: see above.
        epoch: see above.
        local_epochs: passes of a FedAvg client over its rows.
        local_batches: its steps in each.
        n_clients: FedAvg clients averaged into one update.
        strength: the number that varies the defence.
        epsilon: what differential privacy was granted.
        delta: the probability with which it may fail.
    """

    run: str
    dataset: str | None = None
    target: str | None = None
    protocol: str | None = None
    defense: str | None = None
    labels: str | None = None
    source: str | None = None
    epoch: int | None = None
    local_epochs: int | None = None
    local_batches: int | None = None
    n_clients: int | None = None
    strength: float | None = None
    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Result:
    """One attack on one observation.

    Attributes:
        setting: what was held fixed.
        attack: name of the attack.
        batch_size: rows behind the attacked update.
        unit: seed and batch index; attacks on the same batch share it.
        metrics: the finite values among `METRICS`; accuracies as fractions, seconds in seconds.
        column_accuracy: fraction of right cells by column.
        options: settings of the attack as text.
        threat_model: one plain sentence.
        reconstruction: path of the reconstructed rows, relative to the run folder.
    """

    setting: Setting
    attack: str
    batch_size: int | None
    unit: tuple[Any, Any]
    metrics: Mapping[str, float]
    column_accuracy: Mapping[str, float]
    options: Mapping[str, str]
    threat_model: str | None = None
    reconstruction: str | None = None


def parse_result(raw: Any, run: str, where: str) -> Result:
    """Read one row; ``where`` names it in errors.

    A metric that is null, NaN or absent is left out: it was undefined for this batch.

    >>> parse_result({"attack": "tableak", "batch_size": 32, "rmse": None, "cell_accuracy": 0.8}, "a", "row 0").metrics
    {'cell_accuracy': 0.8}

    Raises:
        UsageError: the row is no mapping or names no attack.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("attack"), str):
        raise UsageError(f"{where}: expected a mapping with the name of an 'attack', got {raw!r}")
    columns = raw.get("column_accuracy")
    options = raw.get("options") or {}
    return Result(
        setting=_setting(raw, run),
        attack=raw["attack"],
        batch_size=whole(raw.get("batch_size")),
        unit=(raw.get("seed"), raw.get("batch_index")),
        metrics={name: value for name in METRICS if (value := number(raw.get(name))) is not None},
        column_accuracy={str(name): share for name, value in columns.items() if (share := number(value)) is not None}
        if isinstance(columns, Mapping)
        else {},
        threat_model=text(raw.get("threat_model")),
        options={str(name): str(value) for name, value in options.items()} if isinstance(options, Mapping) else {},
        reconstruction=text(raw.get("reconstruction")),
    )


def _setting(raw: Mapping[str, Any], run: str) -> Setting:
    names = ("dataset", "target", "protocol", "defense", "labels", "source")
    found: dict[str, Any] = {name: text(raw.get(name)) for name in names}
    local = ("local_epochs", "local_batches", "n_clients") if found["protocol"] == "fedavg" else ()
    found |= {name: whole(raw.get(name)) for name in ("epoch", *local)}
    numbers = {"strength": "defense_strength", "epsilon": "epsilon", "delta": "delta"}
    found |= {name: number(raw.get(key)) for name, key in numbers.items()}
    return Setting(run=run, **found)
