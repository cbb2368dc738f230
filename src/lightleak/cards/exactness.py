"""What exact inversion can do against a target: asked of the attack itself, on an update of the built network."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pandas as pd

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.exact.unknown_statistics import normalizes_by_batch
from lightleak.cards.catalogue import CATALOGUE, Catalogue
from lightleak.cards.shipped import read_shipped
from lightleak.core.errors import LightLeakError
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.functional import drops_units
from lightleak.targets.image_cnn import ImageCNN
from lightleak.targets.spec import NETWORKS, NetworkSpec, build_network, is_differentiable

ROWS = 6


class _Asked(NamedTuple):
    """What is said where it is supported, whether the server knows the batch statistics, and the clients' mode."""

    words: str
    statistics: bool
    training: bool


_ASKED = (
    _Asked("supported", False, True),
    _Asked("supported where the server knows the batch statistics of BatchNorm", True, True),
    _Asked("supported where clients compute in eval mode", False, False),
)
"""In the order in which they are asked: the least that the server has to know comes first."""


def exact_inversion(name: str) -> str:
    """Whether `exact` accepts an update of the target of that name with its default options, on a small table.

    That it accepts an update says that rows can be tested, not how many of a batch are found: that depends on widths
    and batch size, and ``--plan`` estimates it. For a target whose package is not installed, the shipped catalogue's
    answer is returned.
    """
    if not is_differentiable(name):
        return "not supported: no gradient"
    if NETWORKS.get(name) is ImageCNN:
        return "not applicable: it does not take encoded tables"
    shipped = Catalogue.from_json(read_shipped(CATALOGUE)).exact
    if name in shipped and getattr(NETWORKS.get(name), "missing_package", lambda: None)() is not None:
        return shipped[name]
    refusals: list[str] = []
    for words, refusal, drops in _asked(name):
        if refusal is None:
            return f"{words}; {WITH_DROPOUT}" if drops else words
        refusals.append(refusal)
    return f"not supported: {refusals[-1]}"


WITH_DROPOUT = "of clients with dropout by the first layer alone (behind embeddings without proof), labels not proven"
UP_TO_A_SHIFT = "(numbers up to a shift where the server does not know the batch statistics of BatchNorm)"


def _asked(name: str) -> Iterator[tuple[str, str | None, bool]]:
    """What was asked, why the attack refuses or None, and whether the client drops units."""
    encoder, frame = _table()
    try:
        spec = NetworkSpec(name, len(encoder.schema.label.categories), encoder.layout)
        network = build_network(spec, seed=0)
    except (LightLeakError, TypeError, ValueError) as error:
        yield "built", f"not built for tables with default options ({error})", False
        return
    inputs, labels = encoder.encode(frame), encoder.encode_labels(frame)
    update_of = partial(client_update, network, spec, encoder, inputs, labels, share_labels=False, seed=0)
    for words, statistics, training in _ASKED:
        update, _ = update_of(share_statistics=statistics, training_mode=training)
        try:
            ATTACKS.get("exact")(batch_statistics=statistics).check(update)
            shifted = "" if statistics or not normalizes_by_batch(update) else f" {UP_TO_A_SHIFT}"
            yield f"{words}{shifted}", None, training and drops_units(network)
        except LightLeakError as error:
            yield words, str(error).removeprefix("exact: "), False


def _table() -> tuple[TableEncoder, pd.DataFrame]:
    columns = (
        Column.continuous("height"),
        Column.integer("age"),
        Column.categorical("ward", ["a", "b", "c"]),
        Column.categorical("sex", ["f", "m"]),
    )
    schema = TableSchema(columns, Column.categorical("ill", ["no", "yes"]))
    rows = range(ROWS)
    frame = pd.DataFrame(
        {
            "height": [150.0 + 7 * i for i in rows],
            "age": [20 + 11 * i for i in rows],
            "ward": ["abc"[i % 3] for i in rows],
            "sex": ["fm"[i % 2] for i in rows],
            "ill": ["no" if i < 3 else "yes" for i in rows],
        }
    )
    return TableEncoder(schema).fit(frame), frame
