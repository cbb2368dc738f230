"""Settings are read off dataclasses and signatures as they are."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import pytest

from lightleak.cards.docstrings import read_docstring
from lightleak.cards.settings import Setting, settings_of


@dataclass(frozen=True)
class Parent:
    """What all have.

    Attributes:
        steps: how often; a text
            of two lines.
        rate: ``0.5`` at first.
    """

    steps: int = 3
    rate: float = 0.5


@dataclass(frozen=True)
class Child(Parent):
    """More.

    Attributes:
        pooling: how.
    """

    pooling: Literal["median", "none"] = "median"
    widths: tuple[int, ...] = (8, 4)
    made: list[int] = field(init=False, default_factory=list)


def search(kind: str, *, tries: int | None = None, **options: Any) -> None:
    """Search.

    Args:
        kind: of what.
        tries: how many.
        options: others.
    """


def test_a_child_has_its_parents_meanings_and_only_what_can_be_set() -> None:
    steps, rate, pooling, widths = settings_of([Child])
    assert steps == Setting("steps", "3", "how often; a text of two lines.")
    assert rate.meaning == "`0.5` at first."
    assert pooling.choices == ("median", "none")
    assert widths == Setting("widths", "[8, 4]", "")


def test_an_instance_shows_its_own_values() -> None:
    assert [setting.default for setting in settings_of([Child(steps=9, rate=1.0)])][:2] == ["9", "1.0"]


def test_a_signature_shows_what_is_not_bound_and_no_collecting_argument() -> None:
    assert settings_of([search]) == (Setting("kind", "required", "of what."), Setting("tries", "null", "how many."))
    assert [setting.name for setting in settings_of([partial(search, "a")])] == ["tries"]


def test_a_group_takes_the_place_of_the_setting_it_is_given_under() -> None:
    def make(search: Any = None, other: int = 1) -> None: ...

    names = [setting.name for setting in settings_of([make, ("search", Parent)])]
    assert names == ["other", "search.steps", "search.rate"]


def test_the_first_of_equal_names_counts() -> None:
    assert [setting.default for setting in settings_of([Parent(steps=1), Parent(steps=2)])] == ["1", "0.5"]


def test_what_declares_no_settings_is_refused() -> None:
    with pytest.raises(TypeError, match="got 3"):
        settings_of([3])


def test_paragraphs_are_kept_and_examples_are_not() -> None:
    text = read_docstring(
        type(
            "Thing", (), {"__doc__": "One.\n\n    Two\n    lines.\n\n    >>> 1\n    1\n\n    Raises:\n        E: no.\n"}
        )
    )
    assert (text.summary, text.paragraphs, text.entries) == ("One", ("Two lines.",), {})


def test_needs_and_deviations_are_read_point_by_point() -> None:
    def guess(n: int) -> None:
        """Guess.

        Args:
            n: how often.

        Needs:
            * A ``seed`` that is
              given.
            * Rows.

        Deviates:
            * The paper has none.
        """

    text = read_docstring(guess)
    assert (text.paragraphs, text.entries) == ((), {"n": "how often."})
    assert (text.needs, text.deviates) == (("A `seed` that is given.", "Rows."), ("The paper has none.",))


def test_no_docstring_is_no_text_and_not_the_parents() -> None:
    class Silent(Parent):
        pass

    Silent.__doc__ = None
    assert read_docstring(Silent).summary == ""
