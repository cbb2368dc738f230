"""Commands that say what there is: ``list``, ``explain``, ``data``."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from lightleak.core.errors import UsageError


def list_names(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    """Every name of one kind, with a line about it."""
    if parsed.what == "attacks":
        from lightleak.attacks import ATTACKS
        from lightleak.attacks.model_inversion import INVERSION_ATTACKS
        from lightleak.attacks.property_inference import PROPERTY_ATTACKS
        from lightleak.attacks.property_inference.shadow_models import ShadowModels

        facts = {name: r.facts(name) for r in (ATTACKS, PROPERTY_ATTACKS, INVERSION_ATTACKS) for name in r}
        for name, fact in {**facts, ShadowModels.name: ShadowModels.facts}.items():
            console.print(f"{name:28}{fact.summary}", soft_wrap=True, highlight=False, markup=False)
    elif parsed.what == "defenses":
        from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES
        from lightleak.defenses.vertical import VERTICAL_DEFENSES

        kinds: dict[str, Any] = {
            "horizontal, what a client sends": UPDATE_DEFENSES,
            "horizontal, how a client trains": TRAINING_DEFENSES,
            "vertical": VERTICAL_DEFENSES,
        }
        for kind, defenses in kinds.items():
            for name in defenses:
                about = ": ".join(filter(None, (kind, defenses.get(name).citation)))
                console.print(f"{name:28}{about}", soft_wrap=True, highlight=False)
    elif parsed.what == "datasets":
        from lightleak.data.datasets import DATASETS

        for name in DATASETS:
            console.print(f"{name:24}{DATASETS.get(name).card.title}", soft_wrap=True, highlight=False)
    elif parsed.what == "targets":
        from lightleak.targets import NETWORKS

        for name in NETWORKS:
            console.print(
                f"{name:24}{(NETWORKS.get(name).__doc__ or '').splitlines()[0]}",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )
    elif parsed.what == "metrics":
        from lightleak.metrics import METRICS
        from lightleak.metrics.images import IMAGE_METRICS
        from lightleak.metrics.inversion import INVERSION_METRICS

        listed = {name: METRICS.get(name) for name in METRICS} | dict(INVERSION_METRICS) | dict(IMAGE_METRICS)
        for name, make in listed.items():
            about = (getattr(make, "func", make).__doc__ or "").splitlines()[0]
            console.print(f"{name:28}{about}", soft_wrap=True, highlight=False, markup=False)
    else:
        from lightleak.reproductions.reproduce import list_reproductions

        list_reproductions(console)


def explain(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    """Print the cards of a name."""
    from lightleak.cards import find_cards
    from lightleak.cards.terminal import print_card

    for number, card in enumerate(find_cards(parsed.name)):
        if number:
            console.rule()
        print_card(card, console)


def data_list(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    """Datasets, and whether their files are here."""
    from lightleak.data.datasets import DATASETS
    from lightleak.data.sources import dataset_folder

    grid = Grid("name", "table", "licence", "files here", header_style="bold")
    for name in DATASETS:
        card = DATASETS.get(name).card
        found = sum((dataset_folder(name) / file).is_file() for file in card.files)
        here = "yes" if found == len(card.files) else f"{found} of {len(card.files)}"
        grid.add_row(name, card.title, card.license, here if card.files else "not needed")
    console.print(grid)


def data_prepare(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    """Download the official files of a dataset."""
    from lightleak.data.download import prepare

    for file in prepare(parsed.name, parsed.data, parsed.force):
        checked = "checksum right" if file.verified else "no checksum known"
        console.print(f"{file.path}  sha256 {file.sha256} ({checked})", soft_wrap=True, highlight=False)


def data_describe(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    """Columns, rows and classes of a dataset or of a file."""
    from lightleak.data.codes import codes_notice
    from lightleak.data.datasets import DATASETS, load_dataset
    from lightleak.data.encoder import TableEncoder
    from lightleak.data.user_table import load_table

    if parsed.name in DATASETS:
        table = load_dataset(parsed.name)
    elif Path(parsed.name).suffix:
        if parsed.label is None:
            raise UsageError(f"{parsed.name} is a file: name its label column with --label")
        dropped = [name.strip() for name in parsed.drop.split(",")] if parsed.drop else []
        codes = [name.strip() for name in parsed.categorical.split(",")] if parsed.categorical else []
        table = load_table(Path(parsed.name), parsed.label, drop=dropped, missing=parsed.missing, categorical=codes)
    else:
        DATASETS.get(parsed.name)
        return
    schema, shares = table.schema, table.train[table.schema.label.name].value_counts(normalize=True)
    console.print(f"{table.card.title}: {len(table.train)} training rows, {len(table.test)} test rows", soft_wrap=True)
    console.print(
        f"{len(schema.categorical)} categorical and {len(schema.numerical)} numerical columns, "
        f"encoded width {TableEncoder(schema).width}"
    )
    grid = Grid("column", "kind", "values", header_style="bold")
    for column in schema.columns:
        values = (
            f"{len(column.categories)} categories"
            if column.categories
            else f"{table.train[column.name].min():g} to {table.train[column.name].max():g}"
        )
        grid.add_row(column.name, str(column.kind), values)
    grid.add_row(
        schema.label.name, "label", ", ".join(f"{c} {shares.get(c, 0):.1%}" for c in schema.label.categories[:6])
    )
    console.print(grid)
    if table.possible_codes:
        console.print(codes_notice(table.possible_codes), soft_wrap=True, highlight=False, markup=False)
    card = table.card
    checksums = [f"{file} sha256 {digest}" for file, digest in card.sha256.items()] or ["no checksum known"]
    for text in (card.notes, card.citation, card.license, *card.urls, *(checksums if card.files else [])):
        if text:
            console.print(text, soft_wrap=True, highlight=False, markup=False)
