"""What stands behind a cell of ProVFL's tables: which training, and which attack on it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lightleak.core.errors import UnsupportedError
from lightleak.data.datasets.nus_wide import IMAGE_COLUMNS, TEXT_COLUMNS
from lightleak.experiments.kinds.vertical.config import (
    AuxiliaryConfig,
    PartiesConfig,
    SplitTrainingConfig,
    VerticalConfig,
    VerticalDataConfig,
)
from lightleak.reproductions.paper.values import PaperCell
from lightleak.targets.optimizers import OptimizerConfig


@dataclass(frozen=True)
class DatasetSettings:
    """How ProVFL trains on a dataset (the ``config.json`` of its code): loader options, learning rate, epochs."""

    options: Mapping[str, Any]
    learning_rate: float
    epochs: int
    encoding: str = "onehot"


DATASETS = {
    "adult": DatasetSettings({"missing": "category", "final_weight": False, "duplicates": "drop"}, 0.01, 20),
    # Its code draws 100,000 of the 299,285 rows in every trial; the test file alone has 99,762.
    "census": DatasetSettings({"part": "test"}, 0.005, 30),
    "bank": DatasetSettings({}, 0.05, 30),
    "lawschool": DatasetSettings({}, 0.05, 30),
    "health-heritage": DatasetSettings({}, 0.01, 30),
    "texas100": DatasetSettings({}, 0.05, 30, "bits"),
    "nus-wide": DatasetSettings({}, 0.05, 30, "minmax"),
}
PUBLISHED_EPOCH = 18
"""The epoch its code attacks, counted from 0, whatever the number of epochs; the text says the penultimate one."""

PUBLISHED_SPLIT = 42
"""All its trials share one split, shuffled with this seed (by another generator than ours)."""

PUBLISHED_ATTACKS: Mapping[str, dict[str, Any]] = {
    "provfl_b": {"as_published": True},
    "provfl_m": {"as_published": True},
    "aia": {"as_published": True},
    "aia_raw": {"as_published": True},
}


@dataclass(frozen=True)
class Training:
    """Everything of a cell that changes the training; cells that agree share one audit.

    Attributes:
        dataset: registry name.
        active: the published code trains active attacks on another split.
        parties: who holds what.
        auxiliary: what the adversary knows.
        concept: the label of NUS-WIDE that is the property; the others are the task.
    """

    dataset: str
    active: bool = False
    parties: PartiesConfig = field(default_factory=PartiesConfig)
    auxiliary: AuxiliaryConfig = field(default_factory=AuxiliaryConfig)
    concept: str | None = None

    @property
    def name(self) -> str:
        """A file name."""
        parts = [self.dataset, "active" if self.active else "passive"]
        if self.parties.number != 2:
            parts.append(f"k{self.parties.number}")
        if self.parties.victim_share is not None:
            parts.append(f"r{self.parties.victim_share}")
        if self.auxiliary.size != AuxiliaryConfig().size:
            parts.append(f"aux{self.auxiliary.size}")
        if self.auxiliary.misaligned != "none":
            parts.append(f"misaligned-{self.auxiliary.misaligned}")
        if self.auxiliary.mislabeled:
            parts.append(f"mislabelled{self.auxiliary.mislabeled}")
        if self.concept is not None:
            parts.append(f"{self.concept}{self.parties.adversary}")
        return "_".join(parts)


def training_of(cell: PaperCell, as_published: bool) -> Training:
    """The training behind a cell.

    Raises:
        UnsupportedError: a setting there is no training for.
    """
    assert cell.dataset is not None  # cells of these tables name one
    if cell.dataset not in DATASETS:
        raise UnsupportedError(f"no settings for {cell.dataset!r}; known: {', '.join(DATASETS)}")
    order = "published_features" if cell.dataset in ("adult", "bank", "census", "lawschool") else "schema"
    parties, auxiliary = PartiesConfig(order=order), AuxiliaryConfig()  # type: ignore[arg-type]
    if as_published:
        parties = PartiesConfig(order="published")
    if cell.dataset == "nus-wide":
        text_attacks = cell.value == "text"
        sides = PartiesConfig(columns=(IMAGE_COLUMNS, TEXT_COLUMNS), adversary=int(text_attacks))
        return Training(cell.dataset, parties=sides, concept=str(cell.property_name).partition("=")[0])
    active = cell.attack == "provfl_m" and as_published  # only its code gives active attacks another split
    match cell.option:
        case "victim_share":
            # The published script runs three parties here, with the victim's share first.
            parties = PartiesConfig(number=2, victim_share=float(str(cell.value)), order=order)  # type: ignore[arg-type]
        case "parties":
            parties = PartiesConfig(number=int(str(cell.value)), order=order)  # type: ignore[arg-type]
        case "auxiliary":
            auxiliary = AuxiliaryConfig(misaligned="rows" if as_published else "adversary")
        case "auxiliary_size":
            auxiliary = AuxiliaryConfig(size=int(str(cell.value)))
        case "mislabelled":
            auxiliary = AuxiliaryConfig(mislabeled=float(str(cell.value)))
    return Training(cell.dataset, active, parties, auxiliary)


def attack_of(cell: PaperCell, as_published: bool) -> tuple[str, dict[str, Any]]:
    """Label and settings of a cell's attack."""
    name = cell.attack or "provfl_b"
    settings: dict[str, Any] = {"attack": name, **(PUBLISHED_ATTACKS.get(name, {}) if as_published else {})}
    label = name
    if name == "provfl_m":
        if cell.variant is not None and cell.variant != {"C1": "LR+MR", "C2": "MR"}[cell.adversary or "C1"]:
            settings |= {"label_replacement": "LR" in cell.variant, "model_refinement": "MR" in cell.variant}
            label = f"provfl_m {cell.variant}"
        if cell.option == "lambda":
            if not cell.value:
                return attack_of(replace(cell, attack="provfl_b", option=None, value=None, variant=None), as_published)
            settings["strength"] = float(cell.value)
            label = f"provfl_m lambda {cell.value}"
    if cell.option in ("estimator", "fraction_step", "queries", "samples", "norm"):
        settings[cell.option] = cell.value
        label = f"{name} {cell.option} {cell.value}"
    return label, settings


def defense_of(cell: PaperCell, as_published: bool) -> tuple[str, dict[str, Any]]:
    """Label and settings of a cell's defence."""
    if cell.defense in (None, "none"):
        return "none", {}
    strength = {"laplace": "scale", "ppdl": "ratio", "r3elu": "epsilon", "shuffle": "ratio", "withdraw": "ratio"}
    settings: dict[str, Any] = {"defense": cell.defense, strength[str(cell.defense)]: cell.strength}
    if as_published and cell.defense in ("ppdl", "withdraw"):
        settings["as_published"] = True
    return f"{cell.defense} {cell.strength:g}", settings


def epoch_of(cell: PaperCell, as_published: bool) -> int:
    """The epoch a cell is about, counted from 0."""
    if cell.option == "attack_epoch":
        return int(str(cell.value))
    return PUBLISHED_EPOCH if as_published else DATASETS[str(cell.dataset)].epochs - 2


def audit_of(
    training: Training, cells: Iterable[PaperCell], as_published: bool, seeds: tuple[int, ...], folder: str | None
) -> VerticalConfig:
    """The audit that runs every attack of ``cells`` on a training they share."""
    known, attacked = DATASETS[training.dataset], list(cells)
    attacks = dict(attack_of(cell, as_published) for cell in attacked if cell.attack is not None)
    return VerticalConfig(
        data=VerticalDataConfig(
            name=training.dataset,
            folder=folder,
            options=dict(known.options) if training.concept is None else {"property": training.concept},
            encoding=known.encoding,  # type: ignore[arg-type]
            test_fraction=0.3 if training.active else 0.2,
            split_seed=PUBLISHED_SPLIT if as_published else None,
        ),
        properties=tuple(dict.fromkeys(c.property_name for c in attacked if c.property_name is not None)),
        parties=training.parties,
        training=SplitTrainingConfig(
            epochs=known.epochs, optimizer=OptimizerConfig("sgd", known.learning_rate, weight_decay=3e-5)
        ),
        auxiliary=training.auxiliary,
        adversaries=tuple(sorted({cell.adversary for cell in attacked if cell.adversary is not None})) or ("C1",),
        attacks=attacks or {"provfl_b": {}},
        defenses=dict(defense_of(cell, as_published) for cell in attacked),
        attack_epochs=tuple(sorted({epoch_of(cell, as_published) for cell in attacked})),
        seeds=seeds,
        title=f"ProVFL on {training.dataset}",
        keep_captures=False,
    )
