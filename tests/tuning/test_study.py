"""Trials are asked for once, told once, and repeated when their driver died; nothing is counted twice."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.tuning import study as module
from lightleak.tuning.study import DEFAULT, ERROR, JOURNAL, RESUMED, Study

RATE = "attacks.tableak.learning_rate"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> None:
    """Folders of the studies; a run opens them before it opens the study."""
    for name in ("study", "whole", "parts"):
        (tmp_path / name).mkdir()


def states(study: Study) -> Counter[str]:
    return Counter(trial.state.name for trial in study.trials)


def run_all(study: Study, until: int = 99) -> list[dict[str, Any]]:
    """Every trial that is left below a number, told a value that its settings decide; what was suggested, in order."""
    seen = []
    while sum(trial.state.is_finished() for trial in study.trials) < until and (asked := study.ask()) is not None:
        trial, values = asked
        seen.append(values)
        study.tell(trial.number, [values[RATE]])
    return seen


def test_the_defaults_come_first_and_no_trial_more_than_asked_for(tmp_path: Path, tiny_study: Any) -> None:
    study = Study(tiny_study(), tmp_path / "study")
    seen = run_all(study)
    assert seen[0] == {"attacks.tableak.restarts": 3, RATE: 0.06}
    assert study.trials[0].user_attrs[DEFAULT] and states(study) == {"COMPLETE": 4}
    assert study.ask() is None


def test_running_trials_count_as_begun(tmp_path: Path, tiny_study: Any) -> None:
    study = Study(tiny_study(study__trials=2), tmp_path / "study")
    first, second = study.ask(), study.ask()
    assert first is not None and second is not None and study.ask() is None
    study.tell(second[0].number, None)
    study.tell(first[0].number, [0.5])
    assert states(study) == {"COMPLETE": 1, "PRUNED": 1} and study.ask() is None


def test_a_resumed_study_continues_as_if_it_had_not_stopped(tmp_path: Path, tiny_study: Any) -> None:
    config = tiny_study(study__trials=14)
    whole = run_all(Study(config, tmp_path / "whole"))
    parts = run_all(Study(tiny_study(study__trials=6), tmp_path / "parts"))
    parts += run_all(Study(config, tmp_path / "parts"))
    assert parts == whole


@pytest.mark.parametrize("deaths", [[0], [1, 3], [2, 2, 5]], ids=str)
def test_a_study_whose_drivers_died_ends_as_if_they_had_not(tmp_path: Path, tiny_study: Any, deaths: list[int]) -> None:
    config = tiny_study(study__trials=6, study__sampler={"name": "tpe", "n_startup_trials": 2})
    run_all(whole := Study(config, tmp_path / "whole"))
    for number in deaths:
        run_all(Study(config, tmp_path / "parts"), until=number)
        begun = Study(config, tmp_path / "parts").ask()
        assert begun is not None and begun[0].number == number
    run_all(parts := Study(config, tmp_path / "parts"))
    assert states(parts) == {"COMPLETE": 6}
    for got, expected in zip(parts.trials, whole.trials, strict=True):
        assert (got.params, got.values) == (expected.params, expected.values)
        assert got.user_attrs.get(DEFAULT) == expected.user_attrs.get(DEFAULT)
    assert [bool(trial.user_attrs.get(RESUMED)) for trial in parts.trials] == [i in deaths for i in range(6)]


def test_a_trial_that_kills_every_driver_is_given_up(tmp_path: Path, tiny_study: Any) -> None:
    for _ in range(module.MAX_RETRIES + 1):
        begun = Study(tiny_study(study__trials=2), tmp_path / "study").ask()
        assert begun is not None and begun[0].number == 0
    run_all(study := Study(tiny_study(study__trials=2), tmp_path / "study"))
    assert states(study) == {"FAIL": 1, "COMPLETE": 1}
    assert study.trials[0].user_attrs[ERROR] == "every process that ran it died, 4 in all"


def test_an_interruption_is_not_counted_against_its_trial(tmp_path: Path, tiny_study: Any) -> None:
    for _ in range(module.MAX_RETRIES + 2):
        study = Study(tiny_study(study__trials=1), tmp_path / "study")
        study.ask()
        study.forgive()
    run_all(study := Study(tiny_study(study__trials=1), tmp_path / "study"))
    assert states(study) == {"COMPLETE": 1}


def test_a_default_that_died_before_it_asked_for_its_settings_is_the_default_again(
    tmp_path: Path, tiny_study: Any
) -> None:
    Study(tiny_study(study__trials=1), tmp_path / "study").optuna.ask()
    (values,) = run_all(Study(tiny_study(study__trials=1), tmp_path / "study"))
    assert values == {"attacks.tableak.restarts": 3, RATE: 0.06}


def test_settings_that_an_earlier_trial_had_are_not_run_again(tmp_path: Path, tiny_study: Any) -> None:
    few = {"search": "choice", "of": [0.1, 0.2], "default": 0.1}
    config = tiny_study(
        attacks={"tableak": {"learning_rate": few}, "random": {}}, study__trials=8, study__sampler="random"
    )
    study, ran = Study(config, tmp_path / "study"), []
    while (asked := study.ask()) is not None:
        trial, values = asked
        ran.append(values[RATE])
        trial.report(values[RATE], 1)
        study.tell(trial.number, [values[RATE]])
    assert sorted(ran) == [0.1, 0.2] and states(study) == {"COMPLETE": 8}
    assert all(trial.values == [trial.params[RATE]] for trial in study.trials)
    assert all(trial.intermediate_values == {1: trial.params[RATE]} for trial in study.trials)


def test_a_journal_that_ends_within_a_record_loses_that_record_alone(
    tmp_path: Path, tiny_study: Any, caplog: pytest.LogCaptureFixture
) -> None:
    config, folder = tiny_study(study__trials=4), tmp_path / "study"
    whole = run_all(Study(config, folder))
    journal = folder / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-20])
    study = Study(config, folder)
    assert "ended within a record" in caplog.text and len(list(folder.glob("journal.log.damaged-*"))) == 1
    assert states(study) == {"COMPLETE": 3, "RUNNING": 1}
    assert run_all(study) == whole[-1:] and states(Study(config, folder)) == {"COMPLETE": 4}


def test_a_process_that_dies_with_the_journal_locked_holds_nobody_up(tmp_path: Path, tiny_study: Any) -> None:
    study = Study(tiny_study(), tmp_path)
    program = """
import os, signal, sys
from lightleak.tuning.study import open_storage
open_storage(sys.argv[1])._backend._lock.acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run([sys.executable, "-c", program, str(tmp_path / JOURNAL)], check=False)
    assert died.returncode == -signal.SIGKILL
    held = study.storage._backend._lock
    held.acquire(timeout=0)
    held.release()
    assert study.ask() is not None


def test_a_database_holds_the_study_where_one_is_named(
    tmp_path: Path, tiny_study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE", str(tmp_path / "optuna.db"))
    config = tiny_study(study__storage="sqlite:///$WHERE", study__trials=2)
    run_all(Study(config, tmp_path / "study"))
    assert (tmp_path / "optuna.db").is_file() and not (tmp_path / "study" / JOURNAL).exists()
    assert states(Study(config, tmp_path / "study")) == {"COMPLETE": 2}
    another = Study(config, tmp_path / "elsewhere" / "study")
    assert not another.trials[0].state.is_finished(), "a folder is a study, whatever its last name"
    with pytest.raises(UsageError, match=r"study\.storage 'nonsense' cannot be opened"):
        Study(tiny_study(study__storage="nonsense"), tmp_path / "none")
