"""What a run leaves behind: results.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightleak.core.records import to_json
from lightleak.core.stored import write_json
from lightleak.core.summary import summarize_rows

SCHEMA_VERSION = 1
RESULTS_FILE = "results.json"
GROUP_KEYS = (
    "dataset",
    "target",
    "protocol",
    "local_epochs",
    "local_batches",
    "local_batch_size",
    "n_clients",
    "attack",
    "batch_size",
    "labels",
    "defense",
    "defense_strength",
    "epsilon",
    "release_epsilon",
    "delta",
    "no_guarantee",
    "source",
    "epoch",
)
"""Rows that agree on these are batches of one experiment; a summary entry is one such group."""


def write_results(
    folder: Path,
    rows: Sequence[dict[str, Any]],
    extra_keys: Sequence[str] = (),
    per: str | None = None,
    left_out: Mapping[str, str] | None = None,
    findings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write ``results.json`` and return its content: every row, and mean, deviation, n and 95% interval per group.

    Args:
        folder: the run folder.
        rows: results rows.
        extra_keys: further columns that rows of one group agree on.
        per: see `summarize_rows`.
        left_out: why attacks that were chosen do not apply, by name; the key is there only where there are any.
        findings: further keys.
    """
    keys = [key for key in (*GROUP_KEYS, *extra_keys) if any(key in row for row in rows)]
    results: dict[str, Any] = to_json(
        {"schema_version": SCHEMA_VERSION, "rows": list(rows), "summary": summarize_rows(list(rows), keys, per)}
    )
    results |= {"left_out": dict(left_out)} if left_out else {}
    results |= to_json(dict(findings or {}))
    write_json(folder / RESULTS_FILE, results, indent=1)
    return results
