"""The unit of a campaign: one attack on one observation, and what is kept of it."""

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

from lightleak.attacks import ATTACKS, UpdateAttack
from lightleak.core.csv_text import csv_text
from lightleak.core.errors import LightLeakError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.records import to_json
from lightleak.core.seeds import derive_seed
from lightleak.core.stored import write_json
from lightleak.core.stored import write_whole as write_whole
from lightleak.data.encoder import TableEncoder
from lightleak.experiments.observed import Observed as Observed
from lightleak.experiments.took import Took
from lightleak.metrics.certificate import certificate_facts, certified_accuracy
from lightleak.metrics.matched_batch import MatchedBatch
from lightleak.metrics.people.evidence import Proposed
from lightleak.metrics.score import match, matched, score


class StoredUpdate(partial[Observed]):
    """Observes an update that is stored on this machine: what reads it, with its folder."""


def returned(observed: Observed) -> Observed:
    """Observe what is in memory."""
    return observed


@dataclass(frozen=True)
class Unit:
    """One attack on one observation.

    Attributes:
        id: unique in the run, and a file name.
        attack: attack name.
        options: its settings.
        observe: makes or reads the observation (and the truth, where the run owns it).
        facts: columns of the results row other than the scores; ``batch_size`` is required.
        seed: root of the unit's random streams.
        stream: name of those streams; empty: the id. Units that are to be compared may share one.
        keeps_people: keep what the attack proposes for each person behind the update (`people_file`).
    """

    id: str
    attack: str
    options: dict[str, Any]
    observe: Callable[[], Observed]
    facts: dict[str, Any]
    seed: int
    stream: str = ""
    keeps_people: bool = False

    def shipped(self) -> "Unit":
        """Return the unit with its observation loaded, for a machine that may not have its files."""
        if not isinstance(self.observe, StoredUpdate):
            return self
        return replace(self, observe=partial(returned, self.observe()))

    def make_attack(self, **changed: Any) -> UpdateAttack:
        """Return the attack with its settings, some of them changed."""
        return ATTACKS.get(self.attack)(**{**self.options, **changed})

    @property
    def cost(self) -> float:
        """Relative work, for the progress bar: candidates, rows, the epochs that take each, and steps."""
        settings = self.make_attack().options()
        return float(candidates(settings) * largest(settings, "steps") * self.rows)

    @property
    def rows(self) -> int:
        """Rows that one candidate is made of: a FedAvg client takes its own in every local epoch."""
        return int(self.facts["batch_size"] * (self.facts.get("local_epochs") or 1))


def candidates(settings: Mapping[str, Any]) -> int:
    """How many candidates an attack with these settings works on at once; of a composed one, its largest stage.

    >>> candidates({"restarts": 30}), candidates({"labels": "true", "exact": {"chains": 192}, "tableak": {}})
    (30, 192)
    """
    return max(largest(settings, "restarts"), largest(settings, "chains"))


def largest(settings: Mapping[str, Any], name: str) -> int:
    """A setting of an attack, the largest among its stages' where it is composed; 1 where it has none."""
    stages = [value for value in settings.values() if isinstance(value, Mapping)]
    return int(max(of.get(name, 1) for of in (settings, *stages)))


Kept = Literal["values", "raw", "marks", "nothing"]
"""What is kept of each cell: its values, with formulas escaped or ``raw``, only whether it was right (a redacted run),
or nothing (a reproduction)."""


def kept_cells(redact: object, raw_csv: bool = False) -> Kept:
    """A redacted run keeps of every cell only whether it was right.

    >>> kept_cells(redact=True)
    'marks'
    """
    return "marks" if redact else "raw" if raw_csv else "values"


SCORES = (
    "cell_accuracy",
    "categorical_accuracy",
    "numerical_accuracy",
    "exact_match_rate",
    "close_match_rate",
    "rmse",
)
"""Columns every row has, empty where there is no truth to score against."""


LONGEST_NAME = 180
"""Characters kept of a text in a file name; systems allow 255, the rest is for digest and ending."""


def file_name(text: str) -> str:
    """Return text as a file name, with a digest where characters had to be replaced or cut off.

    >>> file_name("provfl_b-C1-sex=Male"), file_name("age=<30") == file_name("age=>30")
    ('provfl_b-C1-sex=Male', False)
    """
    safe = re.sub(r"[^A-Za-z0-9._=+-]", "_", text)[:LONGEST_NAME]
    return safe if safe == text else f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def unit_file(folder: Path, unit_id: str) -> Path:
    """Where the row of a finished unit is kept."""
    return folder / "units" / f"{unit_id}.json"


PEOPLE = "people"
"""Folder of a run with what attacks proposed for each person; private."""


def people_file(folder: Path, unit_id: str) -> Path:
    """Where `lightleak.metrics.people.evidence.Proposed` of a unit is kept."""
    return folder / PEOPLE / f"{unit_id}.npz"


def finished_files(folder: Path) -> set[str]:
    """Names of the files of finished units, by a fresh listing.

    On a network file system a process that has once found a file missing may believe so for a minute; what it lists
    anew it sees. So this decides where a mistake would do work twice or replace what is kept.
    """
    try:
        with os.scandir(folder / "units") as entries:
            return {entry.name for entry in entries}
    except FileNotFoundError:
        return set()


def run_pack(
    pack: Sequence[Unit], folder: Path, device: torch.device, kept: Kept, report: Callable[[float], None]
) -> None:
    """Attack the observations of a pack in one call and keep what is not kept yet.

    Args:
        pack: units of one attack, with the same settings and shapes.
        folder: the run folder.
        device: where the attack runs.
        kept: what is kept of each cell.
        report: called with work done, in the unit of `Unit.cost`.

    Raises:
        LightLeakError: the memory of a GPU does not suffice.
    """
    observed = [unit.observe() for unit in pack]
    attack, cost = pack[0].make_attack(), pack[0].cost
    seeds = [derive_seed(unit.seed, unit.attack, unit.stream or unit.id) for unit in pack]
    updates = [update for update, _ in observed]
    try:
        called = attack.on_card(device)  # what one call takes does not depend on what is free there
        with Took() as took:
            found = list(called.run_many(updates, seeds, device, lambda fraction: report(fraction * cost)))
    except torch.OutOfMemoryError as error:
        raise LightLeakError(
            f"{attack.name} on {len(pack)} updates ran out of memory on {device}: if other programs use it, wait for "
            "them; otherwise remove packs.json from the run folder, so that a number that fits is found again, or set "
            "memory_mb of the attack"
        ) from error
    if len(found) != len(updates):
        raise LightLeakError(f"run_many of {attack.name!r} returned {len(found)} of {len(updates)} reconstructions")
    present = finished_files(folder)
    for unit, seen, reconstruction in zip(pack, observed, found, strict=True):
        if unit_file(folder, unit.id).name not in present:
            keep_result(unit, seen, reconstruction, folder, kept, took.facts(len(pack)))


def keep_result(
    unit: Unit, observed: Observed, reconstruction: Reconstruction, folder: Path, kept: Kept, took: Mapping[str, Any]
) -> None:
    """Write the row of a finished unit, and what is kept of its cells.

    Args:
        unit: the unit.
        observed: its observation, and the rows behind it where they are known.
        reconstruction: what the attack found.
        folder: the run folder.
        kept: what is kept of each cell.
        took: ``cpu_seconds`` and ``peak_memory`` of the attack, where they are known.
    """
    update, truth = observed
    encoder = TableEncoder.of(update)
    threat = reconstruction.threat_model.threat(encoder.includes_attacked)
    row = {"unit": unit.id, **unit.facts, "attack": unit.attack, "seed": unit.seed}
    batch = None if truth is None else match(reconstruction, truth, encoder)
    row |= dict.fromkeys(SCORES) if truth is None else score(reconstruction, truth, encoder, batch)
    row |= certificate_facts(reconstruction.certificate)
    row |= {} if truth is None else certified_accuracy(reconstruction, truth, encoder, batch)
    row |= {
        "seconds": reconstruction.seconds,
        **took,
        "loss": reconstruction.loss,
        "threat_model": threat.describe(),
        "threat": threat.to_dict(),
        "options": unit.make_attack().options() | dict(reconstruction.settings),
        "reconstruction": None,
    }
    if kept != "nothing":
        cells = unscored(reconstruction) if truth is None else scored(reconstruction, truth, encoder, batch)
        if kept == "marks":
            cells[["true", "reconstructed"]] = ""
        file = Path("reconstructions") / f"{unit.id}.csv"
        write_whole(folder / file, csv_text(cells, raw=kept == "raw"))
        row["reconstruction"] = str(file)
    if unit.keeps_people and truth is not None and batch is not None:
        spent = {"peak_memory": 0} | {name: value for name, value in took.items() if value is not None}
        # A server that records what clients send knows rounds alone: all its steps are 0.
        when = {"epoch": update.facts.epoch, "step": max(update.facts.step, update.facts.epoch)}
        proposed = Proposed.of(reconstruction, truth, encoder, batch, **when, **spent)
        write_whole(people_file(folder, unit.id), proposed.to_bytes())
    write_json(unit_file(folder, unit.id), to_json(row))


def scored(
    reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder, batch: MatchedBatch | None = None
) -> pd.DataFrame:
    """Cells in the long form of `matched`, and what the attack knows of the row without the truth.

    ``status`` is of its categories and label, ``digits`` says whether its numbers are certified as well, and
    ``normalized_proven``, where BatchNorm's statistics are unknown, whether its normalized numbers are.
    """
    batch = batch or match(reconstruction, truth, encoder)
    return _with_claims(matched(reconstruction, truth, encoder, batch), reconstruction, batch.order.tolist())


def unscored(reconstruction: Reconstruction) -> pd.DataFrame:
    """As `scored`; for want of a truth ``true`` and ``correct`` are empty."""
    names = list(reconstruction.rows.columns)
    n = len(reconstruction.rows)
    cells = pd.DataFrame(
        {
            "row": [row for row in range(n) for _ in names],
            "column": names * n,
            "true": "",
            "reconstructed": [reconstruction.rows[name].iloc[row] for row in range(n) for name in names],
            "correct": "",
            "entropy": [reconstruction.uncertainty[name].iloc[row] for row in range(n) for name in names],
        }
    )
    return _with_claims(cells, reconstruction, range(n))


def _with_claims(cells: pd.DataFrame, reconstruction: Reconstruction, order: Sequence[int]) -> pd.DataFrame:
    """Cells with what is claimed of their row; ``order`` maps rows of the table to reconstructed rows."""
    certificate = reconstruction.certificate
    if certificate is None:
        return cells.assign(status="", digits="")
    rows = [order[row] for row in cells["row"]]
    said = {"status": certificate.status, "digits": certificate.digits}
    if certificate.assumed_statistics:
        said["normalized_proven"] = certificate.normalized_proven
    return cells.assign(**{name: [of_rows[i] for i in rows] for name, of_rows in said.items()})
