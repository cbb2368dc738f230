"""What was attacked, what attackers were assumed to know, and which attacks were left out."""

from collections.abc import Iterable, Mapping, Sequence

from lightleak.core.results import Row
from lightleak.report.compare import Group, R
from lightleak.report.format import attack_title
from lightleak.report.page import Block, Section, fill
from lightleak.report.read import Run


def subject_section(
    runs: Sequence[Run],
    facts: Iterable[tuple[str, Iterable[str]]],
    groups: Sequence[Group[R]],
    *,
    before: Sequence[Block] = (),
    after: Sequence[Block] = (),
) -> Section:
    """Draw what was attacked.

    Args:
        runs: the runs of the report.
        facts: names with values of the rows; of each value, one is shown.
        groups: attacks whose assumptions are listed.
        before: blocks above the facts.
        after: blocks that explain the assumptions.
    """
    reasons = fill("sections", "left_out", left_out(runs))
    if not any(run.rows for run in runs):
        return Section("what", "What was attacked", ("Nothing yet: the run has no results.", reasons))
    found = [(name, words) for name, values in facts if (words := "; ".join(dict.fromkeys(values)))]
    drawn = fill("sections", "subject", found, assumptions(groups))
    return Section("what", "What was attacked", (*before, drawn, *after, reasons))


def assumptions(groups: Iterable[Group[R]]) -> dict[str, list[str]]:
    """Titles of attacks by the sentence that says what they assume."""
    found: dict[str, list[str]] = {}
    for group in groups:
        for row in group.rows:
            titles = found.setdefault(row.threat_model or "Not stated.", [])
            if group.title not in titles:
                titles.append(group.title)
    return found


def threat_facts(rows: Iterable[Row], field: str) -> list[str]:
    """Entries of one field of all threat models (``sees``, ``knows``, ``does``), each once; none of older files."""
    return list(dict.fromkeys(one for row in rows if row.threat for one in getattr(row.threat, field)))


def other_assumptions(rows: Iterable[Row]) -> list[str]:
    """Threat models of older files, which have them as sentences only; shown unchanged."""
    return list(dict.fromkeys(row.threat_model for row in rows if row.threat_model and row.threat is None))


def title_of(runs: Sequence[Run], otherwise: str) -> str:
    """The title that all configs share; ``otherwise`` and the subject where they share none."""
    titles = {run.title for run in runs}
    return (titles.pop() if len(titles) == 1 else None) or f"{otherwise}: {subject_of(runs)}"


def subject_of(runs: Sequence[Run]) -> str:
    """Names of the tables; of the runs where the rows do not name a table."""
    names = dict.fromkeys(row.dataset for run in runs for row in run.rows if row.dataset)
    return ", ".join(names) or ", ".join(run.name for run in runs)


def left_out(runs: Iterable[Run]) -> Mapping[str, str]:
    """Why attacks were left out, by their titles."""
    return {attack_title(name): str(reason) for run in runs for name, reason in run.left_out.items()}
