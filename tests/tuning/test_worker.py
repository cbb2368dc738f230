"""What a worker makes of the end of a trial."""

from pathlib import Path
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.tuning import worker
from lightleak.tuning.study import SharedStudy


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the next trials report and come to, in place of an attack; an exception is raised."""
    coming: list[Any] = []

    def run(study: Any, tree: Any, folder: Path, report: Any, trial: Any) -> tuple[float]:
        value = coming.pop(0)
        if isinstance(value, Exception):
            raise value
        report(1, value)
        return (value,)

    monkeypatch.setattr(worker, "run_trial", run)
    return coming


def run_one(study: SharedStudy) -> None:
    with study.next_trial() as begun:
        assert begun is not None
        worker._run(study, *begun)


def states(study: SharedStudy) -> list[str]:
    return [trial.state.name for trial in study.trials]


def test_the_defaults_are_never_stopped_early(tmp_path: Path, tiny_study: Any, values: list[Any]) -> None:
    study = SharedStudy(tiny_study(study__pruner={"name": "median", "n_startup_trials": 0}), tmp_path)
    values += [0.5, 0.6, 0.1, 0.1]
    with study.next_trial() as defaults:
        assert defaults is not None
        run_one(study)
        run_one(study)
        worker._run(study, *defaults)
    run_one(study)
    assert states(study) == ["COMPLETE", "COMPLETE", "COMPLETE", "PRUNED"], "others with the same value are"


def test_a_trial_that_fails_counts_and_the_others_go_on(tmp_path: Path, tiny_study: Any, values: list[Any]) -> None:
    values += [0.5, UsageError("no"), KeyError("a bug"), RuntimeError("out of memory")]
    worker.work(tiny_study(), tmp_path)
    study = SharedStudy(tiny_study(), tmp_path)
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
def test_what_others_cannot_mend_ends_the_worker(
    tmp_path: Path, tiny_study: Any, values: list[Any], error: Exception, kept: str
) -> None:
    values += [error]
    with pytest.raises(type(error)):
        worker.work(tiny_study(), tmp_path)
    assert states(SharedStudy(tiny_study(), tmp_path)) == [kept]
