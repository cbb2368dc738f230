"""The catalogue of everything registered, read from the registries."""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from lightleak.attacks import ATTACKS
from lightleak.attacks.model_inversion import INVERSION_ATTACKS
from lightleak.attacks.property_inference import PROPERTY_ATTACKS
from lightleak.attacks.property_inference.shadow_models import ShadowModels
from lightleak.cards.catalogue import Card, Catalogue, DatasetEntry, Kind
from lightleak.cards.docstrings import read_docstring
from lightleak.cards.exactness import exact_inversion
from lightleak.cards.settings import settings_of
from lightleak.core.facts import Facts
from lightleak.core.registry import Registry
from lightleak.data.datasets import DATASETS
from lightleak.data.table import DatasetCard
from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES
from lightleak.defenses.vertical import VERTICAL_DEFENSES
from lightleak.metrics import METRICS
from lightleak.metrics.images import IMAGE_FACTS, IMAGE_METRICS
from lightleak.metrics.inversion import INVERSION_FACTS, INVERSION_METRICS
from lightleak.reproductions.paper.values import load_paper_table, paper_tables
from lightleak.targets import NETWORKS

_TO_SERVER = (
    "It hides rows from any recipient of what a client sends, above all the server, who knows which defense was "
    "applied and with which settings."
)
_TO_PARTY = (
    "It hides the victim's property from the other parties of a vertical training, who follow the protocol and see "
    "what their role sees."
)
_TRUTH = "None: it is computed by the auditor, who has the private rows. No attack sees it."


def _of(registry: Registry[Any], kind: Kind, family: str, sees: str = "") -> Iterator[Card]:
    for name in registry:
        yield _card(name, kind, family, registry.get(name), registry.facts(name), sees)


def _of_mapping(things: Mapping[str, Any], facts: Mapping[str, Facts], family: str) -> Iterator[Card]:
    for name, thing in things.items():
        yield _card(name, "metric", family, thing, facts[name], _TRUTH)


def _cards() -> Iterator[Card]:
    yield from _of(ATTACKS, "attack", "updates of federated learning")
    of_properties = "property inference (vertical federated learning)"
    yield from _of(PROPERTY_ATTACKS, "attack", of_properties)
    yield _card(ShadowModels.name, "attack", of_properties, ShadowModels, ShadowModels.facts)
    yield from _of(INVERSION_ATTACKS, "attack", "model inversion (released models)")
    yield from _of(UPDATE_DEFENSES, "defense", "updates: what a client sends", _TO_SERVER)
    yield from _of(TRAINING_DEFENSES, "defense", "updates: how a client trains", _TO_SERVER)
    yield from _of(VERTICAL_DEFENSES, "defense", "vertical", _TO_PARTY)
    yield from _of(METRICS, "metric", "reconstructed batches", _TRUTH)
    yield from _of_mapping(INVERSION_METRICS, INVERSION_FACTS, "released models")
    yield from _of_mapping(IMAGE_METRICS, IMAGE_FACTS, "images")


def read_registries(exact: Mapping[str, str] | None = None) -> Catalogue:
    """Return what is registered now, plug-ins included.

    Args:
        exact: what exact inversion can do against some targets, as `exact_inversion` says; it is asked for the others.
    """
    return Catalogue(
        cards=tuple(_cards()),
        datasets={name: _dataset(DATASETS.get(name).card) for name in DATASETS},
        targets={name: read_docstring(NETWORKS.get(name)).summary for name in NETWORKS},
        exact={name: (exact or {}).get(name) or exact_inversion(name) for name in NETWORKS},
        reproductions={name: load_paper_table(name).title for name in paper_tables()},
    )


def _dataset(card: DatasetCard) -> DatasetEntry:
    return DatasetEntry(card.title, card.license, tuple(card.files))


def _card(name: str, kind: Kind, family: str, thing: Any, facts: Facts, sees: str = "") -> Card:
    is_maker = kind == "attack" and thing is not ShadowModels
    made = thing() if is_maker else thing
    described = type(made) if is_maker else getattr(thing, "func", thing)
    text = read_docstring(described)
    declared = getattr(made, "threat_model", None)
    config = getattr(made, "config", None)
    # Settings are declared by an attack's config, a defense's fields or a metric's arguments.
    declaring = config if is_dataclass(config) else thing
    return Card(
        name=name,
        title=getattr(made, "title", "") if kind == "attack" else "",
        kind=kind,
        family=family,
        summary=facts.summary or text.summary,
        explanation=text.paragraphs if kind != "attack" else (),
        citation=facts.citation or getattr(made, "citation", ""),
        threat_model=facts.sees or sees or (declared.describe() if declared else ""),
        needs=facts.needs or text.needs,
        settings=settings_of(facts.settings or (declaring,)),
        deviations=facts.deviates or text.deviates,
    )
