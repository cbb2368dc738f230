"""A key that stands twice is refused, wherever its mapping stands; one that is merged in is not."""

import pytest
import yaml

from lightleak.core.unique_keys import RepeatedKey, UniqueKeys


class Plain(UniqueKeys, yaml.SafeLoader):
    """Plain values."""


class Words(UniqueKeys, yaml.BaseLoader):
    """Strings."""


@pytest.mark.parametrize("loader", [Plain, Words])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3", "key 'a' stands on line 1 and again on line 3"),
        ("x:\n- {a: 1}\n- b: 1\n  'b': 2", "key 'b' stands on line 3 and again on line 4"),
        ("{a: {b: 1}, c: {b: 1, b: 2}}", "key 'b' stands on line 1 and again on line 1"),
    ],
)
def test_a_repeated_key_is_named_with_its_lines(loader: type, text: str, told: str) -> None:
    with pytest.raises(RepeatedKey, match=told):
        yaml.load(text, loader)


def test_what_is_merged_in_may_be_changed() -> None:
    text = "base: &base {a: 1, b: 2}\nchanged: {<<: *base, a: 3}"
    assert yaml.load(text, Plain) == yaml.safe_load(text)
    assert yaml.load(text, Plain)["changed"] == {"a": 3, "b": 2}
