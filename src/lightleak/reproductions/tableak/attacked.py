"""The experiments behind TabLeak's cells: dataset, network, clients and attack, and the units that run them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from lightleak.attacks.random_baseline import AS_PUBLISHED
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.experiments.clients import Federation, FreshClients, FreshFedAvgClients, Population
from lightleak.experiments.config import AuditConfig, DataConfig, TargetConfig
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.experiments.row_facts import protocol_facts
from lightleak.experiments.unit import Observed, Unit
from lightleak.reproductions.paper.values import PaperCell

BATCHES = 50  # TabLeak App. B: 50 independent runs on 50 batches
NETWORK = "mlp-100-100"
"""The network of cells that name none."""
SYNTHETIC_C5 = {"n_discrete": 125, "n_continuous": 125, "max_categories": 16, "encoded_width": 1231}
ON_UPDATES = {"tableak": "tableak_fedavg", "inverting_gradients": "inverting_gradients_fedavg", "random": "random"}
"""What attacks FedAvg updates, by the name of the paper's cells."""
BATCHES_KNOWN = {"labels": "true", "label_order": "batches"}
"""What every attack on a FedAvg update knows of its labels."""

ROW_METRICS = {
    **{name: name for name in ("cell_accuracy", "categorical_accuracy", "numerical_accuracy", "rmse")},
    **{f"{end}25_{kind}": f"{end}25_{kind}" for end in ("top", "bottom") for kind in ("categorical", "numerical")},
    "discrete_entropy": "mean_entropy_categorical",
    "continuous_entropy": "mean_entropy_numerical",
}
"""The column of results.json behind each metric of a paper's table."""


@dataclass(frozen=True)
class Setting:
    """One experiment: an attack with its settings on clients of one kind.

    Attributes:
        dataset: name as in the paper's cells.
        network: name with widths, such as ``mlp-100-100``.
        attack: attack name as in the paper's cells.
        options: its settings, as sorted pairs.
        labels: ``true`` or ``restored``.
        batch_size: rows per client.
        epoch: 0 for fresh clients, else the round of the federation of Tables 5 and 15.
        protocol: local training of FedAvg clients; None: they send a gradient.
        noise: scale of the noise that clients add; None where the table varies none.
    """

    dataset: str
    network: str
    attack: str
    options: tuple[tuple[str, Any], ...]
    labels: str
    batch_size: int
    epoch: int = 0
    protocol: ProtocolConfig | None = None
    noise: float | None = None

    @property
    def name(self) -> str:
        """A file name."""
        clients = f"{self.labels}-labels" if self.noise is None else f"noise-{self.noise:g}"
        if self.protocol is not None:
            clients = f"{self.protocol.local_epochs}x{self.protocol.local_batches}"
        options = [f"{key}-{value}" for key, value in self.options]
        epoch = [f"e{self.epoch}"] if self.epoch else []
        parts = [self.dataset, self.network, self.attack, clients, *options, *epoch, f"b{self.batch_size}"]
        return "_".join(parts)

    @property
    def attack_name(self) -> str:
        """The registered name of the attack."""
        return self.attack if self.protocol is None else ON_UPDATES[self.attack]

    @property
    def attack_options(self) -> dict[str, Any]:
        """All settings of the attack."""
        knows_batches = self.protocol is not None and self.attack != "random"
        return (BATCHES_KNOWN if knows_batches else {}) | dict(self.options)

    @property
    def facts(self) -> dict[str, Any]:
        """Columns of a row that describe the setting."""
        prior = {} if self.protocol is None else {"epoch_prior": dict(self.options).get("epoch_prior")}
        return {
            "setting": self.name,
            "dataset": self.dataset,
            "target": self.network,
            "labels": self.labels,
            **protocol_facts(self.protocol or ProtocolConfig(), self.batch_size),
            **prior,
            **noise_facts(self.noise),
            "source": "training" if self.epoch else "initial",
            "epoch": self.epoch,
        }

    def unit(self, seed: int, index: int, data_folder: str | None, prefix: str = "") -> Unit:
        """The attack on client ``index`` of a seed."""
        return Unit(
            id=f"{prefix}{self.name}-s{seed}-{index:03d}",
            attack=self.attack_name,
            options=self.attack_options,
            observe=partial(self.observe, seed, index, data_folder),
            facts=self.facts | {"batch_index": index},
            seed=seed,
        )

    def observe(self, seed: int, index: int, data_folder: str | None) -> Observed:
        """Return the update of client ``index`` and the truth behind it."""
        if self.epoch:
            return federation_of(self.dataset, self.network, seed, data_folder).observe(self.epoch, index)
        spec = experiment_of(self.dataset, self.network, data_folder).spec
        people = population_of(self.dataset, self.network, data_folder)
        if self.protocol is not None:
            clients = FreshFedAvgClients(people, spec, seed, self.protocol, share_labels="batches")
            return clients.observe(self.batch_size, index)
        defense = None if self.noise is None else GaussianNoise(self.noise)
        statistics = self.attack == "gradinversion"
        return FreshClients(people, spec, seed, True, statistics, defense).observe(self.batch_size, index)


def setting_of(cell: PaperCell, options: Mapping[str, Any], **changed: Any) -> Setting:
    """The experiment whose result a cell with an attack prints.

    Args:
        cell: the cell.
        options: settings of the attack in addition to those that the cell states; the baseline has none.
        changed: further fields of the setting.
    """
    assert cell.dataset is not None and cell.attack is not None and cell.batch_size is not None
    # The baseline reads no labels: the paper prints one value under both settings.
    is_random = cell.attack == "random"
    fields: dict[str, Any] = {
        "dataset": cell.dataset,
        "network": cell.network or NETWORK,
        "attack": cell.attack,
        "options": options_of(AS_PUBLISHED if is_random else {**stated(cell), **options}),
        "labels": "true" if is_random else cell.labels or "true",
        "batch_size": cell.batch_size,
    }
    return Setting(**fields | changed)


def stated(cell: PaperCell) -> dict[str, Any]:
    """Return the settings of an attack that a cell states."""
    return {name: value for name in ("restarts", "steps") if (value := getattr(cell, name)) is not None}


def options_of(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Settings of an attack as sorted pairs."""
    return tuple(sorted(options.items()))


def noise_facts(scale: float | None) -> dict[str, Any]:
    """Return the columns of a row that describe clients' noise."""
    return {"defense": "none"} if scale is None else {"defense": GaussianNoise.name, "defense_strength": scale}


def network_spec(name: str) -> tuple[str, dict[str, Any]]:
    """Registry name and options of a network as tables name it.

    >>> network_spec("mlp-100-100")
    ('mlp', {'hidden': [100, 100]})
    """
    kind, *widths = name.split("-")
    return kind, ({"hidden": [int(width) for width in widths]} if widths else {})


def dataset_options(name: str) -> tuple[str, dict[str, Any]]:
    """Registry name and loader options of a dataset as tables name it.

    >>> dataset_options("synthetic-d4-c6")
    ('synthetic', {'n_discrete': 4, 'n_continuous': 6})
    """
    if name == "synthetic-d125-c125":
        return "synthetic", SYNTHETIC_C5
    if name.startswith("synthetic-"):
        _, discrete, continuous = name.split("-")
        return "synthetic", {"n_discrete": int(discrete[1:]), "n_continuous": int(continuous[1:])}
    return name, {}


@cache
def population_of(dataset: str, network: str, data_folder: str | None) -> Population:
    """The rows that clients of `experiment_of` hold; encoded once."""
    return experiment_of(dataset, network, data_folder).population()


@cache
def experiment_of(dataset: str, network: str, data_folder: str | None) -> Experiment:
    """Table, encoder and network as tables name them; made once.

    TabLeak takes statistics, bounds and marginals from all rows; so does its reproduction.
    """
    name, options = dataset_options(dataset)
    kind, widths = network_spec(network)
    data = DataConfig(name=name, folder=data_folder, options=options, statistics="all", marginals="all")
    return prepare_experiment(AuditConfig(data=data, target=TargetConfig(kind, widths)))


@cache
def federation_of(dataset: str, network: str, seed: int, data_folder: str | None) -> Federation:
    """The federation whose rounds Tables 5 and 15 attack; trained once."""
    experiment = experiment_of(dataset, network, data_folder)
    return Federation(population_of(dataset, network, data_folder), experiment.spec, seed, share_labels=True)
