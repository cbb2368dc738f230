"""What a report knows of attacks without importing them: their titles and their published budgets.

``attacks.json`` holds them; ``python -m lightleak.cards`` writes it.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from lightleak.core.results import flat

FILE_NAME = "attacks.json"

WORK = ("restarts", "steps", "chains", "sweeps", "iterations", "trials", "samples", "queries", "n_shadows")
"""Settings of which more is more work, and no less is recovered on average."""


@cache
def shipped() -> Mapping[str, Any]:
    """Return what `registered` wrote."""
    found: Mapping[str, Any] = json.loads(files("lightleak.report").joinpath(FILE_NAME).read_text(encoding="utf-8"))
    return found


def registered() -> dict[str, dict[str, Any]]:
    """Return the titles of all registered attacks, and their budgets by where they come from; this imports torch.

    A budget is how much of each kind of work the defaults do; settings of a stage are ``stage.name``.
    """
    from lightleak.attacks import ATTACKS
    from lightleak.attacks.model_inversion.attack import INVERSION_ATTACKS
    from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS
    from lightleak.attacks.property_inference.shadow_models import ShadowModels

    # The defaults of the generators for released models were tuned by a study on public rows.
    sources = {"as published": (ATTACKS, PROPERTY_ATTACKS), "as by default": (INVERSION_ATTACKS,)}
    made = {
        source: {name: registry.get(name)() for registry in registries for name in registry}
        for source, registries in sources.items()
    }
    titles = {name: attack.title for of in made.values() for name, attack in of.items()}
    budgets = {source: {name: work(flat(one.options())) for name, one in of.items()} for source, of in made.items()}
    return {"titles": titles | {ShadowModels.name: ShadowModels.title}} | budgets


def work(options: Mapping[str, str]) -> dict[str, int]:
    """Return the settings that are amounts of `WORK`, those of stages included.

    >>> work({"steps": "50", "precision": "float32", "exact.chains": "many", "exact.sweeps": "3"})
    {'steps': 50, 'exact.sweeps': 3}
    """
    return {
        name: int(text) for name, text in options.items() if name.rpartition(".")[2] in WORK and str(text).isdigit()
    }
