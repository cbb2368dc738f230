"""Trials on an engine: what the study records of their ends, and that workers need nothing of the driver's machine."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.experiments.engine import Engine, LocalEngine, Watch
from lightleak.experiments.pack import Finished, Pack, contents, run_in
from lightleak.tuning import run, trial
from lightleak.tuning.study import MAX_RETRIES, Study, served
from lightleak.tuning.trial import TableFiles, TrialPack, trial_tree


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the next trials report and come to, in place of an attack; an exception is raised."""
    coming: list[Any] = []

    def run_trial(study: Any, tree: Any, folder: Path, trial: Any) -> tuple[float]:
        value = coming.pop(0)
        if isinstance(value, Exception):
            raise value
        trial.report(value, 1)
        if trial.should_prune():
            from optuna import TrialPruned

            raise TrialPruned
        return (value,)

    monkeypatch.setattr(trial, "run_trial", run_trial)
    return coming


def run_all(study: Study, silent: Any) -> None:
    run.run_trials(study, LocalEngine(torch.device("cpu")), silent)


def states(study: Study) -> list[str]:
    return [trial.state.name for trial in study.trials]


def test_trials_are_pruned_but_never_the_defaults(
    tmp_path: Path, tiny_study: Any, silent: Any, values: list[Any]
) -> None:
    class LastFirst(Engine):
        """Runs the first pack after all others."""

        device, slots = torch.device("cpu"), 5

        def run(self, packs: Iterable[Pack], folder: Path, watch: Watch = lambda *_: None) -> Iterator[Finished]:
            first, *others = packs
            yield from LocalEngine(self.device).run([*others[:2], first, *others[2:]], folder)

        def close(self) -> None: ...

    study = Study(tiny_study(study__pruner={"name": "median", "n_startup_trials": 0}), tmp_path)
    values += [0.5, 0.6, 0.1, 0.1]
    run.run_trials(study, LastFirst(), silent)
    assert states(study) == ["COMPLETE", "COMPLETE", "COMPLETE", "PRUNED"], "others with the same value are pruned"


def test_a_trial_that_fails_counts_and_the_others_continue(
    tmp_path: Path, tiny_study: Any, silent: Any, values: list[Any]
) -> None:
    values += [0.5, UsageError("no"), KeyError("a bug"), RuntimeError("out of memory")]
    run_all(study := Study(tiny_study(), tmp_path), silent)
    assert states(study) == ["COMPLETE", "FAIL", "FAIL", "FAIL"]
    assert [trial.user_attrs["error"] for trial in study.trials[1:]] == [
        "UsageError: no",
        "KeyError: 'a bug'",
        "RuntimeError: out of memory",
    ]


@pytest.mark.parametrize(
    ("error", "kept"),
    [(UsageError("no"), "FAIL"), (RuntimeError("CUDA error: broken"), "FAIL"), (OSError(), "RUNNING")],
)
def test_errors_that_no_other_trial_can_avoid_end_the_study(
    tmp_path: Path, tiny_study: Any, silent: Any, values: list[Any], error: Exception, kept: str
) -> None:
    values += [error]
    with pytest.raises(type(error)):
        run_all(Study(tiny_study(), tmp_path), silent)
    assert states(Study(tiny_study(), tmp_path)) == [kept]


def test_a_fault_of_a_machine_is_not_counted_against_its_trial(
    tmp_path: Path, tiny_study: Any, silent: Any, values: list[Any]
) -> None:
    config = tiny_study(study__trials=1)
    for _ in range(MAX_RETRIES + 1):
        values[:] = [OSError("no space left")]
        with pytest.raises(OSError, match="no space left"):
            run_all(Study(config, tmp_path), silent)
    values[:] = [0.5]
    run_all(study := Study(config, tmp_path), silent)
    assert states(study) == ["COMPLETE"]


def pack_of(study: Study, storage: str, tables: TableFiles | None) -> TrialPack:
    asked = study.ask()
    assert asked is not None
    trial, chosen = asked
    tree = trial_tree(study.config, chosen)
    return TrialPack(trial.number, trial._trial_id, study.config.study, study.name, storage, tree, tables)


def test_a_worker_needs_no_file_of_the_driver(tmp_path: Path, tiny_study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("age,ill\n" + "".join(f"{20 + i % 50},{'yes' if i % 3 else 'no'}\n" for i in range(90)))
    data = {"table": str(table), "label": "ill"}
    study = Study(tiny_study(data=data, study__pruner="median", study__report_every=1), tmp_path)
    with served(study.storage, "127.0.0.1") as storage:
        pack = pack_of(study, storage, TableFiles.read(data))
        table.unlink()
        files, error = run_in(tmp_path / "worker", pack, {}, torch.device("cpu"), lambda work: None)
    assert error is None
    study.tell(pack.number, json.loads(files[pack.values_file]))
    assert sorted(study.trials[0].intermediate_values) == [1, 2], "reports arrive through the proxy"
    assert {Path(name).parts[0] for name in files} == {"trials"}, "the table does not come back"


def test_datasets_are_sent_with_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "adult"
    folder.mkdir(parents=True)
    (folder / "adult.data").write_text("rows")
    data = {"name": "adult", "folder": str(tmp_path / "data")}
    tree = TableFiles.read(data).unpack({"data": {**data, "encoding": "onehot"}}, tmp_path / "there")
    assert contents({"": tmp_path / "there"}) == {"adult/adult.data": b"rows"}
    assert tree["data"] == {"name": "adult", "folder": str(tmp_path / "there"), "encoding": "onehot"}
    other = {"data": {"name": "german"}}
    assert TableFiles.read(data).unpack(other, tmp_path / "elsewhere") == other
