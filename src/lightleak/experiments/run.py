"""``lightleak audit``: train the target with capture, attack captured and fresh updates, write the run folder."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import yaml
from rich.console import Console

from lightleak.callbacks.capture_store import is_whole, list_captures, load_update
from lightleak.core.claims import Claims
from lightleak.core.devices import resolve_device
from lightleak.core.errors import LightLeakError, ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.stored import set_aside
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.defenses.horizontal import UpdateDefense
from lightleak.experiments.attack_settings import (
    check_attacks,
    label_setting,
    label_sharing,
    make_attack,
    require_some,
    shares_labels,
    shares_statistics,
    with_label_setting,
)
from lightleak.experiments.campaign import CLAIMS, finished_rows, run_units
from lightleak.experiments.clients import FreshClients, FreshFedAvgClients
from lightleak.experiments.config import AuditConfig, load_config
from lightleak.experiments.environment import write_environment
from lightleak.experiments.experiment import Experiment, prepare_experiment, target_name
from lightleak.experiments.finish import console_of_rank, leave_results
from lightleak.experiments.folder import begin_folder
from lightleak.experiments.redaction import dropped, redact_run
from lightleak.experiments.results import RESULTS_FILE, print_summary
from lightleak.experiments.row_facts import defense_facts, observed_defense, observed_facts, protocol_facts
from lightleak.experiments.settings import read_settings
from lightleak.experiments.training import (
    TRAINING_FILE,
    client_defense,
    make_trainer,
    prepare_training,
    rows_of_clients,
    train,
    trains_together,
)
from lightleak.experiments.unit import Observed, Unit, finished_files, kept_cells, unit_file, write_whole
from lightleak.protocols.recorded_aggregate import load_truth
from lightleak.protocols.replay import require_replay
from lightleak.targets.own import MEMORY

CONFIG_FILE = "config.yaml"


class RunConfig(Protocol):
    """A config of any kind of audit."""

    def to_dict(self) -> dict[str, Any]:
        """YAML-ready form."""


OFFLINE_FILE = "capture.json"
"""Says which captures an offline attack read; a folder with it is no audit that could be resumed as one."""


def run_audit(
    config: AuditConfig,
    folder: Path,
    command: Sequence[str] = (),
    console: Console | None = None,
    pass_over: bool = False,
) -> dict[str, Any]:
    """Run an audit, or what is left of one, and return the content of its ``results.json``.

    Any number of processes may call it with the same config and folder and share the work (`experiments.campaign`).

    Args:
        config: the experiment.
        folder: the run folder; created, readable by its owner only. A folder that holds a run of the same config is
            continued, and joined where the run is still on.
        command: recorded in ``environment.json``.
        console: where progress goes.
        pass_over: run the attacks that apply and list the others with their reasons; else one that does not apply is
            an error.

    Raises:
        UsageError: the folder holds another run, or the config cannot be served; before any work.
        KeyboardInterrupt: what is finished is kept and written.
    """
    console = console_of_rank(console)
    device = resolve_device(config.device)
    check_attacks(config.attacks)
    experiment = prepare_experiment(config)
    left_out = check_served(config, experiment, pass_over)
    open_run_folder(folder, config)
    if dropped(folder) is not None:
        return finished_results(folder, config, console)
    _set_aside_captures(folder)
    write_environment(folder, device, command)
    config = replace(config, attacks={name: of for name, of in config.attacks.items() if name not in left_out})
    _train_once(config, experiment, folder, console)
    units = plan_units(config, experiment, folder)
    present = finished_files(folder)
    for unit in units:
        if unit.facts["source"] == "training" and unit_file(folder, unit.id).name not in present:
            unit.observe()  # a capture that its batch does not reproduce is refused before any attack
    try:
        run_units(
            partial(audit_units, config, folder),
            folder,
            device,
            config.workers,
            kept_cells(config.redact, config.raw_csv),
            quiet=not console.is_interactive,
        )
    finally:
        results = leave_results(folder, partial(finished_rows, units, folder), config.redact, left_out=left_out)
    if config.redact:
        with Claims(folder / CLAIMS).wait_for("redaction"):
            redact_run(folder, config.redact)
    print_summary(results, console)
    return results


def finished_results(folder: Path, config: AuditConfig, console: Console) -> dict[str, Any]:
    """Print and return the results of a run that has dropped its captures, as it was finished; see `redact_run`."""
    redact_run(folder, config.redact)
    results: dict[str, Any] = json.loads((folder / RESULTS_FILE).read_text())
    print_summary(results, console)
    return results


def _set_aside_captures(folder: Path) -> None:
    """Where a capture is damaged, have the training repeated, which captures the same update again."""
    root = folder / "captures"
    damaged = [capture for capture in (list_captures(root) if root.is_dir() else []) if not is_whole(capture)]
    for capture in damaged:
        set_aside(capture, "it is damaged; the training is repeated")
    if damaged:
        (folder / TRAINING_FILE).unlink(missing_ok=True)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def _train_once(config: AuditConfig, experiment: Experiment, folder: Path, console: Console) -> None:
    """Train where that is not done yet: all ranks together, or one while the others wait."""
    is_trained = (folder / TRAINING_FILE).is_file
    if config.rounds == 0 or is_trained():
        return
    if trains_together(config):
        train(config, experiment, folder, console)
    else:
        Claims(folder / CLAIMS).once("training", is_trained, partial(train, config, experiment, folder, console))


def resume_audit(folder: Path, command: Sequence[str] = (), console: Console | None = None) -> dict[str, Any]:
    """Finish the run in ``folder``; errors as for `run_audit`."""
    return run_audit(resumed_config(folder), folder, command, console)


def resumed_config(folder: Path) -> AuditConfig:
    """The config of the run in ``folder``; errors as for `resumed_file`."""
    return load_config(resumed_file(folder))


def resumed_file(folder: Path) -> Path:
    """The config file of the audit in ``folder``.

    Raises:
        UsageError: the folder holds no audit.
    """
    if not (folder / CONFIG_FILE).is_file():
        raise UsageError(f"nothing to resume in {folder}: it holds no {CONFIG_FILE}; name the folder of a run")
    if (folder / OFFLINE_FILE).is_file():
        raise UsageError(f"{folder} was made by `lightleak attack`; to finish it, run the same command again")
    return folder / CONFIG_FILE


def check_served(config: AuditConfig, experiment: Experiment, pass_over: bool = False) -> dict[str, str]:
    """Try everything that could fail in the middle of a run: the Trainer, the batches, every attack on a first update.

    Args:
        config: the experiment.
        experiment: what it names, made.
        pass_over: return the attacks that do not apply instead of refusing the config, unless none applies.

    Returns:
        Why attacks are left out, by name.

    Raises:
        UsageError: what cannot be served, and why.
    """
    monitor, device = config.monitor, resolve_device(config.device)
    attacks = [(name, options, f"attacks.{name}") for name, options in config.attacks.items()]
    sizes = config.initial.batch_sizes if config.initial.batches else ()
    if config.rounds > 0:
        make_trainer(config.training.trainer, config.device, logger=False, enable_checkpointing=False)
        prepare_training(config, experiment)
        sizes = (*sizes, rows_of_clients(config, experiment))
        if monitor.attack is not None:
            attacks.append((monitor.attack, monitor.options, "monitor.options"))
    fresh = _fresh_clients(config, experiment)
    firsts = [_first_update(fresh, size) for size in sorted(set(sizes))]
    left_out: dict[str, UsageError] = {}
    for name, options, where in attacks:
        attack = make_attack(name, with_label_setting(config, name, options), where)
        attack.check_device(device)
        try:
            for update in firsts:
                attack.check(update)
        except UsageError as error:
            if not pass_over or where == "monitor.options":
                raise
            left_out[name] = error
    return require_some(config.attacks, left_out)


def _first_update(fresh: FreshClients | FreshFedAvgClients, size: int) -> ClientUpdate:
    try:
        return fresh.observe(size, 0)[0]
    except LightLeakError:
        raise
    except Exception as error:  # a user's forward may raise anything
        said = " ".join(str(error).split())
        raise UsageError(
            f"the network cannot compute what a client of {size} rows sends: {type(error).__name__}: {said}"
        ) from error


def open_run_folder(folder: Path, config: RunConfig, capture: Path | None = None) -> None:
    """Create the folder for its owner only and write what it is about, or check that it is about the same.

    Of several processes that come at once, one writes.

    Args:
        folder: the run folder.
        config: the experiment.
        capture: the captures that are attacked offline; ``None`` for an audit, which makes its own.

    Raises:
        UsageError: the folder holds something else.
    """
    saved, origin = folder / CONFIG_FILE, folder / OFFLINE_FILE
    read = "" if capture is None else str(capture.resolve())

    def begin() -> None:
        if capture is not None:
            write_whole(origin, json.dumps({"capture": read}))
        write_whole(saved, yaml.safe_dump(config.to_dict(), sort_keys=False))  # last: with it the folder is a run

    begin_folder(folder, saved, "run", begin, [origin])
    before = json.loads(origin.read_text())["capture"] if origin.is_file() else ""
    if before != read:
        held = f"an attack on {before}" if before else "an audit"
        raise UsageError(f"{folder} holds {held}; choose another --output")
    if read_settings(saved) != config.to_dict():
        raise UsageError(f"{folder} holds a run of another config; choose another --output")


def plan_units(config: AuditConfig, experiment: Experiment, folder: Path) -> list[Unit]:
    """Every attack on every observation of the run, in a fixed order."""
    fresh = _fresh_clients(config, experiment)
    defended = {} if config.defense.is_none else defense_facts(config.defense, folder / TRAINING_FILE)
    observed: list[tuple[str, Callable[[], Observed], dict[str, Any]]] = []
    for size in config.initial.batch_sizes:
        for i in range(config.initial.batches):
            facts = protocol_facts(config.protocol, size)
            source = "given" if experiment.spec.name.startswith(MEMORY) else "initial"
            facts |= {"batch_index": i, "source": source, "epoch": 0, "defense": "none"}
            # An epsilon is about the whole training and its sampled batches; a fresh client sends one whole batch,
            # which `release_epsilon` is about.
            facts |= {name: value for name, value in defended.items() if name != "epsilon"}
            observed.append((f"initial-b{size}-{i:03d}", partial(fresh.observe, size, i), facts))
    root = folder / "captures"
    for i, taken in enumerate(list_captures(root) if root.is_dir() else []):
        update = load_update(taken)
        observed.append((taken.name, partial(load_own_capture, taken), capture_facts(update, i) | defended))
    units = []
    for attack, changed in config.attacks.items():
        options = with_label_setting(config, attack, changed)
        common = {
            "dataset": experiment.table.card.name,
            "target": target_name(experiment.spec),
            "labels": label_setting(config, options),
        }
        units += [
            Unit(f"{attack}-{where}", attack, options, observe, common | facts, config.seed)
            for where, observe, facts in observed
        ]
    return units


def capture_facts(update: ClientUpdate, index: int) -> dict[str, Any]:
    """What the results row says of a captured update, number ``index`` of the captures in their order."""
    return {
        **observed_facts(update),
        "batch_index": index,
        "source": "training",
        "epoch": update.facts.epoch,
        "defense": observed_defense(update),
    }


def audit_units(config: AuditConfig, folder: Path) -> list[Unit]:
    """`plan_units` from the config alone: what a worker process is given."""
    return plan_units(config, prepare_experiment(config), folder)


def load_capture(folder: Path) -> Observed:
    """Observation and, where it lies beside it, the truth of one capture.

    Raises:
        ObservationError: a file is missing or damaged, or the recorded rows do not reproduce the captured update:
            against a truth that is not the update's, no score means anything. Only what a defence has changed cannot
            be reproduced; it passes. Or a row lies beyond the bounds that the update states.
    """
    update = load_update(folder)
    if not (folder / "truth").is_dir():
        return update, None
    truth = load_truth(folder / "truth")
    if update.state != "noised":
        require_replay(update, truth)
    elif len(truth.inputs) != update.facts.n_rows:
        raise ObservationError(
            f"{folder}: the update speaks of {update.facts.n_rows} rows, the recorded ones are {len(truth.inputs)}"
        )
    if not is_image_state(update.encoder):
        try:  # decoding clamps: a score against a row beyond the bounds would be that of another row
            TableEncoder.from_state(update.encoder, update.encoder_tensors).require_within_bounds(truth.inputs)
        except UsageError as error:
            raise ObservationError(f"{folder}: {error}") from error
    return update, truth


def load_own_capture(folder: Path) -> Observed:
    """As `load_capture`, for an audit's own captures: without a truth a row would have no scores, and be kept.

    Raises:
        ObservationError: also where the truth is gone.
    """
    update, truth = load_capture(folder)
    if truth is None:
        raise ObservationError(
            f"{folder} has no truth to score against (a redacted run removes it when all is done): "
            "choose another --output, or attack it with `lightleak attack`"
        )
    return update, truth


def _fresh_clients(config: AuditConfig, experiment: Experiment) -> FreshClients | FreshFedAvgClients:
    people, spec, defense = experiment.population(), experiment.spec, client_defense(config, experiment)
    if config.protocol.is_fedavg:
        assert defense is None or isinstance(defense, UpdateDefense)  # `AuditConfig` refuses others
        sharing = label_sharing(config)
        return FreshFedAvgClients(people, spec, config.seed, config.protocol, sharing, defense, config.defense.point)
    return FreshClients(people, spec, config.seed, shares_labels(config), shares_statistics(config), defense)
