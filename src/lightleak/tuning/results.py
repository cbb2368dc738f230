"""Files of a study: results.json, trials.parquet, and the best trial's config, for ``lightleak audit``."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import optuna
import pandas as pd

from lightleak.core.records import to_json
from lightleak.core.results import TrialRow
from lightleak.experiments.results import RESULTS_FILE, SCHEMA_VERSION
from lightleak.experiments.unit import write_whole
from lightleak.tuning.budget import with_measured_steps
from lightleak.tuning.parameter import is_number
from lightleak.tuning.study import DEFAULT, ERROR, RESUMED, WORKER, Study
from lightleak.tuning.trial import trial_folder, trial_tree

STATES: Mapping[str, Any] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
IMPORTANCE_TRIALS = 4
"""Complete trials below which importances are not computed."""

UNKNOWN: dict[str, Any] = {
    "seconds": None,
    "worker": None,
    "values": None,
    "parameters": {},
    "intermediate": [],
    "error": None,
}
"""Keys that every row of a study has."""

NOT_IN_TABLE = ("kind", "attack", "values", "parameters", "intermediate")
"""Keys of a row that are the same for all trials, or have columns of their own."""


def trial_rows(study: Study) -> list[TrialRow]:
    """Return a row for each trial that has started."""
    best, front = study.best_and_front()
    several, chosen = len(study.config.study.objectives) > 1, None if best is None else best.number
    return [
        replace(
            trial_row(study, trial),
            is_best=trial.number == chosen and not several,
            is_knee=trial.number == chosen and several,
            on_front=trial.number in front,
        )
        for trial in study.trials
        if trial.state.name in STATES
    ]


def trial_row(study: Study, trial: Any) -> TrialRow:
    """Return the part of a row that depends on the trial alone."""
    resumed = trial.user_attrs.get(RESUMED)  # seconds then count from there, without the time between
    began = trial.datetime_start if resumed is None else datetime.fromisoformat(resumed)
    names, complete = [one.metric for one in study.config.study.objectives], trial.state.name == "COMPLETE"
    return TrialRow(
        trial=trial.number,
        state=STATES[trial.state.name],
        seconds=None if trial.datetime_complete is None else (trial.datetime_complete - began).total_seconds(),
        worker=trial.user_attrs.get(WORKER),
        values=dict(zip(names, trial.values, strict=True)) if complete else {},
        parameters=study.config.space.values(trial.params),
        intermediate=tuple(sorted(trial.intermediate_values.items())),
        is_default=bool(trial.user_attrs.get(DEFAULT)),
        error=trial.user_attrs.get(ERROR),
    )


def tree_of(study: Study, trial: Any) -> dict[str, Any]:
    """Return the audit that a trial ran, including its steps."""
    tree = trial_tree(study.config, study.config.space.values(trial.params))
    return with_measured_steps(study.config.study, tree, trial_folder(study.folder, tree))


def importance(study: Study) -> dict[str, dict[str, float]]:
    """Return the share of each objective's variance that each searched setting explains (fANOVA, complete trials).

    Settings that apply only in some trials are left out. Empty if the trials are too few or all alike.
    """
    if len(study.complete) < IMPORTANCE_TRIALS:
        return {}
    found = {}
    for i, objective in enumerate(study.config.study.objectives):
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=study.config.study.seed)
        target = partial(_value_of, index=i)
        try:
            shares = optuna.importance.get_param_importances(study.optuna, evaluator=evaluator, target=target)
        except (ImportError, RuntimeError, ValueError):
            continue
        found[objective.metric] = {name: float(share) for name, share in shares.items() if math.isfinite(share)}
    return found


def _value_of(trial: Any, index: int) -> float:
    return float(trial.values[index])


def write_study(study: Study, held_out: Mapping[str, Any] | str | None, words: Mapping[str, str]) -> dict[str, Any]:
    """Write ``results.json``, ``trials.parquet`` and ``best.yaml`` and return the content of the first.

    Args:
        study: the study, over or not.
        held_out: the comparison of the best with the defaults, where there is one, or why it could not be made.
        words: ``setting`` and ``validation``, for the report.
    """
    settings = study.config.study
    rows = [UNKNOWN | row.to_dict() for row in trial_rows(study)]
    results: dict[str, Any] = to_json(
        {
            "schema_version": SCHEMA_VERSION,
            "rows": rows,
            "study": {
                "objectives": [
                    {"name": one.metric, "direction": one.direction, "words": one.words} for one in settings.objectives
                ],
                "parameters": study.config.space.describe(),
                "importance": importance(study),
                "sampler": settings.sampler.name,
                "pruner": settings.pruner.name,
                "asked": settings.trials,
                "budget": settings.budget.words,
                **words,
                "held_out": dict(held_out) if isinstance(held_out, Mapping) else None,
                **({"uncompared": held_out} if isinstance(held_out, str) else {}),
            },
        }
    )
    write_whole(study.folder / RESULTS_FILE, json.dumps(results, indent=1))
    _write_table(study.folder / "trials.parquet", rows)
    return results


def _write_table(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one row per trial; lists and mixed values as JSON text, which every reader of Parquet accepts."""
    flat = [
        {name: value for name, value in row.items() if name not in NOT_IN_TABLE}
        | {f"value {name}": value for name, value in (row["values"] or {}).items()}
        | {name: value if is_number(value) else json.dumps(value) for name, value in row["parameters"].items()}
        | {"intermediate": json.dumps(row["intermediate"])}
        for row in rows
    ]
    table = pd.DataFrame(flat)
    for name in table.columns:
        kinds = {type(value) for value in table[name].dropna()}
        if str in kinds and len(kinds) > 1:
            table[name] = [value if isinstance(value, str | None) else json.dumps(value) for value in table[name]]
    content = BytesIO()
    table.to_parquet(content, index=False)
    write_whole(file, content.getvalue())
