"""ProVFL's tables that are grids of trainings and attacks, and where our number for each cell comes from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lightleak.core.errors import LightLeakError
from lightleak.experiments.kinds.vertical.config import VerticalConfig, VerticalDataConfig
from lightleak.experiments.kinds.vertical.job import plan_jobs
from lightleak.experiments.kinds.vertical.rows import beside_own_columns
from lightleak.experiments.kinds.vertical.world import load_whole
from lightleak.reproductions.paper.settings import paper_settings
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.provfl.settings import (
    Training,
    attack_of,
    audit_of,
    defense_of,
    epoch_of,
    training_of,
)
from lightleak.reproductions.reproduction import Reproduction, Row, Rows, Stage, plan_of

COMPANIONS: dict[str, dict[str, Any]] = {"provfl_b_mixture": {}, "provfl_b_discriminant": {}, "aia_adjusted": {}}
"""Attacks added to every training where a table has the option ``companions`` and splits are honest: what an attacker
could do better. The baseline that uses the adversary's own columns is part of every audit."""

TEXAS_FRACTIONS: dict[str, float] = paper_settings("provfl")["texas_fractions"]


class SplitTrainings(Reproduction):
    """Trainings with all attacks that the cells need, each training once."""

    def prepare(self) -> None:
        """Plan the audits; what cannot be run here becomes a problem, and the other cells are still compared."""
        self.meant: dict[PaperCell, PaperCell] = {}
        groups: dict[Training, list[PaperCell]] = {}
        for cell in self.trained_cells():
            self.meant[cell] = cell
            try:
                self.meant[cell] = resolved(self.as_run(cell), self.selection.data_folder)
                training = training_of(self.meant[cell], self.selection.as_published)
                groups.setdefault(training, []).append(self.meant[cell])
            except LightLeakError as error:
                self.problems.append(f"{cell.dataset}: {error}")
        self.audits: dict[Training, VerticalConfig] = {}
        for training, cells in groups.items():
            try:
                self.audits[training] = self.audit(training, cells)
            except LightLeakError as error:
                self.problems.append(f"{training.dataset}: {error}")

    def trained_cells(self) -> Sequence[PaperCell]:
        """The cells that need an attack or a training."""
        return self.cells

    def as_run(self, cell: PaperCell) -> PaperCell:
        """The cell with coordinates that its table leaves out."""
        return cell

    def audit(self, training: Training, cells: Sequence[PaperCell]) -> VerticalConfig:
        """The audit of a training that cells share."""
        published, selection = self.selection.as_published, self.selection
        config = audit_of(training, cells, published, selection.seeds, selection.data_folder)
        if self.table.options.get("companions") and not published:
            return replace(config, attacks={**config.attacks, **COMPANIONS})
        return config

    def stages(self) -> Sequence[Stage]:
        """One audit per training, each in its own folder."""
        noun = "attacks in split trainings"
        return [
            Stage(plan_of(plan_jobs, config), noun, training.name, config=config, needs=training.dataset)
            for training, config in self.audits.items()
        ]

    def row(self, row: Row, stage: Stage, unit: str) -> Row:
        """The row with its training."""
        return row | {"setting": stage.place}

    def finish(self, rows: Rows) -> Rows:
        """Rows with the distance to the null of the adversary's own columns."""
        return beside_own_columns(rows)

    def where(self, cell: PaperCell) -> Row | None:
        """See `rows_of`."""
        return rows_of(self.meant.get(cell, cell), self.selection.as_published)

    def values(self, cell: PaperCell, rows: Rows) -> Iterable[float]:
        """One per seed, and per property where the cell names none."""
        found = self.behind(cell, rows)
        if cell.attack is None:  # of the training, of which every attack on it has a row
            found = list({(row["seed"], row["property"]): row for row in found}.values())
        return super().values(cell, found)

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

    def as_run(self, cell: PaperCell) -> PaperCell:
        """One property and adversary; the table names none."""
        return replace(cell, property_name="sex=Male", adversary="C1")

    def values(self, cell: PaperCell, rows: Rows) -> list[float]:
        """Seconds of the attack in every seed of which the training without ProVFL-M is there too."""
        plain = {row["seed"]: row["training_seconds"] for row in rows if row["attack"] != "provfl_m"}
        label, _ = attack_of(self.meant[cell], self.selection.as_published)
        return [
            row["seconds"] + (row["training_seconds"] - plain[row["seed"]] if cell.attack == "provfl_m" else 0.0)
            for row in rows
            if row["label"] == label and row["seed"] in plain
        ]

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
    _, frame = load_whole(VerticalDataConfig(name="texas100", folder=data_folder))
    shares = frame.drop(columns="procedure").mean()
    return replace(cell, property_name=f"{(shares - TEXAS_FRACTIONS[cell.property_name]).abs().idxmin()}=1")


def rows_of(cell: PaperCell, as_published: bool) -> Row | None:
    """Return the keys and values that identify the rows behind a cell; None where there is no training for it."""
    try:
        setting = training_of(cell, as_published).name
    except LightLeakError:
        return None
    label = None if cell.attack is None else attack_of(cell, as_published)[0]
    named = {"property": cell.property_name, "adversary": cell.adversary, "label": label}
    return {
        "setting": setting,
        "defense": defense_of(cell, as_published)[0],
        "epoch": epoch_of(cell, as_published),
        **{key: value for key, value in named.items() if value is not None},
    }
