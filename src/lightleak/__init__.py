"""LightLeak: how much private data do tabular deep-learning models leak?

Importing this package is cheap: torch and the rest are loaded by the subpackages that need them, and by the names below
when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightleak.api import (
        Leakage,
        LeakageCallback,
        PreparedTable,
        attack_updates,
        audit_model,
        describe_inputs,
        load_config,
        prepare,
        run_config,
    )
    from lightleak.core.people import load_people
    from lightleak.core.results import load_results

__version__ = "0.1.0"

__all__ = [
    "Leakage",
    "LeakageCallback",
    "PreparedTable",
    "attack_updates",
    "audit_model",
    "describe_inputs",
    "load_config",
    "load_people",
    "load_results",
    "prepare",
    "run_config",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        # Reading results needs none of what the other names load.
        readers = {"load_people": "lightleak.core.people", "load_results": "lightleak.core.results"}
        return getattr(import_module(readers.get(name, "lightleak.api")), name)
    raise AttributeError(f"module 'lightleak' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
