"""In which settings two runs differ."""

from collections.abc import Mapping
from typing import Any

from lightleak.core.results import flat
from lightleak.report.read import Run

ABSENT = "not set"
NO_MATTER = ("title", "workers", "device", "redact")
"""Settings that change no score, or no more than rounding does."""


def changed_settings(before: Run, after: Run) -> tuple[tuple[str, str, str], ...] | None:
    """Name, value before and value after of each setting in ``config.yaml`` that differs.

    Returns:
        None where either run has no readable config, so that nothing can be said.
    """
    if not before.settings or not after.settings:
        return None
    first, second = (flat(run.settings) for run in (before, after))
    names = dict.fromkeys([*first, *second])
    told = [(name, first.get(name, ABSENT), second.get(name, ABSENT)) for name in names if name not in NO_MATTER]
    return tuple(row for row in told if row[1] != row[2])


def same_clients(before: Run, after: Run, source: str | None) -> bool:
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


def same_table(before: Run, after: Run) -> bool:
    """Whether results of both name the same tables; of different ones no difference means anything."""
    return _named(before, "dataset") == _named(after, "dataset")


def unlike(before: Run, after: Run) -> tuple[str, ...]:
    """What two runs were measured on where that differs, by name; empty where table and network are the same."""
    found = []
    for part, word in (("dataset", "table"), ("target", "network")):
        first, second = _named(before, part), _named(after, part)
        if first != second:
            found.append(f"another {word} ({', '.join(second)} in place of {', '.join(first)})")
    return tuple(found)


def _named(run: Run, part: str) -> list[str]:
    return sorted({getattr(row, part) or "one not stated" for row in run.rows})


def _at(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings
