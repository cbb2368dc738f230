"""Facts of ProVFL's tables: columns, rows and fractions (Tables III and IV), and correlations (Table VI)."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from lightleak.core.errors import LightLeakError
from lightleak.data.property import Property
from lightleak.experiments.kinds.vertical.job import plan_jobs
from lightleak.experiments.kinds.vertical.world import load_whole, prepare_world
from lightleak.experiments.unit import write_whole
from lightleak.metrics.summary import Summary, summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import Selection, selected
from lightleak.reproductions.vertical.grid import Result, Rows, vertical_table
from lightleak.reproductions.vertical.settings import audit_of, training_of

A_PROPERTY = {
    "adult": "sex=Male",
    "census": "sex=Female",
    "bank": "marital=married",
    "lawschool": "race=Black",
    "health-heritage": "Sex=F",
    "texas100": "feature_0=1",
}
"""A property to train with where a cell names none."""


def facts(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table III (columns, widths, rows; quality of the trained target) and Table IV (fractions)."""
    compared: list[Compared] = []
    rows: Rows = []
    notes: list[str] = []
    for cell in selected(table, table.cells, selection):
        try:
            value = _fact(cell, selection, folder, device)
        except LightLeakError as error:  # a table nobody holds is reported, not fatal: the others are still compared
            notes.append(f"{cell.dataset}: {error}")
            compared.append(Compared(cell, summarize([])))
            continue
        one = Summary(value, math.nan, 1, math.nan, math.nan)
        compared.append(Compared(cell, one, is_fact=cell.metric != "auc"))  # an AUC is that of one training
        rows.append({"dataset": cell.dataset, "metric": cell.metric, "property": cell.property_name, "value": value})
    if any(cell.metric == "auc" for cell in table.cells):
        notes.append(f"AUC is that of one training (seed {selection.seeds[0]}).")
    return compared, rows, list(dict.fromkeys(notes))


def _fact(cell: PaperCell, selection: Selection, folder: Path, device: torch.device) -> float:
    training = training_of(cell, selection.as_published)
    study = cell if cell.property_name else replace(cell, property_name=A_PROPERTY[str(cell.dataset)])
    config = audit_of(training, [study], selection.as_published, selection.seeds[:1], selection.data_folder)
    loaded, both = load_whole(config.data)
    schema = loaded.schema
    if cell.metric == "auc":
        kept = folder / "quality" / f"{cell.dataset}.json"
        if not kept.is_file():
            scores = plan_jobs(config)[0].train(device, lambda _: None).module.trainer.callback_metrics
            write_whole(kept, json.dumps({"auc": float(scores["test/auroc"])}))
        return float(json.loads(kept.read_text())["auc"])
    wanted = Property.parse(str(study.property_name))
    numbers: dict[str, Callable[[], float]] = {
        "features": lambda: len(schema.columns),
        "encoded_width": lambda: sum(prepare_world(config, wanted, selection.seeds[0]).train.widths),
        "classes": lambda: schema.n_classes,
        "rows": lambda: len(both),
        "n_values": lambda: schema.columns[schema.names.index(wanted.column)].width,
        "true_fraction": lambda: float(wanted.mask(both).mean()),
    }
    return float(numbers[cell.metric]())


def correlations(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table VI: errors as in the other tables, and Pearson's correlation of the property with what is left of it."""
    attacked = replace(table, cells=tuple(cell for cell in table.cells if cell.attack is not None))
    compared, rows, notes = vertical_table(attacked, selection, folder, device, workers, quiet)
    for cell in selected(table, table.cells, selection):
        if cell.attack is None:
            value = _correlation(cell, selection)
            compared.append(Compared(cell, Summary(value, math.nan, 1, math.nan, math.nan)))
    return compared, rows, [*notes, f"Correlations over the training rows of seed {selection.seeds[0]}."]


def _correlation(cell: PaperCell, selection: Selection) -> float:
    config = audit_of(
        training_of(cell, selection.as_published), [cell], selection.as_published, (0,), selection.data_folder
    )
    world = prepare_world(config, Property.parse(str(cell.property_name)), selection.seeds[0])
    has = world.has_property.numpy().astype(float)
    if cell.metric == "correlation_with_label":
        return float(np.corrcoef(has, world.train.labels.numpy())[0, 1])
    own = world.train.inputs[:, world.columns_of(world.arrangement.adversary)].numpy()
    found = [float(np.corrcoef(has, column)[0, 1]) for column in own.T if column.std() > 0]
    return max(found, key=abs)
