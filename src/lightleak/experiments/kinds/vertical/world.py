"""The parties of one audit with their rows, before anything is trained: split, columns, property, auxiliary rows."""

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lightleak.core.bounds import require_at_most
from lightleak.core.errors import DataError, UsageError
from lightleak.core.intermediate_results import AuxiliaryData
from lightleak.core.seeds import derive_seed, numpy_generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.property import Property
from lightleak.data.splits import holdout
from lightleak.data.table import Table
from lightleak.data.vertical import VerticalRows, party_positions
from lightleak.defenses.vertical import VerticalDefense
from lightleak.experiments.experiment import load_source
from lightleak.experiments.kinds.vertical.arrangement import Arrangement, arrange, arrange_published, published_order
from lightleak.experiments.kinds.vertical.config import (
    AuxiliaryConfig,
    PartiesConfig,
    VerticalConfig,
    VerticalDataConfig,
)
from lightleak.experiments.pack import Shared


@dataclass(frozen=True)
class World(Shared):
    """Aligned rows of all parties.

    Attributes:
        dataset: name of the table.
        train: training rows; ids are row numbers of the whole table.
        test: rows held out to measure the task's quality.
        has_property: BoolTensor ``[n_train]``.
        test_has_property: BoolTensor ``[n_test]``.
        arrangement: who holds what.
        n_classes: classes of the task.
    """

    dataset: str
    train: VerticalRows
    test: VerticalRows
    has_property: Tensor
    test_has_property: Tensor
    arrangement: Arrangement
    n_classes: int

    def defended(self, defense: VerticalDefense, seed: int) -> "World":
        """The rows that are left to train on under a defense."""
        prepared = defense.prepare(self.train, self.has_property, self.arrangement.victim, seed)
        return replace(self, train=prepared.rows, has_property=prepared.has_property)

    def columns_of(self, party: int) -> slice:
        """Encoded columns of a party."""
        start = sum(self.train.widths[:party])
        return slice(start, start + self.train.widths[party])

    def positions(self, ids: Tensor) -> Tensor:
        """Where the training rows ``ids`` stand in `train`, LongTensor."""
        order = self.train.ids.argsort()
        return order[torch.searchsorted(self.train.ids[order], ids)]

    def labels_of(self, ids: Tensor) -> Tensor:
        """Labels of the training rows ``ids``, LongTensor."""
        return self.train.labels[self.positions(ids)]

    def rows_of(self, ids: Tensor, party: int) -> Tensor:
        """A party's encoded columns of the training rows ``ids``, ``[m, d_k]``."""
        # Columns first: an observation must not hold the storage of the other parties' columns.
        return self.train.inputs[:, self.columns_of(party)][self.positions(ids)]


def prepare_world(config: VerticalConfig, wanted: Property, seed: int) -> World:
    """Load, split and deal out the table.

    Raises:
        DataError: the table cannot be read.
        UsageError: no such property or columns, or a batch larger than the training rows.
    """
    table, both = load_whole(config.data)
    if wanted.column == table.schema.label.name:
        raise UsageError(f"property {wanted}: {wanted.column!r} is the label, which the active party holds")
    if wanted.column not in both.columns:
        wanted.check(table.schema)
    split = derive_seed(config.data.split_by(seed), "vertical-split")
    whole = _rows_at_fraction(config.data, wanted.mask(both), split)
    stay, out = (whole[part] for part in holdout(len(whole), config.data.test_fraction, split))
    # In a random order: it is kept through the training unless training.shuffle draws new ones.
    stay = numpy_generator(split, "order").permutation(stay)
    require_at_most("training.batch_size", config.training.batch_size, len(stay), "training rows")
    inputs, labels, widths, arrangement = _encoded(config, wanted, table, both, stay)
    mask = torch.from_numpy(wanted.mask(both))

    def rows(index: np.ndarray) -> VerticalRows:
        at = torch.from_numpy(index)
        return VerticalRows(inputs[at], labels[at], at, widths)

    name, n_classes = table.card.name, table.schema.n_classes
    has, test_has = mask[torch.from_numpy(stay)], mask[torch.from_numpy(out)]
    return World(name, rows(stay), rows(out), has, test_has, arrangement, n_classes)


def draw_auxiliary(world: World, wanted: Property, settings: AuxiliaryConfig, seed: int) -> tuple[World, AuxiliaryData]:
    """Draw the auxiliary rows, and put foreign ones in their place where they are misaligned.

    Half of them have the property. Rows are drawn without replacement where there are enough. Foreign rows are taken
    from the test rows, which they leave; a mislabeled row is mislabeled in all its copies.

    Returns:
        The world the parties then train in, and what the adversary knows.

    Raises:
        DataError: no training row, or no row to take in its place, has the property, or all have it.
        UsageError: more auxiliary rows than training rows, or foreign ones that leave no test row.
    """
    draw = numpy_generator(seed, "auxiliary", str(wanted))
    require_at_most("auxiliary.size", settings.size, len(world.train.ids), "training rows")
    half = settings.size // 2
    chosen = [_draw(draw, world.has_property == known, half, wanted) for known in (True, False)]
    known = torch.cat([torch.ones(half, dtype=torch.bool), torch.zeros(half, dtype=torch.bool)])
    at = torch.cat(chosen)
    if settings.misaligned != "none":
        foreign = torch.cat([_draw(draw, world.test_has_property == value, half, wanted) for value in (True, False)])
        world = _replaced(world, at, foreign, whole_rows=settings.misaligned == "rows")
    wrong = torch.cat([_distinct_share(rows, settings.mislabeled) for rows in chosen])
    known ^= torch.isin(at, wrong)
    own = world.arrangement.columns[world.arrangement.adversary]
    return world, AuxiliaryData(str(wanted), world.train.ids[at], known, own)


def _rows_at_fraction(data: VerticalDataConfig, mask: np.ndarray, seed: int) -> np.ndarray:
    """All rows, or ``data.rows`` of them of which the share ``data.fraction`` has the property; ascending."""
    if data.fraction is None or data.rows is None:
        return np.arange(len(mask))
    having = round(data.fraction * data.rows)
    draw, parts = numpy_generator(seed, "fraction"), []
    for among, wanted in ((np.flatnonzero(mask), having), (np.flatnonzero(~mask), data.rows - having)):
        if wanted > len(among):
            raise UsageError(
                f"data.rows {data.rows} at data.fraction {data.fraction} needs {wanted} rows of a kind of which the "
                f"table has {len(among)}"
            )
        parts.append(draw.choice(among, wanted, replace=False))
    return np.sort(np.concatenate(parts))


def _draw(draw: np.random.Generator, mask: Tensor, size: int, wanted: Property) -> Tensor:
    among = torch.nonzero(mask).flatten().numpy()
    if not len(among):
        raise DataError(f"property {wanted} is absent from these rows, or all have it: there is nothing to infer")
    return torch.from_numpy(draw.choice(among, size, replace=len(among) < size))


def _distinct_share(rows: Tensor, share: float) -> Tensor:
    """The first distinct rows, as many as the share of all distinct ones."""
    distinct = torch.tensor(list(dict.fromkeys(rows.tolist())))
    return distinct[: round(share * len(distinct))]


def _replaced(world: World, at: Tensor, foreign: Tensor, whole_rows: bool) -> World:
    inputs, labels, has = world.train.inputs.clone(), world.train.labels.clone(), world.has_property.clone()
    columns = slice(None) if whole_rows else world.columns_of(world.arrangement.adversary)
    inputs[at, columns] = world.test.inputs[foreign][:, columns]
    if whole_rows:
        labels[at], has[at] = world.test.labels[foreign], world.test_has_property[foreign]
    kept = torch.ones(len(world.test.ids), dtype=torch.bool)
    kept[foreign] = False
    if not kept.any():
        raise UsageError(
            f"auxiliary.misaligned takes all {len(kept)} test rows, and none is left to measure the task: lower "
            "auxiliary.size or raise data.test_fraction"
        )
    train, test = replace(world.train, inputs=inputs, labels=labels), world.test.select(kept)
    test_has = world.test_has_property[kept]
    return replace(world, train=train, test=test, has_property=has, test_has_property=test_has)


def _encoded(
    config: VerticalConfig, wanted: Property, table: Table, both: pd.DataFrame, stay: np.ndarray
) -> tuple[Tensor, Tensor, tuple[int, ...], Arrangement]:
    schema, parties = table.schema, config.parties
    encoder = TableEncoder(schema, "onehot" if config.data.encoding == "bits" else config.data.encoding)
    labels = encoder.encode_labels(both)
    if parties.order == "published":
        if parties != PartiesConfig(order="published"):
            raise UsageError("parties.order published fixes the parties; it takes no other setting of parties")
        inputs, two, arrangement = arrange_published(published_order(table.card.name), schema, both, wanted)
        return inputs, labels, two, arrangement
    arrangement = arrange(schema, wanted, parties, table.card.name)
    positions, widths = party_positions(encoder.layout, arrangement.columns)
    if config.data.encoding == "bits":
        return encoder.encode_bits(both)[:, positions], labels, widths, arrangement
    return encoder.fit(both.iloc[stay]).encode(both)[:, positions], labels, widths, arrangement


def load_whole(source: VerticalDataConfig) -> tuple[Table, pd.DataFrame]:
    """The table, and all its rows in one frame."""
    return _load_whole(json.dumps(asdict(source), sort_keys=True))


@lru_cache(maxsize=2)  # of a process: a census table takes seconds to read, and every seed and property needs it
def _load_whole(source: str) -> tuple[Table, pd.DataFrame]:
    table = load_source(VerticalDataConfig(**json.loads(source)), seed=0)
    return table, pd.concat([table.train, table.test], ignore_index=True)
