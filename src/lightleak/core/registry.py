"""A name-to-object table, so that a new attack, dataset or network is one file and nothing else changes."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from lightleak.core.errors import UsageError

T = TypeVar("T")


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

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that files its argument under ``name``.

        Raises:
            ValueError: the name is taken; two modules claim it.
        """

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def get(self, name: str) -> T:
        """Look an entry up.

        Raises:
            UsageError: no such name; the message lists the known ones and the closest.
        """
        if name in self._entries:
            return self._entries[name]
        close = get_close_matches(name, self._entries, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise UsageError(f"unknown {self.kind} {name!r}{hint}; known: {', '.join(self.names())}")

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
