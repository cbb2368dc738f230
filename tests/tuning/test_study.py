"""Trials are asked for once, told once, and repeated when their process died; nothing is counted twice."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.tuning import study as module
from lightleak.tuning.study import DEFAULT, ERROR, RESUMED, SharedStudy

States = Counter[str]


def states(study: SharedStudy) -> States:
    return Counter(trial.state.name for trial in study.trials)


def run_all(study: SharedStudy, until: int = 99) -> list[dict[str, Any]]:
    """Every trial that is left below a number, told a value that its settings decide; what was suggested, in order."""
    seen = []
    while not study.is_over and sum(trial.state.is_finished() for trial in study.trials) < until:
        with study.next_trial() as begun:
            assert begun is not None
            trial, values = begun
            seen.append(values)
            study.tell(trial, [values["attacks.tableak.learning_rate"]])
    return seen


def die(study: SharedStudy) -> int:
    """Begin a trial and end as a killed process does: its number; nobody is told, nobody holds its claim."""
    with study.next_trial() as begun:
        assert begun is not None
        return int(begun[0].number)


def test_the_defaults_come_first_and_no_trial_more_than_asked_for(tmp_path: Path, tiny_study: Any) -> None:
    study = SharedStudy(tiny_study(), tmp_path / "study")
    seen = run_all(study)
    assert seen[0] == {"attacks.tableak.restarts": 3, "attacks.tableak.learning_rate": 0.06}
    assert study.trials[0].user_attrs[DEFAULT] and states(study) == {"COMPLETE": 4}
    with study.next_trial() as begun:
        assert begun is None


def test_a_study_resumed_by_one_process_goes_on_as_if_it_had_not_stopped(tmp_path: Path, tiny_study: Any) -> None:
    config = tiny_study(study__trials=14)
    whole = run_all(SharedStudy(config, tmp_path / "whole"))
    parts = run_all(SharedStudy(tiny_study(study__trials=6), tmp_path / "parts"))
    parts += run_all(SharedStudy(config, tmp_path / "parts"))
    assert parts == whole


@pytest.mark.parametrize("deaths", [[0], [1, 3], [2, 2, 5]], ids=str)
def test_a_study_whose_processes_died_ends_as_if_they_had_not(
    tmp_path: Path, tiny_study: Any, deaths: list[int]
) -> None:
    config = tiny_study(study__trials=6, study__sampler={"name": "tpe", "n_startup_trials": 2})
    run_all(whole := SharedStudy(config, tmp_path / "whole"))
    for number in deaths:
        run_all(SharedStudy(config, tmp_path / "parts"), until=number)
        assert die(SharedStudy(config, tmp_path / "parts")) == number
    run_all(parts := SharedStudy(config, tmp_path / "parts"))
    assert states(parts) == {"COMPLETE": 6}
    for got, expected in zip(parts.trials, whole.trials, strict=True):
        assert (got.params, got.values) == (expected.params, expected.values)
        assert got.user_attrs.get(DEFAULT) == expected.user_attrs.get(DEFAULT)
    assert [bool(trial.user_attrs.get(RESUMED)) for trial in parts.trials] == [i in deaths for i in range(6)]


def test_a_trial_that_kills_every_process_is_given_up(tmp_path: Path, tiny_study: Any) -> None:
    study = SharedStudy(tiny_study(study__trials=2), tmp_path / "study")
    for _ in range(module.MAX_RETRIES + 1):
        assert die(study) == 0
    run_all(study)
    assert states(study) == {"FAIL": 1, "COMPLETE": 1}
    assert study.trials[0].user_attrs[ERROR] == "every process that ran it died, 4 in all"


def test_an_interruption_is_not_held_against_its_trial(tmp_path: Path, tiny_study: Any) -> None:
    study = SharedStudy(tiny_study(study__trials=1), tmp_path / "study")
    for _ in range(module.MAX_RETRIES + 2):
        with pytest.raises(KeyboardInterrupt), study.next_trial():
            raise KeyboardInterrupt
    run_all(study)
    assert states(study) == {"COMPLETE": 1}


def test_a_journal_that_ends_within_a_record_loses_that_record_alone(
    tmp_path: Path, tiny_study: Any, caplog: pytest.LogCaptureFixture
) -> None:
    config, folder = tiny_study(study__trials=4), tmp_path / "study"
    whole = run_all(SharedStudy(config, folder))
    journal = folder / module.JOURNAL
    journal.write_bytes(journal.read_bytes()[:-20])
    study = SharedStudy(config, folder)
    assert "ended within a record" in caplog.text and len(list(folder.glob("journal.log.damaged-*"))) == 1
    assert states(study) == {"COMPLETE": 3, "RUNNING": 1}
    assert run_all(study) == whole[-1:] and states(SharedStudy(config, folder)) == {"COMPLETE": 4}


def test_a_trial_that_runs_elsewhere_is_left_alone_and_counted(tmp_path: Path, tiny_study: Any) -> None:
    config = tiny_study(study__trials=2)
    one, other = SharedStudy(config, tmp_path / "study"), SharedStudy(config, tmp_path / "study")
    with one.next_trial() as first:
        assert first is not None
        with other.next_trial() as second:
            assert second is not None and second[0].number != first[0].number
            with other.next_trial() as none:
                assert none is None and not other.is_over
            other.tell(second[0], [0.0])
        one.tell(first[0], [0.0])
    assert states(one) == {"COMPLETE": 2} and one.is_over and other.is_over


def test_a_refused_trial_counts_and_is_not_repeated(tmp_path: Path, tiny_study: Any) -> None:
    study = SharedStudy(tiny_study(study__trials=2), tmp_path / "study")
    with study.next_trial() as begun:
        assert begun is not None
        study.tell_failed(begun[0], "UsageError: no")
    run_all(study)
    assert states(study) == {"FAIL": 1, "COMPLETE": 1}


def test_many_at_once_take_each_trial_once(tmp_path: Path, tiny_study: Any) -> None:
    config, taken = tiny_study(study__trials=12), []

    def worker() -> None:
        study = SharedStudy(config, tmp_path / "study")
        while not study.is_over:
            with study.next_trial() as begun:
                if begun is not None:
                    taken.append(begun[0].number)
                    study.tell(begun[0], [0.5])

    threads = [threading.Thread(target=worker) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(12))


def test_a_database_holds_the_study_where_one_is_named(
    tmp_path: Path, tiny_study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE", str(tmp_path / "optuna.db"))
    config = tiny_study(study__storage="sqlite:///$WHERE", study__trials=2)
    run_all(SharedStudy(config, tmp_path / "study"))
    assert (tmp_path / "optuna.db").is_file() and not (tmp_path / "study" / module.JOURNAL).exists()
    assert states(SharedStudy(config, tmp_path / "study")) == {"COMPLETE": 2}
    another = SharedStudy(config, tmp_path / "elsewhere" / "study")
    assert not another.trials[0].state.is_finished(), "a folder is a study, whatever its last name"
    with pytest.raises(UsageError, match=r"study\.storage 'nonsense' cannot be opened"):
        SharedStudy(tiny_study(study__storage="nonsense"), tmp_path / "none")


def test_what_a_slow_process_tells_after_its_trial_was_ended_does_not_count(tmp_path: Path, tiny_study: Any) -> None:
    study = SharedStudy(tiny_study(study__trials=1), tmp_path / "study")
    slow = study.optuna.ask()  # without a claim: to others its process is dead
    values = study.config.space.suggest(slow)
    run_all(study)
    study.tell(slow, [9.0])
    study.tell_failed(slow, "late")
    assert states(study) == {"COMPLETE": 1}
    assert study.config.space.values(study.trials[0].params) == values and study.trials[0].values != [9.0]


def test_a_default_that_died_before_it_asked_for_its_settings_is_the_default_again(
    tmp_path: Path, tiny_study: Any
) -> None:
    study = SharedStudy(tiny_study(study__trials=1), tmp_path / "study")
    study.optuna.ask()
    (values,) = run_all(study)
    assert values == {"attacks.tableak.restarts": 3, "attacks.tableak.learning_rate": 0.06}
