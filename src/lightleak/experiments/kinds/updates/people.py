"""What a run of whole epochs or rounds leaves of every person: ``people.json``, and ``people.csv`` for the owner."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from lightleak.core.csv_text import csv_text
from lightleak.core.errors import ObservationError
from lightleak.core.people import CSV_FILE, KEY
from lightleak.core.records import write_record
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.unit import PEOPLE, Unit, people_file, write_whole
from lightleak.metrics.people import Population, Proposed, people_of, table_of

SUMMARY_FILE = "people.json"
"""Counts and shares alone, for ``results.json``: a redacted run keeps it."""


def require_ids(unit: Unit, experiment: Experiment) -> None:
    """Check that the recorded rows are those of the people whom the capture names.

    Raises:
        ObservationError: they are not, or it names none.
    """
    _, truth = unit.observe()
    if truth is None or truth.ids is None:
        raise ObservationError(f"{unit.id}: the capture does not say whose rows it holds")
    people = experiment.table.train.iloc[truth.ids.tolist()]
    inputs, labels = experiment.encoder.encode(people), experiment.encoder.encode_labels(people)
    if not (np.allclose(inputs, truth.inputs.float(), atol=1e-5) and labels.equal(truth.labels)):
        raise ObservationError(f"{unit.id}: the recorded rows are not those of the people whom the capture names")


def write_people(config: AuditConfig, experiment: Experiment, units: Sequence[Unit], folder: Path) -> None:
    """Write what the finished units of whole epochs or rounds say of every person.

    A finished run that was redacted keeps what it has: its private files are gone.

    Args:
        config: the audit.
        experiment: its parts.
        units: all units of the run; they are finished.
        folder: the run folder.
    """
    units = [unit for unit in units if unit.keeps_people]
    if not units or not all(people_file(folder, unit.id).is_file() for unit in units):
        return
    population = Population.of(experiment.table, experiment.encoder, experiment.marginals, config.seed)
    counted: Literal["step", "round"] = "round" if config.protocol.is_fedavg else "step"
    entries, tables = [], []
    for attack in config.attacks:
        found = [
            Proposed.from_bytes(people_file(folder, unit.id).read_bytes()) for unit in units if unit.attack == attack
        ]
        entries.append(write_record(people_of(attack, found, population, counted)))
        tables.append(table_of(attack, found, population))
    write_whole(folder / SUMMARY_FILE, json.dumps({KEY: entries}, indent=1))
    if not config.redact:
        write_whole(folder / CSV_FILE, csv_text(pd.concat(tables), raw=config.raw_csv))


def read_summary(folder: Path) -> Mapping[str, Any]:
    """The key of ``results.json``; empty where the run captured no whole epoch or round, or is not finished."""
    file = folder / SUMMARY_FILE
    found: Mapping[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


PRIVATE = (PEOPLE,)
"""Folders that no redacted run keeps."""
