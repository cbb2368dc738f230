"""Objectives of a study: metrics of results rows, or of a training's validation."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from lightleak.core.bounds import require_one_of
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.tuning.parameter import is_number

Direction = Literal["maximize", "minimize"]

LEAKAGE = "leakage"
"""Cell accuracy above the random baseline's on the same updates."""

VALIDATION = "val/"
"""Prefix of what a training logs of its validation rows."""

BASELINE = "random"

_LESS_IS_BETTER = re.compile(r"^rmse$|_error$|loss|distance|seconds$")


@dataclass(frozen=True)
class ObjectiveConfig:
    """One metric to maximize or minimize.

    Attributes:
        metric: a number of the results rows (``cell_accuracy``, ``rmse``, ...), averaged over them; ``leakage``, cell
            accuracy above that of ``random`` on the same updates; or what the training logs of its validation rows
            (``val/accuracy``, ``val/loss``, ``val/auroc``), at its last epoch.
        direction: ``maximize`` or ``minimize``; left out, errors (``rmse``, ``*_error``), losses, distances and seconds
            are minimized, all else is maximized.
        where: fields and the value that rows must have to count (``attack: tableak``); ``attack`` is needed where an
            audit has several. Rows of a released model have the ``class`` ``all`` unless another is named.
    """

    metric: str
    direction: Direction | None = None
    where: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Choose the direction; raise `UsageError` for a metric of the test rows."""
        if self.metric.startswith("test/"):
            raise UsageError(
                f"study.objectives: {self.metric!r} is of the test rows, which must not choose settings; use "
                f"{VALIDATION}{self.metric.removeprefix('test/')}"
            )
        if self.direction is None:
            object.__setattr__(self, "direction", "minimize" if _LESS_IS_BETTER.search(self.metric) else "maximize")

    @property
    def is_of_training(self) -> bool:
        """Whether it is measured on the training alone."""
        return self.metric.startswith(VALIDATION)

    @property
    def words(self) -> str:
        """In words, for the report."""
        if self.is_of_training:
            return f"{self.metric.removeprefix(VALIDATION)} of the target on its validation rows"
        of = "".join(f" of {value}" if name == "attack" else f", {name} {value}" for name, value in self.where.items())
        named = "cell accuracy above guessing" if self.metric == LEAKAGE else self.metric.replace("_", " ")
        return f"{named}{of}"

    def require(self, attacks: Mapping[str, str], is_trained: bool) -> None:
        """Raise `UsageError` where an audit has no such number, or one for each of several attacks.

        Args:
            attacks: names of the audit's attacks by label, which is the name where they have no label of their own.
            is_trained: whether a target is trained that logs scores of its validation rows.
        """
        place, known = f"study.objectives: {self.metric!r}", sorted({*attacks.values()})
        if self.is_of_training:
            if not is_trained:
                raise UsageError(f"{place} needs a training; training.epochs is 0")
            return
        attack, label = self.where.get("attack"), self.where.get("label")
        for key, value, allowed in (("attack", attack, known), ("label", label, sorted(attacks))):
            if value is not None:
                require_one_of(f"study.objectives: where.{key}", value, allowed)
        if self.metric == LEAKAGE and BASELINE not in known:
            raise UsageError(f"{place} is measured against {BASELINE!r}, which attacks does not name")
        counted = [one for one, name in attacks.items() if attack in (None, name) and label in (None, one)]
        if self.metric == LEAKAGE:
            counted = [one for one in counted if attacks[one] != BASELINE]
        if len(counted) > 1:
            key, names = ("attack", known) if attack is None else ("label", sorted(counted))
            raise UsageError(f"{place} of which attack? add where: {{{key}: NAME}}, one of {', '.join(names)}")

    def of_run(self, rows: Sequence[Mapping[str, Any]], folder: Path) -> float:
        """Return the value of a run, from its rows or from what the training in its folder logged.

        Raises:
            LightLeakError: it is not finite.
            UsageError: the run has none.
        """
        value = self.of_training(folder) if self.is_of_training else self.of_rows(rows)
        if value is not None and not math.isfinite(value):
            raise LightLeakError(f"study.objectives: {self.metric!r} is {value}")
        if value is None:
            known = sorted({name for row in rows for name, entry in row.items() if isinstance(entry, float)})
            raise UsageError(f"study.objectives: no row has {self.metric!r} {self.where}; rows have {known}")
        return value

    def of_rows(self, rows: Iterable[Mapping[str, Any]]) -> float | None:
        """Return the mean over the rows that count; ``None`` if none has the metric.

        A mean leakage below 0 is 0: an attacker can always guess.

        >>> rows = [{"unit": i, "attack": name, "rmse": 4.0 - i} for i, name in enumerate("aab")]
        >>> ObjectiveConfig("rmse", "minimize", {"attack": "a"}).of_rows(rows)
        3.5
        """
        values = self.by_observation(list(rows))
        if not values:
            return None
        mean = math.fsum(values.values()) / len(values)
        return max(mean, 0.0) if self.metric == LEAKAGE else mean

    def by_observation(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Values of the rows that count, by unit; of a released model those of all classes together by default."""
        wanted = {"class": "all", **self.where} if any(row.get("class") == "all" for row in rows) else self.where
        metric = "cell_accuracy" if self.metric == LEAKAGE else self.metric
        counted = {
            str(row["unit"]): (row, float(row[metric]))
            for row in rows
            if is_number(row.get(metric))
            and all(row.get(name) == value for name, value in wanted.items())
            and not (self.metric == LEAKAGE and row.get("attack") == BASELINE)
        }
        if self.metric != LEAKAGE:
            return {unit: value for unit, (_, value) in counted.items()}
        guesses = {_update_key(row): float(row[metric]) for row in rows if row.get("attack") == BASELINE}
        return {
            unit: value - guesses[_update_key(row)]
            for unit, (row, value) in counted.items()
            if _update_key(row) in guesses
        }

    def of_training(self, folder: Path) -> float | None:
        """Return the last logged value of a training: ``None`` if nothing was logged, NaN if NaN was."""
        file = folder / "metrics.csv"
        if not file.is_file() or not file.stat().st_size:
            return None
        logged = pd.read_csv(file, dtype=str, keep_default_na=False)  # an epoch's NaN is no empty cell
        values = [text for text in logged[self.metric] if text] if self.metric in logged else []
        return float(values[-1]) if values else None


def _update_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies an attacked update within a run."""
    return tuple(row.get(name) for name in ("source", "epoch", "batch_size", "batch_index", "seed"))
