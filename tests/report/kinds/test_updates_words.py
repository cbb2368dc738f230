"""Phrases for updates that clients send hold the facts of the row."""

from dataclasses import replace

import pytest

from lightleak.core.results import UpdateRow
from lightleak.report.format import attack_title, duration, interval, percent, points
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.updates_words import (
    FIXED,
    of_rows,
    parts,
    source_phrase,
    time_unit,
    varying,
    what_the_server_gets,
    what_travels,
    words,
)

FEDAVG = UpdateRow(attack="a", protocol="fedavg", local_epochs=10, local_batches=4, n_clients=1)
FEDSGD = UpdateRow(attack="a", protocol="fedsgd")


def test_a_rate_that_is_not_zero_is_not_shown_as_zero() -> None:
    assert [percent(value) for value in (0.0, 0.0004, 0.0006)] == ["0.0%", "<0.1%", "0.1%"]


def test_intervals_stay_inside_what_is_possible() -> None:
    assert interval(Estimate(0.02, 3, -0.05, 0.09)) == "0.0 to 9.0"
    assert interval(Estimate(0.02, 3, -0.05, 0.09), lowest=-1) == "−5.0 to 9.0"
    assert interval(None) == "–"


def test_points_carry_their_sign() -> None:
    assert [points(value) for value in (0.1, -0.1, 0.0, -0.0001, 0.0001)] == ["+10.0", "−10.0", "0.0", "0.0", "0.0"]


@pytest.mark.parametrize(("seconds", "text"), [(59.9, "59.90 s"), (60, "1 min 0 s"), (3599.6, "1 h 0 min")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_unknown_names_pass_through() -> None:
    assert attack_title("my_attack") == "my attack"
    named = (UpdateRow(attack="x", protocol="p2p", labels="none"), UpdateRow(attack="x"))
    assert [parts(row, ["protocol", "labels"]) for row in named] == [
        ["p2p", "labels none"],
        ["not stated", "labels not stated"],
    ]
    assert "p2p" in what_travels("p2p")
    assert "Not stated" in what_travels(None)
    assert source_phrase(None) == "not stated"


def test_every_fixed_field_has_a_phrase() -> None:
    first = UpdateRow(attack="x", run="a")
    second = UpdateRow(
        attack="x", run="b", dataset="adult", target="mlp", protocol="fedavg", defense="noise", labels="true",
        source="training", epoch=2, local_epochs=5, local_batches=1, n_clients=3, releases=4, defense_strength=0.1,
        epsilon=2.94, release_epsilon=4.38, delta=1e-5,
    )  # fmt: skip
    names = varying([first, second])
    assert names == list(FIXED)
    assert "defense: noise 0.1" in parts(second, names)  # one phrase for the defense and its strength
    assert "defense: none" in parts(first, names)
    assert parts(second, ["defense_strength"]) == ["strength 0.1"]
    assert parts(first, ["defense_strength"]) == ["no strength"]
    wanted = ("epoch", "local_epochs", "local_batches", "n_clients", "releases", "epsilon", "release_epsilon", "delta")
    assert parts(second, wanted) == [
        "round 2",
        "5 local epochs",
        "1 local batch",
        "3 clients",
        "4 releases",
        "ε 2.94",
        "ε of 4 updates of the same rows 4.38",
        "δ 1e-05",
    ]
    assert parts(first, wanted) == [
        "no epoch",
        "no local epoch",
        "no local batch",
        "clients not stated",
        "1 release",
        "no ε",
        "no ε of one update",
        "no δ",
    ]


def test_fedavg_is_described_by_what_the_rows_say() -> None:
    assert "10 local epochs of 4 batches" in what_the_server_gets(FEDAVG)
    assert "mean of 3 clients" in what_the_server_gets(replace(FEDAVG, n_clients=3))
    unsaid = what_the_server_gets(replace(FEDAVG, local_epochs=None, n_clients=None))
    assert "local epochs" not in unsaid and "not stated" in unsaid
    assert what_the_server_gets(FEDSGD) == what_travels("fedsgd")
    assert (time_unit(FEDAVG), time_unit(FEDSGD)) == ("round", "epoch")


def test_what_a_fedavg_server_knows_follows_from_the_rows() -> None:
    assert "local epochs and batch size" in words("server", FEDAVG)
    assert "but not how often and in what batches" in words("server", replace(FEDAVG, local_epochs=None))
    known = "the number of rows of each class"
    assert known in words("server", replace(FEDAVG, labels="true")) and known not in words("server", FEDAVG)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (replace(FEDAVG, batch_size=32), "clients of 32 rows"),
        (replace(FEDAVG, batch_size=None), ""),
        (replace(FEDAVG, n_clients=4, batch_size=128), "updates of 128 rows"),
        (replace(FEDAVG, n_clients=None, batch_size=128), "updates of 128 rows"),
        (replace(FEDSGD, batch_size=8), "batches of 8 rows"),
    ],
)
def test_rows_behind_an_update(row: UpdateRow, said: str) -> None:
    assert of_rows(row) == said


def test_privacy_is_claimed_only_where_an_accountant_found_it() -> None:
    noise = UpdateRow(attack="a", defense="gaussian_noise", defense_strength=0.01)
    assert words("defended", noise) == "noise of standard deviation 0.01"
    private = replace(noise, defense="dp_sgd", epsilon=3.0, delta=1e-5)
    for fact in ("DP-SGD", "δ 1e-05", "ε 3 of the whole training"):
        assert fact in " ".join(words("defended", private).split())
    assert "ε 4.38 of one update" in words("defended", replace(private, release_epsilon=4.38))
    assert "ε" not in words("defended", replace(private, epsilon=None))
