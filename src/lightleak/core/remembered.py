"""Values that are computed once for the objects they belong to."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """The values used last, by the objects that they were computed from; these are compared by identity.

    The objects are kept alive along with the value, so that no other object gets their identity. They must not be
    changed.

    >>> sizes, box = Remembered[int](most=8), []
    >>> sizes.get((box,), lambda: 3), sizes.get((box,), lambda: 4), sizes.get(([],), lambda: 5)
    (3, 3, 5)

    Args:
        most: number of values that are kept, or their size together; the last value is always kept.
        size: of a value, where sizes count.
    """

    def __init__(self, most: int, size: Callable[[T], int] = lambda value: 1) -> None:
        self.most, self._size = most, size
        self._kept: dict[Hashable, tuple[T, tuple[object, ...], int]] = {}

    def get(self, owners: tuple[object, ...], make: Callable[[], T], *more: Hashable) -> T:
        """Return the value of ``owners``; ``make`` computes it unless it is still there.

        Args:
            owners: the objects that it was computed from.
            make: computes it.
            more: what else it depends on.
        """
        key = (*map(id, owners), *more)
        if key in self._kept:
            self._kept[key] = self._kept.pop(key)  # what was used last goes to the end
        else:
            value = make()
            self._kept[key] = value, owners, self._size(value)
            while len(self._kept) > 1 and sum(size for *_, size in self._kept.values()) > self.most:
                del self._kept[next(iter(self._kept))]
        return self._kept[key][0]
