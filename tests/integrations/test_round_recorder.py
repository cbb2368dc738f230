"""What a recorder keeps, what it leaves out, and that rows which did not make an update are no truth."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.experiments.load import parse_config
from lightleak.experiments.observed import find_captures
from lightleak.experiments.run import attack_captures
from lightleak.integrations.round_recorder import PrivateRows, RoundRecorder, ground_truth
from lightleak.integrations.state_dicts import client_update
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.records import RecordedClient


def received(recorder: RoundRecorder, made: Any, round_number: int = 0, clients: Any = (0, 1, 2)) -> None:
    before = made.network().state_dict()
    for client in clients:
        recorder.receive(round_number, client, before, made.trained(client, before), 6)


def test_captures_are_attacked_by_the_command_and_scored_by_their_rows(federation: Any, tmp_path: Path) -> None:
    made = federation(hidden=[64, 32])
    recorder = RoundRecorder(made.view(), rounds=(0,), root=tmp_path / "captures", rows=made.private)
    received(recorder, made)
    config = parse_config(
        {"data": {"name": "synthetic"}, "workers": 1, "attacks": {"exact_fedavg": {"restarts": 1, "steps": 100}}}
    )
    rows = attack_captures(config, tmp_path / "captures", tmp_path / "run")["rows"]
    assert all(row["certified_rows"] > 0 and row["certified_wrong"] == 0 for row in rows)
    assert [row["cell_accuracy"] for row in rows] == [1.0, 1.0, 1.0]
    for path in (tmp_path / "captures").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_without_rows_there_is_no_truth_and_attacks_still_run(federation: Any, tmp_path: Path) -> None:
    made = federation(one_step=True, hidden=[64, 32])
    recorder = RoundRecorder(made.view(), rounds=(0,), root=tmp_path / "captures")
    received(recorder, made, clients=(1,))
    (folder,) = find_captures(tmp_path / "captures")
    assert [path.name for path in folder.iterdir()] == ["observation"]
    config = parse_config({"data": {"name": "synthetic"}, "workers": 1, "attacks": {"exact_fedavg": {}}})
    (row,) = attack_captures(config, tmp_path / "captures", tmp_path / "run")["rows"]
    assert row["certified_rows"] == 6 and row.get("cell_accuracy") is None


def test_only_wanted_clients_of_wanted_rounds_are_kept(federation: Any) -> None:
    made = federation(hidden=[4])
    for settings, expected in (
        ({"rounds": (1,)}, [(1, 0), (1, 1), (1, 2)]),
        ({"rounds": (0, 2), "per_round": 2}, [(0, 0), (0, 1), (2, 0), (2, 1)]),
        ({"rounds": (0, 1), "clients": (2,)}, [(0, 2), (1, 2)]),
        ({"rounds": (0, 1, 2), "max_captures": 4}, [(0, 0), (0, 1), (0, 2), (1, 0)]),
    ):
        recorder = RoundRecorder(made.view(), keep=True, **settings)
        for number in range(3):
            received(recorder, made, number)
        assert [(taken.update.facts.epoch, taken.client) for taken in recorder.captured] == expected


def test_captures_need_a_place(federation: Any) -> None:
    with pytest.raises(UsageError, match="captures would be lost"):
        RoundRecorder(federation().view(), rounds=(0,))


def test_a_folder_with_captures_is_refused_unless_overwritten(federation: Any, tmp_path: Path) -> None:
    made, root = federation(hidden=[4]), tmp_path / "captures"
    received(RoundRecorder(made.view(), rounds=(0,), root=root), made)
    with pytest.raises(
        UsageError, match=r"captures' has 3 of an earlier training \(e000-s000000-r0 to e000-s000000-r2"
    ):
        RoundRecorder(made.view(), rounds=(1,), root=root)
    received(RoundRecorder(made.view(), rounds=(1,), root=root, overwrite=True), made, 1)
    assert len(find_captures(root)) == 6


def test_an_update_that_is_not_finite_is_left_out_and_the_next_is_not(federation: Any) -> None:
    made = federation(hidden=[4])
    before = made.network().state_dict()
    recorder = RoundRecorder(made.view(), rounds=(0,), keep=True)
    with pytest.warns(UserWarning, match=r"client 0 of round 0 was not captured: update 'linears.0.bias' must be fin"):
        recorder.receive(0, 0, before, before | {"linears.0.bias": torch.full((4,), float("inf"))}, 6)
    recorder.receive(0, 1, before, before, 6)
    assert [taken.client for taken in recorder.captured] == [1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 3}, r"rounds must be a list of whole numbers, such as \(0, 5\), got 3"),
        ({"rounds": "0"}, "rounds must be a list of whole numbers, .* got '0'"),
        ({"clients": ("site-1",)}, r"clients must be a list of whole numbers, .* got \('site-1',\)"),
        ({"rows": (1, 2)}, "rows must be a function of client and round .* got tuple"),
        ({"root": 3}, "root must be a path"),
        ({"root": "file"}, "root must be a folder for captures, got 'file'; .* is a file"),
        ({"root": "file/below"}, "root must be a folder for captures, got 'file/below'; .*/file' is a file"),
    ],
)
def test_settings_that_cannot_record_are_refused(
    federation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(UsageError, match=message):
        RoundRecorder(federation().view(), **{"rounds": (0,), "keep": True, **settings})


def test_a_folder_that_cannot_be_written_is_refused(
    federation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # to root everything is writable
    with pytest.raises(UsageError, match=r"captures'; .* cannot be written"):
        RoundRecorder(federation().view(), rounds=(0,), root=tmp_path / "captures")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": ["good"] * 6}, "client 0 of round 0 was not captured: .*'?str'?"),
        ({"labels": "abc"}, "not captured: .*"),
        ({"labels": [float("nan")] * 6}, "not captured: .*"),
        ({"labels": [None] * 6}, "not captured: .*"),
        ({"client": "site-1"}, "client site-1 of round 0 was not captured: client must be a whole number"),
        ({"client": 1.5}, "client must be a whole number, got 1.5"),
        ({"client": -1}, "client must be at least 0, got -1"),
        ({"n_rows": 6.7}, "n_rows must be a whole number, got 6.7"),
        ({"before": {0: 1}}, "not captured: .*"),
        ({"before": None}, "before must be a state dict"),
        ({"sent": "sparse"}, "not captured: .*"),
    ],
)
def test_nothing_that_a_client_sends_stops_a_training(
    federation: Any, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    made, root = federation(hidden=[4]), tmp_path / "captures"
    before = made.network().state_dict()
    if given.get("sent") == "sparse":
        given = {"sent": {name: value.to_sparse() for name, value in before.items()}}
    recorder = RoundRecorder(made.view(), rounds=(0,), root=root, keep=True)
    with pytest.warns(UserWarning, match=message):
        recorder.receive(**{"round_number": 0, "client": 0, "before": before, "sent": before, "n_rows": 6, **given})
    assert not recorder.captured and not root.exists()
    recorder.receive(0, 1.0, before, before, 6.0)  # type: ignore[arg-type]
    assert [(taken.client, taken.update.facts.n_rows) for taken in recorder.captured] == [(1, 6)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda client, number: 1 // 0, "was captured without truth: ZeroDivisionError"),
        (
            lambda client, number: (1, 2),
            "was captured without truth: what rows returns must be PrivateRows, or None, got",
        ),
    ],
)
def test_rows_that_cannot_be_had_leave_the_update(federation: Any, rows: Any, message: str) -> None:
    made = federation(hidden=[4])
    recorder = RoundRecorder(made.view(), rounds=(0,), keep=True, rows=rows)
    with pytest.warns(UserWarning, match=message):
        received(recorder, made, clients=(0,))
    assert [taken.truth for taken in recorder.captured] == [None]


def test_a_capture_that_cannot_be_saved_leaves_no_folder(
    federation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, root = federation(hidden=[4]), tmp_path / "captures"
    recorder = RoundRecorder(made.view(), rounds=(0,), root=root, rows=made.private, max_captures=1)
    with monkeypatch.context() as patched:
        patched.setattr(ClientUpdate, "save", lambda *_: 1 // 0)
        with pytest.warns(UserWarning, match="client 0 of round 0 was not captured: ZeroDivisionError"):
            received(recorder, made, clients=(0,))
    assert not list(root.iterdir())
    received(recorder, made, clients=(1,))
    assert len(find_captures(root)) == 1


def test_rows_that_did_not_make_the_update_are_no_truth(federation: Any) -> None:
    made = federation(hidden=[4])
    recorder = RoundRecorder(made.view(), rounds=(0,), keep=True, rows=lambda client, _: made.private(2 - client))
    with pytest.warns(UserWarning, match=r"client 0 of round 0 was captured without truth: .* do not reproduce"):
        received(recorder, made, clients=(0,))
    received(recorder, made, clients=(1,))
    assert [taken.truth is None for taken in recorder.captured] == [True, False]


def update_of(made: Any, **view: Any) -> ClientUpdate:
    before = made.network().state_dict()
    return client_update(before, made.trained(0, before), made.view(**view), 6)


def test_the_order_of_the_rows_is_needed_after_several_batches(federation: Any) -> None:
    made = federation(hidden=[4])
    rows = made.private(0)
    assert isinstance(ground_truth(update_of(made), rows), RecordedClient)
    with pytest.raises(ObservationError, match="order is needed: 2 epochs took 6 rows in batches of 3"):
        ground_truth(update_of(made), replace(rows, order=None))
    assert rows.order is not None
    with pytest.raises(ObservationError, match="do not reproduce"):
        ground_truth(update_of(made), replace(rows, order=rows.order.flip(1)))


def test_one_whole_batch_has_no_order(federation: Any) -> None:
    made = federation(one_step=True, hidden=[4])
    ground_truth(update_of(made, batch_size="all"), PrivateRows(*made.rows[0]))


def test_training_that_the_server_is_not_told_is_checked_by_the_rows_own(federation: Any) -> None:
    made = federation(hidden=[4])
    blind = update_of(made, epochs=None, batch_size=None, learning_rate=None)
    with pytest.raises(ObservationError, match="the server does not know epochs, batch_size or learning_rate"):
        ground_truth(blind, made.private(0))
    ground_truth(blind, replace(made.private(0), training=made.training))
    with pytest.raises(ObservationError, match="do not reproduce"):
        ground_truth(blind, replace(made.private(0), training=LocalTraining(2, 3, 0.2)))


def test_rows_of_a_network_with_dropout_cannot_be_checked_after_local_training(federation: Any) -> None:
    made = federation(hidden=[4], dropout=0.5)
    with pytest.raises(UnsupportedError, match="dropout cannot be repeated"):
        ground_truth(update_of(made), made.private(0))


def test_a_defended_update_says_so_and_takes_its_rows_unchecked(federation: Any) -> None:
    made = federation(hidden=[4])
    update = update_of(made, defense="noise of 0.1")
    assert (update.state, update.facts.defense) == ("noised", "noise of 0.1")
    assert len(ground_truth(update, made.private(1)).labels) == 6
