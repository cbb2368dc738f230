"""A name-to-object table, so that a new attack, dataset or network is one file and nothing else changes."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from lightleak.core.errors import UsageError, close_match
from lightleak.core.facts import Facts
from lightleak.core.former_names import REGISTERED, current_name
from lightleak.core.plugins import PLUGINS

T = TypeVar("T")

MEMORY = "own:"
"""Begins the name of a table or network that was handed over in memory; no entry and no package has such a name."""


class Registry(Generic[T]):
    """Objects of one kind by name.

    >>> shapes = Registry[int]("shape")
    >>> _ = shapes.register("square")(4)
    >>> shapes.get("square")
    4
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._facts: dict[str, Facts] = {}

    def register(self, name: str, facts: Facts | None = None) -> Callable[[T], T]:
        """Return a decorator that files its argument under ``name``, with the facts for its card.

        Raises:
            ValueError: the name is taken; two modules claim it.
        """

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            if facts is not None:
                self._facts[name] = facts
            return entry

        return add

    def get(self, name: str) -> T:
        """Look an entry up; a former name is accepted with a note.

        Raises:
            UsageError: no such name; the message lists the known ones, and the closest or how to load your own.
        """
        if name in self:
            return self._entries[current_name(name)]
        hint = close_match(name, self._entries)
        own = "" if hint else f". A file that registers one of your own is loaded where {PLUGINS} names it"
        raise UsageError(f"unknown {self.kind} {name!r}{hint}; known: {', '.join(self.names())}{own}")

    def facts(self, name: str) -> Facts:
        """What was declared of an entry; empty facts where nothing was.

        Raises:
            UsageError: no such name.
        """
        self.get(name)
        return self._facts.get(current_name(name), Facts())

    def describe(self, name: str, facts: Facts) -> None:
        """Declare the facts of an entry that was registered without any.

        Raises:
            UsageError: no such name.
            ValueError: it has facts.
        """
        self.get(name)
        if name in self._facts:
            raise ValueError(f"{self.kind} {name!r} is described twice")
        self._facts[name] = facts

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        return name in self._entries or REGISTERED.get(str(name)) in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
