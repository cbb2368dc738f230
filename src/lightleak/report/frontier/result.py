"""One row of ``results.json`` of a defence frontier: a training under a defence, or an attack on a client under it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightleak.core.errors import UsageError

NO_DEFENSE = "none"
NO_ATTACK = "none"
"""What the row of a training names as its attack."""


@dataclass(frozen=True)
class Setting:
    """What all points of one frontier share; None where the run does not say."""

    dataset: str | None = None
    target: str | None = None
    protocol: str | None = None
    batch_size: int | None = None
    training: str | None = None
    labels: str | None = None


@dataclass(frozen=True)
class Strength:
    """One defence at one strength, or no defence.

    Attributes:
        label: name of its curve.
        defense: name of the defence.
        value: the number its curve varies; None where it has none.
        option: which of its settings that is.
        words: one line that says it all, such as ``Gaussian noise of scale 0.01``.
    """

    label: str = NO_DEFENSE
    defense: str = NO_DEFENSE
    value: float | None = None
    option: str | None = None
    words: str = ""

    @property
    def is_none(self) -> bool:
        """Whether nothing defends here."""
        return self.defense == NO_DEFENSE


@dataclass(frozen=True)
class FrontierResult:
    """One training or one attack; fractions in [0, 1], None where unknown.

    Attributes:
        run: name of the run folder.
        setting: what all points share.
        strength: the defence and its strength.
        attack: name of the attack; None for a training.
        seed: of the training, or root seed of the client.
        client: number of the client; None for a training.
        cell_accuracy: share of the client's cells that the attack recovered.
        accuracy: accuracy of the trained network on the test rows.
        auroc: area under its ROC curve.
        epsilon: what differential privacy the training guarantees; None where it guarantees none.
        delta: likewise.
        labels: what the attack knew of the labels.
        seconds: wall time.
        threat_model: one plain sentence.
        options: settings of the attack as text.
    """

    run: str
    setting: Setting
    strength: Strength
    attack: str | None
    seed: Any = None
    client: Any = None
    cell_accuracy: float | None = None
    accuracy: float | None = None
    auroc: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    labels: str | None = None
    seconds: float | None = None
    threat_model: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """What results of several strengths are paired by: the run, the seed, and the client."""
        return self.run, str(self.seed), str(self.client)


def parse_result(raw: Any, run: str, where: str) -> FrontierResult:
    """Read one row; ``where`` names it in errors. What is null, NaN or absent is unknown.

    >>> parse_result({"attack": "none", "defense": "sign", "accuracy": 0.8}, "a", "row 0").strength.defense
    'sign'

    Raises:
        UsageError: the row is no mapping or names no attack.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("attack"), str):
        raise UsageError(f"{where}: expected a mapping with the name of an 'attack' (a training: 'none'), got {raw!r}")
    attack = None if raw["attack"] == NO_ATTACK else raw["attack"]
    defense, options = _text(raw.get("defense")) or NO_DEFENSE, raw.get("options")
    return FrontierResult(
        run=run,
        setting=Setting(
            dataset=_text(raw.get("dataset")),
            target=_text(raw.get("target")),
            protocol=_text(raw.get("protocol")),
            batch_size=_whole(raw.get("batch_size")),
            training=_text(raw.get("training")),
            labels=_text(raw.get("label_setting")),
        ),
        strength=Strength(
            label=_text(raw.get("defense_label")) or defense,
            defense=defense,
            value=_number(raw.get("defense_strength")),
            option=_text(raw.get("defense_option")),
            words=_text(raw.get("defense_words")) or "",
        ),
        attack=attack,
        seed=raw.get("seed"),
        client=None if attack is None else raw.get("batch_index"),
        cell_accuracy=_number(raw.get("cell_accuracy")),
        accuracy=_number(raw.get("accuracy")),
        auroc=_number(raw.get("auroc")),
        epsilon=_number(raw.get("epsilon")),
        delta=_number(raw.get("delta")),
        labels=_text(raw.get("labels")),
        seconds=_number(raw.get("seconds")),
        threat_model=_text(raw.get("threat_model")),
        options={str(name): str(value) for name, value in options.items()} if isinstance(options, Mapping) else {},
    )


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)
