"""Commands that make no run folder: ``list``, ``explain``, ``data``, ``report``, ``compare`` and ``doctor``."""

import argparse
import os
import stat
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lightleak.cards import find_cards, load_catalogue
from lightleak.cards.terminal import print_card
from lightleak.cli.arguments import PDF, names
from lightleak.cli.exit_codes import DONE, FAILED
from lightleak.core.errors import UsageError


def list_names(parsed: argparse.Namespace, console: Console) -> None:
    """Print every name of one kind with a one-line description."""
    for name, about in load_catalogue().lines(parsed.what):
        console.print(f"{name:28}{about}", soft_wrap=True, highlight=False, markup=False)


def explain(parsed: argparse.Namespace, console: Console) -> None:
    """Print the cards of a name."""
    for number, card in enumerate(find_cards(parsed.name)):
        if number:
            console.rule()
        print_card(card, console)


def data_list(parsed: argparse.Namespace, console: Console) -> None:
    """List datasets, their licenses, and which of their files are on this machine."""
    from lightleak.data.sources import dataset_folder

    grid = Table("name", "table", "license", "files here", header_style="bold")
    for name, entry in load_catalogue().datasets.items():
        found = sum((dataset_folder(name) / file).is_file() for file in entry.files)
        here = "yes" if found == len(entry.files) else f"{found} of {len(entry.files)}"
        grid.add_row(name, entry.title, entry.license, here if entry.files else "not needed")
    console.print(grid)


def data_prepare(parsed: argparse.Namespace, console: Console) -> None:
    """Download the official files of a dataset."""
    from lightleak.data.download import prepare

    for file in prepare(parsed.name, parsed.data, parsed.force):
        checked = "checksum verified" if file.verified else "no checksum known"
        console.print(f"{file.path}  sha256 {file.sha256} ({checked})", soft_wrap=True, highlight=False)


def data_describe(parsed: argparse.Namespace, console: Console) -> None:
    """Print columns, rows and classes of a dataset or a file."""
    from lightleak.data.codes import codes_notice
    from lightleak.data.datasets import DATASETS, load_dataset
    from lightleak.data.encoder import TableEncoder
    from lightleak.data.user_table import load_table

    if parsed.name in DATASETS or not Path(parsed.name).suffix:
        table = load_dataset(parsed.name)
    elif parsed.label is None:
        raise UsageError(f"{parsed.name} is a file: name its label column with --label")
    else:
        dropped, codes = names(parsed.drop), names(parsed.categorical)
        table = load_table(Path(parsed.name), parsed.label, drop=dropped, missing=parsed.missing, categorical=codes)
    schema, label = table.schema, table.schema.label
    shares = table.train[label.name].value_counts(normalize=True)
    console.print(f"{table.card.title}: {len(table.train)} training rows, {len(table.test)} test rows", soft_wrap=True)
    console.print(
        f"{len(schema.categorical)} categorical and {len(schema.numerical)} numerical columns, "
        f"encoded width {TableEncoder(schema).width}"
    )
    grid = Table("column", "kind", "values", header_style="bold")
    for column in schema.columns:
        values = (
            f"{len(column.categories)} categories"
            if column.categories
            else f"{table.train[column.name].min():g} to {table.train[column.name].max():g}"
        )
        grid.add_row(column.name, str(column.kind), values)
    grid.add_row(label.name, "label", ", ".join(f"{c} {shares.get(c, 0):.1%}" for c in label.categories[:6]))
    console.print(grid)
    if table.possible_codes:
        console.print(codes_notice(table.possible_codes), soft_wrap=True, highlight=False, markup=False)
    card = table.card
    checksums = [f"{file} sha256 {digest}" for file, digest in card.sha256.items()] or ["no checksum known"]
    for text in (card.notes, card.citation, card.license, *card.urls, *(checksums if card.files else [])):
        if text:
            console.print(text, soft_wrap=True, highlight=False, markup=False)


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
    from lightleak.cli.own_method import compare_with, table, write

    compared = compare_with(parsed.folder, parsed.file)
    head, *lines = table(compared)
    grid = Table(*head, header_style="bold")
    for line in lines:
        grid.add_row(*map(escape, line))
    console.print(grid)
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
    for one in changes:
        before_n, after_n = one.updates
        if before_n != after_n:
            console.print(
                f"{one.attack}: a person was in {before_n:.3g} attacked updates on average in DIR and {after_n:.3g} in "
                "OTHER; more updates give more away, so this is not the change of a defense or model alone",
                soft_wrap=True,
            )
    if {*people[1]["attack"]} <= {*PROOFS, *BASELINES} and any(one.outcomes["become safe"] for one in changes):
        console.print(f"safe from these attacks alone: {PROOFS_ALONE}", soft_wrap=True)
    if file is not None:
        from lightleak.core.stored import write_whole

        with private_files():
            write_whole(file, csv_text(changed_people(*people)))
        console.print(f"people: {file}", soft_wrap=True)


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
