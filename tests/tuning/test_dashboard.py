"""A study's folder opens in Optuna's dashboard as it is."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import optuna
import pytest

from lightleak.tuning.study import JOURNAL, Study

dashboard = pytest.importorskip("optuna_dashboard", reason="the extra dev brings it")


def get(application: Any, path: str) -> Any:
    """What a WSGI application answers to one request, without a socket."""
    status: list[str] = []
    environment = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "wsgi.input": BytesIO(), "SERVER_NAME": "localhost"}
    environment |= {"SERVER_PORT": "80", "wsgi.url_scheme": "http", "wsgi.errors": BytesIO()}
    body = b"".join(application(environment, lambda line, headers, *_: status.append(line)))
    assert status == ["200 OK"]
    return json.loads(body)


def test_the_dashboard_shows_every_trial_of_a_journal(tmp_path: Path, tiny_study: Any) -> None:
    (tmp_path / "study").mkdir()
    study = Study(tiny_study(), tmp_path / "study")
    while (asked := study.ask()) is not None:
        trial, values = asked
        study.tell(trial.number, [values["attacks.tableak.learning_rate"]])
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study" / JOURNAL))
    application = dashboard.wsgi(optuna.storages.JournalStorage(backend))
    (summary,) = get(application, "/api/studies")["study_summaries"]
    detail = get(application, f"/api/studies/{summary['study_id']}")
    assert [trial["state"] for trial in detail["trials"]] == ["Complete"] * 4
    assert {trial["number"] for trial in detail["trials"]} == {0, 1, 2, 3}
