"""The table on the terminal after an audit of a released model."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from lightleak.core.results import ALL
from lightleak.experiments.terminal import Column, Lines, mean_of, percent
from lightleak.metrics.inversion.score import MEASURES

COLUMNS = ("right", "2nd", "shapes", "rows", "nearer")
"""Heads of the columns of `MEASURES`."""


def released_tables(results: Mapping[str, Any]) -> Iterator[Lines]:
    """One line per attack and latent search over all classes, means over trainings."""
    groups = [group for group in results["summary"] if group.get("class") == ALL]
    if not groups:
        return
    rows = [row for row in results["rows"] if row["class"] == ALL]
    row = rows[0]
    said = [
        f"dataset {row['dataset']}, target {row['target']}, setting {row['setting']}",
        f"{row['evaluation'] or 'nobody'} judges; trained on the target's rows it is right on "
        f"{percent(_mean(rows, 'real_rows_accuracy'))}% of held-out private rows, trained on others on "
        f"{percent(_mean(rows, 'disjoint_real_rows_accuracy'))}%",
        "acc: % of rows taken for their class; then differences to as many public rows that the target sorted into "
        "the classes, repeated where fewer were kept: accuracy under both judges, class shapes, distinct nearest rows, "
        "nearness to training rows",
        "cond: % of public rows classified correctly by a classifier trained on the reconstructed rows "
        f"({percent(_mean(rows, 'public_condition_accuracy'))}% when trained on public rows); n: trainings",
    ]
    columns = [
        Column("attack", is_number=False, most=18),
        Column("search", is_number=False),
        *(Column(name) for name in ("acc", *COLUMNS, "cond", "n")),
    ]
    yield Lines(["; ".join(said)], columns, [_cells(group) for group in groups])


def _cells(group: Mapping[str, Any]) -> list[str]:
    return [
        str(group["label"]),
        str(group["latent_search"]),
        percent(mean_of(group, "attack_accuracy")),
        *(_signed(name, mean_of(group, f"over_public_{name}")) for name in MEASURES),
        percent(mean_of(group, "condition_accuracy")),
        str((group.get("inversion_loss") or {}).get("n", 0)),
    ]


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Mean over the rows that have the value; a latent search that makes few rows has no condition accuracy."""
    known = [value for row in rows if (value := row.get(name)) is not None]
    return fmean(known) if known else None


def _signed(name: str, value: float | None) -> str:
    return "-" if value is None else f"{value if name == 'distinct_nearest_rows' else 100 * value:+.1f}"
