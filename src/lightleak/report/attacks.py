"""What a report knows of attacks without importing them: titles, what they test, published budgets, defenses they know.

``attacks.json`` holds them; ``python -m lightleak.cards`` writes it.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain
from typing import Any

from lightleak.core.registry import Registry
from lightleak.core.results import flat
from lightleak.core.threat_model import Aim

FILE_NAME = "attacks.json"

WORK = ("restarts", "steps", "chains", "sweeps", "iterations", "trials", "samples", "queries", "n_shadows")
"""Settings of which more is more work, and no less is recovered on average."""


@cache
def shipped() -> Mapping[str, Any]:
    """Return what `registered` wrote."""
    found: Mapping[str, Any] = json.loads(files("lightleak.report").joinpath(FILE_NAME).read_text(encoding="utf-8"))
    return found


def registered() -> dict[str, dict[str, Any]]:
    """Return titles and aims of all registered attacks, and their budgets by where they come from; this imports torch.

    ``knowing`` has, for every defense, the attacks that know it, each with the settings in which it does: of those that
    differ between defenses.

    A budget is how much of each kind of work the defaults do; settings of a stage are ``stage.name``.
    """
    from lightleak.attacks.property_inference.shadow_models import ShadowModels

    sources, protecting = _registries()
    made = {
        source: {name: registry.get(name)() for registry in registries for name in registry}
        for source, registries in sources.items()
    }
    titles = {name: attack.title for of in made.values() for name, attack in of.items()}
    aims = {name: [] if one.is_baseline else list(one.aims) for of in made.values() for name, one in of.items()}
    budgets = {source: {name: work(flat(one.options())) for name, one in of.items()} for source, of in made.items()}
    defenses = {name: registry.get(name).known_to for registry in protecting for name in registry}
    telling = {(attack, key) for knows in defenses.values() for attack, of in knows.items() for key in of}
    usual = {name: attack.options() for of in made.values() for name, attack in of.items()}
    return {
        "titles": titles | {ShadowModels.name: ShadowModels.title},
        "aims": aims,
        "budgets": budgets,
        "knowing": {
            defense: {
                attack: flat({key: one for key, one in usual.get(attack, {}).items() if (attack, key) in telling} | of)
                for attack, of in knows.items()
            }
            for defense, knows in defenses.items()
        },
    }


def known() -> Iterator[Mapping[str, Any]]:
    """Yield what is known of the shipped attacks, then of those that a plug-in registered in this process."""
    yield shipped()
    if "lightleak.attacks" in sys.modules:  # else nothing but the shipped attacks can be registered
        sources, protecting = _registries()
        registries = [*chain.from_iterable(sources.values()), *protecting]
        yield _registered(tuple((name, id(registry.get(name))) for registry in registries for name in registry))


def _registries() -> tuple[dict[str, tuple[Registry[Any], ...]], tuple[Registry[Any], ...]]:
    """Return the registries of attacks, by where the budgets in them come from, and those of defenses."""
    from lightleak.attacks import ATTACKS
    from lightleak.attacks.model_inversion.attack import INVERSION_ATTACKS
    from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS
    from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES

    # The defaults of the generators for released models were tuned by a study on public rows.
    sources = {"as published": (ATTACKS, PROPERTY_ATTACKS), "as by default": (INVERSION_ATTACKS,)}
    return sources, (UPDATE_DEFENSES, TRAINING_DEFENSES)


@lru_cache(maxsize=1)
def _registered(entries: tuple[tuple[str, int], ...]) -> Mapping[str, Any]:
    """Return `registered`, which makes every attack, again only where ``entries`` are others."""
    return registered()


def aims_of(attack: str) -> tuple[Aim, ...]:
    """Return what an attack tests a training for; nothing for a baseline and for an attack that is not registered.

    >>> aims_of("provfl_b"), aims_of("random")
    (('property_inference',), ())
    """
    return next((tuple(of["aims"][attack]) for of in known() if attack in of["aims"]), ())


def knowing(defense: str) -> Mapping[str, Mapping[str, str]]:
    """Return the attacks that know a defense, with the settings in which they do; none of one that is not registered.

    >>> knowing("random_pruning"), knowing("gradient_compression")
    ({'exact_pruned': {'left_out': 'any'}}, {'exact_pruned': {'left_out': 'smallest'}})
    """
    return next((of["knowing"][defense] for of in known() if defense in of["knowing"]), {})


def is_closed_form(options: Mapping[str, str]) -> bool:
    """Whether settings of distribution comparison leave nothing to draw, whatever its amounts of work say."""
    return options.get("estimator") == "mixture"


def work(options: Mapping[str, str]) -> dict[str, int]:
    """Return the settings that are amounts of `WORK`, those of stages included; none of a closed form.

    >>> work({"steps": "50", "precision": "float32", "exact.chains": "many", "exact.sweeps": "3"})
    {'steps': 50, 'exact.sweeps': 3}
    >>> work({"estimator": "mixture", "samples": "200"})
    {}
    """
    if is_closed_form(options):
        return {}
    return {
        name: int(text) for name, text in options.items() if name.rpartition(".")[2] in WORK and str(text).isdigit()
    }
