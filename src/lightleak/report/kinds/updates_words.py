"""Phrases for updates that clients send: protocol, defense, moment, rows behind an update, threat model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from lightleak.core.results import UpdateRow
from lightleak.report.compare import differing
from lightleak.report.format import counted, defense_title, joined, labels_phrase, protocol_title
from lightleak.report.sections.subject import other_assumptions, threat_facts
from lightleak.report.sections.summary import NO_PROOF, THIS_ALONE

Moment = Literal["before training", "network as given", "during training"]

FIXED = (
    "run",
    "dataset",
    "target",
    "protocol",
    "defense",
    "labels",
    "source",
    "epoch",
    "local_epochs",
    "local_batches",
    "n_clients",
    "defense_strength",
    "epsilon",
    "release_epsilon",
    "delta",
)
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
DURATION: Mapping[Moment, str] = {
    "before training": "at the start of training",
    "network as given": "with the model as handed over",
    "during training": "in the course of training",
}
KNOWLEDGE = {
    "true_labels": "the outcome of every record that the model learns to predict, such as a diagnosis",
    "class_counts": "how many records have each outcome that the model learns to predict",
    "column_bounds": "the smallest and largest possible value of every column",
    "encoder_statistics": "the average and the spread of every column",
    "counted_with_attacked": "these were counted on records that include those under attack, which favors the attacker",
    "counted_without_attacked": "these were counted on other people's records",
    "marginals": "how often each value occurs among other people",
    "batch_statistics": "averages that the model computed over the records",
    "local_training": "how a participant trains, as the server has set it",
    "batch_labels": "which of a participant's records were used together, by outcome",
}
"""What an attacker knows (`core.threat_model.Knows`), in plain words."""

PROVEN = (
    "“Proven” means that the attacker can check a reconstructed record against the message itself with a calculation "
    "that a wrong record would fail: the attacker then knows that the record is real, without ever having seen it."
)
SAFE_SIDE = (
    "For every message we count the attack that got most out of it. No attack is chosen afterwards by its average, so "
    "the intervals need no correction for the number of attacks tried. A real attacker cannot compare with the "
    "original records and would at best do as well with these attacks."
)
LIMITS = (
    NO_PROOF,
    THIS_ALONE,
    "A reconstructed record need not name its person. Whether it points to one depends on who else has the same "
    "values.",
    "The attacker has no truth to compare with. Unless a record is proven, the attacker has only its own confidence, "
    "which is measured separately.",
)


def moment_of(row: UpdateRow) -> Moment:
    """When an update was sent, without its epoch."""
    if row.source == "training":
        return "during training"
    return "network as given" if row.source == "given" else "before training"


def local_phrase(row: UpdateRow) -> str:
    """What a FedAvg client does before it sends anything.

    >>> local_phrase(UpdateRow(attack="", protocol="fedavg", local_epochs=5, local_batches=1))
    '5 local epochs of 1 batch'
    """
    if row.local_epochs is None or row.local_batches is None:
        return "local training that is not stated in full"
    return f"{counted(row.local_epochs, 'local epoch')} of {counted(row.local_batches, 'batch', 'batches')}"


def what_travels(name: str | None) -> str:
    """One sentence on what leaves a client."""
    return _WHAT_TRAVELS.get(name or "", f"Protocol {name!r}." if name else "Not stated in the results.")


def what_the_server_gets(row: UpdateRow) -> str:
    """What leaves a client, and how much of it one update is.

    >>> seen = what_the_server_gets(
    ...     UpdateRow(attack="", protocol="fedavg", local_epochs=1, local_batches=4, n_clients=3)
    ... )
    >>> seen.partition("Here: ")[2]
    '1 local epoch of 4 batches; the server sees the mean of 3 clients, not what each has sent.'
    """
    if not row.on_fedavg:
        return what_travels(row.protocol)
    seen = f"{what_travels('fedavg')} Here: {local_phrase(row)}"
    if row.n_clients is None:
        return f"{seen}; how many clients an update averages is not stated."
    if row.n_clients > 1:
        return f"{seen}; the server sees the mean of {row.n_clients} clients, not what each has sent."
    return f"{seen}."


def server_knowledge(row: UpdateRow) -> str:
    """What a server knows of FedAvg's local training besides what each attack assumes; empty under FedSGD."""
    if not row.on_fedavg:
        return ""
    known = "how many rows stand behind an update, and the clients' learning rate"
    if row.local_epochs is None or row.local_batches is None:
        said = f"Under FedAvg the server also knows {known}, but not how often and in what batches a client trains."
    else:
        said = f"Under FedAvg the server also knows {known}, local epochs and batch size: it has set them."
    counts = " True labels are known as the number of rows of each class, unless an attack knows those of each batch."
    return said + (counts if row.labels == "true" else "")


def of_rows(row: UpdateRow) -> str:
    """What an attack was measured on, each with so many rows; empty where that is not known.

    >>> of_rows(UpdateRow(attack="", batch_size=32))
    'batches of 32 rows'
    >>> of_rows(UpdateRow(attack="", protocol="fedavg", n_clients=1, batch_size=32))
    'clients of 32 rows'
    """
    if row.batch_size is None:
        return ""
    kind = "batches" if not row.on_fedavg else "clients" if row.n_clients == 1 else "updates"
    return f"{kind} of {counted(row.batch_size, 'row')}"


def rows_axis(row: UpdateRow) -> str:
    """What the number of rows counts."""
    return "rows behind the update" if row.on_fedavg else "rows in the client's batch"


def time_unit(row: UpdateRow) -> str:
    """What ``epoch`` counts."""
    return "round" if row.on_fedavg else "epoch"


def defense_phrase(row: UpdateRow) -> str:
    """The defense with its strength, and with the privacy it grants where an accountant has said.

    >>> defense_phrase(UpdateRow(attack="", defense="dp_sgd", epsilon=2.94, delta=1e-5))
    'DP-SGD (differential privacy for every row, at δ 1e-05: ε 2.94 of the whole training)'
    """
    title = defense_title(row.defense, row.defense_strength)
    granted = []
    if row.epsilon is not None:
        granted.append(f"ε {row.epsilon:.3g} of the whole training")
    if row.release_epsilon is not None:
        granted.append(f"ε {row.release_epsilon:.3g} of one update, for a server that knows its batch")
    if not granted or row.delta is None:
        return title
    return f"{title} (differential privacy for every row, at δ {row.delta:g}: {', '.join(granted)})"


def source_phrase(source: str | None) -> str:
    """When the attacked update was sent."""
    return _SOURCES.get(source or "", source or "not stated")


def varying(rows: Iterable[UpdateRow]) -> list[str]:
    """Names of the fixed fields in which rows differ."""
    return differing(rows, FIXED)


def parts(row: UpdateRow, names: Iterable[str]) -> list[str]:
    """The named fixed fields of a row, each as a short phrase.

    >>> parts(UpdateRow(attack="", dataset="adult", labels="true", epoch=3), ["dataset", "labels", "epoch"])
    ['adult', 'labels known to the server', 'epoch 3']
    """
    wanted = list(names)
    if {"defense", "defense_strength"} <= set(wanted):
        wanted.remove("defense_strength")
        return [
            f"defense {defense_title(row.defense, row.defense_strength)}" if n == "defense" else _part(row, n)
            for n in wanted
        ]
    return [_part(row, name) for name in wanted]


def parts_title(row: UpdateRow, names: Iterable[str]) -> str:
    """The same as a heading."""
    return joined(*parts(row, names), by=" · ")


_PARTS: Mapping[str, Callable[[UpdateRow], str]] = {
    "run": lambda row: row.run,
    "dataset": lambda row: row.dataset or "dataset not stated",
    "target": lambda row: row.target or "network not stated",
    "protocol": lambda row: protocol_title(row.protocol),
    "defense": lambda row: f"defense {defense_title(row.defense)}",
    "labels": lambda row: f"labels {labels_phrase(row.labels)}",
    "source": lambda row: source_phrase(row.source),
    "epoch": lambda row: "no epoch" if row.epoch is None else f"{time_unit(row)} {row.epoch}",
    "local_epochs": lambda row: _amount(row.local_epochs, "local epoch"),
    "local_batches": lambda row: _amount(row.local_batches, "local batch", "local batches"),
    "n_clients": lambda row: "clients not stated" if row.n_clients is None else counted(row.n_clients, "client"),
    "defense_strength": lambda row: _number(row.defense_strength, "strength", "g"),
    "epsilon": lambda row: _number(row.epsilon, "ε"),
    "release_epsilon": lambda row: _number(row.release_epsilon, "ε of one update"),
    "delta": lambda row: _number(row.delta, "δ", "g"),
}


def _part(row: UpdateRow, name: str) -> str:
    return _PARTS[name](row)


def _amount(number: int | None, one: str, many: str | None = None) -> str:
    return f"no {one}" if number is None else counted(number, one, many)


def _number(value: float | None, name: str, form: str = ".3g") -> str:
    return f"no {name}" if value is None else f"{name} {value:{form}}"


def message(row: UpdateRow) -> str:
    """What the server receives, for a reader without training in the field."""
    if not row.on_fedavg:
        return (
            "In every step of the training a participant sends one message: a list of numbers that says how the model "
            "should change to fit some of the participant's records better. The records themselves are never sent."
        )
    average = (
        f" The server sees only the average of {row.n_clients} participants."
        if row.n_clients and row.n_clients > 1
        else ""
    )
    return (
        "A participant trains the model on its records for a while and sends one message: how the model has changed. "
        f"The records themselves are never sent.{average}"
    )


def attacker(rows: Sequence[UpdateRow]) -> tuple[tuple[str, str], ...]:
    """The threat model of attacks as questions and answers, without jargon."""
    facts = [KNOWLEDGE[name] for name in threat_facts(rows, "knows") if name in KNOWLEDGE]
    knowledge = "".join(f"; {fact}" for fact in sorted(facts, key=list(KNOWLEDGE.values()).index))
    others = " ".join(other_assumptions(rows))
    when = {
        "training": f"in some {time_unit(rows[0])}s of the training",
        "given": "with the model as it was handed over",
    }
    moments = dict.fromkeys(
        when.get(row.source or "", "before the training, when most can be read from a message") for row in rows
    )
    return (
        (
            "Who is the attacker?",
            "Whoever runs the server that collects the messages, or can read what it receives. The attacker follows "
            "the agreed procedure and only looks closely at what arrives.",
        ),
        ("What do they see?", " ".join(dict.fromkeys(map(message, rows)))),
        (
            "What else do they know?",
            joined(f"The model and its settings{knowledge}.", others, "Not every attack uses all of this.", by=" "),
        ),
        (
            "What do they not have?",
            "Any of the participant's records, access to its computers, or the help of someone who works there.",
        ),
        ("When did we look?", f"At messages sent {' and '.join(moments)}."),
    )
