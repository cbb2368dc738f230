"""A made table with a column of every sort, and batches of it with everything that a slow reference needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, observed_gradient
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator, numpy_generator
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.schema import Column, ColumnKind, TableSchema
from lightleak.data.table import Table
from lightleak.protocols import fedavg
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network

POINTS_OF_GRADE = (4, 9, 10, 30)
"""The column ``points`` follows from ``grade``."""

EDITION = 2024
"""The same in every row."""


@cache
def estates(n_classes: int, n_rows: int = 600) -> tuple[TableSchema, pd.DataFrame]:
    """Homes for sale: categorical, narrow, wide and skewed integers, a continuous, a tied and a constant column."""
    rng = numpy_generator(7, "estates")
    classes = [f"class {c}" for c in range(n_classes)]
    columns = (
        Column.categorical("region", ["north", "east", "south", "west", "isle"]),
        Column.integer("rooms", 1, 12),
        Column.categorical("kind", ["flat", "house", "farm"]),
        Column.integer("price", 1_000, 90_000),
        Column.categorical("grade", ["a", "b", "c", "d"]),
        Column.continuous("area"),
        Column.integer("points", 0, 40),
        Column.integer("fee", 0, 5_000),
        Column.integer("edition"),
        Column.categorical("heated", ["no", "yes"]),
    )
    shares = {"region": [0.4, 0.3, 0.15, 0.1, 0.05], "kind": [0.6, 0.3, 0.1], "heated": [0.3, 0.7]}
    shares["grade"] = [0.3, 0.3, 0.2, 0.2]
    codes = {c.name: rng.choice(c.width, n_rows, p=shares[c.name]) for c in columns if not c.is_numerical}
    numbers = {
        "rooms": rng.integers(1, 13, n_rows),
        "price": rng.integers(1_000, 90_001, n_rows),
        "area": rng.normal(80, 25, n_rows),
        "points": np.asarray(POINTS_OF_GRADE)[codes["grade"]],
        "fee": np.where(rng.random(n_rows) < 0.85, 0, rng.integers(1, 5_001, n_rows)),
        "edition": np.full(n_rows, EDITION),
    }
    frame = {c.name: numbers[c.name] if c.is_numerical else np.take(c.categories, codes[c.name]) for c in columns}
    frame["class"] = np.take(classes, rng.integers(0, n_classes, n_rows))
    return TableSchema(columns, Column.categorical("class", classes)), pd.DataFrame(frame)


@dataclass(frozen=True)
class Batch:
    """An update and, for the tests alone, the truth behind it.

    Attributes:
        update: what an attack sees.
        truth: the rows in the client's order.
        encoder: the table's.
    """

    update: ClientUpdate
    truth: GroundTruth
    encoder: TableEncoder

    @cached_property
    def chain(self) -> ReLUChain:
        return ReLUChain.of(self.update)

    @cached_property
    def observed(self) -> tuple[Tensor, ...]:
        return observed_gradient(self.update)

    @cached_property
    def prior(self) -> RowPrior:
        return RowPrior.of(self.update, self.encoder)

    @cached_property
    def x(self) -> Tensor:
        """The client's rows, float64 ``[n, d]``."""
        return self.truth.inputs.double()

    @cached_property
    def cells(self) -> tuple[Tensor, Tensor]:
        """The client's rows as `TableEncoder.project` returns them."""
        return self.encoder.project(self.x)

    def distinct(self) -> tuple[Tensor, Tensor]:
        """Its different rows ``[r, d]``, and how many rows of each class are equal to them ``[r, classes]``."""
        rows, source = self.x.unique(dim=0, return_inverse=True)
        counts = torch.zeros(len(rows), self.chain.n_classes, dtype=torch.float64)
        counts.index_put_((source, self.truth.labels), torch.ones(len(source), dtype=torch.float64), accumulate=True)
        return rows, counts


MakeBatch = Callable[..., Batch]


@cache
def fitted(n_classes: int, encoding: Encoding) -> tuple[TableEncoder, Tensor, Tensor, Marginals]:
    schema, frame = estates(n_classes)
    encoder = TableEncoder(schema, encoding).fit(frame)
    return encoder, encoder.encode(frame), encoder.encode_labels(frame), Marginals.of(schema, frame[400:])


@pytest.fixture(scope="session")
def make_batch() -> MakeBatch:
    """A batch of a client whose first 400 rows are its own; the server counted marginals on the others.

    ``rows`` (indices) and ``labels`` override what is drawn; ``precise`` lets the client compute in float64.
    """

    @cache
    def make(
        n: int = 6,
        hidden: tuple[int, ...] = (40, 40),
        n_classes: int = 2,
        encoding: Encoding = "standardized",
        seed: int = 0,
        rows: Sequence[int] | None = None,
        labels: Sequence[int] | None = None,
        precise: bool = False,
        marginals: bool = True,
    ) -> Batch:
        encoder, inputs, classes, known = fitted(n_classes, encoding)
        chosen = torch.randperm(400, generator=generator(seed, "rows"))[:n] if rows is None else torch.tensor(rows)
        x, y = inputs[chosen], classes[chosen] if labels is None else torch.tensor(labels)
        spec = NetworkSpec("mlp", n_classes, encoder.layout, {"hidden": list(hidden)})
        dtype = torch.float64 if precise else torch.float32
        network = build_network(spec, seed).to(dtype)
        update, _ = client_update(
            network, spec, encoder, x.to(dtype), y, share_labels=False, marginals=known if marginals else None
        )
        return Batch(update, GroundTruth(x.clone(), y.clone()), encoder)

    return make


@pytest.fixture(scope="session")
def make_numeric_batch() -> MakeBatch:
    """A batch of a table of continuous columns and three binary ones."""

    @cache
    def make(numbers: int = 8, n: int = 12, hidden: tuple[int, ...] = (20, 40), seed: int = 0) -> Batch:
        rng = numpy_generator(seed, "numeric")
        columns = [Column.continuous(f"x{i}") for i in range(numbers)]
        columns += [Column.categorical(f"c{i}", ["a", "b"]) for i in range(3)]
        frame = pd.DataFrame({f"x{i}": rng.normal(size=400) for i in range(numbers)})
        for i in range(3):
            frame[f"c{i}"] = np.take(["a", "b"], rng.integers(0, 2, 400))
        frame["class"] = np.take(["no", "yes"], rng.integers(0, 2, 400))
        schema = TableSchema(tuple(columns), Column.categorical("class", ["no", "yes"]))
        encoder = TableEncoder(schema).fit(frame)
        x, y = encoder.encode(frame)[:n], encoder.encode_labels(frame)[:n]
        spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": list(hidden)})
        update, _ = client_update(build_network(spec, seed), spec, encoder, x, y, share_labels=False)
        return Batch(update, GroundTruth(x.clone(), y.clone()), encoder)

    return make


NEAR = 0.01
"""Deviations within which a number is nearly right; cell accuracy allows 0.319."""


@pytest.fixture(scope="session")
def recovered() -> Callable[..., int]:
    """How many rows of a reconstruction, label included, are rows of the client; each of those serves once.

    ``only`` names the rows that are looked at; ``nearly`` lets whole numbers be off by as much as continuous ones: a
    wide column's last digit is beyond what float32 gradients of some batches hold.
    """

    def count(
        reconstruction: Reconstruction, batch: Batch, only: Sequence[int] | None = None, nearly: bool = False
    ) -> int:
        encoder = batch.encoder
        at = list(range(len(reconstruction.labels))) if only is None else list(only)
        codes, numbers = encoder.project(encoder.encode(reconstruction.rows.iloc[at]))
        true_codes, true_numbers = batch.cells
        exact = [column.kind is ColumnKind.INTEGER and not nearly for column in encoder.schema.numerical]
        allowed = torch.where(torch.tensor(exact), 0.0, NEAR * encoder.deviation)
        alike = ((numbers.unsqueeze(1) - true_numbers).abs() <= allowed).all(-1)
        alike &= (codes.unsqueeze(1) == true_codes).all(-1)
        alike &= reconstruction.labels[at].unsqueeze(1) == batch.truth.labels
        return int(alike.numpy()[linear_sum_assignment(alike.numpy(), maximize=True)].sum())

    return count


@pytest.fixture(scope="session")
def certified_wrongly(recovered: Callable[..., int]) -> Callable[[Reconstruction, Batch], int]:
    """Certified rows of a reconstruction that are no rows of the client."""

    def count(reconstruction: Reconstruction, batch: Batch) -> int:
        assert reconstruction.certificate is not None
        assert len(reconstruction.certificate.status) == len(reconstruction.rows) == batch.update.facts.n_rows
        claimed = [i for i, status in enumerate(reconstruction.certificate.status) if status == "certified"]
        return len(claimed) - recovered(reconstruction, batch, claimed, nearly=True)

    return count


@pytest.fixture(scope="session")
def noised() -> Callable[..., Batch]:
    """The same client behind Gaussian noise of a deviation relative to every element, or to each tensor's mean square.

    The first leaves zeros zero: it is the harder case to doubt, as no unit shows up that no row reaches.
    """

    def add(batch: Batch, relative: float, seed: int, on_zeros: bool = False) -> Batch:
        changed = {}
        for name, gradient in batch.update.update.items():
            noise = torch.randn(gradient.shape, generator=generator(seed, name), dtype=torch.float64)
            size = gradient.double().square().mean().sqrt() if on_zeros else gradient.double()
            changed[name] = (gradient.double() + relative * size * noise).to(gradient.dtype)
        return replace(batch, update=replace(batch.update, update=changed, state="noised"))

    return add


@pytest.fixture(scope="session")
def weight_update(table: Table, encoder: TableEncoder) -> Callable[..., tuple[ClientUpdate, GroundTruth]]:
    """The weight update of a client that trains on the first ``n`` rows of the small table, and the truth behind it."""

    def make(training: LocalTraining, n: int = 8) -> tuple[ClientUpdate, GroundTruth]:
        spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [9, 8]})
        inputs, labels = encoder.encode(table.train)[:n], encoder.encode_labels(table.train)[:n]
        network = build_network(spec, seed=1)
        return fedavg.client_update(network, spec, encoder, inputs, labels, training, share_labels="none", seed=3)

    return make
