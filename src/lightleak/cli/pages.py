"""Commands that examine existing runs or the machine: ``report``, ``compare`` and ``doctor``."""

import argparse
import os
import stat
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lightleak.cli.arguments import PDF
from lightleak.cli.exit_codes import DONE, FAILED
from lightleak.core.errors import UsageError


def report(parsed: argparse.Namespace, console: Console) -> None:
    """Build the report of one or several run folders, and print it on request."""
    from lightleak.report import build_report, find_browser, print_pdf
    from lightleak.report.earlier import is_printed_report, is_report

    printed = None
    if parsed.output is not None:
        _check_file("--output", parsed.output, (".html", ".htm"), "report", is_report)
        printed = parsed.output.with_suffix(PDF)
    if parsed.pdf:
        printed = Path(parsed.pdf)
    if parsed.pdf is not None:
        if printed is not None:
            _check_file("--pdf", printed, (PDF,), "report", is_printed_report)
        find_browser()  # refused before anything is written
    runs = parsed.folders[0] if len(parsed.folders) == 1 else parsed.folders
    page = build_report(runs, parsed.output, parsed.redact)
    console.print(f"report: {page}", soft_wrap=True)
    if parsed.pdf is not None:
        console.print(f"printed: {print_pdf(page, printed or page.with_suffix(PDF))}", soft_wrap=True)


def compare(parsed: argparse.Namespace, console: Console) -> None:
    """Compare the people of two runs, or the scores of a CSV file with those of a run's attacks."""
    if (parsed.after is None) == (parsed.file is None):
        raise UsageError("compare needs either another run folder or --with FILE; see lightleak compare --help")
    if parsed.after is not None:
        compare_runs(parsed.folder, parsed.after, console, parsed.output)
        return
    if parsed.output is not None:
        raise UsageError("--output takes the people of two runs; compare --with writes its file into the run folder")
    from lightleak.cli.own_method import compare_with, tables, write
    from lightleak.experiments.terminal import print_results

    compared = compare_with(parsed.folder, parsed.file)
    print_results(tables(compared), {}, console)
    console.print(f"comparison: {write(compared, parsed.folder, parsed.file)}", soft_wrap=True)


def compare_runs(before: Path, after: Path, console: Console, file: Path | None = None) -> None:
    """Print what became of every person of one run in another, and write a line for each where asked to."""
    from lightleak.core.csv_text import csv_text
    from lightleak.core.people import changed_people, compare_people, load_people
    from lightleak.core.private_files import private_files
    from lightleak.report.budget import BASELINES, PROOFS, PROOFS_ALONE

    if file is not None:
        _check_file("--output", file, (".csv",), "comparison of people", _holds_people)
    people = load_people(before), load_people(after)
    changes = compare_people(*people, BASELINES)
    grid = Table(Column("attack", no_wrap=True), header_style="bold")
    for one in changes:
        grid.add_column(escape(one.attack), justify="right", overflow="fold")
    lines = {str(name): [one.outcomes[name] for one in changes] for name in changes[0].outcomes}
    lines["people in both"] = [one.n for one in changes]
    lines |= {"in DIR only": [one.only_before for one in changes], "in OTHER only": [one.only_after for one in changes]}
    for name, counts in lines.items():
        grid.add_row(name, *(f"{count:,}" for count in counts))
    console.print(grid)
    console.print(
        "people in both: in updates of both; recovered: without proof; safe: neither proven nor recovered in OTHER",
        soft_wrap=True,
    )
    attacks_of = [{*run["attack"]} for run in people]
    for place, alone in (("DIR", attacks_of[0] - attacks_of[1]), ("OTHER", attacks_of[1] - attacks_of[0])):
        if alone:
            console.print(f"run in {place} alone and not compared: {', '.join(sorted(alone))}", soft_wrap=True)
    unequal: dict[tuple[str, str], list[str]] = {}  # attacks by their mean numbers of updates
    for one in changes:
        means = _mean_text(one.updates[0]), _mean_text(one.updates[1])
        if means[0] != means[1]:
            unequal.setdefault(means, []).append(one.attack)
    for (mean_before, mean_after), attacks in unequal.items():
        console.print(
            f"{', '.join(attacks)}: a person was in {mean_before} attacked updates on average in DIR and {mean_after} "
            "in OTHER; more updates reveal more, so the difference is not due to a defense or the model alone",
            soft_wrap=True,
        )
    if {*people[1]["attack"]} <= {*PROOFS, *BASELINES} and any(one.outcomes["become safe"] for one in changes):
        console.print(f"safe from these attacks alone: {PROOFS_ALONE}", soft_wrap=True)
    if file is not None:
        from lightleak.core.stored import write_whole

        with private_files():
            write_whole(file, csv_text(changed_people(*people)))
        console.print(f"people: {file}", soft_wrap=True)


def _mean_text(mean: float) -> str:
    return f"{mean:,.3g}" if mean < 1000 else f"{mean:,.0f}"


def _holds_people(file: Path) -> bool:
    return file.read_bytes().startswith(b"attack,person,row,")


def doctor(parsed: argparse.Namespace, console: Console) -> int:
    """Check the machine; the exit code says whether there is a problem."""
    from lightleak.doctor import Facts, are_findings, examine, has_problem, print_findings, write_findings

    if parsed.json is not None:
        _check_file("--json", parsed.json, (".json",), "findings", are_findings)
    with console.status("examining; imports take the longest"):
        findings = examine(Facts(parsed.data, parsed.output, engine=parsed.engine, ray_address=parsed.ray_address))
    print_findings(findings, console)
    if parsed.json is not None:
        write_findings(findings, parsed.json)
    return FAILED if has_problem(findings) else DONE


def _check_file(flag: str, path: Path, endings: tuple[str, ...], noun: str, is_ours: Callable[[Path], bool]) -> None:
    """Raise `UsageError` for a file that cannot be written or holds something of another kind, before the work.

    Args:
        flag: that names it.
        path: the file.
        endings: one of them ends its name.
        noun: what it may hold already.
        is_ours: whether a regular file holds that.
    """
    if path.is_dir():
        raise UsageError(f"{flag} must be a file, got the folder {path}")
    if path.suffix.lower() not in endings:
        raise UsageError(f"{flag} must end in {' or '.join(endings)}, got {path}")
    if not path.parent.is_dir():
        raise UsageError(f"{flag} must be in an existing folder, got {path}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{flag} must be in a writable folder, got {path}; choose another")
    if os.path.lexists(path) and not (stat.S_ISREG(path.lstat().st_mode) and is_ours(path)):
        raise UsageError(f"{flag} {path} exists and holds no {noun} of LightLeak; choose another file or remove it")
