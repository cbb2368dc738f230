"""``inversion.json`` of a released-model run: what a row of numbers cannot hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.report.row_values import number, text
from lightleak.report.run_folder import read_entries

FILE_NAME = "inversion.json"
SCHEMA_VERSION = 1
LOSSES = ("generator", "discriminator", "inversion", "conditioning")


@dataclass(frozen=True)
class ClassShapes:
    """How alike single columns are within each class (thesis Fig. 5.3).

    Attributes:
        groups: kinds of column, in their order.
        columns: number of columns by kind.
        classes: by class the mean score of the columns of each kind, a fraction.
    """

    groups: tuple[str, ...]
    columns: Mapping[str, float]
    classes: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class LowColumn:
    """One of the columns that are least alike (thesis Fig. 5.5)."""

    column: str
    kind: str
    score: float
    metric: str


@dataclass(frozen=True)
class Nearest:
    """The closest pair of one class (thesis Table A.2): a made-up row and a private one."""

    class_name: str
    distance: float | None
    reconstructed: Mapping[str, Any]
    private: Mapping[str, Any]


@dataclass(frozen=True)
class PseudoLabel:
    """Public rows that the target sorts into one class; ``excluded`` is the reason it could not be attacked."""

    class_name: str
    public_rows: float | None
    used: float | None
    excluded: str | None


@dataclass(frozen=True)
class Memorisation:
    """Distances of made-up rows to rows the target was trained on and to rows it never saw.

    Attributes:
        train_mean: mean Gower distance to the nearest training row.
        heldout_mean: to the nearest held-out private row.
        share: share of made-up rows that are nearer to a training row; one half without memorisation.
        low: lower end of its 95% interval.
        high: upper end.
        n: number of made-up rows.
    """

    train_mean: float | None
    heldout_mean: float | None
    share: float | None
    low: float | None
    high: float | None
    n: float | None


@dataclass(frozen=True)
class Entry:
    """What one attack of one seed left; every part may be missing.

    Attributes:
        run: name of the run folder.
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
        losses: training curves by name, ``iteration`` among them; None where a value is not finite.
        pseudo_labels: how the public rows were sorted.
        memorisation: distances to rows that were and were not trained on.
        task: sizes of the task.
        target_scores: accuracies and epochs of the target.
        evaluation_scores: those of the evaluation model.
        disjoint_scores: those of the one that shares no training row with the target.
    """

    run: str
    attack: str
    label: str
    dataset: str | None = None
    setting: str | None = None
    seed: Any = None
    search: str | None = None
    class_shapes: ClassShapes | None = None
    column_shapes: Mapping[str, float] = field(default_factory=dict)
    lowest: tuple[LowColumn, ...] = ()
    nearest: tuple[Nearest, ...] = ()
    losses: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    pseudo_labels: tuple[PseudoLabel, ...] = ()
    memorisation: Memorisation | None = None
    task: Mapping[str, float] = field(default_factory=dict)
    target_scores: Mapping[str, float] = field(default_factory=dict)
    evaluation_scores: Mapping[str, float] = field(default_factory=dict)
    disjoint_scores: Mapping[str, float] = field(default_factory=dict)


def load_entries(folder: Path, run: str) -> tuple[Entry, ...]:
    """The entries of ``inversion.json``; none where the run has no such file.

    Raises:
        UsageError: the file is no JSON of the known schema version, or an entry is no mapping with an attack.
    """
    file = folder / FILE_NAME
    entries = read_entries(file, SCHEMA_VERSION)
    return tuple(parse_entry(entry, run, f"{file}, entry {i}") for i, entry in enumerate(entries))


def parse_entry(raw: Any, run: str, where: str) -> Entry:
    """Read one entry; ``where`` names it in errors. A part that is missing or not of its kind is left out.

    Raises:
        UsageError: the entry is no mapping or names no attack.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("attack"), str):
        raise UsageError(f"{where}: expected a mapping with the name of an 'attack', got {raw!r}")
    task = _mapping(raw.get("task"))  # its classes may be counted or listed
    return Entry(
        run=run,
        attack=raw["attack"],
        label=text(raw.get("label")) or raw["attack"],
        dataset=text(raw.get("dataset")),
        setting=text(raw.get("setting")),
        seed=raw.get("seed"),
        search=text(raw.get("latent_search")),
        class_shapes=_class_shapes(_mapping(raw.get("class_shapes"))),
        column_shapes=_numbers(raw.get("column_shapes")),
        lowest=tuple(
            LowColumn(
                text(one.get("column")) or "not stated",
                text(one.get("kind")) or "",
                score,
                text(one.get("metric")) or "",
            )
            for one in _mappings(raw.get("lowest_columns"))
            if (score := number(one.get("score"))) is not None
        ),
        nearest=tuple(
            Nearest(
                text(one.get("class")) or "not stated",
                number(one.get("distance")),
                *({str(name): value for name, value in _mapping(one.get(part)).items()} for part in _PAIR),
            )
            for one in _mappings(raw.get("nearest"))
            if _mapping(one.get("reconstructed")) and _mapping(one.get("private"))
        ),
        losses={
            name: tuple(map(number, values))
            for name, values in _mapping(raw.get("losses")).items()
            if name in ("iteration", *LOSSES) and isinstance(values, list)
        },
        pseudo_labels=tuple(
            PseudoLabel(
                text(one.get("class")) or "not stated",
                number(one.get("public_rows")),
                number(one.get("used")),
                text(one.get("excluded")),
            )
            for one in _mappings(raw.get("pseudo_labels"))
        ),
        memorisation=_memorisation(_mapping(raw.get("memorisation"))),
        task=_numbers({key: len(found) if isinstance(found, list | dict) else found for key, found in task.items()}),
        target_scores=_numbers(raw.get("target_scores")),
        evaluation_scores=_numbers(raw.get("evaluation_scores")),
        disjoint_scores=_numbers(raw.get("disjoint_scores")),
    )


_PAIR = ("reconstructed", "private")


def _class_shapes(raw: Mapping[str, Any]) -> ClassShapes | None:
    classes = {
        text(one.get("class")) or "not stated": _numbers(one.get("scores")) for one in _mappings(raw.get("classes"))
    }
    named = [str(name) for name in raw.get("groups") or ()] if isinstance(raw.get("groups"), list) else []
    found = [name for scores in classes.values() for name in scores]
    groups = tuple(name for name in dict.fromkeys((*named, *found)) if name in found)
    return ClassShapes(groups, _numbers(raw.get("columns")), classes) if groups else None


def _memorisation(raw: Mapping[str, Any]) -> Memorisation | None:
    names = ("train_mean", "heldout_mean", "share_nearer_to_train", "low", "high", "n")
    values = [number(raw.get(name)) for name in names]
    return None if all(value is None for value in values) else Memorisation(*values)


def _mapping(raw: Any) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _mappings(raw: Any) -> Sequence[Mapping[str, Any]]:
    return [one for one in raw if isinstance(one, Mapping)] if isinstance(raw, list) else []


def _numbers(raw: Any) -> dict[str, float]:
    return {str(name): found for name, value in _mapping(raw).items() if (found := number(value)) is not None}
