"""Norms of intermediate results with and without a property (``norms.json``): drawn, and as distances."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from lightleak.core.errors import UsageError
from lightleak.core.grouping import by_key
from lightleak.core.parties import KINDS
from lightleak.core.records import json_field
from lightleak.core.results import NONE
from lightleak.report.blocks import Block, Details, Figure, Legend, Panels, Section
from lightleak.report.format import DASH, joined
from lightleak.report.intervals import estimate
from lightleak.report.page import cells_table, fill, text
from lightleak.report.plot.axis import axis
from lightleak.report.plot.chart import Line, Plot, stairs
from lightleak.report.plot.svg import draw
from lightleak.report.read import Run

FILE_NAME = "norms.json"
KIND_TITLES = {"AO": "own output", "AG": "own gradient", "VO": "the other's output", "VG": "the other's gradient"}
NORM_TITLES = {"l1": "L1", "l2": "L2", "linf": "L∞"}
DISTANCES = {"kl": "KL", "js": "JS", "bc": "BC"}
DRAWN = "l1"
"""The norm that the attacks use by default."""


@dataclass(frozen=True)
class NormEntry:
    """One pair of histograms over the same edges.

    Attributes:
        run: name of the run.
        dataset: name of the table.
        property_name: the property, as ``column=value``.
        party: index of the adversary.
        variant: how the attack was carried out; ``passive`` follows the protocol.
        defense: label of the defense.
        kind: ``AO``, ``AG``, ``VO`` or ``VG``.
        norm: ``l1``, ``l2`` or ``linf``.
        epoch: epoch of the training.
        seed: of the training.
        edges: one more than there are bins.
        having: density of the records with the property, by bin.
        lacking: density of those without.
        distances: by name of `DISTANCES`.
    """

    edges: tuple[float, ...]
    having: tuple[float, ...] = json_field(key="with_property")
    lacking: tuple[float, ...] = json_field(key="without_property")
    run: str = json_field(written=False, default="")
    dataset: str = "dataset not stated"
    property_name: str = json_field(key="property", default="property not stated")
    party: int | None = json_field(key="adversary_party", default=None)
    variant: str = ""
    defense: str = NONE
    kind: str = "kind not stated"
    norm: str = ""
    epoch: int | None = None
    seed: int | str | None = None
    distances: Mapping[str, float] = field(default_factory=dict)


def norm_entries(runs: Iterable[Run]) -> list[NormEntry]:
    """Entries of all runs; none of a run without the file.

    Raises:
        UsageError: a file cannot be read, or the edges and densities of an entry do not fit together.
    """
    return [
        _checked(one, run, index)
        for run in runs
        for index, one in enumerate(run.entries(FILE_NAME, NormEntry, run=run.name))
    ]


def norms_section(entries: Sequence[NormEntry], first: str = "") -> Section | None:
    """Draw the entries of each table and property; those of the property ``first`` stand first and unfolded."""
    several = len({one.dataset for one in entries}) > 1
    of_property = list(by_key(entries, lambda one: (one.dataset, one.property_name)).values())
    of_property.sort(key=lambda same: same[0].property_name != first)
    if not of_property:
        return None
    legend = Legend([("having", "with the property"), ("lacking", "without it")])
    drawn = [_of_property(same, several, is_open=index == 0) for index, same in enumerate(of_property)]
    blocks = (fill("sections", "norms"), legend, *drawn, fill("sections", "distances"))
    return Section("norms", "What gives it away", blocks)


def density_chart(name: str, edges: Sequence[float], having: Sequence[float], lacking: Sequence[float]) -> str:
    """Draw two step densities over the same edges: with the property as a filled outline, without it dashed."""
    outlines = [
        stairs([*zip(edges, values, strict=False), (edges[-1], values[-1])])[:-1] for values in (having, lacking)
    ]
    layers = [
        Line([(edges[0], 0.0), *outlines[0], (edges[-1], 0.0)], "fill", is_area=True),
        Line(outlines[0], "having"),
        Line(outlines[1], "lacking"),
    ]
    x, y = axis([edges[0], edges[-1]], ends="exact"), axis([0.0, max(*having, *lacking) or 1.0], ends="exact")
    return draw(Plot(name, x, y, layers, height=110, grid="", room=30))


def _checked(entry: NormEntry, run: Run, index: int) -> NormEntry:
    where = f"{run.path / FILE_NAME}, entry {index}"
    sizes = [len(values) for values in (entry.edges, entry.having, entry.lacking)]
    if not entry.having or sizes != [sizes[1] + 1, sizes[1], sizes[1]]:
        raise UsageError(
            f"{where}: expected n + 1 edges and n densities each with and without the property, got "
            f"{sizes[0]}, {sizes[1]} and {sizes[2]}"
        )
    if not all(value is not None and math.isfinite(value) for value in (*entry.edges, *entry.having, *entry.lacking)):
        raise UsageError(f"{where}: expected lists of finite numbers")
    if any(right <= left for left, right in pairwise(entry.edges)):
        raise UsageError(f"{where}: edges must ascend")
    return entry


def _of_property(entries: Sequence[NormEntry], several: bool, is_open: bool) -> Block:
    shown = entries[0]
    varying = [name for name in ("run", "epoch", "party", "defense") if len({getattr(e, name) for e in entries}) > 1]
    groups = by_key(entries, lambda one: (one.variant != "passive", one.variant, _where(one, varying), _order(one)))
    titled = [(_title(same[0], varying), same) for _, same in sorted(groups.items())]
    drawn = DRAWN if any(one.norm == DRAWN for one in entries) else shown.norm
    panels = [figure for title, same in titled for figure in _panel(title, same, drawn, shown.seed)]
    lines = [
        (title, NORM_TITLES.get(norm, norm), *(_distance(name, found) for name in DISTANCES), str(len(found)))
        for title, same in titled
        for norm, found in by_key(same, lambda one: one.norm).items()
    ]
    table = cells_table("Distances between norms", ("Result", "Norm", *DISTANCES.values(), "Seeds"), [("", lines)])
    note = fill("sections", "drawn", shown.seed)
    title = f"{shown.dataset}: {shown.property_name}" if several else shown.property_name
    return Details(title, (Panels(tuple(panels), "densities"), note, table), is_open)


def _panel(title: str, same: Sequence[NormEntry], norm: str, seed: int | str | None) -> list[Figure]:
    """The chart of one result; none where that norm is not there."""
    known = [one for one in same if one.norm == norm]
    if not known:
        return []
    one = next((one for one in known if one.seed == seed), known[0])
    label = f"{NORM_TITLES.get(norm, norm)} norms of {title}, {one.property_name}: with and without the property"
    overlap = f" · overlap (BC) {one.distances['bc']:.3f}" if "bc" in one.distances else ""
    drawing = density_chart(label, one.edges, one.having, one.lacking)
    return [Figure(drawing, caption=text("<strong>{}</strong>{}", title, overlap))]


def _distance(name: str, entries: Sequence[NormEntry]) -> str:
    found = estimate(one.distances.get(name) for one in entries)
    return DASH if found is None else f"{found.mean:.4f}"


def _title(entry: NormEntry, varying: Sequence[str]) -> str:
    kind = joined(entry.kind, KIND_TITLES.get(entry.kind, ""))
    return joined(kind, "" if entry.variant == "passive" else entry.variant, _where(entry, varying), by=" · ")


def _where(entry: NormEntry, varying: Sequence[str]) -> str:
    words = {
        "run": f"run {entry.run}",
        "epoch": f"epoch {entry.epoch}",
        "party": f"party {entry.party}",
        "defense": "no defense" if entry.defense == NONE else entry.defense.replace("_", " "),
    }
    return joined(*(words[name] for name in varying))


def _order(entry: NormEntry) -> tuple[int, str]:
    return KINDS.index(entry.kind) if entry.kind in KINDS else len(KINDS), entry.kind
