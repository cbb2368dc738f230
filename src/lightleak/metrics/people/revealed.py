"""From rows to people: who was proven or recovered over a whole training.

What is measured is stated with `lightleak.core.people`.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd

from lightleak.core.people import Group, Means, People, Point, Sharing, exposure
from lightleak.metrics.certificate import NO_CLAIM, WRONG
from lightleak.metrics.people.evidence import Evidence, Proposed
from lightleak.metrics.people.population import Population
from lightleak.metrics.people.risks import inferences, linkage, repeated, singling_out
from lightleak.metrics.people.rows import Bools, Floats, Ints

CURVE_POINTS = 200
"""Points of a curve at most."""

BANDS = 4
"""Groups of a sensitive column of numbers."""

GROUP_POINTS = 20
"""Of a group's curve, of which there may be a hundred."""


def people_of(
    attack: str,
    updates: Sequence[Proposed],
    population: Population,
    unit: Literal["step", "round"],
    is_whole: bool = True,
) -> People:
    """What an attack revealed of every person behind the updates of a training.

    Args:
        attack: its name.
        updates: at least one, in any order.
        population: the rows of the table.
        unit: what `Proposed.step` counts.
        is_whole: see `lightleak.core.people.People`.
    """
    evidence = Evidence(sorted(updates, key=lambda one: one.step), population)
    proven, recovered = evidence.verdicts == "proven", evidence.verdicts == "recovered"
    linked, links = linkage(evidence, by_client=unit == "round")
    inferred = inferences(evidence)
    return People(
        attack=attack,
        n=len(evidence.people),
        proven=int(proven.sum()),
        proven_numbers=len(np.unique(evidence.proofs_of[evidence.proof_digits])),
        recovered=int(recovered.sum()),
        not_recovered=int((~proven & ~recovered).sum()),
        has_certificates=evidence.has_certificates,
        claims=int((evidence.person != NO_CLAIM).sum()),
        wrong=int((evidence.person == WRONG).sum()),
        wrong_cells=sum(one.wrong_cells for one in updates),
        rows=len(evidence.ids),
        unique=int((population.sharing[evidence.people] == 0).sum()) if population.marginals else None,
        sharing=_sharing(evidence) if population.marginals else (),
        unit=unit,
        curve=_course(evidence, np.ones(len(evidence.people), dtype=bool), CURVE_POINTS),
        groups=_groups(evidence),
        singling_out=singling_out(evidence),
        linkage=linked,
        links=links,
        repeated=repeated(evidence),
        inference=next(iter(inferred), None),
        other_inferences=inferred[1:],
        means=_means(updates),
        is_whole=is_whole,
    )


def table_of(attack: str, updates: Sequence[Proposed], population: Population) -> pd.DataFrame:
    """One line per person, the most exposed first: `lightleak.core.people.CSV_COLUMNS`, with the sensitive columns."""
    evidence = Evidence(sorted(updates, key=lambda one: one.step), population)
    ids, schema = evidence.people, population.schema
    table = pd.DataFrame(
        {
            "attack": attack,
            "person": ids if population.names is None else population.names[ids],
            "row": None if population.index is None else population.index[ids],
            "label": population.text(schema.label.name, ids),
            **{f"sensitive.{name}": population.text(name, ids) for name in schema.sensitive if name in schema.names},
            "seen": evidence.times(evidence.ids),
            "proven": evidence.times(evidence.proofs_of),
            "first_seen": evidence.first(evidence.ids, evidence.step_of_ids),
            "first_proven": evidence.first(evidence.proofs_of, evidence.proof_step),
            "recovered": evidence.times(evidence.ids[evidence.recovered]),
            "verdict": evidence.verdicts,
            "unique": population.sharing[ids] == 0 if population.marginals else None,
            "sharing": population.sharing[ids] if population.marginals else None,
        }
    )
    names = ("verdict", "seen", "proven", "recovered", "first_proven", "sharing")
    facts: list[list[Any]] = [[None if value is pd.NA else value for value in table[name]] for name in names]
    risks = list(map(exposure, *facts))
    return table.iloc[sorted(range(len(table)), key=risks.__getitem__)].reset_index(drop=True)


def _course(evidence: Evidence, of: Bools, most: int) -> tuple[Point, ...]:
    """What was revealed of some of the people over the steps, in `most` points at most."""
    steps = np.unique(evidence.step_of_ids)
    if len(steps) > most:
        steps = steps[np.linspace(0, len(steps) - 1, most).round().astype(int)]

    def since(ids: Ints, at: Ints) -> Floats:
        return evidence.first(ids, at).to_numpy("float64", na_value=np.inf)[of]

    seen, proven = since(evidence.ids, evidence.step_of_ids), since(evidence.proofs_of, evidence.proof_step)
    recovered = since(evidence.ids[evidence.recovered], evidence.step_of_ids[evidence.recovered])
    return tuple(
        Point(
            int(step) + 1,
            int((seen <= step).sum()),
            int((proven <= step).sum()),
            int(((recovered <= step) & ~(proven <= step)).sum()),
        )
        for step in steps
    )


def _groups(evidence: Evidence) -> tuple[Group, ...]:
    population, found = evidence.population, []
    for name in population.schema.sensitive:
        if name in population.schema.secrets:
            cells = np.array(population.text(name, evidence.people), dtype=object)
            names = [category for category, _ in Counter(cells).most_common()]
        else:
            column = [one.name for one in population.schema.numerical].index(name)
            names, of_everyone = bands(population.sent.numbers[:, column])
            cells = of_everyone[evidence.people]
        for category in names:
            of = cells == category
            verdicts = Counter(evidence.verdicts[of])
            if of.any():
                curve = _course(evidence, of, GROUP_POINTS)
                found.append(Group.of(name, category, int(of.sum()), verdicts["proven"], verdicts["recovered"], curve))
    return tuple(found)


def bands(numbers: Floats) -> tuple[list[str], Any]:
    """Divide numbers into `BANDS` of about equal size: names of the bands, and that of each number.

    Limits are rounded, and the first and the last band are open: a number that occurs would name somebody.
    """
    quarters = np.quantile(numbers, np.arange(1, BANDS) / BANDS, method="inverted_cdf")
    spread = (quarters[-1] - quarters[0]) or np.ptp(numbers)
    if not spread:
        return [], np.full(len(numbers), None)
    limits = np.unique(np.round(quarters, 1 - int(np.floor(np.log10(spread)))))
    limits = limits[(limits >= numbers.min()) & (limits < numbers.max())]
    if not len(limits):
        return [], np.full(len(numbers), None)
    ends = [f"{limit:.12g}" for limit in limits]
    inner = [f"above {start} to {end}" for start, end in pairwise(ends)]
    names = [f"{ends[0]} or less", *inner, f"above {ends[-1]}"]
    return names, np.array(names, dtype=object)[np.searchsorted(limits, numbers)]


def _sharing(evidence: Evidence) -> tuple[Sharing, ...]:
    others = evidence.population.sharing[evidence.people]
    exposed = evidence.verdicts != "not recovered"
    found = zip(*np.unique(others, return_counts=True), strict=True)
    return tuple(Sharing(int(n), int(people), int(exposed[others == n].sum())) for n, people in found)


def _means(updates: Sequence[Proposed]) -> Means:
    cpu = [one.cpu_seconds for one in updates]
    return Means(
        updates=len(updates),
        epochs=tuple(sorted({one.epoch for one in updates})),
        seconds=float(sum(one.seconds for one in updates)),
        cpu_seconds=None if np.isnan(cpu).any() else float(sum(cpu)),
        peak_memory=max(one.peak_memory for one in updates) or None,
    )
