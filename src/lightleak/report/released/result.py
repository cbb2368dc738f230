"""One row of ``results.json`` of a released-model run: one evaluation of one attack, over all classes or in one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.metrics.inversion.score import MEASURES
from lightleak.report.row_values import number, text

ALL = "all"
"""The class of a row that is about all classes together."""

OVER_PUBLIC = "over_public_"
"""Prefix of a measure minus that of as many public rows which the target sorted into its classes."""

METRICS = (
    "shapes_score",
    "pair_trends_score",
    "inversion_loss",
    "inversion_loss_searched",
    "exact_match_rate",
    "gower_distance",
    "seconds",
    "fit_seconds",
    "real_rows_accuracy",
    "real_rows_accuracy_class",
    "disjoint_real_rows_accuracy",
    "target_test_accuracy",
    "condition_accuracy",
    "public_condition_accuracy",
    *(f"{beside}{name}" for name in MEASURES for beside in ("", "public_", OVER_PUBLIC)),
)

EARLIER = {"real_rows_accuracy": "ceiling", "real_rows_accuracy_class": "ceiling_class"}
"""Names of metrics in runs of older versions."""


@dataclass(frozen=True)
class Setting:
    """What was held fixed while attacks were compared; None where the run does not say.

    Attributes:
        dataset: name of the table.
        target: the released network.
        evaluation: the network that judges.
        setting: name of the split into private and public classes (thesis Table 4.3).
    """

    dataset: str | None = None
    target: str | None = None
    evaluation: str | None = None
    setting: str | None = None


@dataclass(frozen=True)
class InversionResult:
    """One evaluation of one attack.

    Attributes:
        run: name of the run folder.
        setting: what was held fixed.
        attack: name of the attack or baseline.
        label: its name in the config.
        seed: of the training; evaluations of one seed judge the same generator.
        evaluation_index: which of the evaluations.
        search: latent search; None where none is named.
        bridge: how the generator's output reaches the target; None where none is named.
        class_name: the class, or `ALL`.
        samples: rows made and judged.
        metrics: the finite values among `METRICS`: fractions, nats, seconds.
        threat_model: one plain sentence.
        options: settings of the attack as text.
        warnings: what the attack warned of.
    """

    run: str
    setting: Setting
    attack: str
    label: str
    seed: Any = None
    evaluation_index: Any = None
    search: str | None = None
    bridge: str | None = None
    class_name: str = ALL
    samples: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    threat_model: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def parse_result(raw: Any, run: str, where: str) -> InversionResult:
    """Read one row; ``where`` names it in errors. What is null, NaN or absent is unknown.

    >>> parse_result({"attack": "plgmi", "class": "428", "attack_accuracy": 0.8, "seconds": None}, "a", "row 0").metrics
    {'attack_accuracy': 0.8}

    Raises:
        UsageError: the row is no mapping or names no attack.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("attack"), str):
        raise UsageError(f"{where}: expected a mapping with the name of an 'attack', got {raw!r}")
    options, warnings = raw.get("options"), raw.get("warnings")
    samples = number(raw.get("samples"))
    metrics = {name: number(raw.get(name, raw.get(EARLIER.get(name, name)))) for name in METRICS}
    return InversionResult(
        run=run,
        setting=Setting(*(text(raw.get(name)) for name in ("dataset", "target", "evaluation", "setting"))),
        attack=raw["attack"],
        label=text(raw.get("label")) or raw["attack"],
        seed=raw.get("seed"),
        evaluation_index=raw.get("evaluation_index"),
        search=text(raw.get("latent_search")),
        bridge=text(raw.get("bridge")),
        class_name=text(raw.get("class")) or ALL,
        samples=None if samples is None else int(samples),
        metrics={name: value for name, value in metrics.items() if value is not None},
        threat_model=text(raw.get("threat_model")),
        options=dict(_flat(options)) if isinstance(options, Mapping) else {},
        warnings=tuple(map(str, warnings)) if isinstance(warnings, list) else (),
    )


def _flat(options: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as one level of names."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", " ".join(map(str, value)) if isinstance(value, list) else str(value)
