"""In which settings two runs differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from lightleak.report.run_folder import RunFolder

ABSENT = "not set"
NO_MATTER = ("title", "workers", "device", "redact")
"""Settings that change no score, or no more than rounding does."""


def changed_settings(before: RunFolder, after: RunFolder) -> tuple[tuple[str, str, str], ...] | None:
    """Name, value before and value after of each setting in ``config.yaml`` that differs.

    Returns:
        None where either run has no readable config, so that nothing can be said.
    """
    if not before.settings or not after.settings:
        return None
    first, second = (_flat(run.settings) for run in (before, after))
    names = dict.fromkeys([*first, *second])
    told = [(name, first.get(name, ABSENT), second.get(name, ABSENT)) for name in names if name not in NO_MATTER]
    return tuple(row for row in told if row[1] != row[2])


def same_clients(before: RunFolder, after: RunFolder, source: str | None) -> bool:
    """Whether the configs say that both runs attacked updates of the same rows in the same order.

    Clients before training follow from the table, the seed and how many there are; those of the training also from its
    batches, which DP-SGD draws anew.
    """
    deciding = ["data", "seed", "initial", "protocol.clients", "protocol.client_rows", "protocol.local_batch_size"]
    if source == "training":
        deciding += ["training.batch_size", "training.validation_fraction", "capture", "protocol"]
        if "dp_sgd" in {_at(run.settings, "defense.name") for run in (before, after)}:
            return False
    if not before.settings or not after.settings:
        return False
    return all(_at(before.settings, name) == _at(after.settings, name) for name in deciding)


def _at(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings


def _flat(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = _words(value)
    return found


def _words(value: Any) -> str:
    if value is None or value == []:
        return "default" if value is None else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return ", ".join(map(str, value)) if is_list else str(value)
