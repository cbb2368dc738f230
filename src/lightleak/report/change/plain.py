"""The threat model and other facts of a run in words for a reader without training in the field."""

from collections.abc import Iterable, Sequence
from typing import Literal

from lightleak.report.kinds.updates_groups import BASELINE
from lightleak.report.plain import NO_PROOF, THIS_ALONE
from lightleak.report.result import Result, Setting
from lightleak.report.wording import time_unit

Moment = Literal["before training", "network as given", "during training"]

KNOWLEDGE = {
    "the true labels": "the outcome of every record that the model learns to predict, such as a diagnosis",
    "the number of rows of each class": "how many records have each outcome that the model learns to predict",
    "column bounds": "the smallest and largest possible value of every column",
    "encoder statistics": "the average and the spread of every column",
    "rows that include the attacked": "these were counted on records that include those under attack, which favors the "
    "attacker",
    "rows other than the attacked": "these were counted on other people's records",
    "column marginals": "how often each value occurs among other people",
    "BatchNorm statistics": "averages that the model computed over the records",
    "how the client trained": "how a participant trains, as the server has set it",
    "which batch holds which labels": "which of a participant's records were used together, by outcome",
}
"""What a threat model's sentence names (`core.threat_model.ThreatModel.describe`), in plain words."""

PROVEN = (
    "“Proven” means that the attacker can check a reconstructed record against the message itself with a calculation "
    "that a wrong record would fail: the attacker then knows that the record is real, without ever having seen it."
)
SAFE_SIDE = (
    "For every message we count the attack that got most out of it. No attack is chosen afterwards by its average, so "
    "the intervals need no correction for the number of attacks tried. A real attacker cannot compare with the "
    "original records and would at best do as well with these attacks."
)
DURATION: dict[Moment, str] = {
    "before training": "at the start of training",
    "network as given": "with the model as handed over",
    "during training": "in the course of training",
}
LIMITS = (
    NO_PROOF,
    THIS_ALONE,
    "A reconstructed record need not name its person. Whether it points to one depends on who else has the same "
    "values.",
)


def message(setting: Setting) -> str:
    """What the server receives, in one sentence."""
    if setting.protocol != "fedavg":
        return (
            "In every step of the training a participant sends one message: a list of numbers that says how the model "
            "should change to fit some of the participant's records better. The records themselves are never sent."
        )
    average = (
        f" The server sees only the average of {setting.n_clients} participants."
        if setting.n_clients and setting.n_clients > 1
        else ""
    )
    return (
        "A participant trains the model on its records for a while and sends one message: how the model has changed. "
        f"The records themselves are never sent.{average}"
    )


def attacker(settings: Iterable[Setting], results: Sequence[Result]) -> tuple[tuple[str, str], ...]:
    """Questions and answers that make up the threat model, without jargon."""
    known = list(settings)
    knowledge = knows(results)
    when = {
        "training": f"in some {time_unit(known[0])}s of the training",
        "given": "with the model as it was handed over",
    }
    moments = dict.fromkeys(
        when.get(setting.source or "", "before the training, when most can be read from a message") for setting in known
    )
    return (
        (
            "Who is the attacker?",
            "Whoever runs the server that collects the messages, or can read what it receives. The attacker follows "
            "the agreed procedure and only looks closely at what arrives.",
        ),
        ("What do they see?", " ".join(dict.fromkeys(message(setting) for setting in known))),
        (
            "What else do they know?",
            f"The model and its settings{''.join(f'; {fact}' for fact in knowledge)}. Not every attack uses all of "
            "this.",
        ),
        (
            "What do they not have?",
            "Any of the participant's records, access to its computers, or the help of someone who works there.",
        ),
        ("When did we look?", f"At messages sent {' and '.join(moments)}."),
    )


def knows(results: Sequence[Result]) -> list[str]:
    """What the attacks assume, each fact once."""
    told = {result.threat_model for result in results if result.threat_model and result.attack != BASELINE}
    return [words for phrase, words in KNOWLEDGE.items() if any(phrase in sentence for sentence in told)]
