"""A trial as a pack: run by a worker of any engine, reported to Optuna's storage while it runs."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lightleak.data.sources import dataset_folder
from lightleak.experiments.pack import Files, Pack, Report, Shared, contents
from lightleak.experiments.settings import plain
from lightleak.experiments.unit import write_whole
from lightleak.tuning.config import StudyConfig
from lightleak.tuning.pruning import JudgedTrial
from lightleak.tuning.samplers import build_pruner
from lightleak.tuning.study import DEFAULT, WORKER, open_storage
from lightleak.tuning.trial import TRIALS, run_trial, trial_folder


@dataclass(frozen=True)
class TableFiles(Shared):
    """The files of a table, for workers on machines that may not have them.

    Attributes:
        data: the section ``data`` of the config.
        files: their content by name.
    """

    data: Mapping[str, Any]
    files: Files

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "TableFiles":
        """Read the files that a section ``data`` names, or those of its dataset."""
        named = [Path(data[key]) for key in ("table", "schema") if data.get(key)]
        files = {path.name: path.read_bytes() for path in named}
        if "name" in data and (folder := dataset_folder(data["name"], data.get("folder"))).is_dir():
            files |= contents({folder.name: folder})
        return cls(plain(data), files)

    def unpack(self, tree: Mapping[str, Any], place: Path) -> dict[str, Any]:
        """Write the files and return an audit that reads them, if it is an audit of this table."""
        source = {key: tree["data"].get(key) for key in ("name", "table", "schema", "folder")}
        if not self.files or source != {key: self.data.get(key) for key in source}:
            return dict(tree)
        for name, content in self.files.items():
            write_whole(place / name, content)
        found = {key: str(place / Path(source[key]).name) for key in ("table", "schema") if source[key]}
        return {**tree, "data": {**tree["data"], **(found or {"folder": str(place)})}}


@dataclass(frozen=True)
class TrialPack(Pack):
    """A trial of a study.

    Attributes:
        number: of the trial.
        trial_id: its id in the storage.
        study: how it is judged.
        study_name: name of the study in the storage.
        storage: see `lightleak.tuning.study.open_storage`.
        tree: the audit.
        tables: the files of the audit's table, where workers do not share the driver's.
    """

    number: int
    trial_id: int
    study: StudyConfig
    study_name: str
    storage: str
    tree: Mapping[str, Any]
    tables: TableFiles | None = None

    @property
    def ids(self) -> Sequence[str]:
        """The trial."""
        return [f"trial-{self.number}"]

    @property
    def cost(self) -> float:
        """The same for all trials."""
        return 1.0

    @property
    def values_file(self) -> str:
        """The file that receives the values; ``null`` where the trial was pruned."""
        return f"{TRIALS}/trial-{self.number}.json"

    def inputs(self, folder: Path) -> Mapping[str, Path]:
        """Return the steps that an earlier trial of the same settings measured."""
        steps = trial_folder(folder, self.tree).with_suffix(".json")
        return {str(steps.relative_to(folder)): steps} if steps.is_file() else {}

    def run(self, folder: Path, device: torch.device, report: Report) -> None:
        """Run or resume the trial and write its values."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        storage, pruner = open_storage(self.storage), build_pruner(self.study.pruner)
        study = optuna.load_study(study_name=self.study_name, storage=storage, pruner=pruner)
        trial = optuna.Trial(study, self.trial_id)
        trial.set_user_attr(WORKER, f"{socket.gethostname()} {os.getpid()}")
        judged = JudgedTrial(trial, spare=bool(trial.user_attrs.get(DEFAULT)))
        values: tuple[float, ...] | None
        with TemporaryDirectory() as place:
            tree = self.tree if self.tables is None else self.tables.unpack(self.tree, Path(place))
            here = {**tree, "device": str(device), "workers": 1, "engine": "local"}
            try:
                values = run_trial(self.study, here, trial_folder(folder, self.tree), judged)
            except optuna.TrialPruned:
                values = None
        write_whole(folder / self.values_file, json.dumps(values))
