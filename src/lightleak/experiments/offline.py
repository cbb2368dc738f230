"""``lightleak attack``: attack updates that were captured before, here or elsewhere, with or without their truth."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.callbacks.capture_store import load_update
from lightleak.core.devices import resolve_device
from lightleak.core.errors import UsageError
from lightleak.core.stored import DAMAGED
from lightleak.data.image_scale import is_image_state
from lightleak.experiments.attack_settings import check_attacks, label_setting, require_some, with_label_setting
from lightleak.experiments.campaign import Plan, finished_rows, run_units
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.environment import write_environment
from lightleak.experiments.experiment import target_name
from lightleak.experiments.finish import console_of_rank, leave_results
from lightleak.experiments.redaction import dropped, redact_run
from lightleak.experiments.results import print_summary
from lightleak.experiments.run import capture_facts, finished_results, load_capture, open_run_folder
from lightleak.experiments.unit import Unit, kept_cells
from lightleak.targets.own import trust_network
from lightleak.targets.spec import NetworkSpec


def find_captures(root: Path) -> list[Path]:
    """Folders below ``root`` (or ``root`` itself) that hold an ``observation/``, sorted.

    Raises:
        UsageError: there is none.
    """
    folders = sorted(path.parent for path in root.rglob("observation") if path.is_dir()) if root.is_dir() else []
    found = [folder for folder in folders if DAMAGED not in folder.name]
    if not found:
        raise UsageError(f"--capture {root} holds no captured update (a folder with observation/facts.json)")
    return found


def attack_captures(
    config: AuditConfig,
    root: Path,
    folder: Path,
    command: Sequence[str] = (),
    console: Console | None = None,
    pass_over: bool = False,
) -> dict[str, Any]:
    """Run the config's attacks on every capture below ``root`` and write a run folder; no training takes place.

    Without truth the rows carry no accuracy: the reconstruction, its loss and its entropy are what an attacker has.

    Raises:
        UsageError: no capture, an unknown attack, a truth that is not the update's, an update an attack cannot serve,
            or a folder that holds another run; before any work.
    """
    plan = partial(captured_units, config, root)
    return attack_units(config, plan, root, folder, command, console, pass_over=pass_over)


def attack_units(
    config: AuditConfig,
    plan: Plan,
    origin: Path,
    folder: Path,
    command: Sequence[str] = (),
    console: Console | None = None,
    when_open: Callable[[], object] = lambda: None,
    pass_over: bool = False,
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run the units of a plan whose updates are there already; arguments and errors as for `attack_captures`.

    Args:
        config: the attacks.
        plan: makes the units.
        origin: where the updates come from, or are kept.
        folder: the run folder.
        command: recorded in ``environment.json``.
        console: where progress goes.
        when_open: called once the folder is this run's.
        pass_over: see `lightleak.experiments.run.run_audit`; an attack that refuses one update is left out of all.
        left_out: attacks that were left out before the plan was made, with their reasons.
    """
    console = console_of_rank(console)
    device = resolve_device(config.device)
    check_attacks(config.attacks)
    units = plan()
    refused: dict[str, UsageError] = {}
    for unit in units:
        update, _ = unit.observe()
        try:
            ATTACKS.get(unit.attack)(**unit.options).check(update)
        except UsageError as error:
            if not pass_over:
                raise
            refused.setdefault(unit.attack, error)
    left_out = {**(left_out or {}), **require_some(config.attacks, refused)}
    plan = partial(_without, plan, frozenset(refused))
    units = plan()
    noised = {unit.facts["batch_index"] for unit in units if unit.facts["defense"] not in ("none", "clipped")}
    if noised:
        console.print(
            f"{len(noised)} defended updates cannot be held against their rows; they were not checked", soft_wrap=True
        )
    open_run_folder(folder, config, origin)
    when_open()
    if dropped(folder) is not None:
        return finished_results(folder, config, console)
    write_environment(folder, device, command)
    try:
        kept = kept_cells(config.redact, config.raw_csv)
        run_units(plan, folder, device, config.workers, kept, quiet=not console.is_interactive)
    finally:
        results = leave_results(folder, partial(finished_rows, units, folder), config.redact, left_out=left_out)
    if config.redact == "all":  # what was attacked lies elsewhere, unless this run keeps it in its own folder
        redact_run(folder, config.redact)
    print_summary(results, console)
    return results


def _without(plan: Plan, attacks: Collection[str]) -> list[Unit]:
    return [unit for unit in plan() if unit.attack not in attacks]


def captured_units(config: AuditConfig, root: Path) -> list[Unit]:
    """Every attack of the config on every capture below ``root``."""
    units = []
    trust_network(config.target.network)  # the config is the user's; what a capture names is not trusted
    captures = [(path, load_update(path)) for path in find_captures(root)]
    for path, update in captures:
        if is_image_state(update.encoder):
            raise UsageError(
                f"{path} holds an update on images; attack it from Python, ATTACKS.get(name)().run(update)"
            )
    for attack in config.attacks:
        options = with_label_setting(config, attack, config.attacks[attack])
        for i, (path, update) in enumerate(captures):
            facts = {
                "dataset": config.data.title,
                "target": target_name(NetworkSpec.from_dict(update.network)),
                "labels": label_setting(config, options, update),
                **capture_facts(update, i),
            }
            name = "-".join(path.relative_to(root).parts) or root.resolve().name
            units.append(Unit(f"{attack}-{name}", attack, options, partial(load_capture, path), facts, config.seed))
    return units
