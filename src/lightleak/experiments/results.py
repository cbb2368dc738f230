"""What a run leaves behind: results.json, and what a redacted run still holds once it is finished."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightleak.callbacks.capture_store import redact_captures
from lightleak.core.private_files import private_files
from lightleak.core.records import to_json
from lightleak.core.summary import summarize_rows
from lightleak.experiments.settings import Redact
from lightleak.experiments.unit import write_whole

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
    write_whole(folder / RESULTS_FILE, json.dumps(results, indent=1))
    return results


ATTACKABLE = ("captures", "checkpoints", "models", "generators")
"""Folders of a run from which rows can be recovered: updates, and networks that can remember rows."""

DROPPED_FILE = "dropped.json"
"""Says which folders of a finished run were dropped, and which captures there were."""


def redact_run(folder: Path, redact: Redact, private: Sequence[str] = ()) -> None:
    """Redact a finished run folder; one that is redacted already stays unchanged.

    Args:
        folder: the run folder.
        redact: ``True`` takes rows and marginals out of the captures; ``all`` removes `ATTACKABLE` and notes it in
            ``dropped.json``, so that the run is known to be finished.
        private: folders that no redacted run keeps.
    """
    if redact != "all":
        if redact:
            redact_captures(folder / "captures")
            for name in private:
                shutil.rmtree(folder / name, ignore_errors=True)
        return
    if dropped(folder) is None:
        held = sorted(path.name for path in (folder / "captures").glob("*"))
        with private_files():
            write_whole(folder / DROPPED_FILE, json.dumps({"folders": list(ATTACKABLE), "captures": held}))
    for name in (*ATTACKABLE, *private):  # also where an earlier process was stopped in between
        shutil.rmtree(folder / name, ignore_errors=True)


def dropped(folder: Path) -> list[str] | None:
    """Names of the captures that a finished run has dropped, or None where it has dropped nothing."""
    file = folder / DROPPED_FILE
    if not file.is_file():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return list(found["captures"])
