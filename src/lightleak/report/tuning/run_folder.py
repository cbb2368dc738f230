"""Reading the folder of a study, finished or interrupted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lightleak.core.errors import UsageError
from lightleak.report.run_folder import RESULTS, SCHEMA_VERSION, RunFolder
from lightleak.report.tuning.fields import Fields
from lightleak.report.tuning.result import check_parameters, parse_study, parse_trial
from lightleak.report.tuning.study import TuningRun


def load_tuning_run(path: Path, name: str | None = None) -> TuningRun:
    """Read the folder of a study; only ``results.json`` has to be there.

    Raises:
        UsageError: ``results.json`` cannot be read, a field has a wrong type, or two rows have one number.
    """
    file = path / RESULTS
    if not file.is_file():
        raise UsageError(f"{path} is no folder of a study: {RESULTS} is missing")
    raw = Fields.of(_read_json(file), str(file))
    if raw.raw.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(f"{file}: schema_version must be {SCHEMA_VERSION}, got {raw.raw.get('schema_version')!r}")
    study = parse_study(raw.raw.get("study"), f"{file}, field 'study'")
    trials = []
    for index, row in enumerate(raw.entries("rows")):
        where = f"{file}, row {index}"
        trials.append(parse_trial(row, where))
        check_parameters(trials[-1], study, where)
    numbers = [one.number for one in trials]
    if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
        raise UsageError(f"{file}: each trial must have one row, got several of trial {', '.join(map(str, twice))}")
    return TuningRun(_folder(path, name), study, tuple(sorted(trials, key=lambda one: one.number)))


def check_comparable(runs: Sequence[TuningRun]) -> None:
    """See that studies of one report searched for the same.

    Raises:
        UsageError: their objectives differ.
    """
    found = {
        run.folder.name: ", ".join(
            f"{'maximise' if one.maximise else 'minimise'} {one.name}" for one in run.study.objectives
        )
        for run in runs
    }
    if len(set(found.values())) > 1:
        listed = "; ".join(f"{name}: {words}" for name, words in found.items())
        raise UsageError(f"a report is of studies with the same objectives: make one report of each; got {listed}")


def _folder(path: Path, name: str | None) -> RunFolder:
    """The folder without its results: rows of a study are no results of attacks."""
    config, environment = path / "config.yaml", path / "environment.json"
    found = _read_json(environment) if environment.is_file() else {}
    return RunFolder(
        name=name or path.resolve().name,
        path=path,
        results=(),
        metrics=pd.DataFrame(),
        config=config.read_text(encoding="utf-8") if config.is_file() else None,
        environment=found if isinstance(found, dict) else {},
    )


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: expected JSON, got {error}") from error
