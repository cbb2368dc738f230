"""Arguments of the wrong type are refused by name; what stands for the same value is taken."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightleak.core.arguments import require_kind, require_path, whole_number
from lightleak.core.errors import UsageError


@pytest.mark.parametrize("value", [6, np.int64(6), np.uint8(6)])
def test_whole_numbers_of_any_library_are_taken(value: Any) -> None:
    found = whole_number("n", value)
    assert found == 6 and type(found) is int


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (6.0, "n must be a whole number, got 6.0"),
        ("6", "n must be a whole number, got '6'"),
        (True, "n must be a whole number, got True"),
        (None, "n must be a whole number, got None"),
        (2, "n must be at least 3, got 2"),
    ],
)
def test_other_numbers_are_named(value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        whole_number("n", value, least=3)


def test_kinds_and_paths() -> None:
    require_kind("rows", [1], (list, tuple), "a list")
    with pytest.raises(UsageError, match=r"^rows must be a list, got dict$"):
        require_kind("rows", {}, (list, tuple), "a list")
    assert require_path("root", "a/b") == require_path("root", Path("a/b")) == Path("a", "b")
    with pytest.raises(UsageError, match=r"^root must be a path .*, got int$"):
        require_path("root", 3)
