"""The federation of an audit under FedAvg: its clients, what trains on them, and what records their updates."""

from pathlib import Path

from lightleak.callbacks.update_capture import UpdateCapture
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed, numpy_generator
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal import UpdateDefense
from lightleak.experiments.attack_settings import label_sharing
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.federation_config import defense_of
from lightleak.protocols.federated_data import FederatedData
from lightleak.protocols.federation import FederatedAveraging


def client_rows(config: AuditConfig, experiment: Experiment) -> int:
    """Rows of each client of the training run; a remainder that not every client could have stays unused.

    Raises:
        UsageError: there are fewer training rows than that takes.
    """
    n_rows, protocol = len(_table(config, experiment).train_indices), config.protocol
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
    table, protocol = _table(config, experiment), config.protocol
    size = client_rows(config, experiment)
    order = numpy_generator(config.seed, "clients").permutation(len(table.train_indices))
    return FederatedData(
        table.part("train"),
        list(order[: protocol.clients * size].reshape(protocol.clients, size)),
        clients_per_round=protocol.clients_of_round,
        seed=derive_seed(config.seed, "rounds"),
        validation=table.part("validation") if len(table.validation_indices) else None,
        test=table.part("test"),
    )


def federation(config: AuditConfig, experiment: Experiment) -> FederatedAveraging:
    """What trains on them; its initial weights are those of a FedSGD run of the same seed.

    Raises:
        UsageError: see `client_rows`, or rows that the local batches do not divide.
    """
    protocol, defense = config.protocol, defense_of(config.defense)
    assert defense is None or isinstance(defense, UpdateDefense)  # `AuditConfig` refuses others
    return FederatedAveraging(
        experiment.spec,
        protocol.local_training(client_rows(config, experiment)),
        seed=derive_seed(config.seed, "network"),
        defense=defense,
        defend=config.defense.point,
        group_size=protocol.aggregate if protocol.aggregate > 1 else None,
    )


def update_capture(config: AuditConfig, experiment: Experiment, root: Path) -> UpdateCapture:
    """What records the updates that the server receives in the rounds to capture."""
    return UpdateCapture(
        experiment.encoder,
        share_labels=label_sharing(config),
        marginals=experiment.marginals,
        root=root,
        keep=config.monitor.attack is not None,
        rounds=config.capture.epochs,
        per_round=config.capture.per_epoch,
        aggregate=config.protocol.aggregate > 1,
        max_captures=len(config.capture.epochs) * config.capture.per_epoch,
    )


def _table(config: AuditConfig, experiment: Experiment) -> TableDataModule:
    fraction = config.training.validation_fraction
    return TableDataModule(experiment.table, experiment.encoder, 1, fraction, seed=config.seed)
