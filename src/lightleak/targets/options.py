"""What the options of a network may hold. Each check names the option, what is allowed and what came."""

from collections.abc import Collection, Sequence

from torch import nn

from lightleak.core.bounds import Bounds, require_type, require_within
from lightleak.core.errors import UsageError

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
}


def count(option: str, value: int, least: int = 1) -> int:
    """Check a whole number.

    >>> count("channels", 16)
    16

    Raises:
        UsageError: not a whole number, or below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{option} must be a whole number of at least {least}, got {value!r}")
    return value


def widths(option: str, value: Sequence[int]) -> tuple[int, ...]:
    """Check the widths of hidden layers; a list, as YAML gives it, becomes a tuple.

    >>> widths("hidden", [100, 100])
    (100, 100)

    Raises:
        UsageError: not a sequence of whole numbers of at least 1.
    """
    if not isinstance(value, list | tuple):
        raise UsageError(f"{option} must be a sequence of widths such as [100, 100], got {value!r}")
    return tuple(count(f"{option}[{index}]", width) for index, width in enumerate(value))


def rate(option: str, value: float) -> float:
    """Check the share of units that dropout removes.

    Raises:
        UsageError: outside ``[0, 1)``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise UsageError(f"{option} must be at least 0 and below 1, got {value!r}")
    return float(value)


def factor(option: str, value: float) -> float:
    """Check a finite number above 0.

    Raises:
        UsageError: it is none.
    """
    require_type(option, value, float)
    require_within(Bounds(gt=0), option, value)
    return value


def flag(option: str, value: bool) -> bool:
    """Check a truth value.

    Raises:
        UsageError: it is none.
    """
    require_type(option, value, bool)
    return value


def choice(option: str, value: str, allowed: Collection[str]) -> str:
    """Check a name.

    Raises:
        UsageError: not one of ``allowed``.
    """
    if value not in tuple(allowed):  # a list has no hash
        raise UsageError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def activation(name: str) -> nn.Module:
    """A fresh activation layer by name (`ACTIVATIONS`), with PyTorch's default constants.

    Raises:
        UsageError: unknown name.
    """
    return ACTIVATIONS[choice("activation", name, ACTIVATIONS)]()
