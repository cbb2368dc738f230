"""What a config names, made: the table, the encoder and marginals a server knows, the network's specification."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from lightleak.core.bounds import require_at_most
from lightleak.core.errors import UsageError
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.own_table import own_table
from lightleak.data.splits import holdout
from lightleak.data.table import Table
from lightleak.data.user_table import load_table
from lightleak.experiments.clients import Population
from lightleak.experiments.config import AuditConfig, ClientRows, DataConfig, TableSource
from lightleak.experiments.pack import Shared
from lightleak.protocols.client_training import check_row_alone
from lightleak.targets import NetworkSpec, build_network
from lightleak.targets.own import is_own, trust_network
from lightleak.targets.own_check import require_auditable
from lightleak.targets.spec import is_differentiable

VALIDATION_CLIENTS = 0.2
"""Share of the training rows whose clients a study chooses settings on."""


@dataclass(frozen=True)
class Experiment(Shared):
    """The parts of an audit that do not depend on any attack.

    Attributes:
        table: the table.
        encoder: fitted on what the server knows of it.
        marginals: column marginals that the server knows.
        spec: the network.
        client_rows: training rows that fresh clients draw from; see `InitialConfig`.
    """

    table: Table
    encoder: TableEncoder
    marginals: Marginals
    spec: NetworkSpec
    client_rows: ClientRows = "all"

    @property
    def table_words(self) -> str:
        """The table in words, for a plan."""
        name, train, test = self.table.card.name, len(self.table.train), len(self.table.test)
        return f"{name}: {train} training and {test} test rows, encoded width {self.encoder.width}"

    @cached_property
    def population(self) -> Population:
        """The training rows as fresh clients hold them."""
        train = self.table.train
        if self.client_rows != "all":
            held_out, validation = holdout(len(train), VALIDATION_CLIENTS, seed=0)
            train = train.iloc[validation if self.client_rows == "validation" else held_out]
        return Population(self.encoder.encode(train), self.encoder.encode_labels(train), self.encoder, self.marginals)


def prepare_experiment(config: AuditConfig) -> Experiment:
    """Load the table, fit the encoder, specify the network.

    Raises:
        DataError: the table cannot be read.
        UsageError: no such dataset or network, options it does not take, user code that makes no network for
            this table (`require_auditable`), or a batch larger than the training rows, or of one row that the network
            cannot take.
    """
    trust_network(config.target.network)  # the config is the user's, so its code may be imported
    if not is_differentiable(config.target.network):  # before a large table is read
        raise UsageError(
            f"target.network {config.target.network!r} has no gradient that a client could send; audit it with "
            "kind: released-model"
        )
    table = load_source(config.data, config.seed)
    both = pd.concat([table.train, table.test], ignore_index=True)
    encoder = fitted_encoder(config.data, table)
    marginals = Marginals.of(table.schema, both if config.data.marginals == "all" else table.test)
    spec = NetworkSpec(config.target.network, table.schema.n_classes, encoder.layout, config.target.options)
    network = build_network(spec, seed=0)  # refuses options it does not take
    if is_own(spec.name):
        require_auditable(network, encoder, spec.n_classes)
    if config.initial.batches and 1 in config.initial.batch_sizes and network.training:
        check_row_alone(network, encoder.layout.width, "initial.batch_sizes 1 is a batch of one row")
    trained = () if config.protocol.is_fedavg else (config.training.batch_size,)
    largest = max((*trained, *config.initial.batch_sizes), default=1)
    require_at_most("batch_size", largest, len(table.train), f"training rows of {table.card.name!r}")
    return Experiment(table, encoder, marginals, spec, config.initial.rows)


def fitted_encoder(data: DataConfig, table: Table) -> TableEncoder:
    """The encoder with the statistics that a server knows (see `DataConfig`)."""
    if data.statistics == "test":
        unbounded = [
            replace(column, lower=None, upper=None) if column.name in table.seen_bounds else column
            for column in table.schema.columns
        ]
        schema = replace(table.schema, columns=tuple(unbounded))
        return TableEncoder(schema, data.encoding).fit(table.test, includes_attacked=False)
    rows = table.train if data.statistics == "train" else pd.concat([table.train, table.test], ignore_index=True)
    return TableEncoder(table.schema, data.encoding).fit(rows, includes_attacked=True)


def load_source(data: TableSource, seed: int, group: str | None = None) -> Table:
    """The table; errors as for `prepare_experiment`.

    Args:
        data: which.
        seed: root seed of its split, unless ``data`` has a seed for it.
        group: of a user's own table, the column that says whose row it is; loaders have an option of their own.
    """
    seed = data.split_by(seed)
    if data.table is not None:
        assert data.label is not None  # `TableSource` refuses a table without a label
        return load_table(
            Path(data.table),
            data.label,
            data.schema,
            seed=seed,
            group=group,
            drop=data.drop,
            missing=data.missing,
            categorical=data.categorical,
        )
    assert data.name is not None  # `TableSource` needs a name or a table
    if is_own(data.name):
        return own_table(data.name)
    return load_dataset(data.name, data.folder, seed, **data.options)


def target_name(spec: NetworkSpec) -> str:
    """The network's name with its widths, as tables print it.

    >>> from lightleak.data.layout import EncodedLayout
    >>> target_name(NetworkSpec("mlp", 2, EncodedLayout.of_numerical(3), {"hidden": [100, 100]}))
    'mlp-100-100'
    """
    hidden = spec.options.get("hidden", (100, 100) if spec.name == "mlp" else ())
    # A capture may say anything; what is no list of widths is refused as the network is built.
    return "-".join([spec.name, *map(str, hidden if isinstance(hidden, list | tuple) else ())])
