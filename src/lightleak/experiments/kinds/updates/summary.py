"""The table on the terminal after an audit of client updates: a line per group of updates."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lightleak.core.people import People, Rate, read_people
from lightleak.core.summary import summarize_rows
from lightleak.experiments.terminal import Column, Lines, mean_of, percent
from lightleak.report.intervals import bounded

_CLIENTS = {"initial": "untrained", "given": "as given"}
"""What fresh clients compute on: the network before any training, or a user's own module with the weights it had."""

TEXTS = ("dataset", "target", "labels", "clients", "attack")

TERMINAL, LEAST = 80, 10
"""Columns of a terminal, of which the attack gets what is left, and so many at least: a longer name is broken."""


def update_tables(results: Mapping[str, Any]) -> Iterator[Lines]:
    """One table of all groups, without the columns in which they agree; these are named above it."""
    groups = _groups(results)
    proves = {row.get("attack") for row in results["rows"] if row.get("labels_proven") and row.get("certified_rows")}
    lines = [
        {
            "dataset": str(group.get("dataset")),
            "target": str(group.get("target")),
            "labels": "proven" if group.get("attack") in proves else str(group.get("labels")),
            "clients": _CLIENTS.get(str(group.get("source"))) or _when(group),
            "batch": str(group.get("batch_size")),
            "attack": str(group.get("attack")),
            "cells": percent(mean_of(group, "cell_accuracy")),
            "interval": _interval(group.get("cell_accuracy")),
            "rows": percent(_rows(group)),
            "proven": percent(mean_of(group, "certified_share")),
            "n": str(group["seconds"]["n"]),
            "s": _seconds(group["seconds"]["mean"]),
        }
        for group in groups
    ]
    if not lines:
        return
    shared = [name for name in ("dataset", "target", "labels") if len({line[name] for line in lines}) == 1]
    said = [*(f"{name} {lines[0][name]}" for name in shared), *_protocol_and_defense(groups)]
    said.append(
        "cells and rows: % recovered, numbers within TabLeak's tolerance; interval: 95%, of cells; s: seconds per batch"
    )
    if certifies := any(line["proven"] != "-" for line in lines):
        said.append("proven: % of rows that the attack has certified, without the truth")
    if any(row.get("planned_batch_size") for row in results["rows"]):
        said.append("batch ~n: sizes drawn at random, n on average")
    if proves:
        said.append("labels proven: restored from the update, and certified with their rows")
    names = [name for name in lines[0] if name not in shared and (certifies or name != "proven")]
    widths = {name: max(len(name), *(len(line[name]) for line in lines)) for name in names}
    room = TERMINAL - sum(1 + width for name, width in widths.items() if name != "attack")
    columns = [
        Column(name, is_number=name not in TEXTS, most=max(room, LEAST) if name == "attack" and width > room else None)
        for name, width in widths.items()
    ]
    yield Lines(["; ".join(said)], columns, [[line[name] for name in names] for line in lines])
    if people := read_people(results, "people"):
        yield _people_table(people)


def _rows(group: Mapping[str, Any]) -> float | None:
    """Share of rows recovered; of rows of earlier versions those that are right to the last digit."""
    close = mean_of(group, "close_match_rate")
    return mean_of(group, "exact_match_rate") if close is None else close


def _people_table(people: Sequence[People]) -> Lines:
    """A line for each attack: how many people it exposes, and the three risks."""
    said = "people: training rows in some attacked update; wrong: proofs that fit nobody; recovered: without proof; "
    said += (
        "single, link, infer: people singled out, linked, and of whom a secret (the one with the largest gain) is named"
    )
    names = ("attack", "people", "proven", "95% interval", "wrong", "recovered", "single", "link", "infer")
    columns = [Column(name, is_number=name != "attack") for name in names]
    return Lines([said], columns, [[one.attack, *_people_cells(one)] for one in people])


def _people_cells(one: People) -> list[str]:
    proven, rate = ("-", "-") if not one.has_certificates else (str(one.proven), _ends(one.proven_rate))
    risks = [percent(risk.attack.share if risk.attack else None, "%") for _, risk in one.risks[:3]]
    return [str(one.n), proven, rate, str(one.wrong), str(one.recovered), *risks]


def _ends(rate: Rate) -> str:
    return f"{100 * rate.low:.1f} to {100 * rate.high:.1f}%"


def _groups(results: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """The summary; batches whose sizes were drawn at random around the same planned size are one group."""
    rows, groups = results["rows"], results["summary"]
    if all(row.get("planned_batch_size") is None for row in rows):
        return groups
    sizes = [f"~{size}" if (size := row.get("planned_batch_size")) else None for row in rows]
    changed = [{"batch_size": size, "local_batch_size": size} if size else {} for size in sizes]
    planned = [row | change for row, change in zip(rows, changed, strict=True)]
    return summarize_rows(planned, [name for name in groups[0] if not isinstance(groups[0][name], Mapping)])


def _protocol_and_defense(groups: Sequence[dict[str, Any]]) -> list[str]:
    """What differs from plain FedSGD without a defense, where all groups agree on it."""
    said = []
    if {group.get("protocol") for group in groups} == {"fedavg"}:
        epochs = {group.get("local_epochs") for group in groups}
        said.append(f"FedAvg, local epochs {epochs.pop()}" if len(epochs) == 1 else "FedAvg")
    names = ("defense", "defense_strength", "epsilon", "release_epsilon", "no_guarantee")
    defenses = {tuple(group.get(name) for name in names) for group in groups}
    if len(defenses) == 1 and (found := defenses.pop())[0] not in (None, "none"):
        name, strength, epsilon, release, why = found
        said.append(f"defense {name}" + ("" if strength is None else f" {strength:g}"))
        said += [] if epsilon is None else [f"epsilon {epsilon:.3g} of the training"]
        updates = "one update" if (n := mean_of(groups[0], "releases")) is None else f"{n:g} updates"
        said += [] if release is None else [f"epsilon {release:.3g} of {updates} whose batch is known"]
        said += [] if why is None else [f"no guarantee: {why}"]
    return said


def _when(group: dict[str, Any]) -> str:
    return f"{'round' if group.get('protocol') == 'fedavg' else 'epoch'} {group.get('epoch')}"


def _seconds(value: float) -> str:
    """Three digits, those before the point at least.

    >>> _seconds(0.567), _seconds(17.58), _seconds(1234.5)
    ('0.57', '17.6', '1234')
    """
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _interval(summary: dict[str, Any] | None) -> str:
    if summary is None or summary["low"] is None:
        return "-"
    low, high = max(0.0, summary["low"]), min(1.0, summary["high"])  # Student's interval knows no bounds; a share has
    if low == high and (found := bounded([summary["mean"]] * summary["n"])):  # n equal values prove no certainty
        low, high = found.low or 0.0, found.high or 0.0
    return f"{100 * low:.1f}-{100 * high:.1f}"
