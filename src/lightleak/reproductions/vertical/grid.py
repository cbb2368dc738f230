"""Tables of ProVFL that are grids of trainings and attacks, and where our number for each cell comes from."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lightleak.core.errors import LightLeakError
from lightleak.experiments.campaign import rows_of, run_packs
from lightleak.experiments.kinds.vertical.config import VerticalDataConfig
from lightleak.experiments.kinds.vertical.job import plan_jobs
from lightleak.experiments.kinds.vertical.rows import beside_own_columns
from lightleak.experiments.kinds.vertical.world import load_whole
from lightleak.metrics.summary import summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import Selection, selected
from lightleak.reproductions.vertical.settings import Training, attack_of, audit_of, defense_of, epoch_of, training_of

Rows = list[dict[str, Any]]
Result = tuple[list[Compared], Rows, list[str]]
"""Cells compared, rows of results.json, and notes."""

COMPANIONS: dict[str, dict[str, Any]] = {
    "provfl_b_mixture": {},
    "provfl_b_discriminant": {},
    "aia_adjusted": {},
}
"""What stands beside the paper's attacks on honest splits: what an attacker could do better. The null of what its own
columns tell is part of every audit."""

ATTACKED_HARDER = (5, 16)
"""Tables of which every cell's training is also attacked by `COMPANIONS`: the main one and that of defences."""

TEXAS_FRACTIONS = {"T-u1": 0.5508, "T-u2": 0.7548}
"""Fractions of the two features of Texas-100 that Table IV does not name."""

FIGURE_5: dict[str, Sequence[Any]] = {
    "mislabelled": (0.0, 0.01, 0.02, 0.05, 0.1),
    "auxiliary_size": (500, 1000, 2000, 4000),
    "queries": (1, 10, 50, 100, 200),
    "attack_epoch": (0, 1, 3, 5, 10, 15, 18),
    "samples": (100, 200, 300, 400, 500),
}
"""Settings its curves vary; the figure prints no numbers, its axes are read."""


def vertical_table(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Train and attack whatever the cells of a table need, each training once."""
    published = selection.as_published
    chosen = selected(table, table.cells or figure_cells(table), selection)
    groups: dict[Training, list[PaperCell]] = {}
    notes: list[str] = []
    cells: dict[PaperCell, PaperCell] = {}
    for cell in chosen:
        try:
            cells[cell] = resolved(cell, selection.data_folder)
            groups.setdefault(training_of(cells[cell], published), []).append(cells[cell])
        except LightLeakError as error:  # a table nobody holds is reported, not fatal: the others are still compared
            cells[cell] = cell
            notes.append(f"{cell.dataset}: {error}")
    rows: Rows = []
    for training, members in groups.items():
        place = folder / training.name
        try:
            config = audit_of(training, members, published, selection.seeds, selection.data_folder)
            if table.table in ATTACKED_HARDER and not published:
                config = replace(config, attacks={**config.attacks, **COMPANIONS})
            ids = run_packs(partial(plan_jobs, config), place, device, workers, quiet, "attacks in split trainings")
        except LightLeakError as error:
            notes.append(f"{training.dataset}: {error}")
            continue
        rows += [row | {"setting": training.name} for row in rows_of(ids, place)]
    rows = beside_own_columns(rows)
    compared = [Compared(cell, summarize(values_of(meant, rows, published))) for cell, meant in cells.items()]
    return compared, rows, [*dict.fromkeys(notes), *_deviations(chosen, published)]


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


def values_of(cell: PaperCell, rows: Sequence[dict[str, Any]], as_published: bool) -> list[float]:
    """Our values for a cell, one per seed (and property, where the cell names none)."""
    try:
        setting = training_of(cell, as_published).name
    except LightLeakError:
        return []
    defense, epoch = defense_of(cell, as_published)[0], epoch_of(cell, as_published)
    wanted: dict[str, Any] = {"setting": setting, "defense": defense, "epoch": epoch}
    if cell.property_name is not None:
        wanted["property"] = cell.property_name
    if cell.adversary is not None:
        wanted["adversary"] = cell.adversary
    if cell.attack is not None:
        wanted["label"] = attack_of(cell, as_published)[0]
    found = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    if cell.attack is None:  # of the training, of which every attack on it has a row
        found = list({(row["seed"], row["property"]): row for row in found}.values())
    return [float(row[cell.metric]) for row in found if row.get(cell.metric) is not None]


def figure_cells(table: PaperTable) -> list[PaperCell]:
    """Cells without a printed value for the curves of Figure 5."""
    properties = (("adult", "sex=Male"), ("adult", "race=White"), ("adult", "workclass=Private"))
    nothing = float("nan")
    curve = partial(PaperCell, "absolute_error", "fraction", nothing, attack="provfl_b")
    cells = [
        curve(dataset=dataset, property_name=name, adversary="C1", option=option, value=value)
        for option, values in FIGURE_5.items()
        for dataset, name in properties
        for value in values
    ]
    cells += [
        curve(dataset="census", property_name=name, adversary=adversary, option="parties", value=number)
        for name in ("sex=Female", "race=Black", "education=Bachelors degree(BA AB BS)")
        for adversary in ("C1", "C2")
        for number in (2, 4, 6, 8, 10)
    ]
    return cells if table.figure == 5 else []


def _deviations(cells: Sequence[PaperCell], as_published: bool) -> list[str]:
    """What a reader of these cells must know."""
    notes = [
        "Features are never torn apart, every seed is another split shared by all attacks, the penultimate epoch is "
        "attacked, AIA is mended, labels are replaced on auxiliary rows only. --as-published runs what its code does."
    ]
    if as_published:
        notes = [
            "As published: ProVFL's order of encoded columns, in which the adversary keeps the other one-hot columns "
            "of the property's feature; one split for all seeds; epoch 18; active attacks on a 70/30 split."
        ]
        if any(cell.option in ("victim_share", "parties") for cell in cells):
            notes.append("Other shares and more than two parties deal out whole features: its layout has one cut.")
    if any(cell.attack is None and cell.property_name is None for cell in cells):
        notes.append("Where a cell names no property, its mean is over the trainings of all of the table's properties.")
    if any(cell.defense == "r3elu" for cell in cells):
        notes.append("R3eLU's epsilon is a record's budget, which leaves an AUC of one half; see its docstring.")
    return notes
