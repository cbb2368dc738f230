"""Norms with and without a property, drawn and as distances (ProVFL Fig. 2, Fig. 4, Table II)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.core.intermediate_results import KINDS
from lightleak.report.estimate import Estimate, estimate
from lightleak.report.vertical.charts import density_chart
from lightleak.report.vertical.norms import DISTANCES, NormEntry
from lightleak.report.vertical.wording import KIND_TITLES, NORM_TITLES, PASSIVE, defense_name

DRAWN_NORM = "l1"
"""The norm that the attacks use by default."""


@dataclass(frozen=True)
class NormPanel:
    """One drawn pair of densities."""

    title: str
    note: str
    drawing: Markup


@dataclass(frozen=True)
class DistanceRow:
    """Distances of one norm, means over seeds."""

    title: str
    norm: str
    distances: dict[str, Estimate | None]
    n_seeds: int


@dataclass(frozen=True)
class NormSection:
    """The norms of one property; ``seed`` is the one drawn."""

    title: str
    property_name: str
    seed: str
    panels: tuple[NormPanel, ...]
    rows: tuple[DistanceRow, ...]


def norm_sections(entries: Sequence[NormEntry], first: str | None = None) -> tuple[NormSection, ...]:
    """One section for each dataset and property; that of the property ``first`` comes first."""
    by_property: dict[tuple[str, str], list[NormEntry]] = defaultdict(list)
    for entry in entries:
        by_property[entry.dataset, entry.property_name].append(entry)
    several = len({dataset for dataset, _ in by_property}) > 1
    found = [
        _section(f"{dataset}: {name}" if several else name, name, members)
        for (dataset, name), members in by_property.items()
    ]
    return tuple(sorted(found, key=lambda section: section.property_name != first))


def _section(title: str, name: str, entries: Sequence[NormEntry]) -> NormSection:
    differing = [
        part for part in ("run", "epoch", "party", "defense") if len({getattr(entry, part) for entry in entries}) > 1
    ]
    groups: dict[tuple[str, str, str], list[NormEntry]] = defaultdict(list)
    for entry in entries:
        groups[entry.variant, _where(entry, differing), entry.kind].append(entry)
    seed = str(entries[0].seed)
    drawn = DRAWN_NORM if any(entry.norm == DRAWN_NORM for entry in entries) else entries[0].norm
    panels, rows = [], []
    for (variant, where, kind), members in sorted(groups.items(), key=lambda pair: _order(pair[0])):
        label = " · ".join(part for part in (_kind(kind), "" if variant == PASSIVE else variant, where) if part)
        shown = [entry for entry in members if entry.norm == drawn]
        if shown:
            entry = next((one for one in shown if str(one.seed) == seed), shown[0])
            name_ = f"{_norm(drawn)} norms of {label}, {name}: with and without the property"
            note = f"overlap (BC) {entry.distances['bc']:.3f}" if "bc" in entry.distances else ""
            panels.append(NormPanel(label, note, density_chart(name_, entry.edges, entry.having, entry.lacking)))
        for norm in dict.fromkeys(entry.norm for entry in members):
            same = [entry for entry in members if entry.norm == norm]
            values = {name: estimate(one.distances.get(name) for one in same) for name in DISTANCES}
            rows.append(DistanceRow(label, _norm(norm), values, len(same)))
    return NormSection(title, name, seed, tuple(panels), tuple(rows))


def _where(entry: NormEntry, differing: Sequence[str]) -> str:
    words = {
        "run": f"run {entry.run}",
        "epoch": f"epoch {entry.epoch}",
        "party": f"party {entry.party}",
        "defense": defense_name(entry.defense),
    }
    return ", ".join(words[part] for part in differing)


def _order(key: tuple[str, str, str]) -> tuple[bool, str, str, int]:
    variant, where, kind = key
    return variant != PASSIVE, variant, where, KINDS.index(kind) if kind in KINDS else len(KINDS)


def _kind(kind: str) -> str:
    return f"{kind}, {KIND_TITLES[kind]}" if kind in KIND_TITLES else kind or "kind not stated"


def _norm(norm: str) -> str:
    return NORM_TITLES.get(norm, norm)
