"""The budget of attacks against the published one: from less, nothing follows about what was not found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lightleak.core.results import NONE, Row
from lightleak.report.attacks import WORK, is_closed_form, known, work
from lightleak.report.format import attack_title

BASELINES = ("random", "prior", "aia_raw", "aia_raw_adjusted", "public_random", "public_pseudo_labeled")
"""Guesses and other nulls, from which nothing about an attack's budget follows."""

PROOFS = ("exact", "exact_fedavg")
"""Attacks that need an update exact to rounding: under noise they find nothing where others recover nearly all;
`exact_fedavg` finds rows behind noise on one client's update of a chain, and of no other."""

NOTHING_FOLLOWS = (
    "Not every attack had its published or default budget, so no conclusion is drawn about what was not recovered, nor "
    "about what a defense takes away."
)
PROOFS_ALONE = (
    "Exact inversion alone may find little behind noise or averages where attacks by optimization find more, so no "
    "conclusion is drawn about what was not recovered, nor about what a defense takes away."
)


@dataclass(frozen=True)
class Budget:
    """What the attacks of a report could spend.

    Attributes:
        stated: every attack with its budget and the published one; empty where no attack was run.
        caution: why nothing follows from what was not recovered: an attack had less than its published budget, or one
            that is not known, or `PROOFS` ran alone; empty where none of these holds.
    """

    stated: str = ""
    caution: str = ""

    @property
    def sentence(self) -> str:
        """Both."""
        return f"{self.stated} {self.caution}".strip()

    @property
    def is_weak(self) -> bool:
        """Whether nothing follows from what was not recovered."""
        return bool(self.caution)


def budget(rows: Iterable[Row]) -> Budget:
    """State the budget of every attack; guesses and trainings are left out."""
    attacks = [row for row in rows if row.attack not in (NONE, *BASELINES)]
    if not attacks:
        return Budget()
    stated: dict[str, bool] = {}
    for row in attacks:
        how, is_full = _stated(row.attack, row.settings)
        stated[attack_title(row.attack) + how] = is_full
    are_proofs = all(row.attack in PROOFS for row in attacks)
    caution = NOTHING_FOLLOWS if not all(stated.values()) else PROOFS_ALONE if are_proofs else ""
    return Budget(f"Attack budget: {'; '.join(stated)}.", caution)


def _usual(attack: str) -> tuple[str, Mapping[str, int]]:
    """Where the usual budget of an attack comes from, empty where none is known, and the budget."""
    found = ((source, of[attack]) for one in known() for source, of in one["budgets"].items() if attack in of)
    return next(found, ("", {}))


def _stated(attack: str, options: Mapping[str, str]) -> tuple[str, bool]:
    """What an attack spent against its usual budget, and whether that is known to be the whole of it.

    Settings of the stages of a composed attack count as well.

    >>> _stated("tableak", {"restarts": "1", "steps": "1500"})
    (', 1 restart in place of 30', False)
    """
    (source, usual), spent = _usual(attack), work(options)
    if is_closed_form(options):
        usual = {}
    lacking = (f"{_counted(spent[name], name)} in place of {n}" for name, n in usual.items() if spent.get(name, n) < n)
    if less := ", ".join(dict.fromkeys(lacking)):
        return f", {less}", False
    if not source:
        return " (no published budget is known)", False
    if not set(usual) <= set(spent):
        return f" (settings not {'all ' if options else ''}stated)", False
    own = {name: spent[name] for name in WORK if name in spent}
    is_more = any(usual.get(name, n) != n for name, n in own.items())
    return f" ({', '.join([*(_counted(n, name) for name, n in own.items()), 'at least ' * is_more + source])})", True


def _counted(number: int, name: str) -> str:
    words = name.rpartition(".")[2].removeprefix("n_").replace("_", " ")
    return f"{number} {words if number != 1 else words.removesuffix('s')}"
