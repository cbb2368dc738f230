"""Items in groups."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def by_key(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Return items by key, in the order in which keys first occur.

    >>> by_key(["tanh", "relu", "elu"], len)
    {4: ['tanh', 'relu'], 3: ['elu']}
    """
    found: dict[Any, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
