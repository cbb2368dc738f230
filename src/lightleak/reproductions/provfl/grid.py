"""ProVFL's tables: grids of trainings and attacks, where our number for each cell comes from, and facts of tables.

Facts are columns, rows and fractions (Tables III and IV), and correlations (Table VI).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from lightleak.attacks.property_inference import PROPERTY_ATTACKS
from lightleak.core.errors import LightLeakError, UnsupportedError
from lightleak.core.summary import Summary, summarize, summarize_by
from lightleak.data.datasets.nus_wide import IMAGE_COLUMNS, TEXT_COLUMNS
from lightleak.data.property import Property
from lightleak.experiments.kinds.vertical.config import VerticalConfig, VerticalDataConfig
from lightleak.experiments.kinds.vertical.job import Job, plan_jobs
from lightleak.experiments.kinds.vertical.rows import beside_own_columns
from lightleak.experiments.kinds.vertical.world import load_whole, prepare_world
from lightleak.reproductions.paper.values import PaperCell, paper_settings
from lightleak.reproductions.reproduction import (
    FactTable,
    Place,
    Reproduction,
    Row,
    Rows,
    Stage,
    Work,
    options_at_hand,
    scale,
)
from lightleak.reproductions.settings import TRIALS, Selection

SETTINGS = paper_settings("provfl")
DATASETS: dict[str, dict[str, Any]] = SETTINGS["datasets"]
"""How ProVFL trains on a dataset, as settings of an audit; ``property`` is for cells that name none."""

PUBLISHED_EPOCH = 18
"""The epoch its code attacks, counted from 0, whatever the number of epochs; the text says the penultimate one."""

PUBLISHED_SPLIT = 42
"""All its trials share one split, shuffled with this seed (by another generator than ours)."""

PUBLISHED_ATTACKS: list[str] = SETTINGS["published_attacks"]
"""Attacks that have the setting ``as_published``."""


@dataclass(frozen=True)
class Training:
    """Everything of a cell that changes the training; cells that agree share one audit.

    Attributes:
        dataset: registry name.
        name: a file name, of which no two trainings have the same.
        changes: settings of the audit, by dotted key.
    """

    dataset: str
    name: str
    changes: Mapping[str, Any] = field(hash=False)


def training_of(cell: PaperCell, as_published: bool) -> Training:
    """The training behind a cell.

    Raises:
        UnsupportedError: a setting there is no training for.
    """
    assert cell.dataset is not None  # cells of these tables name one
    if cell.dataset not in DATASETS:
        raise UnsupportedError(f"no settings for {cell.dataset!r}; known: {', '.join(DATASETS)}")
    changes: dict[str, Any]
    if cell.dataset == "nus-wide":
        # One of its labels is the property, the others are the task.
        concept, adversary = str(cell.property_name).partition("=")[0], int(cell.value == "text")
        changes = {
            "data.options": {"property": concept},
            "parties.columns": (IMAGE_COLUMNS, TEXT_COLUMNS),
            "parties.adversary": adversary,
        }
        return Training(cell.dataset, f"nus-wide_passive_{concept}{adversary}", changes)
    has_layout = cell.dataset in ("adult", "bank", "census", "lawschool")
    changes = {"parties.order": "published_features" if has_layout else "schema"}
    # The published code has one cut; its script of the victim's share runs three parties, with that share first.
    if as_published and cell.option not in ("victim_share", "parties"):
        changes = {"parties.order": "published"}
    active = cell.attack == "provfl_m" and as_published  # only its code gives active attacks another split
    changes |= {"data.test_fraction": 0.3} if active else {}
    name = f"{cell.dataset}_{'active' if active else 'passive'}"
    if cell.option in SETTINGS["varied"]:
        key, word, usual = SETTINGS["varied"][cell.option]
        value = cell.value
        if cell.option == "auxiliary":
            value = "rows" if as_published else "adversary"
        if value != usual:
            changes[key] = value
            name += f"_{word}{value}"
    return Training(cell.dataset, name, changes)


def attack_of(cell: PaperCell, as_published: bool) -> tuple[str, dict[str, Any]]:
    """Label and settings of a cell's attack."""
    name = cell.attack or "provfl_b"
    settings: dict[str, Any] = {"attack": name}
    if as_published and name in PUBLISHED_ATTACKS:
        settings["as_published"] = True
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
    if cell.option and cell.option in PROPERTY_ATTACKS.get(name)().options():  # our own attack may have no such setting
        is_their_xgboost = as_published and (cell.option, cell.value) == ("estimator", "xgboost")
        settings[cell.option] = "xgboost_published" if is_their_xgboost else cell.value
        label = f"{name} {cell.option} {cell.value}"
    return label, settings


def defense_of(cell: PaperCell, as_published: bool) -> tuple[str, dict[str, Any]]:
    """Label and settings of a cell's defense."""
    if cell.defense in (None, "none"):
        return "none", {}
    strength = SETTINGS["strengths"][cell.defense]
    settings: dict[str, Any] = {"defense": cell.defense, strength: cell.strength}
    if as_published and cell.defense in ("ppdl", "withdraw"):
        settings["as_published"] = True
    return f"{cell.defense} {cell.strength:g}", settings


def epoch_of(cell: PaperCell, as_published: bool) -> int:
    """The epoch a cell is about, counted from 0."""
    if cell.option == "attack_epoch":
        return int(str(cell.value))
    return PUBLISHED_EPOCH if as_published else DATASETS[str(cell.dataset)]["training.epochs"] - 2


def audit_of(training: Training, cells: Sequence[PaperCell], selection: Selection) -> VerticalConfig:
    """The audit that runs every attack of ``cells`` on a training they share."""
    as_published, folder = selection.as_published, selection.data_folder
    changes = {name: value for name, value in DATASETS[training.dataset].items() if name != "property"}
    changes["data.options"] = {**changes.get("data.options", {}), **options_at_hand(training.dataset, folder)}
    changes |= {
        **training.changes,
        "data.name": training.dataset,
        "data.folder": folder,
        "data.split_seed": PUBLISHED_SPLIT if as_published else None,
        "properties": list(dict.fromkeys(cell.property_name for cell in cells if cell.property_name is not None)),
        "adversaries": sorted({cell.adversary for cell in cells if cell.adversary is not None}) or ["C1"],
        "attacks": dict(attack_of(cell, as_published) for cell in cells if cell.attack) or {"provfl_b": {}},
        "defenses": dict(defense_of(cell, as_published) for cell in cells),
        "attack_epochs": sorted({epoch_of(cell, as_published) for cell in cells}),
        "seeds": selection.seeds,
        "title": f"ProVFL on {training.dataset}",
    }
    return VerticalConfig.parse(SETTINGS["audit"], changes, "provfl.yaml")


COMPANIONS: dict[str, dict[str, Any]] = {"provfl_b_mixture": {}, "provfl_b_discriminant": {}, "aia_adjusted": {}}
"""Attacks added to every training where a table has the option ``companions`` and splits are honest: what an attacker
could do better. The baseline that uses the adversary's own columns is part of every audit."""

TEXAS_FRACTIONS: dict[str, float] = SETTINGS["texas_fractions"]


class SplitTrainings(Reproduction):
    """Trainings with all attacks that the cells need, each training once.

    Options of a table: ``companions`` (see `COMPANIONS`), and ``every_cell``, coordinates that it leaves out.
    """

    repeats = "seeds"
    most = TRIALS
    strongest: ClassVar[Mapping[str, str]] = {"provfl_b": "aia_adjusted", "provfl_m": "aia_adjusted"}

    def has_stronger(self, cell: PaperCell) -> bool:
        """See `Reproduction.has_stronger`; as published, active attacks are measured on a split of their own."""
        return super().has_stronger(cell) and not (self.selection.as_published and cell.attack == "provfl_m")

    def stronger(self, cell: PaperCell) -> PaperCell:
        """See `Reproduction.stronger`; an option remains where it is one of the training or of both attacks."""
        found = super().stronger(cell)
        kept = {*SETTINGS["varied"], "attack_epoch", *PROPERTY_ATTACKS.get(str(found.attack))().options()}
        return found if found.option in kept else replace(found, option=None, value=None)

    def prepare(self) -> None:
        """Plan the audits; what cannot be run here becomes a problem, and the other cells are still compared."""
        self.meant: dict[PaperCell, PaperCell] = {}
        groups: dict[Training, list[PaperCell]] = {}
        for cell in self.trained_cells():
            self.meant[cell] = cell
            with self.noting_problems(cell.dataset):
                whole = replace(cell, **self.table.options.get("every_cell", {}))
                self.meant[cell] = resolved(whole, self.selection.data_folder)
                training = training_of(self.meant[cell], self.selection.as_published)
                groups.setdefault(training, []).append(self.meant[cell])
        self.audits: dict[Training, VerticalConfig] = {}
        for training, cells in groups.items():
            with self.noting_problems(training.dataset):
                self.audits[training] = self.audit(training, cells)

    def trained_cells(self) -> Sequence[PaperCell]:
        """The cells that need an attack or a training."""
        return self.cells

    def audit(self, training: Training, cells: Sequence[PaperCell]) -> VerticalConfig:
        """The audit of a training that cells share."""
        config = audit_of(training, cells, self.selection)
        has_companions = self.table.options.get("companions") and not self.selection.as_published
        return replace(config, attacks={**config.attacks, **COMPANIONS}) if has_companions else config

    def stages(self) -> Sequence[Stage]:
        """One audit per training, each in its own folder."""
        noun = "attacks in split trainings"
        return [
            Stage.of_audit(plan_jobs, config, noun=noun, place=training.name, needs=training.dataset)
            for training, config in self.audits.items()
        ]

    def row(self, row: Row, stage: Stage, unit: str) -> Row:
        """The row with its training."""
        return row | {"setting": stage.place}

    def finish(self, rows: Rows) -> Rows:
        """Rows with the distance to the null of the adversary's own columns."""
        return beside_own_columns(rows)

    def where(self, cell: PaperCell) -> Row | None:
        """See `Reproduction.where`; None where there is no training for the cell."""
        meant, as_published = self.meant.get(cell, cell), self.selection.as_published
        try:
            setting = training_of(meant, as_published).name
        except LightLeakError:
            return None
        label = None if meant.attack is None else attack_of(meant, as_published)[0]
        named = {"property": meant.property_name, "adversary": meant.adversary, "label": label}
        return {
            "setting": setting,
            "defense": defense_of(meant, as_published)[0],
            "epoch": epoch_of(meant, as_published),
            **{key: value for key, value in named.items() if value is not None},
        }

    def values(self, cell: PaperCell, rows: Rows) -> Iterable[float]:
        """One per seed, and per property where the cell names none."""
        return super().values(cell, self.trainings(cell, rows))

    def trainings(self, cell: PaperCell, rows: Rows) -> Rows:
        """The rows behind a cell, once where it is about a training, of which every attack on it has a row."""
        found = self.behind(cell, rows)
        if cell.attack is not None:
            return found
        return list({(row["seed"], row["property"]): row for row in found}.values())

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """Over seeds: trainings of a seed for several properties share its split, and count once."""
        if cell.property_name is not None:
            return super().measured(cell, rows)
        column, factor = self.column(cell), scale(cell)
        return summarize_by((row["seed"], factor * row[column]) for row in self.trainings(cell, rows))

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """What a reader of these cells must know."""
        splits = any(cell.option in ("victim_share", "parties") for cell in self.cells)
        published = self.selection.as_published
        return {
            "as_published": published,
            "whole_features": published and splits,
            "honest": not published,
            "all_properties": any(cell.attack is None and cell.property_name is None for cell in self.cells),
            "r3elu": any(cell.defense == "r3elu" for cell in self.cells),
        }


class AttackSeconds(SplitTrainings):
    """Table X: seconds of the attacks on Adult; for ProVFL-M with what it adds to the training."""

    one_at_a_time = True

    def values(self, cell: PaperCell, rows: Rows) -> list[float]:
        """Seconds of the attack in every seed of which the training without ProVFL-M is there too."""
        plain = {row["seed"]: row["training_seconds"] for row in rows if row["attack"] != "provfl_m"}
        label, _ = attack_of(self.meant[cell], self.selection.as_published)
        return [
            row["seconds"] + (row["training_seconds"] - plain[row["seed"]] if cell.attack == "provfl_m" else 0.0)
            for row in rows
            if row["label"] == label and row["seed"] in plain
        ]

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """See `Reproduction.measured`."""
        return summarize(self.values(cell, rows))

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """What the seconds are of."""
        return {**super().remarks(rows), "seconds": True, "published_seconds": self.selection.as_published}


def resolved(cell: PaperCell, data_folder: str | None) -> PaperCell:
    """The cell, with one of Texas's unnamed features replaced by the feature whose fraction is nearest to the paper's.

    Raises:
        DataError: the table that is needed for it cannot be read.
    """
    if cell.property_name not in TEXAS_FRACTIONS:
        return cell
    made = options_at_hand("texas100", data_folder)
    _, frame = load_whole(VerticalDataConfig(name="texas100", folder=data_folder, options=made))
    shares = frame.drop(columns="procedure").mean()
    return replace(cell, property_name=f"{(shares - TEXAS_FRACTIONS[cell.property_name]).abs().idxmin()}=1")


class VerticalFacts(FactTable):
    """Table III (columns, widths, rows; quality of the trained target) and Table IV (fractions)."""

    def stages(self) -> Sequence[Stage]:
        """The trainings whose quality is reported."""
        return [
            Stage(partial(self.trainings, cell), "trainings", needs=cell.dataset)
            for cell in self.cells
            if cell.metric == "auc"
        ]

    def trainings(self, cell: PaperCell, folder: Path, device: torch.device) -> list[Work]:
        """The training behind an AUC."""
        job = plan_jobs(audit_of_cell(self._with_property(cell), self.selection))[0]
        return [Work([f"quality-{cell.dataset}"], partial(self.quality, cell, job), job.cost)]

    def quality(self, cell: PaperCell, job: Job, at: Place) -> Rows:
        """The AUC of one training."""
        scores = job.train(at.device, at.report).module.trainer.callback_metrics
        return [{**self.where(cell), "value": float(scores["test/auroc"])}]

    def fact(self, cell: PaperCell, rows: Rows) -> float | None:
        """See `FactTable.fact`."""
        if cell.metric == "auc":
            return next((row["value"] for row in rows if row["dataset"] == cell.dataset), None)
        study = resolved(self._with_property(cell), self.selection.data_folder)
        config = audit_of_cell(study, self.selection)
        loaded, both = load_whole(config.data)
        schema, wanted = loaded.schema, Property.parse(str(study.property_name))
        numbers: dict[str, Callable[[], float]] = {
            "features": lambda: len(schema.columns),
            "encoded_width": lambda: sum(prepare_world(config, wanted, self.selection.seeds[0]).train.widths),
            "classes": lambda: schema.n_classes,
            "rows": lambda: len(both),
            "n_values": lambda: schema.columns[schema.names.index(wanted.column)].width,
            "true_fraction": lambda: float(wanted.mask(both).mean()),
        }
        return float(numbers[cell.metric]())

    def where(self, cell: PaperCell) -> Row:
        """See `FactTable.where`."""
        return {"dataset": cell.dataset, "metric": cell.metric, "property": cell.property_name}

    def is_fact(self, cell: PaperCell) -> bool:
        """An AUC is that of one training."""
        return cell.metric != "auc"

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """What is not a fact."""
        measured = any(cell.metric == "auc" for cell in self.table.cells)
        return {"auc": {"seed": self.selection.seeds[0]} if measured else False}

    @staticmethod
    def _with_property(cell: PaperCell) -> PaperCell:
        return cell if cell.property_name else replace(cell, property_name=DATASETS[str(cell.dataset)].get("property"))


class Correlations(SplitTrainings):
    """Table VI: errors as in the other tables, and Pearson's correlation of the property with what is left of it."""

    def choose(self) -> list[PaperCell]:
        """Errors first, then correlations."""
        return sorted(super().choose(), key=lambda cell: cell.attack is None)

    def trained_cells(self) -> Sequence[PaperCell]:
        """The errors."""
        return [cell for cell in self.cells if cell.attack is not None]

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """See `Reproduction.measured`."""
        return super().measured(cell, rows) if cell.attack else summarize([correlation(cell, self.selection)])

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """Also what correlations are over."""
        return {**super().remarks(rows), "correlations": {"seed": self.selection.seeds[0]}}


def correlation(cell: PaperCell, selection: Selection) -> float:
    """The correlation of a property with the label, or the largest with a column of the adversary."""
    world = prepare_world(audit_of_cell(cell, selection), Property.parse(str(cell.property_name)), selection.seeds[0])
    has = world.has_property.numpy().astype(float)
    if cell.metric == "correlation_with_label":
        return float(np.corrcoef(has, world.train.labels.numpy())[0, 1])
    own = world.train.inputs[:, world.columns_of(world.arrangement.adversary)].numpy()
    found = [float(np.corrcoef(has, column)[0, 1]) for column in own.T if column.std() > 0]
    return max(found, key=abs)


def audit_of_cell(cell: PaperCell, selection: Selection, seed: int | None = None) -> VerticalConfig:
    """The audit of one seed behind one cell, by default of the first."""
    one = replace(selection, seeds=selection.seeds[:1] if seed is None else (seed,))
    return audit_of(training_of(cell, selection.as_published), [cell], one)
