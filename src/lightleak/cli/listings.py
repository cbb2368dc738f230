"""Commands that list and describe what is available: ``list``, ``explain``, ``data``."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from lightleak.cards import find_cards, load_catalogue
from lightleak.cards.terminal import print_card
from lightleak.cli.arguments import names
from lightleak.core.errors import UsageError

MOST_CLASSES = 6
"""Classes that the description of a table lists."""

MOST_CODED_CLASSES = 10
"""Numbers that classes are often coded by, such as digits; more of them may be a measurement."""


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

    grid = Grid("name", "table", "license", "files here", header_style="bold")
    for name, entry in load_catalogue().datasets.items():
        found = sum((dataset_folder(name) / file).is_file() for file in entry.files)
        here = "yes" if found == len(entry.files) else f"{found} of {len(entry.files)}"
        grid.add_row(name, entry.title, entry.license, here if entry.files else "not needed")
    console.print(grid)


def data_prepare(parsed: argparse.Namespace, console: Console) -> None:
    """Download the official files of a dataset."""
    from lightleak.data.download import prepare

    files = prepare(parsed.name, parsed.data, parsed.force)
    if not files:
        console.print(
            f"{parsed.name}: nothing needs to be downloaded; it is generated, or part of an installed package"
        )
    for file in files:
        checked = "checksum verified" if file.verified else "no checksum known"
        console.print(f"{file.path}  sha256 {file.sha256} ({checked})", soft_wrap=True, highlight=False)


def data_describe(parsed: argparse.Namespace, console: Console) -> None:
    """Print columns, rows and classes of a dataset or a file."""
    import pandas as pd

    from lightleak.data.codes import column_notices
    from lightleak.data.datasets import DATASETS, load_dataset
    from lightleak.data.encoder import TableEncoder
    from lightleak.data.table_file import require_table_file
    from lightleak.data.user_table import load_table

    path = Path(parsed.name)
    if parsed.name in DATASETS or not (path.suffix or path.exists()):
        table = load_dataset(parsed.name)
        for flag in ("label", "drop", "categorical", "missing"):
            if getattr(parsed, flag) is not None:
                raise UsageError(f"--{flag} is for a file, and {parsed.name!r} is a dataset; remove --{flag}")
    elif parsed.label is None:
        if path.exists():
            require_table_file(path)
        raise UsageError(f"{parsed.name} is a file: name its label column with --label")
    else:
        dropped, codes = names(parsed.drop), names(parsed.categorical)
        table = load_table(path, parsed.label, drop=dropped, missing=parsed.missing or "refuse", categorical=codes)
    schema, shares = table.schema, table.train[table.schema.label.name].value_counts(normalize=True)
    rows = f": {len(table.train)} training rows, {len(table.test)} test rows"
    console.print(Text.assemble(table.card.title, rows), soft_wrap=True)  # a Text: names of a user's are no markup
    console.print(
        f"{len(schema.categorical)} categorical and {len(schema.numerical)} numerical columns, "
        f"encoded width {TableEncoder(schema).width}"
    )
    grid = Grid("column", "kind", "values", header_style="bold")
    for column in schema.columns:
        values = f"{len(column.categories)} categories"
        if column.is_numerical:
            cells = table.train[column.name]
            values = f"{column.number_text(cells.min())} to {column.number_text(cells.max())}"
        grid.add_row(Text(column.name), str(column.kind), values)
    classes = schema.label.categories
    listed = [f"{c} {shares.get(c, 0):.1%}" for c in classes[:MOST_CLASSES]]
    listed += [f"and {len(classes) - MOST_CLASSES} more"] if len(classes) > MOST_CLASSES else []
    grid.add_row(Text(schema.label.name), "label", Text(", ".join(listed)))
    console.print(grid)
    if len(classes) > MOST_CODED_CLASSES and pd.to_numeric(pd.Series(classes), errors="coerce").notna().all():
        note = f"Each of the {len(classes)} numbers of the label is a class; if {schema.label.name} is measured, bin it"
        console.print(note, soft_wrap=True, highlight=False, markup=False)
    for notice in column_notices(table.possible_codes, table.possible_identifiers):
        console.print(notice, soft_wrap=True, highlight=False, markup=False)
    card = table.card
    checksums = [f"{file} sha256 {digest}" for file, digest in card.sha256.items()] or ["no checksum known"]
    for text in (card.notes, card.citation, card.license, *card.urls, *(checksums if card.files else [])):
        if text:
            console.print(text, soft_wrap=True, highlight=False, markup=False)
