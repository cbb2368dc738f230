import pytest

from lightleak.report.estimate import Estimate
from lightleak.report.result import Setting
from lightleak.report.wording import (
    attack_title,
    duration,
    interval,
    labels_phrase,
    percent,
    points,
    protocol_title,
    setting_parts,
    source_phrase,
    varying,
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
        Setting("b", "adult", "mlp", "fedsgd", "noise", "true", "training", 2),
    )
    names = varying([first, second])
    assert names == ["run", "dataset", "target", "protocol", "defense", "labels", "source", "epoch"]
    assert setting_parts(second, names)[-1] == "epoch 2"
    assert setting_parts(first, names)[-1] == "no epoch"
