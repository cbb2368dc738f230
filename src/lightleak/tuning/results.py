"""Files of a study: results.json, trials.parquet, and the best trial's config, for ``lightleak audit``."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from lightleak.experiments.results import SCHEMA_VERSION
from lightleak.experiments.settings import plain
from lightleak.experiments.unit import without_nan, write_whole
from lightleak.tuning.front import knee, pareto_front
from lightleak.tuning.parameter import is_number
from lightleak.tuning.study import DEFAULT, ERROR, RESUMED, WORKER, SharedStudy
from lightleak.tuning.trial import settled, trial_folder, trial_tree

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
IMPORTANCE_TRIALS = 4
"""Complete trials below which importances are not computed."""


def trial_rows(study: SharedStudy) -> list[dict[str, Any]]:
    """Return a row of results.json for each trial that has started."""
    best, front = best_and_front(study)
    several, chosen = len(study.config.study.objectives) > 1, None if best is None else best.number
    return [
        trial_row(study, trial)
        | {
            "is_best": not several and trial.number == chosen,
            "on_front": trial.number in front,
            "is_knee": several and trial.number == chosen,
        }
        for trial in study.trials
        if trial.state.name in STATES
    ]


def trial_row(study: SharedStudy, trial: Any) -> dict[str, Any]:
    """Return the part of a row that depends on the trial alone."""
    resumed = trial.user_attrs.get(RESUMED)  # seconds then count from there, without the time between
    began = trial.datetime_start if resumed is None else datetime.fromisoformat(resumed)
    lasted = None if trial.datetime_complete is None else trial.datetime_complete - began
    named = None
    if trial.state.name == "COMPLETE":
        named = {one.metric: value for one, value in zip(study.config.study.objectives, trial.values, strict=True)}
    return {
        "kind": "tuning",
        "trial": trial.number,
        "state": STATES[trial.state.name],
        "seconds": None if lasted is None else lasted.total_seconds(),
        "worker": trial.user_attrs.get(WORKER),
        "values": named,
        "parameters": study.config.space.values(trial.params),
        "intermediate": [[step, value] for step, value in sorted(trial.intermediate_values.items())],
        "is_default": bool(trial.user_attrs.get(DEFAULT)),
        "error": trial.user_attrs.get(ERROR),
    }


def best_and_front(study: SharedStudy) -> tuple[Any | None, set[int]]:
    """Return the best complete trial (for several objectives the knee of their front), and the front's numbers."""
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    if not complete:
        return None, set()
    signs = np.array([-1.0 if one.direction == "maximize" else 1.0 for one in study.config.study.objectives])
    values = np.array([trial.values for trial in complete]) * signs
    if len(signs) == 1:
        return complete[int(values[:, 0].argmin())], set()
    front = np.flatnonzero(pareto_front(values))
    return complete[front[knee(values[front])]], {complete[i].number for i in front}


def default_trial(study: SharedStudy) -> Any | None:
    """Return the complete trial of the defaults."""
    return next((one for one in study.trials if one.user_attrs.get(DEFAULT) and one.state.name == "COMPLETE"), None)


def tree_of(study: SharedStudy, trial: Any) -> dict[str, Any]:
    """Return the audit that a trial ran, including its steps."""
    tree = trial_tree(study.config, study.config.space.values(trial.params))
    folder = trial_folder(study.folder, tree)
    return settled(study.config.study, tree, folder) if folder.with_suffix(".yaml").is_file() else tree


def importance(study: SharedStudy) -> dict[str, dict[str, float]]:
    """Return the share of each objective's variance that each searched setting explains (fANOVA, complete trials).

    Settings that apply only in some trials are left out. Empty if the trials are too few or all alike.
    """
    import optuna

    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    if len(complete) < IMPORTANCE_TRIALS:
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


def write_study(study: SharedStudy, held_out: Mapping[str, Any] | None, words: Mapping[str, str]) -> dict[str, Any]:
    """Write ``results.json``, ``trials.parquet`` and ``best.yaml`` and return the content of the first.

    Args:
        study: the study, over or not.
        held_out: the comparison of the best with the defaults, where there is one.
        words: ``setting`` and ``validation``, for the report.
    """
    rows, settings = trial_rows(study), study.config.study
    results: dict[str, Any] = without_nan(
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
                "held_out": None if held_out is None else dict(held_out),
            },
        }
    )
    write_whole(study.folder / "results.json", json.dumps(results, indent=1))
    _write_table(study.folder / "trials.parquet", rows)
    return results


def write_best(file: Path, config: Any) -> None:
    """Write an audit's config for ``lightleak audit``."""
    write_whole(file, yaml.safe_dump(plain(config.to_dict()), sort_keys=False))


def _write_table(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one row per trial; lists and mixed values as JSON text, which every reader of Parquet accepts."""
    flat = [
        {name: value for name, value in row.items() if name not in ("kind", "values", "parameters", "intermediate")}
        | {f"value {name}": value for name, value in (row["values"] or {}).items()}
        | {name: value if is_number(value) else json.dumps(value) for name, value in row["parameters"].items()}
        | {"intermediate": json.dumps(row["intermediate"])}
        for row in rows
    ]
    table = pd.DataFrame(flat)
    for name in table.columns:
        kinds = {type(value) for value in table[name].dropna()}
        if str in kinds and len(kinds) > 1:
            table[name] = [
                value if value is None or isinstance(value, str) else json.dumps(value) for value in table[name]
            ]
    content = BytesIO()
    table.to_parquet(content, index=False)
    write_whole(file, content.getvalue())
