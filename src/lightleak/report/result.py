"""One row of ``results.json``: what one attack got out of one observation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from lightleak.core.certificate import Outcome, RowStatus
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
    "certified_share",
    "certified_digits_share",
    "certified_accuracy",
    "certified_exact",
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
        epsilon: what differential privacy the whole training grants.
        release_epsilon: what it grants for one update whose batch is known to the server.
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
    release_epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Proof:
    """What an attack knew of its own success, without the truth.

    Attributes:
        status: per row of the reconstruction.
        residual: part of the update that the rows leave unexplained; None where the run does not say.
        expected: what was expected before any work; None likewise.
        reason: why.
        ranks: of every hidden layer's gradient, the first layer first.
        row_constraints: per hidden layer, equations that its row space puts on every row.
        unit_constraints: the same of its column space.
    """

    status: tuple[RowStatus, ...]
    residual: float | None = None
    expected: Outcome | None = None
    reason: str | None = None
    ranks: tuple[int, ...] = ()
    row_constraints: tuple[int, ...] = ()
    unit_constraints: tuple[int, ...] = ()

    @property
    def certified(self) -> int:
        """Number of certified rows."""
        return sum(one == "certified" for one in self.status)

    @property
    def is_complete(self) -> bool:
        """Whether every row is certified."""
        return self.certified == len(self.status)


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
        proof: what the attack knew of its own success; None where it knows nothing.
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
    proof: Proof | None = None


def parse_result(raw: Any, run: str, where: str) -> Result:
    """Read one row; ``where`` names it in errors.

    A metric that is null, NaN or absent is left out: it was undefined for this batch.

    >>> parse_result({"attack": "tableak", "batch_size": 32, "rmse": None, "cell_accuracy": 0.8}, "a", "row 0").metrics
    {'cell_accuracy': 0.8}

    Raises:
        UsageError: the row is no mapping or names no attack, or its certificate is none.
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
        options=_flat(options) if isinstance(options, Mapping) else {},
        reconstruction=text(raw.get("reconstruction")),
        proof=_proof(raw, where),
    )


def _flat(options: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    """Settings as text; those of a stage of a composed attack under ``stage.name``."""
    found: dict[str, str] = {}
    for name, value in options.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": str(value)}
    return found


def _proof(raw: Mapping[str, Any], where: str) -> Proof | None:
    status = raw.get("row_status")
    if status is None:
        return None
    known, outcomes = get_args(RowStatus), get_args(Outcome)
    if not isinstance(status, list) or not status or any(one not in known for one in status):
        raise UsageError(f"{where}: row_status must be a list of {', '.join(known)}, got {str(status)[:80]}")
    if raw.get("certified_rows") != (certified := status.count("certified")):
        raise UsageError(
            f"{where}: certified_rows must be {certified}, the certified of row_status, got {raw.get('certified_rows')}"
        )
    if (expected := raw.get("expected")) not in (None, *outcomes):
        raise UsageError(f"{where}: expected must be one of {', '.join(outcomes)}, got {expected!r}")
    told = raw.get("feasibility")
    planned: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    return Proof(
        tuple(status),
        number(raw.get("certificate_residual")),
        expected,
        text(planned.get("reason")),
        *(_numbers(planned.get(name)) for name in ("ranks", "row_constraints", "unit_constraints")),
    )


def _numbers(value: Any) -> tuple[int, ...]:
    found = [whole(one) for one in value] if isinstance(value, list) else []
    return tuple(one for one in found if one is not None)


def _setting(raw: Mapping[str, Any], run: str) -> Setting:
    names = ("dataset", "target", "protocol", "defense", "labels", "source")
    found: dict[str, Any] = {name: text(raw.get(name)) for name in names}
    local = ("local_epochs", "local_batches", "n_clients") if found["protocol"] == "fedavg" else ()
    found |= {name: whole(raw.get(name)) for name in ("epoch", *local)}
    found |= {name: number(raw.get(name)) for name in ("epsilon", "release_epsilon", "delta")}
    found["strength"] = number(raw.get("defense_strength"))
    return Setting(run=run, **found)
