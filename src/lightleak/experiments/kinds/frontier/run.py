"""``lightleak audit`` of a defence frontier: train and attack under every defence, write the run folder."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from lightleak.core.devices import resolve_device
from lightleak.core.errors import UsageError
from lightleak.experiments.attack_settings import check_attacks
from lightleak.experiments.campaign import rows_of, run_packs
from lightleak.experiments.environment import write_environment
from lightleak.experiments.experiment import target_name
from lightleak.experiments.finish import console_of_rank, leave_results
from lightleak.experiments.kinds.frontier.config import FrontierConfig
from lightleak.experiments.kinds.frontier.frontier_file import write_frontier
from lightleak.experiments.kinds.frontier.plan import (
    SharedExperiment,
    attack_units,
    packs_of,
    plan_frontier,
    prepare_frontier,
)
from lightleak.experiments.kinds.frontier.summary import print_frontier
from lightleak.experiments.kinds.frontier.training import TrainingJob, training_words
from lightleak.experiments.launch import check_one_device
from lightleak.experiments.plan_text import print_estimate
from lightleak.experiments.run import check_served, open_run_folder
from lightleak.experiments.unit import kept_cells
from lightleak.targets.trainer import quiet_lightning

SUMMARY_KEYS = ("defense_label", "training")


def run_frontier_audit(
    config: FrontierConfig, folder: Path, command: Sequence[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Run an audit, or what is left of one, and return the content of its ``results.json``.

    Args:
        config: the audit.
        folder: the run folder; created, readable by its owner only. A folder that holds a run of the same config is
            continued, and joined where the run is still on.
        command: recorded in ``environment.json``.
        console: where progress goes.

    Raises:
        UsageError: the folder holds another run, or the config cannot be served; before any work.
        KeyboardInterrupt: finished trainings and attacks are kept and written.
    """
    console = console_of_rank(console)
    device = resolve_device(config.device)
    experiment = check_frontier(config)
    open_run_folder(folder, config)
    write_environment(folder, device, command)
    ids = [id for pack in packs_of(config, experiment, device) for id in pack.ids]
    plan, quiet = partial(plan_frontier, config, folder), not console.is_interactive
    try:
        run_packs(plan, folder, device, config.workers, quiet, "trainings and attacks")
    finally:
        results = leave_results(
            folder, partial(rows_of, ids, folder), config.redact, SUMMARY_KEYS, partial(write_frontier, folder)
        )
    print_frontier(results, console)
    return results


def check_frontier(config: FrontierConfig) -> SharedExperiment:
    """Try everything that could fail in the middle of a run, at every point, and return what was made for it.

    Raises:
        UsageError: what cannot be served, and where.
    """
    check_attacks(config.attacks)
    check_one_device(config.training.trainer, config.device)
    experiment = prepare_frontier(config)
    with quiet_lightning():
        for point in config.points:
            try:
                check_served(config.audit_at(point), experiment)
            except UsageError as error:
                raise type(error)(f"{point.words}: {error}") from error
    return experiment


def describe_frontier_plan(config: FrontierConfig, console: Console) -> None:
    """Print what an audit would do, without doing it, and what its attacks would take, by a short probe."""
    device, experiment = resolve_device(config.device), check_frontier(config)
    packs = packs_of(config, experiment, device)
    trainings = sum(isinstance(pack, TrainingJob) for pack in packs)
    attacks = sum(len(pack.ids) for pack in packs) - trainings
    table = experiment.table
    lines = {
        "table": f"{table.card.name}: {len(table.train)} training and {len(table.test)} test rows, "
        f"encoded width {experiment.encoder.width}",
        "target": f"{target_name(experiment.spec)}, {training_words(config)}",
        "points": f"{len(config.points)}: {'; '.join(point.words for point in config.points)}",
        "trainings": f"{trainings}, {config.seeds} at each point; not estimated, what is told below is the attacks'",
        "attacks": f"{attacks} on {config.initial.batches} clients of {config.initial.batch_size} rows: "
        f"{', '.join(config.attacks)}",
    }
    for name, text in lines.items():
        console.print(f"{name:10}{text}", soft_wrap=True, highlight=False)
    units = [unit for point in config.points for unit in attack_units(config, point, experiment)]
    print_estimate(units, device, kept_cells(config.redact), config.workers, console)
