"""What was attacked, and which attacks were left out."""

from collections.abc import Iterable, Mapping, Sequence

from lightleak.report.blocks import Block, Section
from lightleak.report.format import attack_title
from lightleak.report.page import fill
from lightleak.report.read import Run


def subject_section(
    runs: Sequence[Run],
    facts: Iterable[tuple[str, Iterable[str]]],
    *,
    before: Sequence[Block] = (),
    after: Sequence[Block] = (),
) -> Section:
    """Draw what was attacked, and which attacks were left out.

    Args:
        runs: the runs of the report.
        facts: names with values of the rows; of each value, one is shown.
        before: blocks above the facts.
        after: blocks below them.
    """
    reasons = fill("sections", "left_out", left_out(runs))
    if not any(run.rows for run in runs):
        return Section("what", "What was attacked", ("Nothing yet: the run has no results.", reasons))
    found = [(name, words) for name, values in facts if (words := "; ".join(dict.fromkeys(values)))]
    drawn = (fill("macros", "facts", found),) if found else ()
    return Section("what", "What was attacked", (*before, *drawn, *after, reasons))


def title_of(runs: Sequence[Run], otherwise: str, subject: str = "") -> str:
    """Return the title that all configs share; ``otherwise`` and the subject where they share none."""
    titles = {run.title for run in runs}
    return (titles.pop() if len(titles) == 1 else None) or f"{otherwise}: {subject or subject_of(runs)}"


def subject_of(runs: Sequence[Run]) -> str:
    """Names of the tables; of the runs where the rows do not name a table."""
    names = dict.fromkeys(row.dataset for run in runs for row in run.rows if row.dataset)
    return ", ".join(names) or ", ".join(run.name for run in runs)


def left_out(runs: Iterable[Run]) -> Mapping[str, str]:
    """Why attacks were left out, by their titles."""
    return {attack_title(name): str(reason) for run in runs for name, reason in run.left_out.items()}
