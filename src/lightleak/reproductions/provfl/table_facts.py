"""Facts of ProVFL's tables: columns, rows and fractions (Tables III and IV), and correlations (Table VI)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightleak.core.summary import Summary, summarize
from lightleak.data.property import Property
from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.kinds.vertical.job import Job, plan_jobs
from lightleak.experiments.kinds.vertical.world import load_whole, prepare_world
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.provfl.grid import DATASETS, SplitTrainings, audit_of, resolved, training_of
from lightleak.reproductions.reproduction import FactTable, Place, Row, Rows, Stage, Work
from lightleak.reproductions.settings import Selection


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


def audit_of_cell(cell: PaperCell, selection: Selection) -> VerticalConfig:
    """The audit of the first seed behind one cell."""
    published = selection.as_published
    return audit_of(training_of(cell, published), [cell], published, selection.seeds[:1], selection.data_folder)
