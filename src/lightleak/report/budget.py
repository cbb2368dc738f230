"""The budget of attacks against the published one: from less, nothing follows about what was not found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from lightleak.attacks import ATTACKS
from lightleak.attacks.model_inversion.attack import INVERSION_ATTACKS
from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS
from lightleak.core.results import NONE, Row, flat
from lightleak.report.format import attack_title

WORK = ("restarts", "steps", "chains", "sweeps", "iterations", "trials", "samples", "queries", "n_shadows")
"""Settings of which more is more work, and no less is recovered on average."""

BASELINES = ("random", "prior", "aia_raw", "aia_raw_adjusted", "public_random", "public_pseudo_labelled")
"""Guesses and other nulls, from which nothing about an attack's budget follows."""

PROOFS = ("exact", "exact_fedavg")
"""Attacks that need an update exact to rounding: under noise they find nothing where others recover nearly all."""

NOTHING_FOLLOWS = (
    "That is not the published or default budget of every attack, so no conclusion is drawn about what was not "
    "recovered, nor about what a defense takes away."
)

PROOFS_ALONE = (
    "Exact inversion alone finds nothing under noise, where attacks by optimization still do, so no conclusion is "
    "drawn about what was not recovered, nor about what a defense takes away."
)

WEAK_DEFENSES = (
    "No conclusion is drawn about defenses: for one, every attack must have its whole published budget, and one of "
    "them must be by optimization. What these missed, such attacks may recover. The figures are in the table."
)


class Spent(Protocol):
    """A result that says which attack found it, and with which settings, as text."""

    @property
    def attack(self) -> str | None:
        """Name of the attack; None or ``none`` for a training."""

    @property
    def options(self) -> Mapping[str, str]:
        """Its settings, those of a stage under ``stage.name``."""


@dataclass(frozen=True)
class Budget:
    """What the attacks of a report could spend.

    Attributes:
        sentence: every attack with its budget and the published one; empty where no attack was run.
        is_weak: whether nothing follows from what was not recovered: an attack had less than its published budget,
            or one that is not known, or `PROOFS` ran alone.
    """

    sentence: str = ""
    is_weak: bool = False


def budget(results: Iterable[Row | Spent]) -> Budget:
    """State the budget of every attack; guesses and trainings are left out."""
    stated: dict[str, bool] = {}
    names = set()
    for result in results:
        if result.attack not in (None, NONE, *BASELINES):
            options = result.settings if isinstance(result, Row) else result.options
            lacking = fewer(result.attack, options)
            how = ", ".join(["", *lacking]) if lacking else _in_full(result.attack, options)
            stated[attack_title(result.attack) + how] = not lacking and _is_known(result.attack, options)
            names.add(result.attack)
    if not stated:
        return Budget()
    sentence = f"Attack budget: {'; '.join(stated)}."
    if not all(stated.values()):
        return Budget(f"{sentence} {NOTHING_FOLLOWS}", is_weak=True)
    if names.issubset(PROOFS):
        return Budget(f"{sentence} {PROOFS_ALONE}", is_weak=True)
    return Budget(sentence)


def fewer(attack: str, options: Mapping[str, str]) -> list[str]:
    """Settings with which an attack does less work than published, those of the stages of a composed one included.

    >>> fewer("tableak", {"restarts": "1", "steps": "1500"})
    ['1 restart in place of 30']
    """
    told: dict[str, None] = {}
    for name, usual in _published(attack).items():
        given, word = options.get(name, ""), name.rpartition(".")[2]
        if word in WORK and given.isdigit() and usual.isdigit() and int(given) < int(usual):
            told[f"{_counted(given, word)} in place of {usual}"] = None
    return list(told)


def _is_known(attack: str, options: Mapping[str, str]) -> bool:
    """Whether an attack is registered here and its result states all that `fewer` compares, as a number."""
    usual = _published(attack)
    asked = [name for name, number in usual.items() if name.rpartition(".")[2] in WORK and number.isdigit()]
    is_stated = bool(options or not usual) and all(options.get(name, "").isdigit() for name in asked)
    return _is_registered(attack) and is_stated


def _in_full(attack: str, options: Mapping[str, str]) -> str:
    usual = _published(attack)
    if not _is_registered(attack):
        return " (no published budget is known)"
    if usual and not options:
        return " (settings not stated)"
    if not _is_known(attack, options):
        return " (settings not all stated)"
    spent = {name: options[name] for name in WORK if options.get(name, "").isdigit()}
    is_more = any(usual.get(name) not in (None, number) for name, number in spent.items())
    counted = [_counted(number, name) for name, number in spent.items()]
    usually = "by default" if attack in INVERSION_ATTACKS else "published"  # a study tuned the generators' settings
    return f" ({', '.join([*counted, f'at least as {usually}' if is_more else f'as {usually}'])})"


def _counted(number: str, word: str) -> str:
    words = word.removeprefix("n_").replace("_", " ")
    return f"{number} {words if number != '1' else words.removesuffix('s')}"


@cache
def _published(attack: str) -> Mapping[str, str]:
    """Defaults of an attack; none of one that is not registered here.

    They are its published settings, but for the generators of model inversion, whose defaults a study on public rows
    has tuned.
    """
    known = next((registry for registry in _registries() if attack in registry), None)
    return {} if known is None else flat(known.get(attack)().options())


def _is_registered(attack: str) -> bool:
    return any(attack in registry for registry in _registries())


def _registries() -> tuple[Any, ...]:
    return ATTACKS, PROPERTY_ATTACKS, INVERSION_ATTACKS
