"""Which runs stand behind a paper's cell: the dataset, network, clients and attack that its coordinates name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from lightleak.attacks.random_baseline import AS_PUBLISHED
from lightleak.core.errors import UsageError
from lightleak.experiments.clients import Population
from lightleak.experiments.config import AuditConfig, DataConfig, TargetConfig
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.settings import at_most
from lightleak.reproductions.paper.values import PaperCell, PaperTable

BATCHES = 50  # TabLeak App. B: 50 independent runs on 50 batches
TABLEAK_DATASETS = ("adult", "german", "lawschool", "health-heritage")
TABLEAK_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
NETWORKS_BY_SIZE = ("linear", "mlp-50", "mlp-100", "mlp-100-100", "mlp-200-200-200", "mlp-400-400-400")
FEDERATION_RESTARTS = 15  # ensemble of the published runs behind Tables 5 and 15
SYNTHETIC_C5 = {"n_discrete": 125, "n_continuous": 125, "max_categories": 16, "encoded_width": 1231}

ROW_METRICS = {
    "cell_accuracy": "cell_accuracy",
    "categorical_accuracy": "categorical_accuracy",
    "numerical_accuracy": "numerical_accuracy",
    "top25_categorical": "top25_categorical",
    "bottom25_categorical": "bottom25_categorical",
    "top25_numerical": "top25_numerical",
    "bottom25_numerical": "bottom25_numerical",
    "discrete_entropy": "mean_entropy_categorical",
    "continuous_entropy": "mean_entropy_numerical",
    "rmse": "rmse",
}
"""The column of results.json behind each metric of a paper's table."""


DEVIATIONS = {
    "always": (
        "Ours draws a fresh network for every batch (the published code one for all 50), so our deviation and interval "
        "cover the draw of the network as well.",
        "Encoder statistics, bounds and marginals are taken from all rows, as the published code does; an audit takes "
        "them from training rows, and marginals from rows disjoint from the clients'.",
    ),
    "random": (
        "Random is that of the published code: cells drawn from the shares as they are (sharpness: 1), one number per "
        "column for the whole batch (numerical_draw: batch). The default of this package is the best guess that needs "
        "no update, and scores higher: differences of a paper's attacks to its Random overstate what the update gives.",
    ),
    "gradinversion": (
        "GradInversion runs with fixed prior weights (l2 1e-4, BatchNorm 1e-3); the paper reports the best of a grid "
        "of 7 (or 49) on the reported batches, which favours it.",
    ),
    "training_epochs": (
        "An epoch is one FedSGD round of 50 clients with 32 rows at learning rate 0.5 and 15 restarts, as in the "
        "published code. German Credit's 800 training rows leave 16 a client there, which is why its accuracies exceed "
        "those of Table 18 at 32.",
    ),
}
"""What a reader of a comparison must know, by the topic that makes it matter."""


@dataclass(frozen=True)
class Selection:
    """What of a reproduction is run; ``None`` means all of it.

    Attributes:
        dataset: one dataset.
        batches: batches per cell.
        batch_sizes: these only.
        attacks: these only.
        labels: ``true`` or ``restored`` only.
        seeds: root seeds, each a full repetition on other batches and networks.
        data_folder: where raw files lie.
        as_published: do what the published code does where it departs from its paper (ProVFL's tables).
        settings: these settings only, as `setting_name` names them.
        iterations: iterations of a generator; None: the thesis's.
        search_restarts: restarts of the search for the weight of FedAvg's epoch prior; None: the table's default.
    """

    dataset: str | None = None
    batches: int | None = None
    batch_sizes: tuple[int, ...] | None = None
    attacks: tuple[str, ...] | None = None
    labels: str | None = None
    seeds: tuple[int, ...] = (0,)
    data_folder: str | None = None
    as_published: bool = False
    settings: tuple[str, ...] | None = None
    iterations: int | None = None
    search_restarts: int | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        for name in ("batches", "iterations", "search_restarts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
            at_most(f"--{name.replace('_', '-')}", value)
        if not self.seeds:
            raise UsageError("--seeds must be at least 1")

    def chosen(self) -> str:
        """What narrows the reproduction down, for messages.

        >>> Selection(dataset="adult", batch_sizes=(8, 16)).chosen()
        'dataset adult, batch sizes 8,16'
        """
        sizes = self.batch_sizes and ",".join(map(str, self.batch_sizes))
        attacks = self.attacks and ",".join(self.attacks)
        settings = self.settings and ",".join(self.settings)
        told = {
            "dataset": self.dataset,
            "batch sizes": sizes,
            "attacks": attacks,
            "labels": self.labels,
            "settings": settings,
        }
        return ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)

    def keeps(self, cell: PaperCell) -> bool:
        """Whether the selection contains this cell."""
        return (
            (self.dataset is None or cell.dataset in (None, self.dataset))
            and (self.batch_sizes is None or cell.batch_size in (None, *self.batch_sizes))
            and (self.attacks is None or cell.attack in (None, *self.attacks))
            and (self.labels is None or cell.labels in (None, self.labels))
            and (self.settings is None or setting_name(cell) in (None, *self.settings))
        )


def setting_name(cell: PaperCell) -> str | None:
    """What ``--settings`` calls the setting of a cell, where its table has named ones.

    That is a setting of the thesis's Table 4.3, or local epochs x batches of a FedAvg client.

    >>> setting_name(PaperCell("cell_accuracy", "percent", 72.8, local_epochs=10, local_batches=4))
    '10x4'
    """
    if cell.option == "setting":
        return str(cell.value)
    if cell.local_epochs is None or cell.local_batches is None:
        return None
    return f"{cell.local_epochs}x{cell.local_batches}"


def check_settings(cells: Iterable[PaperCell], selection: Selection) -> None:
    """Raise `UsageError` for a selected setting that no cell has."""
    known = list(dict.fromkeys(name for cell in cells if (name := setting_name(cell)) is not None))
    for name in selection.settings or ():
        if name not in known:
            raise UsageError(f"--settings must be among {', '.join(known)}, got {name!r}")


def offered(cells: Iterable[PaperCell]) -> str:
    """What may be selected of these cells, for messages.

    >>> offered([PaperCell("cell_accuracy", "percent", 90.0, dataset="adult", attack="tableak", batch_size=8)])
    'it has datasets adult; attacks tableak; batch sizes 8'
    """
    cells = list(cells)
    named = {"datasets": "dataset", "attacks": "attack", "batch sizes": "batch_size", "labels": "labels"}
    found = {word: dict.fromkeys(getattr(cell, name) for cell in cells) for word, name in named.items()}
    texts = [f"{word} {', '.join(str(v) for v in values if v is not None)}" for word, values in found.items()]
    return f"it has {'; '.join(text for text in texts if not text.endswith(' '))}"


def selected(table: PaperTable, cells: Sequence[PaperCell], selection: Selection) -> list[PaperCell]:
    """The cells of a table that are selected.

    Raises:
        UsageError: none is.
    """
    kept = [cell for cell in cells if selection.keeps(cell)]
    if not kept:
        raise UsageError(f"nothing of {table.name} is left to run with {selection.chosen()}; {offered(cells)}")
    return kept


@dataclass(frozen=True)
class Setting:
    """One experiment: an attack with its settings on clients of one kind.

    Attributes:
        dataset: name as in the paper's cells.
        network: name with widths, such as ``mlp-100-100``.
        attack: attack name.
        options: its settings, as sorted pairs.
        labels: ``true`` or ``restored``.
        batch_size: rows per client.
        epoch: 0 for fresh clients, else the round of the federation of Tables 5 and 15.
    """

    dataset: str
    network: str
    attack: str
    options: tuple[tuple[str, Any], ...]
    labels: str
    batch_size: int
    epoch: int = 0


def setting_of(cell: PaperCell) -> Setting:
    """The experiment whose result the cell prints."""
    assert (
        cell.dataset is not None and cell.attack is not None and cell.batch_size is not None
    )  # `attacked` cells have them
    options: dict[str, Any] = {}
    if cell.attack == "random":
        options |= AS_PUBLISHED
    else:
        if cell.labels == "restored":
            options["labels"] = "geng"
        if cell.steps is not None:
            options["steps"] = cell.steps
        if cell.restarts is not None:
            options["restarts"] = cell.restarts
        if cell.pooling is not None:
            options["pooling"] = cell.pooling
        if cell.sigmoid_bounds is False:
            options["numerical"] = "none"
        if cell.training_epochs is not None and cell.attack == "tableak":
            options["restarts"] = FEDERATION_RESTARTS
    return Setting(
        cell.dataset,
        cell.network or "mlp-100-100",
        cell.attack,
        tuple(sorted(options.items())),
        # The baseline reads no labels: the paper prints one value under both settings.
        "true" if cell.attack == "random" else cell.labels or "true",
        cell.batch_size,
        cell.training_epochs or 0,
    )


def attacked(cells: Iterable[PaperCell]) -> list[PaperCell]:
    """Cells that an attack on a FedSGD gradient of fresh or training clients stands behind."""
    return [c for c in cells if c.attack and c.batch_size and c.protocol in (None, "fedsgd") and c.defense is None]


def figure_cells(table: PaperTable) -> list[PaperCell]:
    """What a figure draws, as cells without a printed value."""
    grids: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[int, ...], tuple[str, ...]]] = {
        "tableak-fig4": (
            ("adult",),
            ("mlp-100-100",),
            ("tableak",),
            TABLEAK_BATCH_SIZES,
            ("categorical_accuracy", "numerical_accuracy"),
        ),
        "tableak-fig9": (
            TABLEAK_DATASETS,
            NETWORKS_BY_SIZE,
            ("tableak", "inverting_gradients"),
            (32,),
            ("cell_accuracy",),
        ),
        "tableak-fig11": (
            TABLEAK_DATASETS,
            ("mlp-100-100",),
            ("tableak", "inverting_gradients"),
            TABLEAK_BATCH_SIZES,
            ("rmse",),
        ),
        "tableak-fig12": (
            TABLEAK_DATASETS,
            ("mlp-100-100",),
            ("tableak",),
            TABLEAK_BATCH_SIZES,
            ("categorical_accuracy", "numerical_accuracy"),
        ),
    }
    if table.name not in grids:
        return []
    datasets, networks, attacks, sizes, metrics = grids[table.name]
    base = PaperCell("cell_accuracy", "percent", float("nan"), protocol="fedsgd", labels="true")
    return [
        replace(
            base,
            metric=m,
            unit="deviations" if m == "rmse" else "percent",
            dataset=d,
            network=n,
            attack=a,
            batch_size=b,
        )
        for d in datasets
        for n in networks
        for a in attacks
        for b in sizes
        for m in metrics
    ]


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
