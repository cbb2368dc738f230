"""What attacks on a released model leave in ``inversion.json``, and names of what they differ in."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lightleak.core.records import json_field
from lightleak.core.results import ReleasedRow
from lightleak.report.format import attack_title, joined, mean_of
from lightleak.report.intervals import Estimate, estimate
from lightleak.report.read import Run

FILE_NAME = "inversion.json"
NOT_STATED = "not stated"

SEARCHES = {
    "gradient": "gradient search",
    "tpe": "Bayesian search (TPE)",
    "random_best": "best of as many random\u00a0z",
    "random": "random\u00a0z",
    "softmax": "random\u00a0z, likeliest categories",
}
"""Latent searches in the order of thesis Table 5.6; the last is where the searches start from."""

_BRIDGES = {"exact": "exact bridge", "shared": "shared transform"}

_MODELS = {"gandalf": "GANDALF", "boosted_trees": "boosted trees (XGBoost)", "mlp": "MLP"}


@dataclass(frozen=True)
class ClassScores:
    """How alike the columns of each kind are within one class."""

    class_name: str = json_field(key="class", default=NOT_STATED)
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ClassShapes:
    """How alike single columns are within each class: kinds of column, their number, and scores by class."""

    groups: tuple[str, ...] = ()
    columns: Mapping[str, float] = field(default_factory=dict)
    classes: tuple[ClassScores, ...] = ()


@dataclass(frozen=True)
class LowColumn:
    """One of the columns that are least alike."""

    column: str = NOT_STATED
    kind: str = ""
    score: float | None = None
    metric: str = ""


@dataclass(frozen=True)
class Nearest:
    """The closest pair of one class: a made-up row and a private one, neither of them in a redacted run."""

    class_name: str = json_field(key="class", default=NOT_STATED)
    distance: float | None = None
    reconstructed: Mapping[str, Any] = field(default_factory=dict)
    private: Mapping[str, Any] = field(default_factory=dict)

    def agrees(self, column: str) -> bool | None:
        """Whether both rows have the same value there; None where either has none."""
        real, made = self.private.get(column), self.reconstructed.get(column)
        return None if is_missing(real) or is_missing(made) else real == made


@dataclass(frozen=True)
class PseudoLabel:
    """Public rows that the target sorts into one class; ``excluded`` is the reason it could not be attacked."""

    class_name: str = json_field(key="class", default=NOT_STATED)
    public_rows: float | None = None
    used: float | None = None
    excluded: str | None = None


@dataclass(frozen=True)
class Memorization:
    """Distances of made-up rows to rows that the target was trained on and to rows that it never saw.

    Attributes:
        train_mean: mean Gower distance to the nearest training row.
        heldout_mean: to the nearest held-out private row.
        share: share of made-up rows that are nearer to a training row; one half without memorization.
        low: lower end of its 95% interval.
        high: upper end.
        n: number of made-up rows.
        trainings: number of trainings that the interval is over; the interval of one is over its rows.
    """

    train_mean: float | None = None
    heldout_mean: float | None = None
    share: float | None = json_field(key="share_nearer_to_train", default=None)
    low: float | None = None
    high: float | None = None
    n: float | None = None
    trainings: int = json_field(written=False, default=1)

    @property
    def value(self) -> Estimate | None:
        """The share with its interval; None where it was not measured."""
        return None if self.share is None else Estimate(self.share, self.trainings, self.low, self.high)


@dataclass(frozen=True)
class Entry:
    """What one attack of one seed left in ``inversion.json``; every part may be missing.

    Attributes:
        attack: name of the attack or baseline.
        label: its name in the config.
        dataset: name of the table.
        setting: name of the split.
        seed: of the training.
        search: latent search.
        class_shapes: scores by class and kind of column.
        column_shapes: score of each column.
        lowest: the columns with the lowest scores.
        nearest: closest pairs by class.
        losses: training curves by name, ``iteration`` among them.
        pseudo_labels: how the public rows were sorted.
        memorization: distances to rows that were and were not trained on.
        task: sizes of the task; classes and columns are counted or listed.
        target_scores: accuracies and epochs of the target.
        evaluation_scores: those of the evaluation model.
        disjoint_scores: those of the one that shares no training row with the target.
        run: name of the run.
    """

    attack: str
    label: str | None = None
    dataset: str | None = None
    setting: str | None = None
    seed: int | str | None = None
    search: str | None = json_field(key="latent_search", default=None)
    class_shapes: ClassShapes = field(default_factory=ClassShapes)
    column_shapes: Mapping[str, float] = field(default_factory=dict)
    lowest: tuple[LowColumn, ...] = json_field(key="lowest_columns", default=())
    nearest: tuple[Nearest, ...] = ()
    losses: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    pseudo_labels: tuple[PseudoLabel, ...] = ()
    memorization: Memorization | None = field(default=None, metadata={"key": "memorisation"})
    task: Mapping[str, Any] = field(default_factory=dict)
    target_scores: Mapping[str, float] = field(default_factory=dict)
    evaluation_scores: Mapping[str, float] = field(default_factory=dict)
    disjoint_scores: Mapping[str, float] = field(default_factory=dict)
    run: str = json_field(written=False, default="")

    @property
    def pairs(self) -> tuple[Nearest, ...]:
        """The closest pairs whose rows are known."""
        return tuple(pair for pair in self.nearest if pair.reconstructed and pair.private)

    def size(self, name: str) -> int | None:
        """A size of the task; None where it is not stated."""
        value = self.task.get(name)
        if isinstance(value, list | Mapping):
            return len(value)
        return int(value) if isinstance(value, int | float) and math.isfinite(value) else None


def entries_of(runs: Iterable[Run]) -> list[Entry]:
    """What the runs left in ``inversion.json``."""
    return [entry for run in runs for entry in run.entries(FILE_NAME, Entry, run=run.name)]


def is_missing(value: Any) -> bool:
    """Whether a value is missing or no finite number."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def pooled(entries: Sequence[Entry]) -> Memorization:
    """One finding for several seeds: means, and an interval over the seeds where there are at least two."""
    found = [one for entry in entries if (one := entry.memorization) and one != Memorization()]
    if len(found) < 2:
        return found[0] if found else Memorization()
    names = ("train_mean", "heldout_mean", "share")
    train, heldout, share = (estimate(getattr(one, name) for one in found) for name in names)
    low, high = share.ends if share else (None, None)
    sizes = [one.n for one in found if one.n is not None]
    n, trainings = sum(sizes) if sizes else None, share.n if share else 1
    return Memorization(mean_of(train), mean_of(heldout), mean_of(share), low, high, n, trainings)


def title_of(one: ReleasedRow | Entry) -> str:
    """The attack as a reader knows it, or what the config calls it where that says more.

    >>> title_of(Entry("plgmi", "plgmi")), title_of(Entry("plgmi", "PLG-MI, alpha 0"))
    ('PLG-MI', 'PLG-MI, alpha 0')
    """
    return one.label if one.label and one.label != one.attack else attack_title(one.attack)


def search_name(search: str | None) -> str:
    """The latent search in words.

    >>> search_name("tpe"), search_name(None)
    ('Bayesian search (TPE)', 'search not stated')
    """
    return SEARCHES.get(search or "", search or "search not stated")


def model_name(name: str | None) -> str:
    """A network as the literature writes it.

    >>> model_name("mlp-2048-1024"), model_name("gandalf"), model_name(None)
    ('MLP 2048-1024', 'GANDALF', 'not stated')
    """
    family, _, rest = (name or NOT_STATED).partition("-")
    return joined(_MODELS[family], rest, by=" ") if family in _MODELS else name or NOT_STATED


def setting_words(row: ReleasedRow, names: Iterable[str]) -> list[str]:
    """The named parts of a setting, each as a short phrase.

    >>> setting_words(ReleasedRow(attack="", dataset="diabetes130", target="mlp-100", setting="2"), ["target"])
    ['target MLP 100']
    """
    phrases = {
        "dataset": row.dataset or "dataset not stated",
        "target": f"target {model_name(row.target)}",
        "evaluation": f"judged by {model_name(row.evaluation)}",
        "setting": "setting not stated" if row.setting is None else f"setting {row.setting}",
    }
    return [phrases[name] for name in names]


def bridge_name(bridge: str | None) -> str:
    """The bridge in words."""
    return _BRIDGES.get(bridge or "", bridge or "bridge not stated")
