"""Who could do it and with what means: one table for runs of every kind, made from threat models as data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.results import NONE, Row
from lightleak.core.threat_model import Does, Knows, Sees, Who
from lightleak.report.blocks import Column, Table
from lightleak.report.format import DASH, capital, duration, listed, of_a_number
from lightleak.report.intervals import estimate
from lightleak.report.page import table_of

WHO: Mapping[Who, str] = {
    "server": "whoever runs the server or breaks into it",
    "active_party": "the party with the labels (C1), or whoever breaks into it",
    "passive_party": "a party without the labels (C2), or whoever breaks into it",
    "model_holder": "whoever was given the released model or may ask it",
    "nobody": "nobody: a comparison that attacks nothing",
}
HELPERS: Mapping[Who, str] = {
    "server": "No participant has to help.",
    "active_party": "No other party has to help.",
    "passive_party": "No other party has to help.",
    "model_holder": "Nobody who trained it has to help.",
    "nobody": "",
}
"""Who has to collude."""

SEES: Mapping[Sees, str] = {
    "update": "what each participant sends",
    "own_columns": "its own columns",
    "labels": "the labels",
    "AO": "the outputs of its own network",
    "AG": "the gradients of its own network",
    "VO": "the outputs of the other party's network",
    "VG": "the gradients that the other party gets back",
    "weights": "the model with all its weights",
    "answers": "the model's answers",
}
KNOWS: Mapping[Knows, str] = {
    "true_labels": "the true label of every record",
    "class_counts": "how many records have each label",
    "restored_labels": "no labels: it restores them from the update",
    "column_bounds": "the smallest and largest possible value of every column",
    "encoder_statistics": "the average and the spread of every column",
    "counted_with_attacked": "these counted on records that include those under attack, which favors the attacker",
    "counted_without_attacked": "these counted on other people's records",
    "marginals": "how often each value occurs among other people",
    "batch_statistics": "averages that the model computed over the records",
    "local_training": "how a participant trains, as the server has set it",
    "batch_labels": "which of a participant's records were used together, by label",
    "property_sample": "people of whom it knows whether they have the property",
    "public_rows": "public records with the same columns, of other people",
    "input_statistics": "the statistics that the model's input is scaled with",
}
DOES: Mapping[Does, str] = {
    "replaces_own_labels": "trains on the property in place of the labels of the people it knows",
    "replaces_first_labels": "trains on the property in place of the first batches' labels, which it could not know",
    "refines_network": "trains its own network for the attack",
    "ignores_gradient": "trains its generator without the model's gradient",
}
EARLIER = "As stated by an earlier version"


def means_table(rows: Iterable[Row], unit: str, title: Callable[[Any], str]) -> Table | None:
    """Draw who could carry out each attack, with what knowledge and in what time; None where there is no attack.

    Args:
        rows: rows of attacks; those of trainings are left out.
        unit: what the time of a row was spent on, in the singular.
        title: name of a row's attack.
    """
    attacks = [row for row in rows if row.attack != NONE]
    by_role = by_key(attacks, _role)
    columns: list[Column[Sequence[Row]]] = [
        Column("Attack", lambda same: title(same[0])),
        Column("Has to know", _knowledge, css="words"),
        Column("Departs from procedure", lambda same: facts_of(same, "does", DOES) or DASH, optional=True, css="words"),
        Column(f"Time for one {unit}", lambda same: duration(estimate(row.seconds for row in same))),
        Column("Generator trained in", lambda same: duration(estimate(fit_seconds(same))), optional=True),
        Column("Processor time", lambda same: duration(estimate(row.cpu_seconds for row in same)), optional=True),
        Column("Memory", lambda same: memory_words(most_memory(same)), optional=True),
    ]
    groups = [(role, by_key(same, _assumed(title)).values()) for role, same in by_role.items()]
    return table_of("Means of each attack", columns, groups, css="stack means") if attacks else None


def fit_seconds(rows: Iterable[Row]) -> list[float]:
    """Return the seconds that each generator took to train: every evaluation of a training and attack repeats them."""
    fits = {(row.run, row.seed, getattr(row, "label", None) or row.attack, row.number("fit_seconds")) for row in rows}
    return sorted(seconds for *_, seconds in fits if seconds is not None)


def most_memory(rows: Iterable[Row]) -> int | None:
    """Return most bytes that an attacking process held; None where that was not measured."""
    return max((row.peak_memory for row in rows if row.peak_memory), default=None)


@of_a_number
def memory_words(size: float) -> str:
    """Return an amount of memory.

    >>> memory_words(734_003_200), memory_words(None)
    ('0.7 GB', '–')
    """
    return f"{size / 1e9:.1f} GB"


def roles(rows: Iterable[Row]) -> str:
    """Return who could carry out the attacks, as a phrase; empty of files of earlier versions."""
    who = dict.fromkeys(row.threat.who for row in rows if row.threat and row.threat.who != "nobody")
    return "; ".join(WHO[one] for one in who)


def facts_of(rows: Iterable[Row], field: str, names: Mapping[Any, str]) -> str:
    """Return the entries of one field of all threat models in words, each once; empty of earlier files."""
    found = dict.fromkeys(one for row in rows if row.threat for one in getattr(row.threat, field))
    return "; ".join(names[one] for one in found if one in names)


def seen(rows: Iterable[Row]) -> str:
    """Return what the attackers see, each once; empty of earlier files."""
    return "; ".join(dict.fromkeys(words for row in rows for words in _seen(row)))


def _seen(row: Row) -> list[str]:
    clients = getattr(row, "n_clients", None) or 1
    update = SEES["update"] if clients == 1 else f"the mean of what {clients} participants send"
    return [update if one == "update" else SEES[one] for one in row.threat.sees] if row.threat else []


def _role(row: Row) -> str:
    if row.threat is None:
        return EARLIER
    who, helpers = capital(WHO[row.threat.who]), HELPERS[row.threat.who]
    return f"{who}. {helpers} It sees {listed(_seen(row)) or 'nothing'}." if helpers else who


def _assumed(title: Callable[[Any], str]) -> Callable[[Row], tuple[object, ...]]:
    return lambda row: (title(row), row.threat and (row.threat.knows, row.threat.does), row.threat_model)


def _knowledge(same: Sequence[Row]) -> str:
    threat = same[0].threat
    if threat is None:
        return same[0].threat_model or "Not stated."
    samples = sorted({one.threat.sample for one in same if one.threat and one.threat.sample is not None})
    counts = " to ".join(dict.fromkeys(f"{n:,}" for n in (*samples[:1], *samples[-1:])))
    known = [KNOWS[one] for one in threat.knows if one != "property_sample"]
    known += [f"{counts or 'some'} {KNOWS['property_sample']}"] if samples or "property_sample" in threat.knows else []
    return "; ".join(known) or "nothing else"
