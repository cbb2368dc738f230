from dataclasses import fields, replace

import pytest

from lightleak.report.estimate import Estimate
from lightleak.report.result import Setting
from lightleak.report.wording import (
    attack_title,
    behind_update,
    defense_phrase,
    duration,
    interval,
    labels_phrase,
    percent,
    points,
    protocol_title,
    server_knowledge,
    setting_parts,
    source_phrase,
    varying,
    what_the_server_gets,
    what_travels,
)


def test_a_rate_that_is_not_zero_is_not_shown_as_zero() -> None:
    assert percent(0.0) == "0.0%"
    assert percent(0.0004) == "<0.1%"
    assert percent(0.0006) == "0.1%"


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
    assert (protocol_title("p2p"), protocol_title(None)) == ("p2p", "not stated")
    assert "p2p" in what_travels("p2p")
    assert "Not stated" in what_travels(None)
    assert (source_phrase(None), labels_phrase("none")) == ("not stated", "none")


def test_every_part_of_a_setting_has_a_phrase() -> None:
    first, second = (
        Setting("a"),
        Setting("b", "adult", "mlp", "fedavg", "noise", "true", "training", 2, 5, 1, 3, 0.1, 2.94, 4.38, 1e-5),
    )
    names = varying([first, second])
    assert names == [field.name for field in fields(Setting)]
    assert "defence noise 0.1" in setting_parts(second, names)  # one phrase for the defence and its strength
    assert "defence none" in setting_parts(first, names)
    assert setting_parts(second, ["strength"]) == ["strength 0.1"]
    assert setting_parts(first, ["strength"]) == ["no strength"]
    assert setting_parts(second, names)[-7:] == [
        "round 2",
        "5 local epochs",
        "1 local batch",
        "3 clients",
        "ε 2.94",
        "ε 4.38 of one update",
        "δ 1e-05",
    ]
    assert setting_parts(first, names)[-7:] == [
        "no epoch",
        "no local epoch",
        "no local batch",
        "clients not stated",
        "no ε",
        "no ε of one update",
        "no δ",
    ]


FEDAVG = Setting("a", protocol="fedavg", local_epochs=10, local_batches=4, n_clients=1)


def test_fedavg_is_told_by_what_the_rows_say() -> None:
    assert what_the_server_gets(FEDAVG).endswith("Here: 10 local epochs of 4 batches.")
    unsaid = replace(FEDAVG, local_epochs=None, n_clients=None)
    assert "local training that is not stated in full" in what_the_server_gets(unsaid)
    assert "how many clients an update averages is not stated" in what_the_server_gets(unsaid)
    assert what_the_server_gets(Setting("a", protocol="fedsgd")) == what_travels("fedsgd")


def test_what_a_fedavg_server_knows_follows_from_the_rows() -> None:
    assert server_knowledge(FEDAVG).endswith("local epochs and batch size: it has set them.")
    assert "but not how often and in what batches" in server_knowledge(replace(FEDAVG, local_epochs=None))
    assert server_knowledge(replace(FEDAVG, labels="true")).endswith("unless an attack knows those of each batch.")
    assert server_knowledge(Setting("a", protocol="fedsgd")) == ""


@pytest.mark.parametrize(
    ("setting", "rows", "words"),
    [
        (FEDAVG, 32, "the 32 rows a client trained on"),
        (FEDAVG, None, "the rows a client trained on"),
        (FEDAVG, 1, "a client's single row"),
        (replace(FEDAVG, n_clients=4), 128, "the 128 rows of 4 clients whose updates were averaged"),
        (replace(FEDAVG, n_clients=None), 128, "the 128 rows behind an update"),
        (Setting("a", protocol="fedsgd"), 8, "a client's batch of 8 rows"),
    ],
)
def test_rows_behind_an_update(setting: Setting, rows: int | None, words: str) -> None:
    assert behind_update(setting, rows) == words


def test_privacy_is_claimed_only_where_an_accountant_found_it() -> None:
    noise = Setting("a", defense="gaussian_noise", strength=0.01)
    assert defense_phrase(noise) == "gaussian noise 0.01"
    private = replace(noise, defense="dp_sgd", epsilon=3.0, delta=1e-5)
    assert "at δ 1e-05: ε 3 of the whole training)" in defense_phrase(private)
    both = defense_phrase(replace(private, release_epsilon=4.38))
    assert "ε 3 of the whole training, ε 4.38 of one update" in both
    assert "ε" not in defense_phrase(replace(private, epsilon=None))
