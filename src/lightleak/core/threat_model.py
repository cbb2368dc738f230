"""What an attack assumes it knows, declared as data and shown beside every number."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

LabelKnowledge = Literal["true", "restored", "none"]


COUNTED_WITH_ATTACKED = "Bounds and statistics were counted on rows that include the attacked ones."
COUNTED_WITHOUT_ATTACKED = "Bounds and statistics were counted on rows other than the attacked ones."


@dataclass(frozen=True)
class ThreatModel:
    """The assumptions of one attack run (DESIGN.md, vocabulary).

    Attributes:
        labels: ``true`` (given to the attack), ``restored`` (estimated from the update) or ``none`` (not used).
        update: the attack reads the client's gradient or weight delta.
        column_bounds: lowest and highest value of each numerical column are known.
        encoder_statistics: mean and deviation of every encoded column are known (the server standardises with them).
        marginals: one-way marginals of the columns are known.
        batch_statistics: the batch's own BatchNorm statistics are known.
        local_training: rows, learning rate and optimiser of a client's local training are known (FedAvg), and its
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

    def describe(self, includes_attacked: bool | None = None) -> str:
        """Return one or two plain sentences for a report.

        Args:
            includes_attacked: whether bounds and statistics were counted on rows that include those under attack; None
                where that is not known.

        >>> ThreatModel(labels="true").describe()
        'An honest-but-curious server that knows the update, the true labels, column bounds and encoder statistics.'
        """
        known = ["the update"] if self.update else []
        if self.labels != "none":
            true = "the number of rows of each class" if self.local_training else "the true labels"
            known.append(true if self.labels == "true" else "labels restored from the update")
        facts = (
            (self.column_bounds, "column bounds"),
            (self.encoder_statistics, "encoder statistics"),
            (self.marginals, "column marginals"),
            (self.batch_statistics, "the batch's BatchNorm statistics"),
            (self.local_training, "how the client trained"),
            (self.batch_labels, "which batch holds which labels"),
        )
        known += [text for holds, text in facts if holds]
        listed = " and ".join([", ".join(known[:-1]), known[-1]]) if len(known) > 1 else "".join(known) or "nothing"
        sentence = f"An honest-but-curious server that knows {listed}."
        if includes_attacked is None or not (self.column_bounds or self.encoder_statistics):
            return sentence
        return f"{sentence} {COUNTED_WITH_ATTACKED if includes_attacked else COUNTED_WITHOUT_ATTACKED}"
