"""Trials are asked for once, told once, and repeated when their process died; nothing is counted twice."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.tuning import study as module
from lightleak.tuning.study import DEFAULT, LOST, RETRY_OF, SharedStudy

States = Counter[str]


def states(study: SharedStudy) -> States:
    return Counter(trial.state.name for trial in study.trials)


def run_all(study: SharedStudy) -> list[dict[str, Any]]:
    """Every trial that is left, told a value that its settings decide; what was suggested, in order."""
    seen = []
    while not study.is_over:
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


def test_the_trial_of_a_dead_process_is_repeated_once_with_its_settings(tmp_path: Path, tiny_study: Any) -> None:
    study = SharedStudy(tiny_study(), tmp_path / "study")
    dead = die(study)
    run_all(SharedStudy(study.config, study.folder))
    (retry,) = [trial for trial in study.trials if trial.user_attrs.get(RETRY_OF) == dead]
    assert retry.params == study.trials[dead].params and retry.user_attrs[DEFAULT]
    assert study.trials[dead].user_attrs[LOST]
    assert states(study) == {"COMPLETE": 4, "FAIL": 1}


def test_a_trial_whose_process_died_before_it_was_queued_again_is_queued_by_the_next(
    tmp_path: Path, tiny_study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = SharedStudy(tiny_study(), tmp_path / "study")
    die(study)
    with monkeypatch.context() as patched:
        patched.setattr(study.optuna, "enqueue_trial", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), study.next_trial():
            pass
    assert states(study) == {"FAIL": 1}
    run_all(SharedStudy(study.config, study.folder))
    assert states(study) == {"COMPLETE": 4, "FAIL": 1}


def test_a_trial_that_kills_every_process_is_given_up(tmp_path: Path, tiny_study: Any) -> None:
    study = SharedStudy(tiny_study(study__trials=2), tmp_path / "study")
    for _ in range(module.MAX_RETRIES + 1):
        die(study)
    run_all(study)
    assert states(study) == {"FAIL": module.MAX_RETRIES + 1, "COMPLETE": 1}, "the last death counts as its trial"


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


def test_what_a_slow_process_tells_after_it_was_given_up_does_not_count(tmp_path: Path, tiny_study: Any) -> None:
    study = SharedStudy(tiny_study(study__trials=1), tmp_path / "study")
    slow = study.optuna.ask()  # without a claim: to others its process is dead
    values = study.config.space.suggest(slow)
    run_all(study)
    study.tell(slow, [9.0])
    study.tell_failed(slow, "late")
    assert states(study) == {"FAIL": 1, "COMPLETE": 1}
    assert study.config.space.values(study.trials[1].params) == values and study.trials[1].values != [9.0]


def test_a_default_that_died_before_it_asked_for_its_settings_is_the_default_again(
    tmp_path: Path, tiny_study: Any
) -> None:
    study = SharedStudy(tiny_study(study__trials=1), tmp_path / "study")
    study.optuna.ask()
    (values,) = run_all(study)
    assert values == {"attacks.tableak.restarts": 3, "attacks.tableak.learning_rate": 0.06}
