"""One row of ``results.json`` of a defence frontier: a training under a defence, or an attack on a client under it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.core.results import flat as flat_settings
from lightleak.report.row_values import number, text, whole

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
        release_epsilon: what it guarantees for one update whose batch is known to the server.
        delta: of both.
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
    release_epsilon: float | None = None
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
    defense, options = text(raw.get("defense")) or NO_DEFENSE, raw.get("options")
    return FrontierResult(
        run=run,
        setting=Setting(
            dataset=text(raw.get("dataset")),
            target=text(raw.get("target")),
            protocol=text(raw.get("protocol")),
            batch_size=whole(raw.get("batch_size")),
            training=text(raw.get("training")),
            labels=text(raw.get("label_setting")),
        ),
        strength=Strength(
            label=text(raw.get("defense_label")) or defense,
            defense=defense,
            value=number(raw.get("defense_strength")),
            option=text(raw.get("defense_option")),
            words=text(raw.get("defense_words")) or "",
        ),
        attack=attack,
        seed=raw.get("seed"),
        client=None if attack is None else raw.get("batch_index"),
        cell_accuracy=number(raw.get("cell_accuracy")),
        accuracy=number(raw.get("accuracy")),
        auroc=number(raw.get("auroc")),
        epsilon=number(raw.get("epsilon")),
        release_epsilon=number(raw.get("release_epsilon")),
        delta=number(raw.get("delta")),
        labels=text(raw.get("labels")),
        seconds=number(raw.get("seconds")),
        threat_model=text(raw.get("threat_model")),
        options=flat_settings(options) if isinstance(options, Mapping) else {},
    )
