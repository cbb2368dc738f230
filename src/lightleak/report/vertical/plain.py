"""The threat model of a vertical audit in words for a reader without training in the field."""

import re
from collections.abc import Iterable, Sequence

from lightleak.report.plain import NO_PROOF, THIS_ALONE, counted
from lightleak.report.vertical.comparison import Group
from lightleak.report.vertical.wording import defense_name, listed

WHO = {
    "C1": "the company that knows the outcomes the model learns to predict (C1)",
    "C2": "a company that does not know the outcomes (C2)",
}
SHORT = {"C1": "the company with the outcomes (C1)", "C2": "a company without the outcomes (C2)"}
SEES = {
    "C1": "C1 sees, for every customer, the numbers that the other company's part of the model makes of its columns, "
    "and the corrections that go back",
    "C2": "C2 sees, for every customer, only what its own part of the model sends, and the corrections that come back",
}
"""By adversary; the columns themselves never leave their company."""

DEFENSES = {
    "laplace": "random noise is added to the corrections that are sent back",
    "ppdl": "only few of the corrections are sent back, with noise",
    "r3elu": "random answers take the place of some of the numbers that are exchanged",
    "shuffle": "the company attacked swaps some of its data among customers",
    "withdraw": "the company attacked leaves some of the customers who have the trait out of the training",
}
"""What a defence does, by the first word of its name."""

TERMS = (
    "“Customers” are the people whom the tables are about. A “trait” is a value in one of the other company's columns, "
    "written column=value. “Own columns” is what the same company tells without the exchange; being closer is "
    "“learned”. “AUC” says how good the model is: of "
    "100 pairs of customers with different outcomes, how many it puts in the right order; 50 is no better than tossing "
    "a coin."
)
LIMITS = (
    "Public statistics may tell the share as well: an estimate close to the truth need not be news.",
    NO_PROOF,
    THIS_ALONE,
)
_SAMPLE = re.compile(r"\bof (\d+) (?:auxiliary rows|of them)")


def defense_words(name: str) -> str:
    """The defence by name, and what it does where that is known.

    >>> defense_words("withdraw ratio 0.5").partition(" (")[0], defense_words("my own")
    ('withdraw ratio 0.5', 'my own')
    """
    known, words = defense_name(name), DEFENSES.get(name.replace("_", " ").partition(" ")[0])
    return f"{known} ({words})" if words else known


def attacker(groups: Sequence[Group]) -> tuple[tuple[str, str], ...]:
    """Questions and answers that make up the threat model, without jargon."""
    names = sorted({group.adversary for group in groups if group.adversary})
    bends = [group.manipulates for group in groups]
    conduct = "It follows the agreed procedure and only looks closely at what it receives."
    if any(bends):
        who_bends = "It" if all(bends) else "In some of the attacks it"
        rest = "" if all(bends) else "; in the others it only looks closely at what it receives"
        conduct = f"{who_bends} departs from the agreed procedure and bends its own part of the training{rest}."
    sees = [SEES[name] for name in names if name in SEES]
    return (
        (
            "Who is the attacker?",
            f"One of the companies that train a model together: {' or '.join(who(name) for name in names)}. {conduct}",
        ),
        (
            "What do they see?",
            "The companies hold different columns about the same customers; no column leaves its company. "
            + (f"{'. '.join(sees)}." if sees else "The attacker sees what is exchanged in training."),
        ),
        (
            "What else do they know?",
            f"Of {_sample(groups)} whether they have the trait. A company without such a sample cannot do this.",
        ),
        ("What do they not have?", "The other company's columns, its computers, or help from someone who works there."),
        (
            "What would they learn?",
            "How many of the other company's customers have the trait: a share, not a list. No customer is identified.",
        ),
    )


def who(adversary: str) -> str:
    """The attacker in full."""
    return WHO.get(adversary, f"the company {adversary}".strip())


def short(adversary: str) -> str:
    """The attacker, once it has been introduced."""
    return SHORT.get(adversary, f"the company {adversary}".strip())


def traits(names: Iterable[str]) -> str:
    """Properties in a sentence."""
    return listed(f"“{name}”" for name in names)


def _sample(groups: Sequence[Group]) -> str:
    sentences = {result.threat_model or "" for group in groups for result in group.results}
    sizes = sorted({int(found[1]) for text in sentences if (found := _SAMPLE.search(text))})
    if not sizes:
        return "some customers"
    return counted(sizes[0], "customer") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} customers"
