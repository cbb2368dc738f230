"""The values a paper prints, as typed cells that our own results are compared with.

A file ``reproductions/paper/<paper>/<name>.yaml`` holds one table, or one figure that shows curves but no numbers
(``cells`` is then empty, ``description`` says what is drawn and ``drawn`` which points). ``run`` names the class below
``lightleak.reproductions`` that measures its cells. A new paper is a new folder of files.
Settings and notes behind the tables of a paper are in ``reproductions/paper/<paper>.yaml``.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from math import nan
from typing import Any, TypeVar

import yaml

from lightleak.core.bounds import Section, bounded, one_of
from lightleak.core.errors import DataError, UsageError, close_match
from lightleak.core.parties import ADVERSARIES
from lightleak.core.yaml_text import read_yaml
from lightleak.experiments.settings import build_settings


@dataclass(frozen=True)
class PaperCell(Section):
    """One printed number with everything that identifies it.

    A coordinate that is None does not apply to the cell or is not varied by its table: the random baseline in a
    caption has no network, and only a table over attack iterations states ``steps``.

    Attributes:
        metric: name of what was measured, e.g. ``cell_accuracy``, ``top25_categorical``, ``kendall_tau``.
        unit: unit of ``mean`` and ``std``: percent, fraction, nats, count, ...
        mean: the printed value or mean; NaN where the paper prints NaN.
        std: the printed standard deviation over batches (for ``test_accuracy``: over runs); None where there is none.
        dataset: registry name of the dataset.
        network: network name with its hidden widths, e.g. ``mlp-100-100``.
        property_name: property whose fraction is inferred, as ``column=value``; ProVFL's abbreviation where the paper
            does not say which column it is.
        adversary: ``C1`` (active party) or ``C2`` (passive party).
        attack: registry name of the attack.
        variant: which parts of an attack act, such as ``LR``, ``MR`` or ``LR+MR``.
        option: the setting that the table varies, such as ``fraction_step``.
        value: its value.
        gap: distance between the fractions of the two populations that are compared or distinguished.
        defense: name of the defense.
        noise_scale: standard deviation of the added noise.
        strength: the one parameter of the defense, in its own unit.
        labels: what the attack knows of the labels, ``"true"`` or ``"restored"``.
        local_epochs: FedAvg local epochs.
        local_batches: FedAvg batches per local epoch.
        local_batch_size: rows per local step (m).
        n_clients: clients averaged into the attacked update.
        round: communication round that is attacked, counted from 1.
        known_batch_counts: the server knows the labels of every local batch, not only their counts.
        random_batches: the client draws new batches in every local epoch.
        assumed_epochs: local epochs that the attack assumes.
        prior_statistic: order-invariant function of the epoch prior (g).
        prior_distance: its distance (D_inv).
        batch_size: rows behind the attacked update; for FedAvg all rows of the client.
        training_epochs: epoch of training that is attacked.
        steps: attack iterations.
        restarts: size of the ensemble that is pooled.
        pooling: ``median`` or ``mean``.
        column: the one column a tolerance belongs to.
        feature_kind: ``categorical`` or ``numerical`` where the cell is about one kind only.
        protocol: ``fedsgd``, ``fedavg`` or ``vertical``.
        sigmoid_bounds: whether numerical columns run through the bounding sigmoid; None is the paper's default.

    Raises:
        UsageError: on construction, when a value is out of range, or only one of ``option`` and ``value`` is given.
    """

    metric: str
    unit: str
    mean: float
    std: float | None = bounded(None, ge=0)
    dataset: str | None = None
    network: str | None = None
    property_name: str | None = None
    adversary: str | None = one_of(None, ADVERSARIES)
    attack: str | None = None
    variant: str | None = None
    option: str | None = None
    value: str | float | None = None
    gap: float | None = None
    defense: str | None = None
    noise_scale: float | None = None
    strength: float | None = None
    labels: str | None = one_of(None, ("true", "restored"))
    local_epochs: int | None = None
    local_batches: int | None = None
    local_batch_size: int | None = None
    n_clients: int | None = None
    round: int | None = None
    known_batch_counts: bool | None = None
    random_batches: bool | None = None
    assumed_epochs: int | None = None
    prior_statistic: str | None = None
    prior_distance: str | None = None
    batch_size: int | None = bounded(None, ge=1)
    training_epochs: int | None = None
    steps: int | None = None
    restarts: int | None = None
    pooling: str | None = None
    column: str | None = None
    feature_kind: str | None = None
    protocol: str | None = None
    sigmoid_bounds: bool | None = None

    def check(self) -> None:
        """Require both of ``option`` and ``value``, or none."""
        if (self.option is None) != (self.value is None):
            raise UsageError(f"option and value belong together, got {self.option!r} and {self.value!r}")

    @property
    def coordinates(self) -> dict[str, Any]:
        """The fields that identify the cell: all that are set, without ``mean``, ``std`` and ``unit``.

        >>> PaperCell("cell_accuracy", "percent", 79.3, 4.5, dataset="adult", batch_size=32).coordinates
        {'metric': 'cell_accuracy', 'dataset': 'adult', 'batch_size': 32}
        """
        measured = {"mean", "std", "unit"}
        return {key: value for key, value in asdict(self).items() if value is not None and key not in measured}


@dataclass(frozen=True)
class PaperTable:
    """One table or figure of a paper.

    Attributes:
        name: the reproduction's name, e.g. ``tableak-table17``; also the file's name.
        source: authors, title and venue.
        page: section of the paper that shows it.
        title: what it shows, in our own words.
        metric: metric of the cells that name none of their own.
        unit: unit of the cells that name none of their own.
        cells: every printed number, in reading order; empty for a figure.
        table: number of the table, None for a figure.
        figure: number of the figure, None for a table.
        description: what a figure draws.
        notes: deviations inside the paper and settings that it leaves unsaid.
        drawn: the points that a figure draws, as cells without a printed value.
        run: the class that measures the cells, such as ``tableak.fedsgd.GradientAttacks``.
        options: settings of that class.
        ours: notes on how our values are measured.
        differing: why cells differ from ours, as far as is known, or what was tried to find out.

    Raises:
        DataError: on construction, unless exactly one of ``table`` and ``figure`` is set, or when two cells share all
            their coordinates.
    """

    name: str
    source: str
    page: str
    title: str
    metric: str
    unit: str
    cells: tuple[PaperCell, ...]
    table: int | None = None
    figure: int | None = None
    description: str | None = None
    notes: str | None = None
    drawn: tuple[PaperCell, ...] = ()
    run: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    ours: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.table is None) == (self.figure is None):
            raise DataError(f"{self.name}: expected one of table and figure, got {self.table=} and {self.figure=}")
        seen = set()
        for cell in (*self.cells, *self.drawn):
            key = tuple(cell.coordinates.items())
            if key in seen:
                raise DataError(f"{self.name}: two cells have the same coordinates {cell.coordinates}")
            seen.add(key)

    @property
    def paper(self) -> str:
        """Name of the paper, with which the names of its tables begin.

        >>> load_paper_table("tableak-table17").paper
        'tableak'
        """
        return self.name.partition("-")[0]


def parse_paper_table(text: str, where: str) -> PaperTable:
    """Read one table from YAML text; ``where`` names the file in errors.

    >>> text = "{name: t, source: s, table: 1, page: p, title: t, metric: m, unit: u, cells: [{mean: 1.5}]}"
    >>> parse_paper_table(text, "t.yaml").cells[0].metric
    'm'

    Raises:
        DataError: the text is no mapping, misses a key, has an unknown one, or a value of the wrong type.
    """
    raw = yaml.load(text, Loader=_Loader)
    if not isinstance(raw, dict) or not isinstance(raw.get("cells"), list):
        raise DataError(f"{where}: expected a mapping with a list 'cells'")
    usual = {key: raw[key] for key in ("metric", "unit") if key in raw}
    cells = [_built(PaperCell, raw_cell, f"{where}, cell {i}", **usual) for i, raw_cell in enumerate(raw["cells"])]
    drawn = [
        # Its type is that of the setting it varies.
        replace(_built(PaperCell, point, f"{where}, drawn", mean=nan, **usual), value=point.get("value"))
        for grid in raw.pop("drawn", ())
        for point in _points(grid)
    ]
    return replace(_built(PaperTable, raw | {"cells": ()}, where), cells=tuple(cells), drawn=tuple(drawn))


def _points(grid: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the listed values, the first list varying slowest."""
    axes = [values if isinstance(values, list) else [values] for values in grid.values()]
    return (dict(zip(grid, values, strict=True)) for values in product(*axes))


T = TypeVar("T", PaperCell, PaperTable)
_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is several times as fast


def _built(kind: type[T], raw: Any, where: str, **usual: Any) -> T:
    if not isinstance(raw, dict):
        raise DataError(f"{where}: expected a mapping, got {raw!r}")
    try:
        return build_settings(kind, {**usual, **raw}, where)
    except UsageError as error:
        raise DataError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from error


def _table_files() -> dict[str, Traversable]:
    folders = (entry for entry in files("lightleak.reproductions.paper").iterdir() if entry.is_dir())
    paths = (path for folder in folders for path in folder.iterdir() if path.name.endswith(".yaml"))
    return {path.name.removesuffix(".yaml"): path for path in paths}


def paper_tables() -> tuple[str, ...]:
    """Names of every table and figure there is a file for, sorted.

    >>> "tableak-table17" in paper_tables()
    True
    """
    return tuple(sorted(_table_files()))


@cache
def load_paper_table(name: str) -> PaperTable:
    """Load the values of one table or figure, e.g. ``tableak-table17``; read once per process.

    >>> load_paper_table("tableak-table1").cells[0].mean
    95.2

    Raises:
        UsageError: no file of that name; the message lists the known ones.
        DataError: the file breaks the format, or names another table than its own name.
    """
    known = _table_files()
    if name not in known:
        raise UsageError(f"unknown paper table {name!r}{close_match(name, known)}; known: {', '.join(sorted(known))}")
    table = parse_paper_table(known[name].read_text(encoding="utf-8"), f"{name}.yaml")
    if table.name != name:
        raise DataError(f"{name}.yaml: name must be {name!r}, got {table.name!r}")
    return table


@cache
def paper_settings(paper: str) -> dict[str, Any]:
    """Return the content of a paper's file, read once per process; callers must not change it.

    >>> sorted(paper_settings("fedavg"))
    ['measurements', 'notes', 'presets', 'titles']
    """
    text = files(__package__).joinpath(f"{paper}.yaml").read_text(encoding="utf-8")
    return read_yaml(text)


def note(paper: str, name: str, **values: object) -> str:
    """Return a note of a paper's file with ``values`` filled in.

    >>> note("provfl", "auc", seed=3)
    'AUC is that of one training (seed 3).'
    """
    return paper_settings(paper)["notes"][name].format(**values)


def measurements(paper: str, metric: str) -> int:
    """Return the number of measurements behind a printed mean.

    >>> measurements("tableak", "cell_accuracy"), measurements("tableak", "test_accuracy")
    (50, 5)
    """
    known: dict[str, int] = paper_settings(paper)["measurements"]
    return known.get(metric, known["all"])
