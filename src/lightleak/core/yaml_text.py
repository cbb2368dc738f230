"""The one YAML loader: plain values with string keys, of bounded size, depth and magnitude, or one clear refusal.

And the one dumper, whose text the loader reads back.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 4 * 2**20
"""Longest text that is parsed; a schema of 100,000 categories takes a third of it."""

MAX_NODES = 500_000
"""Largest number of values in a text, where every alias counts as a copy of what it names."""

MAX_DEPTH = 50
"""Deepest nesting, aliases included."""

MAX_NUMBER = 2**63 - 1
"""Largest magnitude of a number: the largest seed that the generators take."""

_SHOWN = 40


class RefusedYaml(yaml.YAMLError):
    """Well-formed YAML that is not accepted; the message names the place and the limit."""


def read_yaml(text: str, words: bool = False) -> Any:
    r"""Return the plain values of a YAML text, with ``1e-3`` as a number and dates as text, as in YAML 1.2.

    >>> read_yaml("[1e-3, 1e3, 2.5e-1, e3, 2024-01-01]")
    [0.001, 1000.0, 0.25, 'e3', '2024-01-01']
    >>> read_yaml("a: 1\nb: 2\na: 3")
    Traceback (most recent call last):
    lightleak.core.yaml_text.RefusedYaml: key 'a' stands on line 1 and again on line 3; leave one of them out

    Args:
        text: the YAML.
        words: keep every scalar as the text that it is written as: ``no`` is no boolean and ``007`` no number.

    Raises:
        yaml.YAMLError: the text is not YAML.
        RefusedYaml: a key is repeated or not text, an alias contains itself, a string cannot be written in UTF-8, a
            number is not finite, or a limit of this module is exceeded.
    """
    _check_size(len(text))
    return yaml.load(text, _Words if words else _Values)


def read_yaml_file(path: Path, words: bool = False) -> Any:
    """Return the values of a file in UTF-8; arguments and errors as for `read_yaml`.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: it is not UTF-8.
    """
    _check_size(path.stat().st_size)
    return read_yaml(path.read_text(encoding="utf-8"), words)


def yaml_of(value: Any, **layout: Any) -> str:
    r"""Return plain values as YAML that `read_yaml` reads back as they are.

    >>> yaml_of({"label": "1e3", "lr": 1e-3})
    "label: '1e3'\nlr: 0.001\n"

    Args:
        value: mappings, lists, numbers, text, booleans and ``None``.
        layout: arguments of PyYAML's ``dump``; keys keep their order.
    """
    text: Any = yaml.dump(value, Dumper=_Dumper, sort_keys=False, **layout)
    return str(text)


def config_line(key: str, names: Sequence[str]) -> str:
    """Return the line of a config that lists names under a key.

    >>> config_line("data.drop", ["seen", "Unnamed: 0"])
    "data.drop: [seen, 'Unnamed: 0']"
    """
    listed = yaml_of(list(names), default_flow_style=True, width=float("inf"), allow_unicode=True)
    return f"{key}: {listed.strip()}"


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise RefusedYaml(f"a YAML text may have at most {MAX_BYTES:,} bytes, got {size:,}")


class _Bounded:
    """For a loader to inherit from, before PyYAML's own: refuses what is repeated, endless or no text."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)  # type: ignore[call-arg]
        self._nodes, self._level = 0, 0
        self._heights = [0]
        self._extents: dict[int, tuple[int, int]] = {}  # nodes and height of what has an anchor, by its node

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose as PyYAML does, counting values and levels; an alias counts as a copy of what it names."""
        event = self.peek_event()  # type: ignore[attr-defined]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            node = super().compose_node(parent, index)  # type: ignore[misc]
            if id(node) not in self._extents:
                raise RefusedYaml(f"alias *{event.anchor} on line {line} stands within what it names")
            nodes, height = self._extents[id(node)]
            self._enter(nodes, height, line)
            return node
        before = self._nodes
        self._enter(1, 1, line)
        self._level += 1
        self._heights.append(0)
        node = super().compose_node(parent, index)  # type: ignore[misc]
        self._level -= 1
        height = self._heights.pop() + 1
        self._heights[-1] = max(self._heights[-1], height)
        if event.anchor is not None:
            self._extents[id(node)] = (self._nodes - before, height)
        return node

    def _enter(self, nodes: int, height: int, line: int) -> None:
        self._nodes += nodes
        self._heights[-1] = max(self._heights[-1], height)
        if self._level + height > MAX_DEPTH:
            raise RefusedYaml(f"values may be nested at most {MAX_DEPTH} levels deep; line {line} is deeper")
        if self._nodes > MAX_NODES:
            raise RefusedYaml(
                f"a YAML text may hold at most {MAX_NODES:,} values, aliases included; line {line} is beyond"
            )

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct as PyYAML does.

        Raises:
            RefusedYaml: a key is not text, or stands twice; one that ``<<`` brings along does not count.
        """
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _KEY_TAGS:
                got = key.value[:_SHOWN] if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                raise RefusedYaml(f"keys must be text, got {got or 'nothing'} on line {line}; quote it if it is a name")
            name = (key.tag, key.value)
            if name in lines:
                raise RefusedYaml(
                    f"key {key.value!r} stands on line {lines[name]} and again on line {line}; leave one of them out"
                )
            lines[name] = line
        found: dict[Any, Any] = super().construct_mapping(node, deep)  # type: ignore[misc]
        return found

    def construct_scalar(self, node: Any) -> Any:
        """Construct as PyYAML does.

        Raises:
            RefusedYaml: the text holds a character that no file in UTF-8 and no file name can hold.
        """
        value = super().construct_scalar(node)  # type: ignore[misc]
        if isinstance(value, str) and (odd := unwritable(value)):
            raise RefusedYaml(f"line {node.start_mark.line + 1} holds the character {odd}, which text must not contain")
        return value


def unwritable(text: str) -> str | None:
    r"""Return the name of the first character that no UTF-8 text or file name can hold, ``None`` if there is none.

    >>> unwritable("a\0b"), unwritable("a\ud800"), unwritable("Prüfung")
    ('U+0000', 'U+D800', None)
    """
    found = re.search("[\0\ud800-\udfff]", text)
    return f"U+{ord(found[0]):04X}" if found else None


_KEY_TAGS = tuple(f"tag:yaml.org,2002:{name}" for name in ("str", "merge", "value"))


class _Words(_Bounded, yaml.BaseLoader):
    """Every scalar a string."""


class _Values(_Bounded, yaml.SafeLoader):
    """Strings, numbers, booleans and null; PyYAML's YAML 1.1 takes a number such as 1e-3 for a word."""

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Construct a number.

        Raises:
            RefusedYaml: it is not finite or beyond `MAX_NUMBER`.
        """
        shown, line = node.value[:_SHOWN], node.start_mark.line + 1
        construct = self.construct_yaml_int if node.tag == _INT else self.construct_yaml_float
        try:
            value: int | float = construct(node)
        except (ValueError, OverflowError, IndexError) as error:  # of thousands of digits, and of ``!!int word``
            raise RefusedYaml(f"{shown!r} on line {line} is no number that can be read") from error
        if not abs(value) <= MAX_NUMBER:
            raise RefusedYaml(
                f"numbers must be finite and at most {MAX_NUMBER:.2g} in magnitude, got {shown} on line {line}"
            )
        return value


_INT, _FLOAT, _DATE = (f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))
_Values.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _DATE]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):
    """PyYAML's, which quotes what either reads as a number."""


for _either in (_Values, _Dumper):
    _either.add_implicit_resolver(
        _FLOAT, re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
    )
_Values.yaml_constructors = {  # what is left out is written as an explicit tag; no setting takes such a value
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in ("null", "bool", "str", "seq", "map")
}
for _tag in (_INT, _FLOAT):
    _Values.add_constructor(_tag, _Values.construct_number)


def with_tuples(value: Any) -> Any:
    """Return ``value`` with its lists as tuples, as frozen settings hold them.

    >>> with_tuples({"shape": [1, 28, 28]})
    {'shape': (1, 28, 28)}
    """
    if isinstance(value, dict):
        return {key: with_tuples(one) for key, one in value.items()}
    return tuple(map(with_tuples, value)) if isinstance(value, list) else value
