"""Tables handed over in memory: a DataFrame gets a name, by which a config can refer to it."""

import hashlib

import pandas as pd

from lightleak.core.errors import UsageError
from lightleak.core.registry import MEMORY
from lightleak.data.table import Table

DIGEST_LENGTH = 10
"""Hexadecimal digits of a table's digest in its name: 40 bits, for the few that a process meets."""

_KNOWN: dict[str, Table] = {}


def hand_over_table(table: Table) -> str:
    """Keep a table under the name by which a config may call it in this process; no copy is made.

    The name holds a digest of schema and rows: equal tables have one name in every process.
    """
    digest = hashlib.sha256(repr(table.schema).encode())
    for part in (table.train, table.test):
        digest.update(pd.util.hash_pandas_object(part, index=False).to_numpy().tobytes())
    for column, cells in table.imputed.items():
        digest.update(column.encode() + cells.tobytes())
    name = f"{MEMORY}{table.card.name}-{digest.hexdigest()[:DIGEST_LENGTH]}"
    _KNOWN[name] = table
    return name


def own_table(name: str) -> Table:
    """The table of that name.

    Raises:
        UsageError: none was handed over under it in this process.
    """
    if name not in _KNOWN:
        raise UsageError(
            f"table {name!r} was handed over in memory, and not in this process: hand the same table to "
            "lightleak.audit_model again, with the same output folder"
        )
    return _KNOWN[name]
