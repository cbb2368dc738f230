"""Training the target of an audit: captured, monitored, kept after every epoch, and resumed to the same bits."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import lightning
from lightning.fabric.plugins import ClusterEnvironment
from lightning.pytorch.callbacks import LambdaCallback, RichProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from rich.console import Console

from lightleak.callbacks.capture_support import check_strategy
from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.callbacks.update_capture import UpdateCapture
from lightleak.core.devices import resolve_device
from lightleak.core.errors import UsageError
from lightleak.core.ranks import detect_ranks
from lightleak.core.records import to_json
from lightleak.core.seeds import derive_seed, numpy_generator
from lightleak.core.stored import write_json
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal import DPSGD, TrainingDefense, UpdateDefense, defend_training
from lightleak.defenses.horizontal.poisson import PoissonSampler
from lightleak.defenses.horizontal.private_training import PrivateTraining
from lightleak.defenses.horizontal.private_training import check_trainer as check_private
from lightleak.experiments.attack_settings import label_sharing, shares_labels, shares_statistics, with_label_setting
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.federation_config import defense_of
from lightleak.experiments.launch import Places, check_started, joined, make_trainer, places_of, run_on_devices
from lightleak.experiments.monitor import LeakageMonitor
from lightleak.experiments.progress import Bar, console_of
from lightleak.experiments.whole_epochs import SeedEveryEpoch, WholeEpochs, metrics_of_all_epochs
from lightleak.protocols.client_training import check_row_alone
from lightleak.protocols.federated_data import FederatedData
from lightleak.protocols.federation import FederatedAveraging
from lightleak.targets.checkpoints import LastCheckpoint
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.trainer import SPREAD, interrupts, quiet_lightning

TRAINING_FILE = "training.json"
"""Written when the training is over, with the scores on the test rows."""


@dataclass(frozen=True)
class Prepared:
    """What an audit hands to its Trainer.

    Attributes:
        model: what is trained.
        data: on what.
        callbacks: of the defense, if there is one.
        facts: what the defense says of the training once it is over: for DP-SGD epsilon and delta.
    """

    model: TabularClassifier
    data: lightning.LightningDataModule
    callbacks: Sequence[lightning.Callback] = ()
    facts: Callable[[], dict[str, Any]] = dict


def trains_together(config: AuditConfig) -> bool:
    """Whether several processes train the target.

    Raises:
        UsageError: a Trainer that cannot be.
    """
    return config.rounds > 0 and places_of_training(config).world > 1


def train(
    config: AuditConfig,
    experiment: Experiment,
    folder: Path,
    console: Console,
    callbacks: Sequence[lightning.Callback] = (),
    after_fit: Callable[[], object] | None = None,
) -> None:
    """Train the target with capture and monitor; resumes after the last finished epoch where there is a checkpoint.

    Several devices (``training.trainer.devices``, ``num_nodes``) take a process each. Under torchrun or srun every
    process calls this; otherwise the processes are started here (`run_on_devices`). Under DDP each is a client: it
    takes batches of its own, of ``training.batch_size`` rows, and its gradient is captured before the all-reduce.
    Strategies that shard the weights, such as FSDP, leave no process a whole gradient: they train where nothing is
    captured (no ``capture.epochs``, no monitor). The first process writes what belongs to all, and when this returns,
    it sees the captures of all.

    Args:
        config: the audit.
        experiment: its parts.
        folder: the run folder.
        console: where progress goes.
        callbacks: further callbacks of the Trainer; picklable where the training takes several devices.
        after_fit: called before the training is tested and declared finished; may raise to keep it unfinished.

    Raises:
        UsageError: settings that the Trainer, the defense or the capture refuses, or processes that were not started.
        KeyboardInterrupt: finished epochs, their captures and their metrics are kept.
    """
    places = places_of_training(config)
    if places.world == 1:
        train_as_one_of(config, experiment, folder, console, callbacks, after_fit)
        return
    check_started(places)
    if detect_ranks().world == 1:
        run_on_devices(_train_together, config, experiment, folder, console.quiet, callbacks, after_fit)
    else:
        _train_together(config, experiment, folder, console.quiet, callbacks, after_fit)


def _train_together(config: AuditConfig, experiment: Experiment, folder: Path, quiet: bool, *more: Any) -> None:
    """Train as one of several processes."""
    console = console_of(quiet or not detect_ranks().leads)
    with joined(folder, (TRAINING_FILE, "captures/*/observation")):
        train_as_one_of(config, experiment, folder, console, *more)


def train_as_one_of(
    config: AuditConfig,
    experiment: Experiment,
    folder: Path,
    console: Console,
    further: Sequence[lightning.Callback] = (),
    after_fit: Callable[[], object] | None = None,
    environment: ClusterEnvironment | None = None,
    trainer_settings: Mapping[str, Any] | None = None,
) -> None:
    """Train as the only process or as one of several; arguments as for `train`, and two of `make_trainer`."""
    prepared = prepare_training(config, experiment)
    callbacks: list[lightning.Callback] = [*prepared.callbacks, SeedEveryEpoch(config.seed), *further]
    if _records(config):
        capture = make_capture(config, experiment, folder / "captures")
        callbacks.append(capture)
    if config.monitor.attack is not None:
        options = with_label_setting(config, config.monitor.attack, config.monitor.options)
        callbacks.append(LeakageMonitor(capture, config.monitor.attack, config.monitor.every, config.seed, options))
    # After the training part of the epoch, so that a resumed run repeats neither its validation nor its monitor.
    checkpoint = LastCheckpoint(folder / "checkpoints")
    callbacks += [WholeEpochs(), checkpoint]
    if console.is_interactive:
        callbacks.append(RichProgressBar())
    resumed = checkpoint.resumed()
    loggers = [CSVLogger(folder, name="", version=""), TensorBoardLogger(str(folder), name="tensorboard", version="")]
    model, data, noun = prepared.model, prepared.data, "rounds" if config.protocol.is_fedavg else "epochs"
    # On a terminal Lightning's own bar shows the batches.
    hidden = console.quiet or console.is_interactive
    with (
        Bar(f"{noun} of training", config.rounds, 0, console_of(hidden)) as report,
        one_training(
            config.training.trainer if trainer_settings is None else trainer_settings,
            config.device,
            config.rounds,
            callbacks,
            report,
            environment=environment,
            logger=loggers,
            enable_checkpointing=True,
            enable_progress_bar=console.is_interactive,
            default_root_dir=folder,
        ) as trainer,
        metrics_of_all_epochs(folder) if resumed and trainer.is_global_zero else nullcontext(),
    ):
        trainer.fit(model, datamodule=data, ckpt_path=resumed, weights_only=True)
        if after_fit is not None:
            after_fit()
        test = trainer.test(model, datamodule=data, verbose=False)[0]
    if trainer.is_global_zero:
        facts = {"epochs": config.rounds, "test": test, "test_rows": len(experiment.table.test)}
        facts["test_majority"] = majority(experiment)
        write_json(folder / TRAINING_FILE, to_json(facts | prepared.facts()))


def majority(experiment: Experiment) -> float:
    """Share of the test rows with their commonest label: the accuracy of who has learnt nothing else."""
    labels = experiment.table.test[experiment.table.schema.label.name]
    return float(labels.value_counts(normalize=True).max())


def prepare_training(config: AuditConfig, experiment: Experiment) -> Prepared:
    """Model, data and defense of the training run.

    Raises:
        DataError: the batches are larger than the rows that are left for training, or there are fewer rows to evaluate
            on than processes.
        UsageError: clients that the rows do not suffice for, a network or data that the defense refuses, a batch of one
            row that the network cannot take, or processes that have no gradient of their own to record.
    """
    places = places_of_training(config)
    _check_places(config, places)
    if config.protocol.is_fedavg:
        facts = partial(_local_privacy, config, experiment)
        return Prepared(federation(config, experiment), federated_data(config, experiment), facts=facts)
    data, defense = data_module(config, experiment), defense_of(config.defense)
    data.check_ranks(places.world)
    model = TabularClassifier(experiment.spec, config.training.optimizer, seed=derive_seed(config.seed, "network"))
    if data.smallest_batch(places.world) == 1:
        found = f"training.batch_size {data.batch_size} leaves a batch of one row of {len(data.train_indices)}"
        check_row_alone(model.network, experiment.spec.layout.width, found)
    if defense is None:
        return Prepared(model, data)
    defended = defend_training(defense, model, data, derive_seed(config.seed, "defense"))
    return Prepared(model, defended.data, defended.callbacks, defended.facts)


def make_capture(config: AuditConfig, experiment: Experiment, root: Path) -> GradientCapture | UpdateCapture:
    """What records the updates to attack: those that the server receives, of the epochs or rounds to capture."""
    capture, protocol, per_epoch = config.capture, config.protocol, config.capture.per_epoch
    # Overwritten: a run that ended before its first checkpoint begins anew in its folder.
    kept: dict[str, Any] = {"root": root, "overwrite": True, "keep": config.monitor.attack is not None}
    kept["marginals"] = experiment.marginals
    if protocol.is_fedavg:
        per_epoch = protocol.updates_of_round if capture.is_whole else per_epoch
        return UpdateCapture(
            experiment.encoder,
            share_labels=label_sharing(config),
            rounds=capture.epochs,
            per_round=per_epoch,
            aggregate=protocol.aggregate > 1,
            max_captures=len(capture.epochs) * per_epoch,
            **kept,
        )
    return GradientCapture(
        encoder=experiment.encoder,
        epochs=capture.epochs,
        per_epoch=None if capture.is_whole else per_epoch,
        at=capture.at if config.defense.is_none else "noised",
        share_labels=shares_labels(config),
        share_statistics=shares_statistics(config),
        max_captures=sys.maxsize if capture.is_whole else len(capture.epochs) * per_epoch,
        **kept,
    )


def client_defense(config: AuditConfig, experiment: Experiment) -> UpdateDefense | TrainingDefense | None:
    """The defense of fresh clients: DP-SGD with the noise that a target epsilon asks for in the training planned here.

    Raises:
        UsageError: a target epsilon without a training, or one that no noise reaches.
    """
    defense = defense_of(config.defense)
    if not isinstance(defense, DPSGD) or defense.noise_multiplier is not None:
        return defense
    if not config.rounds:
        raise UsageError(
            f"defense: target_epsilon is about a whole training; {config.rounds_setting} is 0: give noise_multiplier"
        )
    if config.protocol.is_fedavg:
        return defense.resolved_for(config.protocol.steps_of_a_row(config.seed))
    batches = private_batches(config, experiment)
    return _resolved(defense, batches.sample_rate, config.rounds * len(batches))


def private_batches(config: AuditConfig, experiment: Experiment) -> PoissonSampler:
    """The batches of a training under DP-SGD, whose sampling rate and number its epsilon follows from."""
    data = data_module(config, experiment)
    return PoissonSampler(len(data.train_indices), data.batch_size, seed=0)


def _local_privacy(config: AuditConfig, experiment: Experiment) -> dict[str, Any]:
    """What DP-SGD in local steps grants: epsilon of all rounds, and of one update; no sampling is counted on."""
    defense = client_defense(config, experiment)
    if not isinstance(defense, DPSGD):
        return {}
    steps, noise = config.protocol.steps_of_a_row(config.seed), defense.noise()
    granted = {"epsilon": steps, "release_epsilon": config.protocol.local_epochs}
    return {
        **{name: defense.release_epsilon(of) if noise else None for name, of in granted.items()},
        "delta": defense.delta,
        "noise_multiplier": noise,
        "max_grad_norm": defense.max_grad_norm,
        "sampling": "none",
        "steps": steps,
        "accountant": "gaussian",
    }


@cache
def _resolved(defense: DPSGD, sample_rate: float, steps: int) -> DPSGD:
    return defense.resolved(sample_rate, steps)


def data_module(config: AuditConfig, experiment: Experiment) -> TableDataModule:
    """The rows of the training run, in its batches; FedAvg's clients make batches of their own.

    Raises:
        DataError: the batch is larger than the rows that are left for training.
    """
    size = 1 if config.protocol.is_fedavg else config.training.batch_size
    fraction = config.training.validation_fraction
    return TableDataModule(experiment.table, experiment.encoder, size, fraction, seed=config.seed)


@contextmanager
def one_training(
    settings: Mapping[str, Any],
    device: str,
    epochs: int,
    callbacks: Sequence[lightning.Callback],
    report: Callable[[float], None] = lambda amount: None,
    **ours: Any,
) -> Iterator[lightning.Trainer]:
    """Yield a Trainer that prints nothing, keeps nothing but what callbacks keep, and passes interrupts on.

    Args:
        settings: the Trainer's arguments in the config.
        device: where it trains if they do not say.
        epochs: at most so many.
        callbacks: in this order.
        report: called after every batch with the share of an epoch that it is.
        ours: further arguments of the Trainer, which win.
    """
    usual = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_epochs": epochs}
    counted = LambdaCallback(on_train_batch_end=lambda trainer, *_: report(1.0 / trainer.num_training_batches))
    with quiet_lightning():
        trainer = make_trainer(settings, device, **{**usual, "callbacks": [*callbacks, counted], **ours})
        with interrupts(trainer):
            yield trainer


def check_trainer(settings: Mapping[str, Any], device: str, runs_beside_others: bool = True) -> lightning.Trainer:
    """Return a Trainer of these arguments; refuse them before anything is trained.

    Args:
        settings: the Trainer's arguments in the config.
        device: where it trains if they do not say.
        runs_beside_others: trainings run side by side, each in a process of a campaign, so that none can have several
            devices.

    Raises:
        UsageError: see `make_trainer` and the message, or no such device.
    """
    if runs_beside_others:
        resolve_device(device)
        if SPREAD & settings.keys() and (places := places_of(settings, device)).world > 1:
            raise UsageError(
                "an audit of this kind runs its trainings side by side, each on one device; training.trainer asks for "
                f"devices {places.devices} and num_nodes {places.nodes} in each"
            )
    with quiet_lightning():
        return make_trainer(settings, device, logger=False, enable_checkpointing=False)


def check_training(prepared: Prepared, trainer: lightning.Trainer) -> None:
    """Raise `UsageError` for what the defense or the federation would refuse when the training starts."""
    if isinstance(prepared.model, FederatedAveraging) and isinstance(prepared.data, FederatedData):
        prepared.model.check_training(trainer, prepared.data)
    if any(isinstance(callback, PrivateTraining) for callback in prepared.callbacks):
        check_private(trainer, prepared.model)


def places_of_training(config: AuditConfig) -> Places:
    """Return where the target is trained."""
    return places_of(config.training.trainer, config.device)


def _records(config: AuditConfig) -> bool:
    """Whether anything of the training is recorded."""
    return config.monitor.attack is not None or any(epoch < config.rounds for epoch in config.capture.epochs)


def _check_places(config: AuditConfig, places: Places) -> None:
    """Refuse processes that cannot train so, or that have no gradient of their own to record."""
    if config.protocol.is_fedavg:
        if places.world > 1:
            raise UsageError(
                f"a federation averages clients that train by themselves, on one device; training.trainer asks for "
                f"devices {places.devices} and num_nodes {places.nodes}"
            )
        return
    defense = defense_of(config.defense)
    if places.world > 1 and isinstance(defense, TrainingDefense):
        raise UsageError(f"{config.defense.name} trains on one device, got {places.world} processes")
    if _records(config):
        at = config.capture.at if config.defense.is_none else "noised"
        try:
            check_strategy(places.strategy, places.world, at)
        except UsageError as error:
            raise UsageError(f"{error}. Or capture nothing: capture.epochs [], no monitor") from error


def client_rows(config: AuditConfig, experiment: Experiment) -> int:
    """Rows behind an update of one client of the training run.

    Under FedAvg those that it holds; a remainder that not every client could have stays unused.

    Raises:
        UsageError: there are fewer training rows than that takes.
    """
    if not config.protocol.is_fedavg:
        return config.training.batch_size
    n_rows, protocol = len(data_module(config, experiment).train_indices), config.protocol
    share = n_rows // protocol.clients
    wanted = protocol.client_rows or max(share, 1)
    if wanted > share:
        raise UsageError(
            f"protocol: {protocol.clients} clients with {wanted} rows need {protocol.clients * wanted} training rows, "
            f"{experiment.table.card.name!r} has {n_rows}"
        )
    return wanted


def federated_data(config: AuditConfig, experiment: Experiment) -> FederatedData:
    """The clients, each with rows of its own, and the validation and test rows.

    Raises:
        UsageError: see `client_rows`.
    """
    table, protocol = data_module(config, experiment), config.protocol
    size = client_rows(config, experiment)
    order = numpy_generator(config.seed, "clients").permutation(len(table.train_indices))
    return FederatedData(
        table.part("train"),
        list(order[: protocol.clients * size].reshape(protocol.clients, size)),
        clients_per_round=protocol.clients_of_round,
        seed=derive_seed(config.seed, "rounds"),
        validation=table.part("validation") if len(table.validation_indices) else None,
        test=table.part("test"),
        numbers=table.train_indices,
    )


def federation(config: AuditConfig, experiment: Experiment) -> FederatedAveraging:
    """What trains on them; its initial weights are those of a FedSGD run of the same seed.

    Raises:
        UsageError: see `client_rows`, or rows that the local batches do not divide.
    """
    protocol, defense = config.protocol, client_defense(config, experiment)
    return FederatedAveraging(
        experiment.spec,
        protocol.local_training(client_rows(config, experiment)),
        seed=derive_seed(config.seed, "network"),
        defense=defense,
        defend=config.defense.point,
        group_size=protocol.aggregate if protocol.aggregate > 1 else None,
    )
