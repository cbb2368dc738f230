"""``lightleak doctor``: check that everything an audit needs is here and works, and suggest fixes.

A check is a function from facts to findings. Each module holds the checks of one topic and ``check``, which gathers the
facts.
"""

import importlib
import json
import platform
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from lightleak import __version__
from lightleak.doctor.finding import Check, Facts, Finding, State, has_problem

__all__ = ["Facts", "Finding", "State", "examine", "has_problem", "print_findings", "write_findings"]

SCHEMA_VERSION = 1
TOPICS = ("install", "devices", "memory", "tables", "storage", "cluster", "attack")
WIDTH = 100
STYLES = {State.OK: "green", State.NOTE: "yellow", State.PROBLEM: "bold red"}


def examine(facts: Facts) -> list[Finding]:
    """Examine this machine; takes the time of some imports."""
    # Some of them wait for other processes.
    with ThreadPoolExecutor(max_workers=2) as pool:
        return [finding for findings in pool.map(partial(guarded, facts=facts), TOPICS) for finding in findings]


def guarded(topic: str, facts: Facts) -> list[Finding]:
    """Return the findings of a topic, or one that says why its check cannot run."""
    try:
        # Imported here: where torch or pandas are missing or broken, the other topics are examined all the same.
        return importlib.import_module(f"{__name__}.{topic}").check(facts)
    except Exception as error:  # whatever is broken is reported as a finding
        fix = "fix the installation first; if nothing is wrong there, report this message"
        return [Check(topic, topic).problem(f"cannot be examined: {type(error).__name__}: {error}", fix)]


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print the findings as a table of at most 100 columns, and their summary."""
    grid = Grid("", "what", "found, and how to fix it", box=None, padding=(0, 1, 0, 0), header_style="bold")
    for finding in findings:
        words = Text(finding.found)
        if finding.fix:
            words.append(f"\nfix: {finding.fix}", style="bold" if finding.state is State.PROBLEM else "dim")
        what = f"{finding.topic}: {finding.check}" if finding.check != finding.topic else finding.topic
        grid.add_row(Text(finding.state, style=STYLES[finding.state]), Text(what), words)
    console.print(grid, width=min(WIDTH, console.width), highlight=False)
    n_problems, n_notes = count(findings, State.PROBLEM), count(findings, State.NOTE)
    verdict = "nothing needs to be fixed" if not n_problems else f"{n_problems} to fix"
    console.print(f"{len(findings)} checks: {verdict}, {n_notes} notes", highlight=False)


def write_findings(findings: Sequence[Finding], file: Path) -> None:
    """Write the findings as JSON."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "lightleak": __version__,
        "python": platform.python_version(),
        "problems": count(findings, State.PROBLEM),
        "notes": count(findings, State.NOTE),
        "findings": [finding.to_dict() for finding in findings],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1))


def are_findings(file: Path) -> bool:
    """Whether a file holds what `write_findings` wrote."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"lightleak", "problems", "findings"} <= set(content)


def count(findings: Iterable[Finding], state: State) -> int:
    """How many findings are in a state."""
    return sum(finding.state is state for finding in findings)
