"""``norms.json`` of a vertical run: distributions of the norms with and without a property."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.report.run_folder import read_entries
from lightleak.report.vertical.result import NO_DEFENSE

FILE_NAME = "norms.json"
SCHEMA_VERSION = 1
DISTANCES = ("kl", "js", "bc")


@dataclass(frozen=True)
class NormEntry:
    """One pair of histograms.

    Attributes:
        run: name of the run folder.
        dataset: name of the table.
        property_name: the property, as ``column=value``.
        party: index of the adversary.
        variant: how the attack was carried out.
        defense: what the training was defended with.
        kind: ``AO``, ``AG``, ``VO`` or ``VG``.
        norm: ``l1``, ``l2`` or ``linf``.
        epoch: epoch the results were taken in.
        seed: of the training.
        edges: ``bins + 1`` edges.
        having: density of the records with the property, by bin.
        lacking: density of those without.
        distances: by name of `DISTANCES`.
    """

    run: str
    dataset: str
    property_name: str
    party: int | None
    variant: str
    defense: str
    kind: str
    norm: str
    epoch: int | None
    seed: Any
    edges: tuple[float, ...]
    having: tuple[float, ...]
    lacking: tuple[float, ...]
    distances: Mapping[str, float] = field(default_factory=dict)


def load_norms(folder: Path, run: str) -> tuple[NormEntry, ...]:
    """The entries of ``norms.json``; none where the run has no such file.

    Raises:
        UsageError: the file is no JSON of the known schema version, or an entry is damaged.
    """
    file = folder / FILE_NAME
    entries = read_entries(file, SCHEMA_VERSION)
    return tuple(_entry(entry, run, f"{file}, entry {i}") for i, entry in enumerate(entries))


def _entry(raw: Any, run: str, where: str) -> NormEntry:
    if not isinstance(raw, Mapping):
        raise UsageError(f"{where}: expected a mapping, got {raw!r}")
    edges, having, lacking = (
        _numbers(raw.get(name), f"{where}, {name}") for name in ("edges", "with_property", "without_property")
    )
    if not having or len(edges) != len(having) + 1 or len(lacking) != len(having):
        raise UsageError(
            f"{where}: expected n + 1 edges and n densities each with and without the property, "
            f"got {len(edges)}, {len(having)} and {len(lacking)}"
        )
    if any(right <= left for left, right in pairwise(edges)):
        raise UsageError(f"{where}: edges must ascend")
    distances = raw.get("distances")
    if not isinstance(distances, Mapping):
        distances = {}
    party, epoch = raw.get("adversary_party"), raw.get("epoch")
    return NormEntry(
        run=run,
        dataset=str(raw.get("dataset") or "dataset not stated"),
        property_name=str(raw.get("property") or "property not stated"),
        party=party if isinstance(party, int) else None,
        variant=str(raw.get("variant") or ""),
        defense=str(raw.get("defense") or NO_DEFENSE),
        kind=str(raw.get("kind") or ""),
        norm=str(raw.get("norm") or ""),
        epoch=epoch if isinstance(epoch, int) else None,
        seed=raw.get("seed"),
        edges=edges,
        having=having,
        lacking=lacking,
        distances={
            name: float(value)
            for name in DISTANCES
            if isinstance(value := distances.get(name), int | float) and math.isfinite(value)
        },
    )


def _numbers(raw: Any, where: str) -> tuple[float, ...]:
    if not isinstance(raw, list) or not all(isinstance(value, int | float) and math.isfinite(value) for value in raw):
        raise UsageError(f"{where}: expected a list of finite numbers")
    return tuple(map(float, raw))
