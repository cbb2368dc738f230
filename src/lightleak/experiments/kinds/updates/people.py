"""What a run leaves of every person behind its updates: ``people.json``, and ``people.csv`` for the owner."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from lightleak.core.csv_text import csv_text
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.people import CSV_FILE, KEY
from lightleak.core.records import write_record
from lightleak.core.small_groups import without_small_groups
from lightleak.core.stored import read_json, set_aside, write_json, write_whole
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.data.prepared import PreparedTable
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.unit import PEOPLE, Unit, finished_files, people_file, unit_file
from lightleak.metrics.identity import Behind, identify
from lightleak.metrics.people.evidence import Proposed
from lightleak.metrics.people.population import Population
from lightleak.metrics.people.revealed import people_of, table_of
from lightleak.metrics.people.rows import Ints

SUMMARY_FILE = "people.json"
"""Counts and shares alone, for ``results.json``: a redacted run keeps it, without small groups."""


def require_ids(captured: Sequence[tuple[Unit, GroundTruth | None]], experiment: Experiment) -> None:
    """Check that the recorded rows are those of the people whom the captures name.

    Raises:
        ObservationError: they are not, or a capture names none.
    """
    found = []
    for unit, truth in captured:
        if truth is None or truth.ids is None:
            raise ObservationError(f"{unit.id}: the capture does not say whose rows it holds")
        found.append((unit, truth, truth.ids))
    # Encoding checks a table column by column: many rows take hardly longer than those of one update.
    people = experiment.table.train.iloc[[one for _, _, ids in found for one in ids.tolist()]]
    sizes = [len(ids) for _, _, ids in found]
    inputs = experiment.encoder.encode(people).split(sizes)
    labels = experiment.encoder.encode_labels(people).split(sizes)
    for (unit, truth, _), own_inputs, own_labels in zip(found, inputs, labels, strict=True):
        if not (np.allclose(own_inputs, truth.inputs.float(), atol=1e-5) and own_labels.equal(truth.labels)):
            raise ObservationError(f"{unit.id}: the recorded rows are not those of the people whom the capture names")


def set_aside_without_people(config: AuditConfig, units: Sequence[Unit], folder: Path) -> None:
    """Have units run again that are finished but lack what they proposed for each person; none of a redacted run.

    Args:
        config: the attacks.
        units: the plan.
        folder: the run folder.
    """
    if config.redact and not (folder / PEOPLE).is_dir():
        return
    present = finished_files(folder)
    for unit in units:
        kept, people = unit_file(folder, unit.id), people_file(folder, unit.id)
        if unit.keeps_people and kept.name in present and not people.is_file() and unit.observe()[1] is not None:
            set_aside(kept, f"{people.name}, which belongs to it, is missing; both are made again")


def write_people(
    config: AuditConfig,
    units: Sequence[Unit],
    folder: Path,
    population: Callable[[], Population],
    whole: Sequence[str],
    places: Mapping[int, Ints] | None = None,
) -> None:
    """Write what the finished units say of every person.

    A finished run that was redacted keeps what it has: its private files are gone.

    Args:
        config: the attacks.
        units: all units of the run; they are finished.
        folder: the run folder.
        population: returns the people.
        whole: attacks on all updates of whole epochs or rounds.
        places: who is behind captured updates, by their ``batch_index``; see `captured_people`.
    """

    def proposed(unit: Unit) -> Proposed:
        found = Proposed.from_bytes(people_file(folder, unit.id).read_bytes())
        return found if places is None else found.named(places[unit.facts["batch_index"]])

    units = [one for one in units if one.keeps_people and (places is None or one.facts["batch_index"] in places)]
    if not units or not all(people_file(folder, unit.id).is_file() for unit in units):
        return
    people, entries, tables = population(), [], []
    counted: Literal["step", "round"] = "round" if config.protocol.is_fedavg else "step"
    for attack in dict.fromkeys(unit.attack for unit in units):
        updates = [proposed(unit) for unit in units if unit.attack == attack]
        found = people_of(attack, updates, people, counted, attack in whole)
        entries.append(write_record(without_small_groups(found) if config.redact else found))
        tables.append(table_of(attack, updates, people))
    write_json(folder / SUMMARY_FILE, {KEY: entries}, indent=1)
    if not config.redact:
        write_whole(folder / CSV_FILE, csv_text(pd.concat(tables), raw=config.raw_csv))


def captured_people(
    units: Sequence[Unit], table: PreparedTable | None, seed: int
) -> tuple[Population, dict[int, Ints]] | None:
    """Find who is behind captured updates, by the ``batch_index`` of each; None where no private row is known.

    Raises:
        UsageError: the columns of ``table`` are not those of the updates.
        DataError: a row is not a training row of ``table``.
    """
    found: dict[int, tuple[str, Behind]] = {}
    for unit in units:
        update, truth = unit.observe()
        if truth is not None and not is_image_state(update.encoder):
            name = unit.id.removeprefix(f"{unit.attack}-")
            behind = Behind(truth, TableEncoder.of(update), update.facts.epoch)
            found.setdefault(unit.facts["batch_index"], (name, behind))
    if not found:
        return None
    try:
        population, places = identify(dict(found.values()), table, seed)
    except UsageError:
        if table is None:  # updates of several tables have no people in common
            return None
        raise
    return population, {index: places[name] for index, (name, _) in found.items()}


def read_summary(folder: Path) -> Mapping[str, Any]:
    """The key of ``results.json``; empty where the people are not known, or the run is not finished."""
    file = folder / SUMMARY_FILE
    return read_json(file) if file.is_file() else {}
