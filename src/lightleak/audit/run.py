"""``lightleak audit``: train the target with capture, attack captured and fresh updates, write the run folder."""

import json
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pandas as pd
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.audit.campaign import finished_rows, plan_packs, run_units
from lightleak.audit.clients import FreshClients
from lightleak.audit.config import AuditConfig, load_config
from lightleak.audit.experiment import Experiment, prepare_experiment, target_name
from lightleak.audit.monitor import LeakageMonitor
from lightleak.audit.results import print_summary, write_environment, write_results
from lightleak.audit.unit import Unit
from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.core.devices import resolve_device
from lightleak.core.errors import UsageError
from lightleak.core.observations import ClientUpdate, GroundTruth
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import TableDataModule
from lightleak.protocols.recorded_batch import FORWARD_FILE, RecordedBatch
from lightleak.protocols.replay import require_replay
from lightleak.report import build_report
from lightleak.targets.classifier import TabularClassifier

CONFIG_FILE = "config.yaml"
TRAINING_FILE = "training.json"


def run_audit(
    config: AuditConfig, folder: Path, command: Sequence[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Run an audit, or what is left of one, and return the content of its ``results.json``.

    Args:
        config: the experiment.
        folder: the run folder; created, readable by its owner only. A folder that holds a run of the same config is
            continued.
        command: recorded in ``environment.json``.
        console: where progress goes.

    Raises:
        UsageError: the folder holds another run, or the config cannot be served.
        KeyboardInterrupt: what is finished is kept and written.
    """
    console = console or Console()
    device = resolve_device(config.device)
    check_attacks(config.attacks)
    open_run_folder(folder, config)
    write_environment(folder, device, command)
    experiment = prepare_experiment(config)
    if config.training.epochs > 0 and not (folder / TRAINING_FILE).is_file():
        train(config, experiment, folder, console)
    units = plan_units(config, experiment, folder)
    for unit in units:
        if unit.facts["source"] == "training":
            unit.observe()  # a capture that its batch does not reproduce is refused before any attack
    try:
        run_units(
            partial(audit_units, config, folder),
            folder,
            device,
            config.workers,
            config.redact,
            quiet=not console.is_interactive,
        )
    finally:
        # Also after an interruption: the report then shows what is there, and a later run goes on from it.
        results = write_results(folder, finished_rows(units, folder))
        build_report(folder, redact=config.redact)
    if config.redact:
        for truth in (folder / "captures").glob("*/truth"):
            shutil.rmtree(truth)
    print_summary(results, console)
    return results


def resume_audit(folder: Path, command: Sequence[str] = (), console: Console | None = None) -> dict[str, Any]:
    """Finish the run in ``folder``; errors as for `run_audit`."""
    if not (folder / CONFIG_FILE).is_file():
        raise UsageError(f"nothing to resume in {folder}: it holds no {CONFIG_FILE}")
    return run_audit(load_config(folder / CONFIG_FILE), folder, command, console)


def check_attacks(attacks: dict[str, dict[str, Any]]) -> None:
    """Raise `UsageError` for an unknown attack or setting."""
    for name, options in attacks.items():
        ATTACKS.get(name)(**options)


def open_run_folder(folder: Path, config: AuditConfig) -> None:
    """Create the folder for its owner only and write the config, or check that it is the same."""
    saved = folder / CONFIG_FILE
    if saved.is_file():
        if yaml.safe_load(saved.read_text()) != config.to_dict():
            raise UsageError(f"{folder} holds a run of another config; choose another --output or remove the folder")
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no run; choose another --output")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    saved.write_text(yaml.safe_dump(config.to_dict(), sort_keys=False))


def train(config: AuditConfig, experiment: Experiment, folder: Path, console: Console) -> None:
    """Train the target with capture and monitor; goes on from the last finished epoch where there is a checkpoint."""
    settings = config.training
    data = TableDataModule(
        experiment.table, experiment.encoder, settings.batch_size, settings.validation_fraction, seed=config.seed
    )
    model = TabularClassifier(experiment.spec, settings.optimizer, seed=derive_seed(config.seed, "network"))
    capture = GradientCapture(
        encoder=experiment.encoder,
        epochs=config.capture.epochs,
        per_epoch=config.capture.per_epoch,
        at=config.capture.at,
        root=folder / "captures",
        share_labels=True,
        share_statistics="gradinversion" in config.attacks,
        marginals=experiment.marginals,
        keep=True,
    )
    callbacks: list[lightning.Callback] = [capture]
    if config.monitor.attack is not None:
        options = with_label_setting(config, config.monitor.attack, config.monitor.options)
        callbacks.append(LeakageMonitor(capture, config.monitor.attack, config.monitor.every, config.seed, options))
    callbacks.append(ModelCheckpoint(folder / "checkpoints", save_last=True, save_top_k=0))
    if console.is_interactive:
        callbacks.append(RichProgressBar())
    last = folder / "checkpoints" / "last.ckpt"
    earlier = _earlier_metrics(folder) if last.is_file() else None
    loggers = [CSVLogger(folder, name="", version=""), TensorBoardLogger(str(folder), name="tensorboard", version="")]
    lightning.seed_everything(derive_seed(config.seed, "training") % 2**32, verbose=False)
    with warnings.catch_warnings():
        # Lightning advises on loader workers and log intervals; one tensor in memory needs neither.
        warnings.filterwarnings("ignore", module="lightning")
        trainer = lightning.Trainer(
            **{
                "max_epochs": settings.epochs,
                "accelerator": "cpu" if config.device == "cpu" else "auto",
                "devices": 1,
                "logger": loggers,
                "callbacks": callbacks,
                "enable_model_summary": False,
                "enable_progress_bar": console.is_interactive,
                "default_root_dir": folder,
                **settings.trainer,
            }
        )
        trainer.fit(model, datamodule=data, ckpt_path=str(last) if last.is_file() else None, weights_only=True)
        if trainer.interrupted:
            raise KeyboardInterrupt
        test = trainer.test(model, datamodule=data, verbose=False)[0]
    if earlier is not None:
        _join_metrics(folder, earlier)
    (folder / TRAINING_FILE).write_text(json.dumps({"epochs": settings.epochs, "test": test}))


def plan_units(config: AuditConfig, experiment: Experiment, folder: Path) -> list[Unit]:
    """Every attack on every observation of the run, in a fixed order."""
    fresh = FreshClients(
        experiment.population(),
        experiment.spec,
        config.seed,
        share_labels=True,
        share_statistics="gradinversion" in config.attacks,
    )
    common = {
        "dataset": experiment.table.card.name,
        "target": target_name(experiment.spec),
        "protocol": "fedsgd",
        "labels": config.labels,
        "defense": "none",
    }
    units = []
    for attack in config.attacks:
        options = with_label_setting(config, attack, config.attacks[attack])

        def unit(
            where: str, observe: Callable[[], Any], attack: str = attack, options: Any = options, **facts: Any
        ) -> Unit:
            return Unit(f"{attack}-{where}", attack, options, observe, {**common, **facts}, config.seed)

        for size in config.initial.batch_sizes:
            units += [
                unit(
                    f"initial-b{size}-{i:03d}",
                    partial(fresh.observe, size, i),
                    batch_size=size,
                    batch_index=i,
                    source="initial",
                    epoch=0,
                )
                for i in range(config.initial.batches)
            ]
        for i, taken in enumerate(sorted((folder / "captures").glob("*/observation"))):
            facts = ClientUpdate.load(taken).facts
            units.append(
                unit(
                    taken.parent.name,
                    partial(load_capture, taken.parent),
                    batch_size=facts.n_rows,
                    batch_index=i,
                    source="training",
                    epoch=facts.epoch,
                )
            )
    return units


def audit_units(config: AuditConfig, folder: Path) -> list[Unit]:
    """`plan_units` from the config alone: what a worker process is given."""
    return plan_units(config, prepare_experiment(config), folder)


def describe_plan(config: AuditConfig, console: Console) -> None:
    """Print what an audit would do, without doing it."""
    check_attacks(config.attacks)
    device = resolve_device(config.device)
    experiment = prepare_experiment(config)
    units = plan_units(config, experiment, Path(os.devnull))
    table, settings = experiment.table, config.training
    captured = len(config.capture.epochs) * config.capture.per_epoch if settings.epochs else 0
    packs = len(plan_packs(units, device))
    lines = {
        "table": f"{table.card.name}: {len(table.train)} training and {len(table.test)} test rows, "
        f"encoded width {experiment.encoder.width}",
        "target": f"{target_name(experiment.spec)}, {settings.epochs} epochs at batch size {settings.batch_size}",
        "attacks": f"{', '.join(config.attacks)}, labels {config.labels}, on {device}",
        "units": f"{len(units)} on fresh clients in {packs} packs, "
        f"{captured * len(config.attacks)} on the training run",
    }
    for name, text in lines.items():
        console.print(f"{name:10}{text}", soft_wrap=True, highlight=False)


def load_capture(folder: Path) -> tuple[ClientUpdate, GroundTruth | None]:
    """Observation and, where it lies beside it, the truth of one capture.

    Raises:
        ObservationError: a file is missing or damaged, or the recorded batch does not reproduce the captured gradient:
            against a truth that is not the update's, no score means anything.
    """
    update = ClientUpdate.load(folder / "observation")
    if not (folder / "truth").is_dir():
        return update, None
    forward = folder / "truth" / FORWARD_FILE
    truth = RecordedBatch.load(folder / "truth") if forward.is_file() else GroundTruth.load(folder / "truth")
    require_replay(update, truth)
    return update, truth


def with_label_setting(config: AuditConfig, attack: str, options: dict[str, Any]) -> dict[str, Any]:
    """The attack's settings with the config's label setting, where the attack uses labels."""
    if "labels" not in ATTACKS.get(attack)().options():
        return options
    return {"labels": "true" if config.labels == "true" else config.label_method, **options}


def _earlier_metrics(folder: Path) -> pd.DataFrame | None:
    file = folder / "metrics.csv"
    return pd.read_csv(file) if file.is_file() and file.stat().st_size else None


def _join_metrics(folder: Path, earlier: pd.DataFrame) -> None:
    """Lightning starts metrics.csv anew when it resumes; keep the epochs it did not repeat."""
    later = pd.read_csv(folder / "metrics.csv")
    pd.concat([earlier[earlier["epoch"] < later["epoch"].min()], later]).to_csv(folder / "metrics.csv", index=False)
