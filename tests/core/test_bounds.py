"""Limits of settings: declared with the field, checked when the config is made, read by the documentation."""

from dataclasses import dataclass, fields
from typing import Any

import pytest

from lightleak.core.bounds import Section, bounded, bounds_of, one_of
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
