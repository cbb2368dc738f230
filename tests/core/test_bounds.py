"""Limits of settings: declared with the field, checked when the config is made, read by the documentation."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

import pytest

from lightleak.core.bounds import Section, bounded, bounds_of, check_settings, one_of
from lightleak.core.errors import UsageError


@dataclass(frozen=True)
class Settings(Section):
    section = "settings"

    share: float = bounded(0.5, gt=0, le=1)
    sizes: tuple[int, ...] = bounded((8,), ge=1)
    rows: int | None = bounded(None, ge=1)
    names: tuple[str, ...] = one_of(("a",), ("a", "b"), distinct=True, some=True)
    rule: str = one_of("first", ("first", "last"))

    def check(self) -> None:
        if self.rows == 13:
            raise UsageError("13 is checked after the limits")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 0}, "settings.share must be above 0 and at most 1, got 0"),
        ({"share": float("nan")}, "settings.share must be above 0 and at most 1, got nan"),
        ({"sizes": (8, 0)}, "settings.sizes must be at least 1, got 0"),
        ({"rows": 0}, "settings.rows must be at least 1, got 0"),
        ({"names": ()}, "settings.names must name at least one, got none"),
        ({"names": ("a", "a")}, "settings.names must be distinct, got a, a"),
        ({"names": ("a", "c")}, "settings.names must be among a, b, got c"),
        ({"rule": "middle"}, "settings.rule must be one of first, last, got 'middle'"),
        ({"rows": 13}, "13 is checked after the limits"),
    ],
)
def test_what_is_outside_its_limits_is_refused_with_its_place(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Settings(**given)
    assert str(caught.value) == message


def test_defaults_and_values_at_the_limits_pass() -> None:
    assert Settings().rows is None
    assert Settings(share=1, sizes=(1, 2), rows=1, names=("b", "a"), rule="last").names == ("b", "a")


def test_limits_can_be_read_off_the_fields() -> None:
    limits = {field.name: bounds_of(field) for field in fields(Settings)}
    assert limits["share"] is not None and limits["share"].words() == "above 0 and at most 1"
    assert limits["names"] is not None and limits["names"].choices == ("a", "b")


@dataclass(frozen=True)
class Own:
    """Settings as an attack or a defense of somebody else's may declare them."""

    layers: tuple[str, ...] = ()
    either: int | float = 1
    flag: bool | float = True
    names: str | tuple[str, ...] | None = None
    bits: Literal[2, 4] = 2
    share: float = bounded(0.5, ge=0, lt=1)
    mode: Literal["auto"] | float = "auto"
    made: int = field(init=False)

    def __post_init__(self) -> None:
        check_settings(self, "own: ")
        object.__setattr__(self, "made", 3)


@pytest.mark.parametrize(
    "given",
    [
        {"layers": ["a", "b"]},
        {"either": 0.5},
        {"flag": 0.5},
        {"names": ("a", "b")},
        {"names": ["a"]},
        {"names": "a"},
        {"bits": 4},
        {"mode": 0.5},
        {"share": 0},
    ],
    ids=str,
)
def test_a_value_is_of_its_type_where_one_part_takes_it(given: dict[str, Any]) -> None:
    made, ((name, value),) = Own(**given), given.items()
    assert getattr(made, name) == (tuple(value) if isinstance(value, list) else value) and made.made == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layers": "a"}, "own: layers must be a list, got 'a'"),
        ({"layers": ["a", 1]}, "own: layers must be text, got 1"),
        ({"either": "1"}, "own: either must be a finite number, got '1'"),
        ({"either": float("inf")}, "own: either must be a finite number, got inf"),
        ({"flag": "yes"}, "own: flag must be true or false, got 'yes'"),
        ({"names": 1}, "own: names must be a list, got 1"),
        ({"bits": 3}, "own: bits must be one of 2, 4, got 3"),
        ({"mode": "on"}, "own: mode must be a finite number, got 'on'"),
        ({"share": True}, "own: share must be a finite number, got True"),
        ({"share": 1}, "own: share must be at least 0 and below 1, got 1"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Own(**given)
    assert str(caught.value) == message


def test_limits_hold_where_an_annotation_cannot_be_looked_up() -> None:
    @dataclass(frozen=True)
    class Later:
        of: "NotThere" = None  # type: ignore[name-defined]  # noqa: F821
        share: float = bounded(0.5, ge=0)

    check_settings(Later())
    with pytest.raises(UsageError, match="share must be at least 0, got -1"):
        check_settings(Later(share=-1))
