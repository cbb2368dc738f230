"""What was attacked, what attackers were assumed to know, and which attacks were left out."""

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

from lightleak.core.results import Row
from lightleak.report.compare import Group, R
from lightleak.report.format import attack_title
from lightleak.report.page import Block, Bullets, Facts, Heading, Paragraph, Section, text
from lightleak.report.read import Run


def subject_section(
    runs: Sequence[Run],
    facts: Iterable[tuple[str, Iterable[str]]],
    groups: Sequence[Group[R]],
    *,
    before: Sequence[Block] = (),
    after: Sequence[str] = (),
) -> Section:
    """Draw what was attacked.

    Args:
        runs: the runs of the report.
        facts: names with values of the rows; of each value, one is shown.
        groups: attacks whose assumptions are listed.
        before: blocks above the facts.
        after: paragraphs that explain the assumptions.
    """
    blocks: list[Block] = [Paragraph("Nothing yet: the run has no results.")]
    if any(run.rows for run in runs):
        found = tuple((name, words) for name, values in facts if (words := "; ".join(dict.fromkeys(values))))
        known = [text("<strong>{}:</strong> {}", "; ".join(who), what) for what, who in assumptions(groups).items()]
        blocks = [*before, *([Facts(found)] if found else [])]
        blocks += [Heading("What each attack is assumed to know"), Bullets(tuple(known))] if known else []
        blocks += [one if isinstance(one, Markup) else Paragraph(one) for one in after]
    return Section("what", "What was attacked", (*blocks, *_left_out(runs)))


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
    """Sentences of rows that have no threat model as data: those of older files, which are shown as they are."""
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


def _left_out(runs: Sequence[Run]) -> tuple[Block, ...]:
    found = tuple(text("<strong>{}:</strong> {}", title, reason) for title, reason in left_out(runs).items())
    if not found:
        return ()
    return (
        Heading("Attacks that were left out"),
        Paragraph("They do not apply here, so nothing follows from their absence:"),
        Bullets(found),
    )
