"""The few errors LightLeak raises. Each message names the thing, what was expected and what came."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class LightLeakError(Exception):
    """Base of every error LightLeak raises on purpose."""


class UsageError(LightLeakError):
    """Wrong use: a setting, a name or a file that cannot be served. The command exits with code 2."""


class DataError(UsageError):
    """A table, file or column that is not what its schema says."""


class ObservationError(UsageError):
    """An observation that cannot be attacked: damaged, inconsistent or of the wrong kind."""


class UnsupportedError(UsageError):
    """A combination that is known to have no meaning or no implementation; the message names the alternative."""


@contextmanager
def placed(where: str, kind: type[UsageError] | None = None) -> Iterator[None]:
    """Within the block an error of wrong use says where: its message begins with ``where``.

    Args:
        where: place of what is checked, such as a section of a config.
        kind: class of the errors that leave the block; by default their own.

    >>> with placed("attacks.tableak"):
    ...     raise UsageError("steps must be at least 1, got 0")
    Traceback (most recent call last):
    lightleak.core.errors.UsageError: attacks.tableak: steps must be at least 1, got 0
    """
    try:
        yield
    except UsageError as error:
        raise (kind or type(error))(f"{where}: {error}") from error


def close_match(word: object, known: Iterable[str]) -> str:
    """Return a hint at the known word nearest to ``word``, one of the same letters first; empty if none is near.

    >>> close_match("epoch", ["batch_size", "epochs"])
    " (did you mean 'epochs'?)"
    >>> close_match("lable", ["table", "label"])
    " (did you mean 'label'?)"
    """
    close = get_close_matches(str(word), list(known))
    close.sort(key=lambda one: sorted(one) != sorted(str(word)))
    return f" (did you mean {close[0]!r}?)" if close else ""
