"""The parts of a docstring in Google's style, which is how this project writes them."""

import inspect
import re
from dataclasses import dataclass

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example|Examples|Note|Needs|Deviates):$")
_ENTRY = re.compile(r"^    (\*{0,2}\w+)(?: \([^)]*\))?: (.*)$")


@dataclass(frozen=True)
class Docstring:
    """A docstring in parts.

    Attributes:
        summary: its first line, without the full stop.
        paragraphs: what follows before the first section, without examples.
        entries: text by name of ``Args`` and ``Attributes``, each on one line.
        needs: points of the section ``Needs``, each on one line.
        deviates: points of the section ``Deviates``.
    """

    summary: str
    paragraphs: tuple[str, ...]
    entries: dict[str, str]
    needs: tuple[str, ...] = ()
    deviates: tuple[str, ...] = ()


def read_docstring(thing: object) -> Docstring:
    """Take a docstring apart; empty parts where there is none.

    >>> def scale(x, by=2):
    ...     '''Multiply.
    ...
    ...     Args:
    ...         x: what is
    ...             multiplied.
    ...         by: the factor.
    ...     '''
    >>> read_docstring(scale).entries
    {'x': 'what is multiplied.', 'by': 'the factor.'}
    """
    # A class without a docstring would be given its parent's.
    text = inspect.cleandoc(thing.__doc__ or "")
    lines = text.splitlines()
    if not lines:
        return Docstring("", (), {})
    first = next((i for i, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    body = "\n".join(lines[1:first])
    blocks = (block for block in re.split(r"\n\s*\n", body) if block.strip())
    prose = tuple(_plain(block) for block in blocks if not block.lstrip().startswith(">>>"))
    sections = _sections(lines[first:])
    return Docstring(
        _plain(lines[0]).removesuffix("."),
        prose,
        _entries(sections.get("Args", [])) | _entries(sections.get("Attributes", [])),
        _points(sections.get("Needs", [])),
        _points(sections.get("Deviates", [])),
    )


def _sections(lines: list[str]) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    inside: list[str] = []
    for line in lines:
        if section := _SECTION.match(line):
            inside = sections.setdefault(section[1], [])
        elif line and not line.startswith(" "):
            inside = []
        else:
            inside.append(line)
    return sections


def _entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, str] = {}
    name = ""
    for line in lines:
        if entry := _ENTRY.match(line):
            name = entry[1].lstrip("*")
            entries[name] = entry[2]
        elif name and line.startswith("        "):
            entries[name] += " " + line.strip()
    return {name: _plain(text) for name, text in entries.items()}


def _points(lines: list[str]) -> tuple[str, ...]:
    """Points that begin with ``*``."""
    return tuple(map(_plain, re.split(r"^    \* ", "\n".join(lines), flags=re.MULTILINE)[1:]))


def _plain(text: str) -> str:
    """One line, with the double backticks of docstrings as single ones."""
    if re.search(r"^\* ", text, re.MULTILINE):
        return "\n".join(re.sub(r"``", "`", line.rstrip()) for line in text.splitlines())
    return " ".join(text.replace("``", "`").split())
