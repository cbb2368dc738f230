"""Names and values of a study's parameters as its page writes them."""

from collections.abc import Sequence
from typing import Any


def number_words(value: float) -> str:
    """A number with four digits.

    >>> number_words(-0.062345), number_words(45000), number_words(1e-05)
    ('−0.06234', '45000', '1e-05')
    """
    whole = float(value).is_integer() and abs(value) < 1e7
    return (f"{value:.0f}" if whole else f"{value:.4g}").replace("-", "−", 1 if value < 0 else 0)


def parameter_value(value: Any) -> str:
    """A value as the config writes it, numbers with four digits.

    >>> parameter_value(True), parameter_value(None), parameter_value([100, 100]), parameter_value(0.061234)
    ('true', 'none', '[100, 100]', '0.06123')
    """
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(parameter_value, value))}]"
    return number_words(value) if isinstance(value, int | float) else str(value)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The shortest end of each dotted key that no other key has, and what a name is of.

    >>> short_names(["attacks.tableak.learning_rate", "attacks.tableak.steps"])
    {'attacks.tableak.learning_rate': 'learning rate', 'attacks.tableak.steps': 'steps'}
    >>> list(short_names(["target.width", "attack.width"]).values()), list(short_names(["defense.name"]).values())
    (['target width', 'attack width'], ['defense name'])
    """
    return {key: _short_name(key, keys) for key in keys}


def _short_name(key: str, keys: Sequence[str]) -> str:
    parts = key.split(".")
    least = 2 if parts[-1] == "name" else 1
    ends = (".".join(parts[-depth:]) for depth in range(least, len(parts) + 1))
    unique = (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1)
    return next(unique, key).replace("_", " ").replace(".", " ")
