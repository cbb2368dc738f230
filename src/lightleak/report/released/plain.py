"""The threat model of an audit of a released model in words for a reader without training in the field."""

from collections.abc import Sequence

from lightleak.report.plain import NO_PROOF, THIS_ALONE
from lightleak.report.released.entries import Entry
from lightleak.report.released.group import Group
from lightleak.report.released.wording import count

BLACK_BOX = "plgmi_black_box"

TERMS = (
    "A “group” is one of the kinds that the model tells apart, such as patients with one diagnosis; the private "
    "records are of people of these groups. A made-up record is “recognised” when another model takes it for the "
    "group it was made for. That model learned from the same private records and had no part in the attack; a second "
    "one learned from other private records of the same groups. “Public” records are of other people, with the same "
    "columns."
)
MEASURES = {
    "attack_accuracy": "recognised",
    "disjoint_accuracy": "recognised by a second model, which learned from other records",
    "class_shapes_score": "how the values of a group are spread",
    "distinct_nearest_rows": "how many different private records they resemble",
    "nearer_to_train": "how near they are to records that the model learned from",
}
BASELINES = {
    "public_pseudo_labelled": "public records that the released model merely sorted into the groups",
    "gan_without_target": "records made up from public ones, with the released model's sorting alone",
    BLACK_BOX: "records made up from public ones, with the released model's sorting alone",
    "public_random": "public records drawn at random, without the model",
}
"""What is compared: made or taken from public records, at most with the model's sorting of them."""

LIMITS = (
    "The made-up records show what the people of a group have in common. No person was found, and a recognised record "
    "may describe nobody.",
    "With public records that are less like the private ones, the figures would be others.",
    NO_PROOF,
    THIS_ALONE,
)


def attacker(groups: Sequence[Group], entries: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
    """Questions and answers that make up the threat model, without jargon."""
    asks = [group.attack == BLACK_BOX for group in groups]
    sees = "The model's answers to any record they ask it about, and not its inside."
    if not all(asks):
        sees = "The whole model: every number that it has learned, not only its answers."
        sees += " In some of the attacks only its answers." if any(asks) else ""
    sizes = sorted({entry.task["public_rows"] for entry in entries if "public_rows" in entry.task})
    n = f"{count(sizes[0])} " if len(sizes) == 1 else f"{count(sizes[0])} to {count(sizes[-1])} " if sizes else ""
    return (
        (
            "Who is the attacker?",
            "Whoever was given the released model, or can ask it."
            if any(asks)
            else "Whoever holds the released model.",
        ),
        ("What do they see?", sees),
        ("What else do they know?", f"{n}public records: the same columns, of other people."),
        ("What do they not have?", "Any of the private records, or the model that recognises what they make up."),
        ("What would they learn?", "What the people of a private group typically look like. Not who they are."),
    )
