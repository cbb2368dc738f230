"""Names of what is fixed in audits of updates: protocol, defense, moment, rows behind an update, threat model."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal

from lightleak.core.results import UpdateRow
from lightleak.report.compare import differing
from lightleak.report.format import counted, defense_title, joined
from lightleak.report.page import fill

words = partial(fill, "updates")
"""Prose of ``templates/updates.html.j2``."""

Moment = Literal["before training", "network as given", "during training"]

FIXED = (
    "run", "dataset", "target", "protocol", "defense", "labels", "source", "epoch", "local_epochs", "local_batches",
    "n_clients", "releases", "defense_strength", "epsilon", "release_epsilon", "delta",
)  # fmt: skip
"""Fields that are fixed while attacks and batch sizes are compared."""

_WHAT_TRAVELS = {
    "fedsgd": "FedSGD: in each step a client sends the gradient of one batch of its rows to the server.",
    "fedavg": "FedAvg: a client trains on its rows for a while and sends the changed weights to the server.",
}
_SOURCES = {
    "initial": "before training, on the network's first, random weights",
    "given": "on the network as it was handed over, with the weights it had",
    "training": "during training, on updates captured as they were sent",
}
_PROTOCOLS = {"fedsgd": "FedSGD", "fedavg": "FedAvg"}
_LABELS = {
    "true": "known to the server",
    "restored": "restored from the update",
    "proven": "restored from the update, and proven for proven records",
}
_MOMENTS: Mapping[str | None, Moment] = {"training": "during training", "given": "network as given"}


def moment_of(row: UpdateRow) -> Moment:
    """Return when an update was sent, without its epoch."""
    return _MOMENTS.get(row.source, "before training")


def what_travels(name: str | None) -> str:
    """Return one sentence on what leaves a client."""
    return _WHAT_TRAVELS.get(name or "", f"Protocol {name!r}." if name else "Not stated in the results.")


def source_phrase(source: str | None) -> str:
    """Return when the attacked update was sent."""
    return _SOURCES.get(source or "", source or "not stated")


def local_phrase(row: UpdateRow) -> str:
    """Return what a FedAvg client does before it sends anything.

    >>> local_phrase(UpdateRow(attack="", protocol="fedavg", local_epochs=5, local_batches=1))
    '5 local epochs of 1 batch'
    """
    if row.local_epochs is None or row.local_batches is None:
        return "local training that is not stated in full"
    return f"{counted(row.local_epochs, 'local epoch')} of {counted(row.local_batches, 'batch', 'batches')}"


def what_the_server_gets(row: UpdateRow) -> str:
    """Return what leaves a client, and how much of it one update is."""
    return fill("updates", "travels", row, what_travels(row.protocol), local_phrase(row))


def of_rows(row: UpdateRow) -> str:
    """Return what an attack was measured on, each with so many rows; empty where that is not known.

    >>> of_rows(UpdateRow(attack="", batch_size=32))
    'batches of 32 rows'
    >>> of_rows(UpdateRow(attack="", protocol="fedavg", n_clients=1, batch_size=32))
    'clients of 32 rows'
    >>> of_rows(UpdateRow(attack="", batch_size=29, planned_batch_size=32))
    'batches of about 32 rows'
    """
    if row.size is None:
        return ""
    kind = "batches" if not row.on_fedavg else "clients" if row.n_clients == 1 else "updates"
    return f"{kind} of {'about ' if row.planned_batch_size else ''}{counted(row.size, 'row')}"


def time_unit(row: UpdateRow) -> str:
    """Return what ``epoch`` counts."""
    return "round" if row.on_fedavg else "epoch"


def varying(rows: Iterable[UpdateRow]) -> list[str]:
    """Return names of the fixed fields in which rows differ."""
    return differing(rows, FIXED)


def parts(row: UpdateRow, names: Iterable[str]) -> list[str]:
    """Return the named fixed fields of a row, each as a short phrase.

    >>> parts(UpdateRow(attack="", dataset="adult", labels="true", epoch=3), ["dataset", "labels", "epoch"])
    ['adult', 'labels known to the server', 'epoch 3']
    """
    wanted = list(names)
    if not {"defense", "defense_strength"} <= set(wanted):
        return [_PARTS[name](row) for name in wanted]
    both, in_title = f"defense: {defense_title(row.defense, row.defense_strength, row.epsilon)}", ["defense_strength"]
    in_title += ["epsilon"] if row.defense == "dp_sgd" else []
    return [both if name == "defense" else _PARTS[name](row) for name in wanted if name not in in_title]


def parts_title(row: UpdateRow, names: Iterable[str]) -> str:
    """Return the same as a heading."""
    return joined(*parts(row, names), by=" · ")


_PARTS: Mapping[str, Callable[[UpdateRow], str]] = {
    "run": lambda row: row.run,
    "dataset": lambda row: row.dataset or "dataset not stated",
    "target": lambda row: row.target or "network not stated",
    "protocol": lambda row: _PROTOCOLS.get(row.protocol or "", row.protocol or "not stated"),
    "defense": lambda row: f"defense: {defense_title(row.defense)}",
    "labels": lambda row: _labels("proven" if row.proves_labels else row.labels),
    "source": lambda row: source_phrase(row.source),
    "epoch": lambda row: "no epoch" if row.epoch is None else f"{time_unit(row)} {row.epoch}",
    "local_epochs": lambda row: _amount(row.local_epochs, "local epoch"),
    "local_batches": lambda row: _amount(row.local_batches, "local batch", "local batches"),
    "n_clients": lambda row: "clients not stated" if row.n_clients is None else counted(row.n_clients, "client"),
    "releases": lambda row: counted(row.releases or 1, "release"),
    "defense_strength": lambda row: _number(row.defense_strength, "strength", "g"),
    "epsilon": lambda row: _number(row.epsilon, "ε"),
    "release_epsilon": lambda row: _number(row.release_epsilon, f"ε of {row.released}"),
    "delta": lambda row: _number(row.delta, "δ", "g"),
}


def _labels(known: str | None) -> str:
    return f"labels {_LABELS.get(known or '', known or 'not stated')}"


def _amount(number: int | None, one: str, many: str | None = None) -> str:
    return f"no {one}" if number is None else counted(number, one, many)


def _number(value: float | None, name: str, form: str = ".3g") -> str:
    return f"no {name}" if value is None else f"{name} {value:{form}}"
