"""YAML without repeated keys: PyYAML takes the last one and says nothing."""

from typing import Any

import yaml


class RepeatedKey(yaml.YAMLError):
    """A mapping that holds a key twice; the message names the key and the lines."""


class UniqueKeys:
    r"""For a loader to inherit from, before PyYAML's own: refuses a mapping that holds a key twice.

    >>> class Loader(UniqueKeys, yaml.SafeLoader):
    ...     '''Plain values.'''
    >>> yaml.load("a: 1\nb: {a: 2}", Loader)
    {'a': 1, 'b': {'a': 2}}
    >>> yaml.load("a: 1\nb: 2\na: 3", Loader)
    Traceback (most recent call last):
    lightleak.core.unique_keys.RepeatedKey: key 'a' stands on line 1 and again on line 3; leave one of them out
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As PyYAML's.

        Raises:
            RepeatedKey: a key stands twice; one that ``<<`` brings along does not count.
        """
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                raise RepeatedKey(
                    f"key {key.value!r} stands on line {lines[name]} and again on line {line}; leave one of them out"
                )
            lines[name] = line
        found: dict[Any, Any] = super().construct_mapping(node, deep)  # type: ignore[misc]
        return found
