"""What an attacker is assumed to be, see, know and do: data, from which the one sentence of a report is made."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from lightleak.core.records import write_record

LabelKnowledge = Literal["true", "restored", "none"]

Who = Literal["server", "active_party", "passive_party", "model_holder", "nobody"]
"""The server of federated learning, a party of vertical federated learning with or without the labels, whoever has the
released model or may ask it, and the null that attacks nothing."""

Sees = Literal["update", "own_columns", "labels", "AO", "AG", "VO", "VG", "weights", "answers"]
"""What reaches the attacker because of its role; ``AO`` to ``VG`` are intermediate results (outputs and gradients of
the adversary and of the victim)."""

Knows = Literal[
    "true_labels",
    "class_counts",
    "restored_labels",
    "column_bounds",
    "encoder_statistics",
    "marginals",
    "batch_statistics",
    "local_training",
    "batch_labels",
    "counted_with_attacked",
    "counted_without_attacked",
    "property_sample",
    "public_rows",
    "input_statistics",
]
"""What it knows besides; ``counted_...`` says on which rows bounds and statistics were counted, ``property_sample``
that it has rows of which it knows whether they have the property."""

Aim = Literal[
    "membership_inference",
    "attribute_inference",
    "model_inversion",
    "reconstruction",
    "extraction",
    "property_inference",
]
"""What an attack on training data aims at: the attacks that EDPB Opinion 28/2024 (paragraph 55) names, exfiltration and
regurgitation as ``extraction``, and property inference, which it does not name. Each attack declares its own."""

Does = Literal["replaces_own_labels", "replaces_first_labels", "refines_network", "ignores_gradient"]
"""How it departs from the agreed procedure: it replaces the labels of its auxiliary rows or of the first batches, or
trains its own network for the attack. ``ignores_gradient`` is an attack that trains its generator without the model's
gradient."""

COUNTED_WITH_ATTACKED = "Bounds and statistics were counted on rows that include the attacked ones."
COUNTED_WITHOUT_ATTACKED = "Bounds and statistics were counted on rows other than the attacked ones."

_KNOWN: dict[Knows, str] = {
    "true_labels": "the true labels",
    "class_counts": "the number of rows of each class",
    "restored_labels": "labels restored from the update",
    "column_bounds": "column bounds",
    "encoder_statistics": "encoder statistics",
    "marginals": "column marginals",
    "batch_statistics": "the batch's BatchNorm statistics",
    "local_training": "how the client trained",
    "batch_labels": "which batch holds which labels",
}
_DEEDS: dict[Does, str] = {
    "replaces_own_labels": "trains on the property in place of the auxiliary rows' labels",
    "replaces_first_labels": "trains on the property in place of the labels of all rows of the first batches (which it "
    "could not know: this variant cheats)",
    "refines_network": "bends its own bottom network on the auxiliary rows after every epoch",
}
_SEEN: dict[Sees, str] = {"own_columns": "its own columns"}


@dataclass(frozen=True)
class Threat:
    """The threat model of one result; `ThreatModel` declares that of an attack on updates.

    Attributes:
        who: the attacker.
        sees: what reaches it because of its role.
        knows: what it knows besides.
        does: how it departs from the agreed procedure.
        sample: rows of which it knows whether they have the property.
        about: the property, as ``column=value``.
        epoch: in which it sees what is exchanged, where that is one.
    """

    who: Who
    sees: tuple[Sees, ...] = ()
    knows: tuple[Knows, ...] = ()
    does: tuple[Does, ...] = ()
    sample: int | None = field(default=None, metadata={"low": 0})
    about: str | None = None
    epoch: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return write_record(self)

    def describe(self) -> str:
        """Return one or two plain sentences for a report."""
        if self.who == "server":
            return self._server()
        if self.who == "model_holder":
            return self._holder()
        if self.who == "nobody":
            return f"Knows the property of {self.sample} rows, reads nothing else."
        return self._party() if self.epoch is None else self._party_in_epoch()

    def _server(self) -> str:
        known = ["the update"] if "update" in self.sees else []
        known += [_KNOWN[one] for one in self.knows if one in _KNOWN]
        sentence = f"An honest-but-curious server that knows {listed(known) or 'nothing'}."
        if "counted_with_attacked" in self.knows:
            return f"{sentence} {COUNTED_WITH_ATTACKED}"
        return f"{sentence} {COUNTED_WITHOUT_ATTACKED}" if "counted_without_attacked" in self.knows else sentence

    def _holder(self) -> str:
        opened = "its weights and gradients" if "weights" in self.sees else "its answers to rows of one's choice"
        used = "; the generator is trained without the model's gradient" if "ignores_gradient" in self.does else ""
        return (
            f"Someone who holds the released model ({opened}, and the statistics its input is scaled with) and public "
            f"rows of the same columns that do not belong to the private patients or customers{used}."
        )

    def _party(self) -> str:
        role = "active party (C1)" if self.who == "active_party" else "passive party (C2)"
        own = [_SEEN.get(one, one) for one in self.sees]
        read = listed(own) if "own_columns" in self.sees else ", ".join(own)
        article = "An" if self.who == "active_party" else "A"
        who = f"{article} {role} that {self._deeds()}," if self.does else f"An honest-but-curious {role} that"
        return f"{who} reads {read} of every record and knows of {self.sample} of them whether they have {self.about}."

    def _party_in_epoch(self) -> str:
        role = "An active party (C1)" if self.who == "active_party" else "A passive party (C2)"
        return (
            f"{role} that {self._deeds()}, sees {', '.join(self.sees)} of every record in epoch {self.epoch} and knows "
            f"the property of {self.sample} auxiliary rows."
        )

    def _deeds(self) -> str:
        return " and ".join(_DEEDS[one] for one in self.does if one in _DEEDS) or "follows the protocol"


@dataclass(frozen=True)
class ThreatModel:
    """The assumptions of one attack run.

    Attributes:
        labels: ``true`` (given to the attack), ``restored`` (estimated from the update) or ``none`` (not used).
        update: the attack reads the client's gradient or weight delta.
        column_bounds: lowest and highest value of each numerical column are known.
        encoder_statistics: mean and deviation of every encoded column are known (the server standardizes with them).
        marginals: one-way marginals of the columns are known.
        batch_statistics: the batch's own BatchNorm statistics are known.
        local_training: rows, learning rate and optimizer of a client's local training are known (FedAvg), and its
            epochs and batch size or the number of its steps; of the labels then only how many rows each class has.
        batch_labels: the labels of every local batch are known, not their counts alone (FedAvg).
    """

    labels: LabelKnowledge
    update: bool = True
    column_bounds: bool = True
    encoder_statistics: bool = True
    marginals: bool = False
    batch_statistics: bool = False
    local_training: bool = False
    batch_labels: bool = False

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    def threat(self, includes_attacked: bool | None = None) -> Threat:
        """Return the same in the vocabulary of all threat models.

        Args:
            includes_attacked: whether bounds and statistics were counted on rows that include those under attack; None
                where that is not known.
        """
        knows: list[Knows] = []
        if self.labels == "true":
            knows.append("class_counts" if self.local_training else "true_labels")
        elif self.labels == "restored":
            knows.append("restored_labels")
        knows += [name for name in get_args(Knows) if getattr(self, name, False)]  # a field of the same name
        if includes_attacked is not None and (self.column_bounds or self.encoder_statistics):
            knows.append("counted_with_attacked" if includes_attacked else "counted_without_attacked")
        return Threat("server", ("update",) if self.update else (), tuple(knows))

    def describe(self, includes_attacked: bool | None = None) -> str:
        """Return one or two plain sentences for a report; for the argument see `threat`.

        >>> ThreatModel(labels="true").describe()
        'An honest-but-curious server that knows the update, the true labels, column bounds and encoder statistics.'
        """
        return self.threat(includes_attacked).describe()


def listed(names: list[str]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
