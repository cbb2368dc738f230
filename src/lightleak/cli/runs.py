"""Commands that make a run folder: ``audit``, ``attack``, ``tune``, ``reproduce``."""

import argparse
import logging
from pathlib import Path

from rich.console import Console

from lightleak.cli.arguments import flag_settings, names
from lightleak.core.errors import UsageError
from lightleak.core.former_names import current_name
from lightleak.core.imports import uncollected_imports


def audit(parsed: argparse.Namespace, rest: list[str], folder: Path, command: list[str], console: Console) -> None:
    """Run a config, print its plan, or finish the run of a folder."""
    with uncollected_imports():
        from lightleak.experiments.load import load_config
        from lightleak.experiments.plan_text import describe_plan
        from lightleak.experiments.run import resumed_config, run_audit

    _quiet_lightning()
    if parsed.config is None and parsed.resume is None:
        raise UsageError("audit needs either a config or --resume DIR; see lightleak audit --help")
    if parsed.resume is not None:
        if parsed.output is not None:
            raise UsageError("--resume continues in its own folder; remove --output")
        config = resumed_config(folder, flag_settings(rest))
        if parsed.config is not None and load_config(parsed.config) != resumed_config(folder):
            raise UsageError(f"{folder} holds a run of another config than {parsed.config}; leave the config out")
    else:
        config = load_config(parsed.config, flag_settings(rest))
    if parsed.plan:
        describe_plan(config, console)
        return
    run_audit(config, folder, command, console)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


def attack(parsed: argparse.Namespace, rest: list[str], folder: Path, command: list[str], console: Console) -> None:
    """Attack captured updates by the attacks of a config."""
    with uncollected_imports():
        from lightleak.experiments.load import load_config
        from lightleak.experiments.run import attack_captures

    config = load_config(parsed.config, flag_settings(rest))
    attack_captures(config, parsed.capture, folder, command, console)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


def tune(parsed: argparse.Namespace, rest: list[str], folder: Path, command: list[str], console: Console) -> None:
    """Begin or resume a study."""
    from lightleak.tuning.config import load_tune_config

    asked = {} if parsed.trials is None else {"study.trials": parsed.trials}
    config = load_tune_config(parsed.config, flag_settings(rest) | asked)
    with uncollected_imports():
        from lightleak.tuning.run import run_tune  # after the config: a typo in it does not wait for torch and Optuna

    _quiet_lightning()
    run_tune(config, folder, parsed.workers, command, console)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


def reproduce(parsed: argparse.Namespace, rest: list[str], folder: Path, command: list[str], console: Console) -> None:
    """Run a paper's table or figure, or list what can be run."""
    with uncollected_imports():
        from lightleak.core.bounds import Bounds, require_within
        from lightleak.experiments.settings import MOST_SEEDS, RunConfig, require_limits
        from lightleak.reproductions.every_table import MINUTES, run_every_table
        from lightleak.reproductions.reproduce import describe_reproduction, list_reproductions, reproduce
        from lightleak.reproductions.settings import TRIALS, Selection

    if (parsed.name is None) == (parsed.all is None):
        raise UsageError("reproduce needs the name of a table or figure, LIST, or --all")
    if parsed.name is not None and parsed.name.upper() == "LIST":
        list_reproductions(console)
        return
    require_limits("--seed", parsed.seed)
    _quiet_lightning()
    require_limits("--workers", parsed.workers)
    usual = TRIALS if (parsed.name or "").startswith("provfl-") else 1
    seeds = usual if parsed.seeds is None else parsed.seeds
    require_within(Bounds(le=MOST_SEEDS), "--seeds", seeds)
    selection = Selection(
        dataset=parsed.dataset,
        batches=parsed.batches,
        batch_sizes=_numbers("--batch-sizes", parsed.batch_sizes),
        attacks=tuple(map(current_name, names(parsed.attacks))) or None,
        labels=parsed.labels,
        seeds=tuple(range(parsed.seed, parsed.seed + seeds)),
        data_folder=parsed.data,
        as_published=parsed.as_published,
        settings=names(parsed.settings) or None,
        iterations=parsed.iterations,
        search_restarts=parsed.search_restarts,
        strongest=parsed.strongest,
    )
    where = RunConfig(
        device=parsed.device, workers=parsed.workers, engine=parsed.engine, ray_address=parsed.ray_address
    )
    if parsed.all is not None:
        if parsed.plan:
            raise UsageError("--plan is for one table or figure: name it in place of --all")
        budget = MINUTES if parsed.budget is None else parsed.budget
        if not budget > 0:
            raise UsageError(f"--budget must be more than 0 minutes, got {budget:g}")
        run_every_table(parsed.all, folder, where, budget, selection, console)
        console.print(f"status: {folder / 'status.html'}", soft_wrap=True)
        return
    if parsed.budget is not None:
        raise UsageError("--budget is for --all; one table takes --batches or --seeds")
    if parsed.plan:
        describe_reproduction(parsed.name, selection, parsed.device, parsed.workers, console)
        return
    reproduce(parsed.name, selection, folder, where, command, console)
    console.print(f"comparison: {folder / 'comparison.md'}", soft_wrap=True)


def _numbers(flag: str, text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{flag} must be whole numbers separated by commas, got {text!r}") from error


def _quiet_lightning() -> None:
    """Hide the devices and tips that Lightning logs at INFO; the command prints its own progress."""
    from lightleak.targets.trainer import LOGGERS

    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
