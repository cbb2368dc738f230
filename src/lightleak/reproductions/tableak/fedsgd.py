"""TabLeak's cells as units, its attacks on FedSGD gradients, facts of tables, and the spread of restarts."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from scipy.stats import kendalltau
from torch import nn

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.attacks.gradient_inversion.optimize.pooling import align, pool
from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.attacks.random_baseline import AS_PUBLISHED
from lightleak.core.errors import DataError, UsageError
from lightleak.core.seeds import derive_seed, fresh_generator
from lightleak.core.summary import Summary
from lightleak.data.encoder import TableEncoder
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.experiments.campaign import update_packs
from lightleak.experiments.clients import Federation, FreshClients, FreshFedAvgClients
from lightleak.experiments.config import AuditConfig, DataConfig, TargetConfig
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.experiments.pack import Pack
from lightleak.experiments.row_facts import protocol_facts
from lightleak.experiments.unit import Observed, Unit
from lightleak.metrics.matched_batch import MatchedBatch
from lightleak.reproductions.paper.values import PaperCell, paper_settings
from lightleak.reproductions.reproduction import FactTable, Place, Reproduction, Row, Rows, Work, options_at_hand
from lightleak.targets.spec import build_network

BATCHES = 50  # TabLeak App. B: 50 independent runs on 50 batches
NETWORK = "mlp-100-100"
"""The network of cells that name none."""
SYNTHETIC_C5 = {"n_discrete": 125, "n_continuous": 125, "max_categories": 16, "encoded_width": 1231}
ON_UPDATES: dict[str, str] = paper_settings("tableak")["on_updates"]
"""What attacks FedAvg updates, by the name of the paper's cells."""
BATCHES_KNOWN = {"labels": "true", "label_order": "batches"}
"""What every attack on a FedAvg update knows of its labels."""
STRONGEST = "audit_max"


@dataclass(frozen=True)
class Setting:
    """One experiment: an attack with its settings on clients of one kind.

    Attributes:
        dataset: name as in the paper's cells.
        network: name with widths, such as ``mlp-100-100``.
        attack: attack name as in the paper's cells.
        options: its settings.
        labels: ``true`` or ``restored``.
        batch_size: rows per client.
        epoch: 0 for fresh clients, else the round of the federation of Tables 5 and 15.
        protocol: what clients send.
        noise: scale of the noise that clients add; None where the table varies none.
        one_network: all batches have that of the published code, see `published_network`.
    """

    dataset: str
    network: str
    attack: str
    options: Mapping[str, Any] = field(hash=False)
    labels: str
    batch_size: int
    epoch: int = 0
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    noise: float | None = None
    one_network: bool = False

    @classmethod
    def of(cls, cell: PaperCell, options: Mapping[str, Any], as_published: bool = False, **changed: Any) -> "Setting":
        """The experiment whose result a cell with an attack prints.

        Args:
            cell: the cell.
            options: settings of the attack in addition to those that the cell states; the baseline has none.
            as_published: candidates start where they do in the published code.
            changed: further fields of the setting.
        """
        assert cell.dataset is not None and cell.attack is not None and cell.batch_size is not None
        # The baseline reads no labels: the paper prints one value under both settings.
        is_random = cell.attack == "random"
        labels = "true" if is_random else cell.labels or "true"
        if cell.attack == STRONGEST:  # it restores labels unless it is given them
            options = {"labels": labels, **options}
        elif as_published:
            options = {**options, "initialization": "symmetric"}
        stated = {name: value for name in ("restarts", "steps") if (value := getattr(cell, name)) is not None}
        fields: dict[str, Any] = {
            "dataset": cell.dataset,
            "network": cell.network or NETWORK,
            "attack": cell.attack,
            "options": AS_PUBLISHED if is_random else {**stated, **options},
            "labels": labels,
            "batch_size": cell.batch_size,
        }
        return cls(**fields | changed)

    def with_options(self, **options: Any) -> "Setting":
        """Return the setting with these settings of its attack."""
        return replace(self, options={**self.options, **options})

    @property
    def name(self) -> str:
        """A file name."""
        clients = f"{self.labels}-labels" if self.noise is None else f"noise-{self.noise:g}"
        if self.protocol.is_fedavg:
            clients = f"{self.protocol.local_epochs}x{self.protocol.local_batches}"
        options = [f"{key}-{value}" for key, value in sorted(self.options.items())]
        epoch = [f"e{self.epoch}"] if self.epoch else []
        one = ["one-network"] if self.one_network else []
        parts = [self.dataset, self.network, self.attack, clients, *options, *epoch, *one, f"b{self.batch_size}"]
        return "_".join(parts)

    @property
    def attack_name(self) -> str:
        """The registered name of the attack."""
        return ON_UPDATES[self.attack] if self.protocol.is_fedavg else self.attack

    @property
    def attack_options(self) -> dict[str, Any]:
        """All settings of the attack."""
        known: dict[str, Any] = {}
        if self.protocol.is_fedavg and self.attack != "random":
            known = BATCHES_KNOWN
        if self.protocol.is_fedavg and self.attack == STRONGEST:
            known = {ON_UPDATES["tableak"]: {"label_order": BATCHES_KNOWN["label_order"]}}
        return {**known, **self.options}

    @property
    def facts(self) -> dict[str, Any]:
        """Columns of a row that describe the setting."""
        defended: dict[str, Any] = {"defense": "none"}
        if self.noise is not None:
            defended = {"defense": GaussianNoise.name, "defense_strength": self.noise}
        prior = {"epoch_prior": self.options.get("epoch_prior")} if self.protocol.is_fedavg else {}
        return {
            "setting": self.name,
            "dataset": self.dataset,
            "target": self.network,
            "labels": self.labels,
            **protocol_facts(self.protocol, self.batch_size),
            **prior,
            **defended,
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
            facts=self.facts | made_facts(self.dataset, data_folder) | {"batch_index": index},
            seed=seed,
        )

    def observe(self, seed: int, index: int, data_folder: str | None) -> Observed:
        """Return the update of client ``index`` and the truth behind it."""
        if self.epoch:
            return federation_of(self.dataset, self.network, seed, data_folder).observe(self.epoch, index)
        experiment = experiment_of(self.dataset, self.network, data_folder)
        people, spec = experiment.population, experiment.spec
        if self.protocol.is_fedavg:
            clients = FreshFedAvgClients(people, spec, seed, self.protocol, share_labels="batches")
            return clients.observe(self.batch_size, index)
        defense = None if self.noise is None else GaussianNoise(self.noise)
        statistics = self.attack == "gradinversion"
        network = published_network(self.dataset, self.network, data_folder) if self.one_network else None
        fresh = FreshClients(people, spec, seed, True, statistics, defense, network=network)
        return fresh.observe(self.batch_size, index)


def made_facts(dataset: str, data_folder: str | None) -> dict[str, Any]:
    """Return the column of a row that says how many rows of a table were made in place of its own."""
    return {f"{name}_rows": n for name, n in options_at_hand(dataset, data_folder).items()}


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
def experiment_of(dataset: str, network: str, data_folder: str | None) -> Experiment:
    """Table, encoder and network as tables name them; made once.

    TabLeak takes statistics, bounds and marginals from all rows; so does its reproduction.
    """
    name, options = dataset_options(dataset)
    options = options | options_at_hand(dataset, data_folder)
    kind, widths = network_spec(network)
    data = DataConfig(name=name, folder=data_folder, options=options, statistics="all", marginals="all")
    return prepare_experiment(AuditConfig(data=data, target=TargetConfig(kind, widths)))


@cache
def federation_of(dataset: str, network: str, seed: int, data_folder: str | None) -> Federation:
    """The federation whose rounds Tables 5 and 15 attack; trained once."""
    experiment = experiment_of(dataset, network, data_folder)
    return Federation(experiment.population, experiment.spec, seed, share_labels=True)


@cache
def published_network(dataset: str, network: str, data_folder: str | None) -> nn.Module:
    """The one network of all attacks and batches of a table in the published code; its own where it is an MLP.

    It is drawn from the seed of the README's commands, and once more by a training of no epochs.
    """
    with fresh_generator(42):
        built = build_network(experiment_of(dataset, network, data_folder).spec)
        for layer in built.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
    return built


def at_hand(reproduction: Reproduction) -> list[PaperCell]:
    """The cells whose table is on this machine; the other tables become problems.

    Raises:
        DataError: none is.
    """
    missing: dict[str | None, DataError] = {}
    for cell in reproduction.cells:
        try:
            if cell.dataset not in missing:
                experiment_of(str(cell.dataset), cell.network or NETWORK, reproduction.selection.data_folder)
        except DataError as error:
            missing[cell.dataset] = error
    found = [cell for cell in reproduction.cells if cell.dataset not in missing]
    if not found:
        raise next(iter(missing.values()))
    reproduction.problems += [f"{name}: {error}" for name, error in missing.items()]
    return found


FEW_STEPS = 10
"""Steps after which candidates are still near their start (Table 16)."""
FEDERATION_RESTARTS = 15  # ensemble of the published runs behind Tables 5 and 15
GERMAN_ROWS = 16
"""Rows of a client of German Credit's federation, in the published code as here (see `Federation`)."""


class UpdateAttacks(Reproduction):
    """Attacks on the updates of clients, one setting after the other."""

    columns: ClassVar[Mapping[str, str]] = {
        "discrete_entropy": "mean_entropy_categorical",
        "continuous_entropy": "mean_entropy_numerical",
    }
    most = BATCHES
    strongest: ClassVar[Mapping[str, str]] = {"tableak": STRONGEST}

    def prepare(self) -> None:
        """Leave out the cells whose table is missing, and refuse wrong settings of an attack."""
        self.runnable = at_hand(self)
        for setting in self.settings():
            ATTACKS.get(setting.attack_name)(**setting.attack_options)

    @abstractmethod
    def setting(self, cell: PaperCell) -> Setting:
        """The experiment whose result a cell with an attack prints."""

    def settings(self) -> list[Setting]:
        """Each experiment once, in the order of the cells."""
        return list(dict.fromkeys(self.setting(cell) for cell in self.runnable if cell.attack is not None))

    def units(self) -> list[Unit]:
        """The attacks."""
        return [
            setting.unit(*one, self.selection.data_folder)
            for setting in self.settings()
            for one in self.repeated(BATCHES)
        ]

    def packs(self, folder: Path, device: torch.device) -> Sequence[Pack]:
        """The attacks in packs; nothing is kept of their cells."""
        return update_packs(self.units(), "nothing", folder, device)

    def where(self, cell: PaperCell) -> Row:
        """The rows of the cell's setting."""
        return {"setting": self.setting(cell).name}


class GradientAttacks(UpdateAttacks):
    """Attacks on gradients of fresh clients, or of those of a small federation."""

    def setting(self, cell: PaperCell) -> Setting:
        """See `gradient_setting_of`."""
        return gradient_setting_of(cell, self.selection.as_published)

    def prepare(self) -> None:
        """Refuse more clients than there are, too."""
        super().prepare()
        batches, clients = self.selection.batches or BATCHES, Federation.clients
        if batches > clients and any(setting.epoch for setting in self.settings()):
            raise UsageError(f"--batches must be at most {clients}, the clients of the federation; got {batches}")

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """Mean over batches; a rank correlation is one number over all of them."""
        if cell.metric != "kendall_tau":
            return super().measured(cell, rows)
        return rank_correlation(self.behind(cell, rows), cell.feature_kind or "categorical")

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """Where a run departs from the paper or from our defaults, and why; only what concerns these cells."""
        return {
            "network": any(not cell.training_epochs for cell in self.cells) and not self.selection.as_published,
            "statistics": True,
            "random": any(cell.attack == "random" for cell in self.cells),
            "start": any(map(depends_on_start, self.cells)) and not self.selection.as_published,
            "training_epochs": any(cell.training_epochs for cell in self.cells),
            "entropy": any("entropy" in cell.metric or "top25" in cell.metric for cell in self.cells),
        }


def rank_correlation(rows: Rows, kind: str) -> Summary:
    """Kendall's tau over batches between mean entropy and mean accuracy (Tables 25 to 28)."""
    pairs = [(row[f"mean_entropy_{kind}"], row[f"{kind}_accuracy"]) for row in rows]
    known = [(entropy, accuracy) for entropy, accuracy in pairs if entropy is not None and accuracy is not None]
    tau = float(kendalltau(*zip(*known, strict=True)).statistic) if len(known) > 1 else math.nan
    return Summary(mean=tau, std=math.nan, n=len(known), low=math.nan, high=math.nan)


def gradient_setting_of(cell: PaperCell, as_published: bool = False) -> Setting:
    """The experiment whose result a cell about a gradient prints; as published, one network serves all batches."""
    options: dict[str, Any] = {"entropy": "soft"} if cell.attack == "tableak" else {}
    if cell.labels == "restored" and cell.attack != STRONGEST:
        options["labels"] = "geng"
    if cell.pooling is not None:
        options["pooling"] = cell.pooling
    if cell.sigmoid_bounds is False:
        options["numerical"] = "none"
    if cell.training_epochs is not None and cell.attack == "tableak":
        options["restarts"] = FEDERATION_RESTARTS
    setting = Setting.of(cell, options, as_published or depends_on_start(cell), epoch=cell.training_epochs or 0)
    if as_published and not setting.epoch:
        return replace(setting, one_network=True)
    return replace(setting, batch_size=GERMAN_ROWS) if setting.epoch and cell.dataset == "german" else setting


def depends_on_start(cell: PaperCell) -> bool:
    """Return whether a cell's value depends on where candidates start: in [0, 1] (Alg. 1) or [-1, 1] (published code).

    It does where the attack stops after few steps, and for Deep Gradient Leakage, which does not converge.
    """
    return cell.attack == "deep_gradient_leakage" or (cell.steps is not None and cell.steps <= FEW_STEPS)


ENSEMBLE = 30  # App. E.1: restarts, pooled in ensembles as large as the cells say


class TableFacts(FactTable):
    """Table 7 (tolerance of each column) and Table 8 (columns, encoded width, rows): read off the loaded tables."""

    def fact(self, cell: PaperCell, rows: Rows) -> float:
        """See `FactTable.fact`."""
        experiment = experiment_of(str(cell.dataset), NETWORK, self.selection.data_folder)
        schema = experiment.table.schema
        if cell.metric == "tolerance":
            names = [column.name for column in schema.numerical]
            return TOLERANCE * float(experiment.encoder.deviation[names.index(str(cell.column))])
        numbers = {
            "features": len(schema.columns),
            "discrete_features": len(schema.categorical),
            "continuous_features": len(schema.numerical),
            "encoded_features": experiment.encoder.width,
            "data_points": len(experiment.table.train) + len(experiment.table.test),
        }
        return float(numbers[cell.metric])


class RestartSpread(Reproduction):
    """Fig. 13: deviation of the accuracy within one batch, over 30 restarts and over their small ensembles."""

    noun = "batches"
    most = BATCHES
    matched: ClassVar[Mapping[str, str]] = {"dataset": "dataset"}

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """One attack per table, seed and batch."""
        return [
            Work([f"{name}-s{seed}-{index:03d}"], partial(self.attack, name, seed, index))
            for name in dict.fromkeys(str(cell.dataset) for cell in self.cells)
            for seed, index in self.repeated(BATCHES)
        ]

    def attack(self, name: str, seed: int, index: int, at: Place) -> Rows:
        """The deviation over the restarts of one batch, and over their ensembles."""
        attack = GradientInversion("tableak", "", self.config())
        experiment = experiment_of(name, NETWORK, self.selection.data_folder)
        clients = FreshClients(experiment.population, experiment.spec, seed, share_labels=True)
        update, truth = clients.observe(32, index)
        found = attack.run_many([update], [derive_seed(seed, name, index)], at.device, at.report)[0]
        assert found.ensemble is not None  # the configuration keeps it
        encoder = experiment.encoder
        true_rows = encoder.decode(truth.inputs, clamp=False)
        ensemble_size = max(cell.restarts or 1 for cell in self.table.drawn)  # restarts of an ensemble, by the cells
        pooled = [pool(align(encoder, part, 0), 0, "median") for part in found.ensemble.split(ensemble_size)]
        spread = {
            "std_restarts": _deviation(encoder, true_rows, found.ensemble),
            "std_ensembles": _deviation(encoder, true_rows, pooled),
        }
        return [{"dataset": name, "seed": seed, "batch_index": index, **spread}]

    def config(self) -> InversionConfig:
        """Settings of the attack: no sigmoid, and all restarts are kept."""
        return InversionConfig(restarts=ENSEMBLE, numerical="none", keep_ensemble=True)

    def column(self, cell: PaperCell) -> str:
        """See `Reproduction.column`."""
        return "std_restarts" if cell.restarts == 1 else "std_ensembles"


def _deviation(encoder: TableEncoder, true_rows: Any, candidates: Iterable[torch.Tensor]) -> float:
    """The deviation of the accuracy over candidates."""
    batches = [MatchedBatch.compare(encoder, true_rows, encoder.decode(one)) for one in candidates]
    return float(torch.tensor([float(batch.hits.double().mean()) for batch in batches]).std())
