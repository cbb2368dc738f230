"""The thesis's tables on Diabetes-130; its own MIMIC-IV needs credentials, so ours stand beside as another table."""

import json
import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lightleak.core.errors import UsageError
from lightleak.experiments.campaign import run_packs
from lightleak.experiments.kinds.released.config import ReleasedConfig, SamplesConfig
from lightleak.experiments.kinds.released.job import plan_attacks, plan_models
from lightleak.experiments.kinds.released.rows import ALL
from lightleak.experiments.kinds.released.run import finished_rows, gather_entries
from lightleak.experiments.kinds.released.world import prepare_world
from lightleak.experiments.unit import unit_file
from lightleak.metrics.summary import Summary, summarize, summarize_by
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.released.settings import setting
from lightleak.reproductions.settings import Selection, selected

Rows = list[dict[str, Any]]
Result = tuple[list[Compared], Rows, list[str]]

DEVIATIONS = (
    "Numbers are standardised for both networks (the thesis: not; its library normalises the batch instead); columns "
    "are chosen on private training rows alone; no patient is on two sides; pair trends cut numbers at the private "
    "table's edges; the generator is trained without stochastic augmentations."
)
"""Where ours departs from the thesis beside the table."""


ANOTHER_TABLE = (
    "Ours is Diabetes-130 (101,766 US hospital encounters; the ICD-9 code of the first diagnosis is the class), the "
    "thesis's is MIMIC-IV: another table with other columns. Read whether the picture is the same, not agreement."
)
ALPHAS = (0.0, 0.05, 0.25, 0.5, 0.75, 1.0)
"""Weights of Fig. A.13, and one that suits Diabetes-130 better (configs/released_model.yaml)."""

COLUMNS = {
    "num_medications": "num_medications",
    "num_procedures": "num_procedures",
    "length_of_stay": "time_in_hospital",
    "race": "race=Caucasian",
}
"""Columns of Table A.2 that Diabetes-130 has as well."""

MEASURED = {"inversion_loss": "inversion_loss_searched"}
"""The thesis's loss is that at z*, before a row is decoded."""

SEARCH_SAMPLES = SamplesConfig(searches=("random", "softmax", "gradient", "tpe", "random_best"))


def target_quality(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table 5.3: training and test accuracy of the targets."""
    cells = _cells(table, selection)
    compared, rows = [], []
    for name, of_setting in _by_setting(cells).items():
        config = setting(name, seeds=selection.seeds, folder=selection.data_folder)
        place = folder / f"setting-{name}"
        run_packs(partial(_targets, config), place, device, workers, quiet, "models trained")
        scores = [json.loads(unit_file(place, f"model-target-s{seed}").read_text()) for seed in config.seeds]
        rows += [{"setting": name, "seed": seed, **found} for seed, found in zip(config.seeds, scores, strict=True)]
        compared += [_compared(cell, [100 * one[cell.metric] for one in scores]) for cell in of_setting]
    return compared, rows, [ANOTHER_TABLE, DEVIATIONS]


def attack_quality(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table 5.5: attack accuracy and statistics in every setting, and the baselines beside them as notes."""
    cells = _cells(table, selection)
    compared, rows, notes = [], [], [ANOTHER_TABLE, DEVIATIONS]
    for name, of_setting in _by_setting(cells).items():
        config = setting(name, selection.iterations, selection.seeds, selection.data_folder)
        found = _run(config, folder / f"setting-{name}", device, workers, quiet)
        rows += found
        own = _of(found, "plgmi")
        compared += [_over_trainings(cell, own, cell.metric, 100) for cell in of_setting]
        notes += _baselines(name, found)
    return compared, rows, [*notes, *_iterations(selection)]


def latent_searches(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table 5.6: the latent searches in setting 2, from the same latent vectors."""
    cells = _cells(table, selection)
    attacks: dict[str, dict[str, Any]] = {"plgmi": {}, "plgmi shared": {"attack": "plgmi", "bridge": "shared"}}
    config = setting("2", selection.iterations, selection.seeds, selection.data_folder, attacks, SEARCH_SAMPLES)
    rows = _run(config, folder / "setting-2", device, workers, quiet)
    compared = [
        _over_trainings(
            cell,
            [row for row in _of(rows, "plgmi") if row["latent_search"] == cell.variant],
            MEASURED.get(cell.metric, cell.metric),
            100 if cell.unit == "percent" else 1,
        )
        for cell in cells
    ]
    shared = [
        f"With the shared transform {search} has attack accuracy {100 * accuracy.mean:.1f}% and inversion loss "
        f"{loss.mean:.2g}."
        for search in SEARCH_SAMPLES.searches
        if (own := [row for row in _of(rows, "plgmi shared") if row["latent_search"] == search])
        for accuracy, loss in [
            [summarize_by((row["seed"], row[name]) for row in own) for name in ("attack_accuracy", "inversion_loss")]
        ]
    ]
    return compared, rows, [ANOTHER_TABLE, *shared, *_iterations(selection)]


def closest_rows(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table A.2: the closest reconstructed and private row of every class in setting 2."""
    cells = _cells(table, selection)
    attacks: dict[str, dict[str, Any]] = {"plgmi": {}}
    once = replace(SamplesConfig(), evaluations=1)
    config = setting("2", selection.iterations, selection.seeds[:1], selection.data_folder, attacks, once)
    place = folder / "setting-2"
    rows = _run(config, place, device, workers, quiet)
    found = json.loads((place / "inversion.json").read_text())["entries"][0]["nearest"]
    nearest = {pair["class"]: pair for pair in found}
    names = prepare_world(config, selection.seeds[0]).task.schema.label.categories
    compared = []
    for cell in cells:
        column, pair = COLUMNS.get(str(cell.column)), nearest.get(names[int(str(cell.value))])
        if column is None or pair is None or column not in pair["private"]:  # not in our table, or not attacked
            compared.append(_compared(cell, []))
            continue
        made, private = pair["reconstructed"][column], pair["private"][column]
        value = float(made == private) if isinstance(made, str) else float(abs(made - private))
        compared.append(_compared(cell, [value]))
    return compared, rows, [ANOTHER_TABLE, "Classes are those of our table, the most frequent first."]


def inversion_weights(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Figure A.13: the weight alpha1 of the inversion loss in setting 2."""
    attacks: dict[str, dict[str, Any]] = {
        f"alpha1 {alpha:g}": {"attack": "plgmi", "inversion_weight": alpha} for alpha in ALPHAS
    }
    config = setting("2", selection.iterations, selection.seeds, selection.data_folder, attacks)
    rows = _run(config, folder / "setting-2", device, workers, quiet)
    compared = [
        _over_trainings(
            PaperCell(metric, "percent", math.nan, option="alpha1", value=alpha),
            _of(rows, f"alpha1 {alpha:g}"),
            metric,
            100,
        )
        for metric in ("attack_accuracy", "shapes_score", "pair_trends_score")
        for alpha in ALPHAS
    ]
    return compared, rows, [ANOTHER_TABLE, *_iterations(selection)]


RELEASED: dict[str, Callable[..., Result]] = {
    "thesis-table5.3": target_quality,
    "thesis-table5.5": attack_quality,
    "thesis-table5.6": latent_searches,
    "thesis-tableA.2": closest_rows,
    "thesis-figA.13": inversion_weights,
}
"""What runs each table or figure."""


def _cells(table: PaperTable, selection: Selection) -> list[PaperCell]:
    """The selected cells.

    Raises:
        UsageError: another dataset than the one there is, or nothing is selected.
    """
    if selection.dataset not in (None, "diabetes130"):
        raise UsageError(
            f"{table.name} runs on diabetes130, got --dataset {selection.dataset}; an audit takes any table"
        )
    return selected(table, table.cells, replace(selection, dataset=None))


def _run(config: ReleasedConfig, folder: Path, device: torch.device, workers: int, quiet: bool) -> Rows:
    """Rows over all classes of an audit, run or resumed."""
    run_packs(partial(plan_models, config), folder, device, workers, quiet, "models trained")
    run_packs(partial(plan_attacks, config), folder, device, workers, quiet, "evaluations of attacks")
    shutil.rmtree(folder / "generators", ignore_errors=True)
    gather_entries(folder)
    return [row for row in finished_rows(config, folder) if row["class"] == ALL]


def _targets(config: ReleasedConfig, device: torch.device) -> list[Any]:
    return [pack for pack in plan_models(config) if pack.role == "target"]


def _by_setting(cells: Iterable[PaperCell]) -> dict[str, list[PaperCell]]:
    found: dict[str, list[PaperCell]] = {}
    for cell in cells:
        found.setdefault(str(cell.value), []).append(cell)
    return found


def _of(rows: Rows, label: str) -> Rows:
    return [row for row in rows if row["label"] == label]


def _compared(cell: PaperCell, values: Sequence[float]) -> Compared:
    return Compared(cell, summarize(values), same_data=False)


def _over_trainings(cell: PaperCell, rows: Rows, metric: str, scale: float) -> Compared:
    """A cell beside the mean over trainings; evaluations of one training are one measurement."""
    return Compared(cell, summarize_by((row["seed"], scale * row[metric]) for row in rows), same_data=False)


def _baselines(name: str, rows: Rows) -> list[str]:
    """What the numbers of a setting stand beside."""
    told: list[str] = []
    for label in dict.fromkeys(row["label"] for row in rows):
        mean: Summary = summarize_by((row["seed"], 100 * row["attack_accuracy"]) for row in _of(rows, label))
        told.append(f"{label} {mean.mean:.1f}%")
    real = summarize_by((row["seed"], 100 * row["real_rows_accuracy"]) for row in rows)
    return [
        f"Setting {name}: attack accuracy {', '.join(told)}; evaluation model on held-out private rows "
        f"{real.mean:.1f}%. n is the number of trainings; evaluations of one are averaged."
    ]


def _iterations(selection: Selection) -> list[str]:
    return [] if selection.iterations is None else [f"Generators were trained for {selection.iterations} iterations."]
