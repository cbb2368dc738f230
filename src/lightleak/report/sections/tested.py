"""Which attacks on training data were tested and which were not, by whom they can be carried out, and a checklist."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from importlib.resources import files
from typing import Any, get_args
from urllib.parse import quote

from lightleak.core.grouping import by_key
from lightleak.core.results import NONE, ClientRow, FrontierRow, Row, VerticalRow
from lightleak.core.threat_model import Aim
from lightleak.report.attacks import aims_of
from lightleak.report.blocks import Block, Cell, Details, Section, Table
from lightleak.report.budget import budget
from lightleak.report.format import attack_title, capital, defense_title, duration, joined, listed
from lightleak.report.page import cells_table, fill, text
from lightleak.report.read import Run
from lightleak.report.sections.means import (
    KNOWS,
    facts_of,
    fit_seconds,
    means_table,
    memory_words,
    most_memory,
    roles,
    seen,
)

FILE_NAME = "checklist.json"
NOT_TESTED = "Not tested"
CONTROLLER = "For the controller to answer"
UNKNOWN = "Not known from this report: for the controller to answer"
UNCLAIMED = "No guarantee is claimed"
NO_NOISE = f"{NOT_TESTED}: no noise was added"
NOISY = (
    "gaussian_noise", "laplacian_noise", "dp_sgd", "nvflare_svt", "flower_local_dp", "laplace", "ppdl", "r3elu",
)  # fmt: skip
"""Defenses that add noise."""
NOISELESS = (
    "clipped", "clipping", "flower_clipping", "gradient_compression", "nvflare_exclude", "nvflare_percentile",
    "quantization", "random_pruning", "shuffle", "sign", "transport", "withdraw",
)  # fmt: skip
"""Defenses that add none. Of all others, such as those a recorded update describes in words, it is not known."""

POINTS = {"update": "to its update before it is sent", "steps": "in every step of its local training"}
"""Where a client adds noise, by the ``point`` of its defense."""

UNITS: Mapping[str | None, str] = {
    None: "One record. A person with several records is protected less",
    "client": "One client's whole update",
}
CLAIMED: Mapping[str | None, str] = {"nvflare_svt": ", as NVFlare claims"}
"""Of defenses whose epsilon nobody has shown."""

AIMS: Mapping[Aim, tuple[str, str]] = {
    "membership_inference": ("membership inference", "was a person's record part of the training?"),
    "attribute_inference": ("attribute inference", "which private value does a person have?"),
    "model_inversion": ("model inversion", "what do the records of a class look like, by the trained model?"),
    "reconstruction": ("reconstruction", "can whole records be read back?"),
    "extraction": ("extraction", "can records be obtained by asking the model (exfiltration, regurgitation)?"),
    "property_inference": ("property inference", "which share of the people has a trait?"),
}

Findings = Mapping[Aim, str]
"""What attacks found, by what they tested."""


@dataclass(frozen=True)
class Item:
    """A question of the checklist.

    Attributes:
        source: the document.
        section: the part of it.
        asks: the question, in our own words.
        answer: name of the fact of a run that answers it; None where no run can.
    """

    source: str
    section: str
    asks: str
    answer: str | None = None


@cache
def checklist() -> tuple[Item, ...]:
    """Return the questions."""
    raw = files("lightleak.report").joinpath(FILE_NAME).read_text(encoding="utf-8")
    return tuple(Item(**one) for one in json.loads(raw))


def aims_in(rows: Iterable[Row]) -> list[Aim]:
    """Return what the attacks of these rows test a training for, in the order of `AIMS`."""
    declared = {aim for attack in {row.attack for row in rows} for aim in aims_of(attack)}
    return [aim for aim in get_args(Aim) if aim in declared]


def untested(rows: Iterable[Row]) -> list[str]:
    """Return titles of what no attack of these rows tests."""
    tested = aims_in(rows)
    return [title for aim, (title, _) in AIMS.items() if aim not in tested]


def evidence_section(
    runs: Sequence[Run],
    rows: Sequence[Row],
    found: Findings,
    *,
    answers: Mapping[str, str] | None = None,
    unit: str = "batch",
    title: Callable[[Any], str] = lambda row: attack_title(row.attack),
    reading: str = "",
) -> Section:
    """Draw means, what was tested, how to read the figures, and the checklist.

    Args:
        runs: the runs of the report.
        rows: rows of attacks and trainings.
        found: what attacks found, in words; empty where they have no result yet.
        answers: to questions of the checklist, by `Item.answer`, which only this kind of run can give.
        unit: what the time of a row was spent on, in the singular.
        title: name of a row's attack.
        reading: how to read the figures, as HTML.
    """
    tested = aims_in(rows)
    results = {aim: text("Tested: {}", found.get(aim) or "no result yet") for aim in tested}
    statuses = {aim: results.get(aim, NOT_TESTED) for aim in AIMS}
    means = means_table(rows, unit, title)
    blocks: list[Block] = [means, fill("sections", "means", budget(rows).sentence)] if means else []
    blocks.append(_tested_table(statuses))
    if reading:
        blocks.append(Details("How to read the figures, and what they do not show", (reading,)))
    known = _answers(runs, rows) | {"queries": statuses["extraction"]} | {str(aim): statuses[aim] for aim in statuses}
    known |= {name: answer for name, answer in (answers or {}).items() if answer}
    return Section("tested", "By whom, with what means, and what was tested", (*blocks, _checklist(known)))


def _tested_table(statuses: Mapping[Aim, str]) -> Table:
    lines = [
        (Cell(capital(title), (question,)), Cell(statuses[aim], css="words")) for aim, (title, question) in AIMS.items()
    ]
    head = ("Attack on training data", "In this report")
    return cells_table("What was tested", head, [("", lines)], css="stack risk")


def _checklist(answers: Mapping[str, str]) -> Details:
    lines = [(item, (answers.get(item.answer) or UNKNOWN) if item.answer else CONTROLLER) for item in checklist()]
    groups = [
        (source, [(Cell(item.asks, (item.section,)), Cell(answer, css="words")) for item, answer in same])
        for source, same in by_key(lines, lambda line: line[0].source).items()
    ]
    table = cells_table("Checklist", ("Question", "Answer of this report"), groups, css="stack risk wrap")
    n_open = sum(answer in (CONTROLLER, UNKNOWN) for _, answer in lines)
    words = fill("sections", "checklist", len(lines), n_open, _link(lines))
    return Details(f"Checklist: {len(lines)} questions, {n_open} of them for the controller", (words, table))


def _link(lines: Iterable[tuple[Item, str]]) -> str:
    """The checklist as a CSV file within a link."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(("source", "section", "question", "answer"))
    writer.writerows((item.source, item.section, item.asks, unescape(answer)) for item, answer in lines)
    return f"data:text/csv;charset=utf-8,{quote(file.getvalue())}"


def _answers(runs: Sequence[Run], rows: Sequence[Row]) -> dict[str, str]:
    """Answers that follow from runs of any kind; an empty one where it is not known."""
    attacks = [row for row in rows if aims_of(row.attack)]
    defended = [row for row in rows if not row.is_undefended]
    defenses = dict.fromkeys(map(_title, defended))
    noisy = dict.fromkeys(_title(row) for row in defended if _name(row) in NOISY)
    unclear = dict.fromkeys(_title(row) for row in defended if _name(row) not in (*NOISY, *NOISELESS))
    under = [*noisy, *(f"{name} (whether it adds noise is not known)" for name in unclear)]
    in_spite = f"Attacked under {'; '.join(under)}" if under else joined(NO_NOISE, *defenses, by=": ")
    versions = dict.fromkeys(
        f"LightLeak {version}" for run in runs if (version := (run.environment.get("packages") or {}).get("lightleak"))
    )
    who = roles(attacks)
    found = {
        "who": capital(who),
        "sees": capital(seen(attacks)),
        "knows": capital(facts_of(attacks, "knows", KNOWS)),
        "cost": _cost(attacks),
        "defense": ("; ".join(defenses) or "No defense") if rows else "",
        "defense_tested": in_spite if attacks else "",
        "budget": budget(rows).sentence,
        "recorded": "; ".join(["Settings, seeds and options at the end of this report", *versions]) if rows else "",
        "open_model": NOT_TESTED if attacks and "model_inversion" not in aims_in(attacks) else "",
        # What else a release shows is not known here.
        "worst": f"Tested as {who}, seeing {seen(attacks)}; in no other role" if who else "",
    }
    if rows:
        found |= _guarantees(defended) | {"trust": "" if unclear else _trust(runs, rows, bool(noisy))}
    return found


def _title(row: Row) -> str:
    """The defense of a row with its strength, which is part of its name in a vertical audit."""
    return defense_title(row.defense, None if isinstance(row, VerticalRow) else row.defense_strength)


def _name(row: Row) -> str | None:
    """The defense of a row by the name it is registered under; a vertical audit labels it with its strength."""
    return row.defense if not isinstance(row, VerticalRow) else row.defense_name or str(row.defense).split()[0]


def _guaranteed(rows: Sequence[Row]) -> list[ClientRow]:
    """The rows with an epsilon of the training or of one update."""
    clients = (row for row in rows if isinstance(row, ClientRow))
    return [row for row in clients if row.epsilon is not None or row.release_epsilon is not None]


def _guarantees(defended: Sequence[Row]) -> dict[str, str]:
    """What differential privacy guarantees: by each defense an epsilon, whether it counts all steps, and for whom."""
    granted = by_key(_guaranteed(defended), _title)
    known = [(name, row) for name, rows in granted.items() for row in _distinct(rows)]
    lacking = [name for name in dict.fromkeys(map(_title, defended)) if name not in granted]
    none = f"{listed(lacking)} {'states' if len(lacking) == 1 else 'state'} no guarantee" if lacking else "no defense"
    reasons = dict.fromkeys(
        f"{_title(row)}: no guarantee where {row.no_guarantee}"
        for row in defended
        if isinstance(row, ClientRow) and row.no_guarantee
    )
    none = "; ".join([*([none] if lacking or not known else []), *reasons])
    if not known:
        return dict.fromkeys(("composition", "privacy_unit"), UNCLAIMED) | {"epsilon": f"None: {none}"}
    whole, single = [], []
    for name, row in known:
        delta = "" if row.delta is None else f", delta {row.delta:g}"
        if row.epsilon is not None:
            whole.append(f"{name}: epsilon {row.epsilon:.3g}{delta}")
        else:
            single.append(
                f"{name}: epsilon {row.release_epsilon:.3g}{delta} of {row.released}{CLAIMED.get(row.defense, '')}"
            )
    units = dict.fromkeys(UNITS.get(row.privacy_unit, str(row.privacy_unit)) for _, row in known)
    together = [f"{one}, of all steps of the training" for one in whole]
    together += [f"{one} alone: over several it adds up, which is not counted" for one in single]
    return {
        "epsilon": "; ".join([*whole, *single, *([none] if none else [])]),
        "composition": "; ".join(together),
        "privacy_unit": "; ".join(units),
    }


def _distinct(rows: Sequence[ClientRow]) -> list[ClientRow]:
    """One row for each guarantee: of the training where rows state one, which runs of other lengths do not share."""
    whole = [row for row in rows if row.epsilon is not None] or rows
    return [of[0] for of in by_key(whole, lambda row: (row.epsilon, row.release_epsilon, row.delta)).values()]


def _trust(runs: Sequence[Run], rows: Sequence[Row], has_noise: bool) -> str:
    """Where noise is added, and who sees more than the attacked role: from the defense's point and the clients."""
    clients = max((row.n_clients or 1 for row in rows if isinstance(row, ClientRow)), default=1)
    where = "No noise is added"
    if has_noise and any(isinstance(row, ClientRow) for row in rows):
        settings = [run.settings.get("defense") for run in runs]
        settings += [row.defense_settings for row in rows if isinstance(row, FrontierRow)]
        used = (one for one in settings if isinstance(one, Mapping) and one.get("name", NONE) != NONE)
        points = dict.fromkeys(POINTS.get(one.get("point", "update"), "") for one in used) or [POINTS["update"]]
        where = f"By each client, {' or '.join(points)}: until then only the client has to be trusted"
    elif has_noise:
        where = "By a party, to its rows or to what it sends: until then only this party has to be trusted"
    averaged = f"whoever averages what {clients} participants send has to be trusted" if clients > 1 else ""
    return joined(where, averaged, "" if _guaranteed(rows) else "no guarantee is claimed", by="; ")


def _cost(attacks: Sequence[Row]) -> str:
    """Time and memory of all attacks together: processor time where every row has it, else wall time.

    Of training generators wall time alone is known.
    """
    known, fitted = [row.cpu_seconds for row in attacks if row.cpu_seconds is not None], sum(fit_seconds(attacks))
    is_cpu = len(known) == len(attacks) and not fitted
    spent = sum(known) if is_cpu else sum(row.seconds or 0.0 for row in attacks) + fitted
    if not spent:
        return ""
    kind = "processor time" if is_cpu else "wall time"
    memory = most_memory(attacks)
    training = f", {duration(fitted)} of it for training generators" if fitted else ""
    room = f", and at most {memory_words(memory)} of memory" if memory else ""
    return f"{duration(spent)} of {kind} for all {len(attacks)} attacks together{training}{room}"
