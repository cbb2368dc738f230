"""One row of ``results.json`` of a vertical run: what one attack said about one property."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.core.intermediate_results import KINDS
from lightleak.report.row_values import number, text, whole

NO_DEFENSE = "none"


@dataclass(frozen=True)
class Setting:
    """What was held fixed while attacks, properties and adversaries were compared; None where the run does not say."""

    dataset: str | None = None
    target: str | None = None
    epoch: int | None = None
    defense: str = NO_DEFENSE


@dataclass(frozen=True)
class PropertyResult:
    """One attack on one property with one seed; fractions in [0, 1], None where unknown.

    Attributes:
        run: name of the run folder.
        setting: what was held fixed.
        attack: name of the attack.
        variant: how it was carried out, such as ``passive``, ``MR`` or ``LR+MR``.
        adversary: ``C1`` (active party) or ``C2`` (passive party).
        property_name: the property, as ``column=value``.
        defense_strength: the defence's setting, where it is a number.
        seed: of the split, the training and the attack.
        true: share of the victim's records with the property, before a defence; None where the run has no truth.
        trained: the same among the records that were trained on.
        estimated: the estimate of an adversary who knows the defence and its strength.
        unaware: that of one who does not; it differs under a defence that changes the share.
        low: lower end of the attack's own 95% interval around ``estimated``.
        high: upper end.
        prior: share among the auxiliary rows, one half by construction.
        own_error: how far off the adversary's own columns alone are in the same training; None where not measured.
        by_kind: estimate by kind of intermediate result, of an adversary who knows the defence.
        auc: AUC of the target on its test rows.
        accuracy: its accuracy.
        seconds: wall time of the attack.
        warnings: what the attack warned of.
        threat_model: one plain sentence.
        options: settings of the attack as text.
    """

    run: str
    setting: Setting
    attack: str
    variant: str
    adversary: str
    property_name: str
    seed: Any
    defense_strength: float | None = None
    true: float | None = None
    trained: float | None = None
    estimated: float | None = None
    unaware: float | None = None
    low: float | None = None
    high: float | None = None
    prior: float | None = None
    own_error: float | None = None
    by_kind: Mapping[str, float] = field(default_factory=dict)
    auc: float | None = None
    accuracy: float | None = None
    seconds: float | None = None
    warnings: tuple[str, ...] = ()
    threat_model: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> float | None:
        """Absolute error of the estimate."""
        return _distance(self.estimated, self.true)

    @property
    def unaware_error(self) -> float | None:
        """Absolute error of an adversary who does not know the defence."""
        return _distance(self.unaware, self.true)

    @property
    def trained_error(self) -> float | None:
        """Distance of that adversary's estimate from the share that was trained on."""
        return _distance(self.unaware, self.trained)

    @property
    def learned(self) -> float | None:
        """How much closer than the adversary's own columns alone; negative where they are closer."""
        error, own = self.error, self.own_error
        return None if error is None or own is None else own - error

    @property
    def covered(self) -> bool | None:
        """Whether the attack's own interval holds the truth."""
        if self.true is None or self.low is None or self.high is None:
            return None
        return self.low <= self.true <= self.high

    def error_of(self, kind: str) -> float | None:
        """Absolute error of the estimate from one kind of intermediate result."""
        return _distance(self.by_kind.get(kind), self.true)


def parse_result(raw: Any, run: str, where: str) -> PropertyResult:
    """Read one row; ``where`` names it in errors. What is null, NaN or absent is unknown.

    >>> parse_result({"attack": "aia", "property": "sex=Male", "estimated_fraction": 0.6}, "a", "row 0").estimated
    0.6

    Raises:
        UsageError: the row is no mapping or lacks its attack or property.
    """
    if not isinstance(raw, Mapping) or not all(isinstance(raw.get(name), str) for name in ("attack", "property")):
        raise UsageError(f"{where}: expected a mapping with the names of an 'attack' and a 'property', got {raw!r}")
    informed = "informed_" if number(raw.get("informed_fraction")) is not None else ""
    kinds, options, warnings = raw.get(f"{informed}by_kind"), raw.get("options"), raw.get("warnings")
    return PropertyResult(
        run=run,
        setting=Setting(
            dataset=text(raw.get("dataset")),
            target=text(raw.get("target")),
            epoch=whole(raw.get("epoch")),
            defense=text(raw.get("defense")) or NO_DEFENSE,
        ),
        attack=raw["attack"],
        variant=text(raw.get("variant")) or "",
        adversary=text(raw.get("adversary")) or "",
        property_name=raw["property"],
        seed=raw.get("seed"),
        defense_strength=number(raw.get("defense_strength")),
        true=number(raw.get("true_fraction")),
        trained=number(raw.get("trained_fraction")),
        estimated=number(raw.get(f"{informed or 'estimated_'}fraction")),
        unaware=number(raw.get("estimated_fraction")),
        low=number(raw.get(f"{informed}low")),
        high=number(raw.get(f"{informed}high")),
        prior=number(raw.get("prior")),
        own_error=number(raw.get("own_columns_error")),
        by_kind=_by_kind(kinds) if isinstance(kinds, Mapping) else {},
        auc=number(raw.get("auc")),
        accuracy=number(raw.get("accuracy")),
        seconds=number(raw.get("seconds")),
        warnings=tuple(map(str, warnings)) if isinstance(warnings, list) else (),
        threat_model=text(raw.get("threat_model")),
        options={str(name): str(value) for name, value in options.items()} if isinstance(options, Mapping) else {},
    )


def _by_kind(raw: Mapping[Any, Any]) -> dict[str, float]:
    """Estimates of the four kinds, in their order."""
    return {kind: value for kind in KINDS if (value := number(raw.get(kind))) is not None}


def _distance(value: float | None, true: float | None) -> float | None:
    return None if value is None or true is None else abs(value - true)
