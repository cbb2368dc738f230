"""The FedAvg paper's tables that attacks, restored labels and trainings stand behind."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lightleak.experiments.campaign import rows_of, run_packs
from lightleak.metrics.summary import summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.fedavg_study.clients import ImageClients
from lightleak.reproductions.fedavg_study.federation import TrainingPack, trained
from lightleak.reproductions.fedavg_study.job import AttackPack, LabelPack, attack_packs
from lightleak.reproductions.fedavg_study.notes import notes_of
from lightleak.reproductions.fedavg_study.setting import AttackSetting, ClientSetting
from lightleak.reproductions.fedavg_study.study import Study, beside, prepare
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import Selection

Rows = list[dict[str, Any]]
Result = tuple[list[Compared], Rows, list[str]]

PAPER_CLIENTS = 100
"""Clients behind the hours of Table 11."""

ROW_METRICS = {
    "psnr": ("psnr", 1.0),
    "reconstructed_rate": ("reconstructed_share", 100.0),
    "hours": ("seconds", PAPER_CLIENTS / 3600),
}
"""Column of results.json behind each metric, and what it is multiplied by."""


def image_attacks(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Tables 1, 3, 4 and 7 to 11: attacks on the updates of a few clients."""
    study = prepare(table, selection, device)
    _train_for_rounds(study, folder, device, workers, quiet)
    rows = run_attacks(study, folder, device, workers, quiet)
    return _in_order(study, rows, _of_attack), rows, notes_of(study)


def defended_attacks(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table 6: attacks on defended updates, and what each defence costs in accuracy."""
    study = prepare(table, selection, device)
    settings = tuple(dict.fromkeys(study.client_setting(cell) for cell in study.cells if cell.attack is None))
    plan = partial(_trainings, study.clients, settings, study.preset.rounds, ())
    trainings = rows_of(run_packs(plan, folder, device, workers, quiet, "trainings"), folder)
    attacks = run_attacks(study, folder, device, workers, quiet)

    def values(study: Study, cell: PaperCell, rows: Rows) -> list[float]:
        if cell.attack is not None:
            return _of_attack(study, cell, rows)
        name = f"training_{trained(study.client_setting(cell)).name}"
        return [100 * row["test_accuracy"] for row in rows if row["setting"] == name]

    rows = [*trainings, *attacks]
    return _in_order(study, rows, values), rows, notes_of(study)


def label_counts(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table 2: labels of a client that are restored wrongly, by three methods."""
    study = prepare(table, selection, device, simulates=False)
    settings = tuple(dict.fromkeys(study.client_setting(cell) for cell in study.cells))
    plan = partial(_label_packs, study.clients, settings, study.updates)
    rows = rows_of(run_packs(plan, folder, device, workers, quiet, "clients"), folder)

    def values(study: Study, cell: PaperCell, rows: Rows) -> list[float]:
        name = f"{cell.variant}_{study.client_setting(cell).name}"
        return [row["label_errors"] for row in rows if row["setting"] == name]

    return _in_order(study, rows, values), rows, notes_of(study)


def run_attacks(study: Study, folder: Path, device: torch.device, workers: int, quiet: bool) -> Rows:
    """Rows of every attack on every update of a study; what is done is not done again."""
    plan = partial(_attack_packs, study.clients, study.attack_settings, study.updates)
    return rows_of(run_packs(plan, folder, device, workers, quiet, "attacks on images"), folder)


def _train_for_rounds(study: Study, folder: Path, device: torch.device, workers: int, quiet: bool) -> None:
    """Train as far as the last round that is attacked, and keep the weights before each that is."""
    attacked = [setting.clients for setting in study.attack_settings if setting.clients.round is not None]
    rounds = tuple(sorted({setting.round for setting in attacked if setting.round is not None}))
    settings = tuple(dict.fromkeys(trained(setting) for setting in attacked))
    if rounds:
        plan = partial(_trainings, study.clients, settings, rounds[-1] - 1, rounds)
        run_packs(plan, folder, device, workers, quiet, "trainings")


def _in_order(study: Study, rows: Rows, values: Callable[[Study, PaperCell, Rows], Sequence[float]]) -> list[Compared]:
    """Every cell in the order of the table; those that are not run here without a value."""
    run, shown = set(study.cells), {*study.cells, *study.left_out}
    return [
        beside(cell, study.preset, summarize(values(study, cell, rows) if cell in run else []))
        for cell in study.table.cells
        if cell in shown
    ]


def _of_attack(study: Study, cell: PaperCell, rows: Rows) -> list[float]:
    column, scale = ROW_METRICS[cell.metric]
    name = study.setting(cell).name
    return [scale * row[column] for row in rows if row["setting"] == name]


def _attack_packs(
    clients: Sequence[ImageClients], settings: Sequence[AttackSetting], updates: int, device: torch.device
) -> list[AttackPack]:
    return [p for setting in settings for of_seed in clients for p in attack_packs(of_seed, setting, updates, device)]


def _label_packs(
    clients: Sequence[ImageClients], settings: Sequence[ClientSetting], updates: int, device: torch.device
) -> list[LabelPack]:
    return [
        LabelPack(of_seed, setting, (index,)) for setting in settings for of_seed in clients for index in range(updates)
    ]


def _trainings(
    clients: Sequence[ImageClients],
    settings: Sequence[ClientSetting],
    rounds: int,
    kept: tuple[int, ...],
    device: torch.device,
) -> list[TrainingPack]:
    return [TrainingPack(of_seed, trained(setting), rounds, kept) for setting in settings for of_seed in clients]
