"""Who holds which columns: whole features by default, or ProVFL's published cut through the encoded vector."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.yaml_text import read_yaml, with_tuples
from lightleak.data.column import MISSING_CATEGORY, Column
from lightleak.data.partition import partition_columns
from lightleak.data.property import Property
from lightleak.data.schema import TableSchema
from lightleak.experiments.kinds.vertical.config import PartiesConfig


@dataclass(frozen=True)
class Arrangement:
    """The parties' columns, and who attacks whom.

    Attributes:
        columns: columns of each party; in the published order a torn feature stands with the party that holds most.
        victim: index of the party that holds the property.
        adversary: index of the attacking party.
    """

    columns: tuple[tuple[str, ...], ...]
    victim: int
    adversary: int


def arrange(schema: TableSchema, wanted: Property, parties: PartiesConfig, dataset: str = "") -> Arrangement:
    """Deal out whole features.

    Without explicit columns the property's feature comes first and the others follow; they are cut by encoded width, as
    closely to the shares as whole features allow. So the victim holds the first part, as in ProVFL's code, but nothing
    of the property's own feature is left to the adversary. With explicit columns the property may also be a column of
    the table that is no feature, which no party holds.

    Raises:
        UsageError: no such property, columns that do not cover the schema, or an adversary that is the victim.
    """
    if wanted.column not in schema.names and parties.columns is not None:
        return _about_nobodys_column(schema, parties)
    wanted.check(schema)
    if parties.columns is None:
        return Arrangement(_dealt_out(schema, wanted, parties, dataset), 0, parties.number - 1)
    columns = partition_columns(schema, explicit=parties.columns)
    victim = next(i for i, names in enumerate(columns) if wanted.column in names)
    others = [i for i in range(len(columns)) if i != victim]
    adversary = others[-1] if parties.adversary is None else parties.adversary
    if adversary not in others:
        raise UsageError(
            f"parties.adversary must be another party than {victim}, which holds {wanted.column!r}, and below "
            f"{len(columns)}; got {adversary}"
        )
    return Arrangement(columns, victim, adversary)


def _about_nobodys_column(schema: TableSchema, parties: PartiesConfig) -> Arrangement:
    """A property that no party trains on, such as a concept an image shows: the victim is any other party."""
    columns = partition_columns(schema, explicit=parties.columns)
    adversary = len(columns) - 1 if parties.adversary is None else parties.adversary
    if not 0 <= adversary < len(columns):
        raise UsageError(f"parties.adversary must be at least 0 and below {len(columns)}, got {adversary}")
    return Arrangement(columns, next(i for i in range(len(columns)) if i != adversary), adversary)


def _dealt_out(
    schema: TableSchema, wanted: Property, parties: PartiesConfig, dataset: str
) -> tuple[tuple[str, ...], ...]:
    names, share = list(schema.names), 1 / parties.number
    if parties.order == "published_features":
        order = published_order(dataset)
        names = order.features(schema)
        if parties.number == 2:
            share = order.victim_width / sum(column.width for column in schema.columns)
    share = share if parties.victim_share is None else parties.victim_share
    shares = [share, *[(1 - share) / (parties.number - 1)] * (parties.number - 1)]
    first = [wanted.column, *(name for name in names if name != wanted.column)]
    ordered = replace(schema, columns=tuple(map(schema.column, first)))
    return partition_columns(ordered, ratio=shares, by="width")


@dataclass(frozen=True)
class PublishedOrder:
    """How ProVFL's code lays a table out (its ``datasets`` folder).

    Attributes:
        numbers_first: numbers stand before the categories.
        numbers: numerical columns in order.
        categories: categorical columns in order.
        victim_width: encoded columns of the victim, after the property's own one-hot column was moved to the front.
        standardized: numbers are standardized; otherwise divided by their largest value.
        decimals: they are then rounded.
        missing_last: the category of missing values comes last ("Other"), not where "?" sorts.
        with_other: columns that get an "Other" category without a row.
        unknown: values of a numerical column taken for missing, and set to its mean.
    """

    numbers_first: bool
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    victim_width: int
    standardized: bool = False
    decimals: int | None = None
    missing_last: bool = False
    with_other: tuple[str, ...] = ()
    unknown: tuple[tuple[str, float], ...] = ()

    def listed(self, schema: TableSchema) -> tuple[str, ...]:
        """Categorical columns in order."""
        return self.categories or tuple(sorted(set(schema.names) - set(self.numbers)))

    def features(self, schema: TableSchema) -> list[str]:
        """All columns in order; those the published table lacks come last."""
        categories = self.listed(schema)
        known = (*self.numbers, *categories) if self.numbers_first else (*categories, *self.numbers)
        return [*(name for name in known if name in schema.names), *(n for n in schema.names if n not in known)]


PUBLISHED = {
    name: PublishedOrder(**with_tuples(layout))
    for name, layout in read_yaml(files(__package__).joinpath("published_orders.yaml").read_text("utf-8")).items()
}
"""The layouts by dataset."""


def published_order(dataset: str) -> PublishedOrder:
    """ProVFL's layout of a dataset.

    Raises:
        UnsupportedError: it has none.
    """
    if dataset not in PUBLISHED:
        raise UnsupportedError(
            f"ProVFL's code has no layout for {dataset!r}, only for {', '.join(PUBLISHED)}; use parties.order: schema"
        )
    return PUBLISHED[dataset]


def arrange_published(
    order: PublishedOrder, schema: TableSchema, frame: pd.DataFrame, wanted: Property
) -> tuple[Tensor, tuple[int, int], Arrangement]:
    """Encode ``frame`` in ProVFL's order, the property's own column first, and cut it in two.

    The other one-hot columns of the property's feature stay where they are: where that is the adversary's part, the
    property can be read off them.

    Returns:
        Encoded rows ``[n, d]`` float32, the widths of victim and adversary, and who holds what.
    """
    wanted.check(schema)
    ones = [(name, value) for name in order.listed(schema) for value in _values(schema.column(name), order)]
    numbers: list[tuple[str, str | None]] = [(name, None) for name in order.numbers]
    encoded = [*numbers, *ones] if order.numbers_first else [*ones, *numbers]
    own = (wanted.column, wanted.value)
    encoded = [own, *(entry for entry in encoded if entry != own)]
    columns = [
        _number(frame[name], order, dict(order.unknown).get(name)) if value is None else _is(frame[name], value)
        for name, value in encoded
    ]
    inputs = torch.from_numpy(np.stack(columns, axis=1).astype(np.float32))
    widths = (order.victim_width, len(encoded) - order.victim_width)
    # A feature that is torn apart counts for the victim: the adversary's remaining columns of it are the leak.
    held = {name for name, _ in encoded[: order.victim_width]}
    victims = tuple(name for name in schema.names if name in held)
    others = tuple(name for name in schema.names if name not in held)
    return inputs, widths, Arrangement((victims, others), 0, 1)


def _values(column: Column, order: PublishedOrder) -> Sequence[str]:
    known = [value for value in column.categories if value != MISSING_CATEGORY]
    known = sorted(known, key=int) if all(value.isdigit() for value in known) else sorted(known)
    if MISSING_CATEGORY in column.categories:
        known = [*known, MISSING_CATEGORY] if order.missing_last else [MISSING_CATEGORY, *known]
    return [*known, "Other"] if column.name in order.with_other else known


def _is(cells: pd.Series, value: str) -> np.ndarray:
    return (cells.astype(str) == value).to_numpy(dtype=np.float64)


def _number(cells: pd.Series, order: PublishedOrder, unknown: float | None) -> np.ndarray:
    values = cells.to_numpy(dtype=np.float64)
    if order.standardized:
        known = values if unknown is None else values[values != unknown]
        scaled = (values - known.mean()) / known.std()
        return scaled if unknown is None else np.where(values == unknown, 0.0, scaled)
    scaled = values / (values.max() or 1.0)
    return scaled if order.decimals is None else scaled.round(order.decimals)
