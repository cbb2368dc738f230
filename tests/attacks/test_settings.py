import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.property_inference.label_replacement import LabelReplacementConfig
from lightleak.attacks.property_inference.model_refinement import ModelRefinementConfig
from lightleak.attacks.settings import AttackSettings
from lightleak.core.errors import UsageError
from lightleak.core.former_names import note_once


@dataclass(frozen=True)
class Example(AttackSettings):
    owner: ClassVar[str] = "the example"

    widths_of: tuple[int, ...] = (4, 2)
    parts: tuple[Literal["a", "b"], ...] | None = None
    share: float = 0.5


@pytest.fixture(autouse=True)
def _fresh_notes() -> None:
    note_once.cache_clear()


def test_lists_become_tuples_and_are_lists_again_in_json() -> None:
    made = Example.of(widths_of=[8, 4], parts=["a"])
    assert (made.widths_of, made.parts) == ((8, 4), ("a",))
    assert made.to_dict() == {"widths_of": [8, 4], "parts": ["a"], "share": 0.5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths_of": [1.5]}, "widths_of must be a whole number, got 1.5"),
        ({"widths_of": 3}, "widths_of must be a list, got 3"),
        ({"parts": ["c"]}, "parts must be one of a, b, got 'c'"),
        ({"share": float("nan")}, "share must be a finite number"),
        ({"shares": 1}, "the example has no setting shares; settings: widths_of, parts, share"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Example.of(**options)
    with pytest.raises(UsageError, match=message):
        Example().with_options(**options)


def test_old_names_and_values_are_accepted_with_one_note_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert InversionConfig.of(initialisation="normal").initialization == "normal"
            assert LabelReplacementConfig().with_options(query_relabelled=True).query_relabeled
            assert ModelRefinementConfig.of(objective="mended").objective == "corrected"
    assert [record.args for record in caplog.records] == [
        ("initialisation", "initialization"),
        ("query_relabelled", "query_relabeled"),
        ("objective: mended", "objective: corrected"),
    ]


def test_settings_are_taken_out_of_options_under_either_name() -> None:
    options = {"query_relabelled": True, "rows": "auxiliary", "samples": 5}
    assert LabelReplacementConfig.take_from(options) == {"query_relabelled": True, "rows": "auxiliary"}
    assert options == {"samples": 5}
