"""The summary of attacks on a released model: what it gives away of the classes, beside public data, in plain words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lightleak.core.results import ReleasedRow
from lightleak.report.budget import budget
from lightleak.report.compare import by_key
from lightleak.report.format import (
    capital,
    count,
    counted,
    in_brackets,
    interval_words,
    joined,
    of_hundred,
    unsigned_points,
)
from lightleak.report.intervals import Estimate, difference, estimate, proportion
from lightleak.report.kinds.released_groups import Attack, Outcome, Scenario, most_telling
from lightleak.report.page import Cell, Column, Table, Tile, table_of
from lightleak.report.sections.summary import (
    INTERVAL,
    MOST_LINES,
    NO_PROOF,
    THIS_ALONE,
    Summary,
    points_cell,
    share_cell,
)

BLACK_BOX = "plgmi_black_box"
TERMS = (
    "A “group” is one of the kinds that the model tells apart, such as patients with one diagnosis; the private "
    "records are of people of these groups. A made-up record is “recognized” when another model takes it for the "
    "group it was made for. That model learned from the same private records and had no part in the attack; a second "
    "one learned from other private records of the same groups. “Public” records are of other people, with the same "
    "columns."
)
MEASURES = {
    "attack_accuracy": "recognized",
    "disjoint_accuracy": "recognized by a second model, which learned from other records",
    "class_shapes_score": "how the values of a group are spread",
    "distinct_nearest_rows": "how many different private records they resemble",
    "nearer_to_train": "how near they are to records that the model learned from",
}
OUTCOMES: dict[Outcome, str] = {
    "more": "more by",
    "less": "less by",
    "chance": "may be chance",
    "unknown": "not measured",
}
BASELINES = {
    "public_pseudo_labelled": "public records that the released model merely sorted into the groups",
    "gan_without_target": "records made up from public ones, with the released model's sorting alone",
    BLACK_BOX: "records made up from public ones, with the released model's sorting alone",
    "public_random": "public records drawn at random, without the model",
}
"""What is compared: made or taken from public records, at most with the model's sorting of them."""

TYPICAL = ": made-up ones show the typical case of a group, which most real people are not"
"""Why made-up records may be recognized more often than real ones."""

LIMITS = (
    "The made-up records show what the people of a group have in common. No person was found; an attacker cannot tell "
    "which of them happen to be close to a real one, and a recognized record may describe nobody.",
    "With public records that are less like the private ones, the figures would be others.",
    NO_PROOF,
    THIS_ALONE,
)
_MERELY = "as many public records that the model merely sorted into the groups"


@dataclass(frozen=True)
class Judged:
    """One line of the summary's table; real records are no group."""

    title: str
    scenario: Scenario
    group: Attack | None = None


def summary(scenarios: Sequence[Scenario]) -> Summary:
    """Say in plain language what these runs measured."""
    tried = [group for scenario in scenarios for group in scenario.attacks]
    found = most_telling(scenarios)
    if found is None:
        said = "Nothing can be said yet: no attack on the model has finished."
        if tried:
            said = "No other model judged the made-up records, so nothing says how much of the groups they show."
        return Summary((said,), attacker=attacker(tried, scenarios) if tried else (), notes=LIMITS if tried else ())
    scenario, main = found
    table, note = _table(scenarios, scenario, main)
    spent = budget(row for one in scenarios for group in one.groups for row in group.rows).sentence
    return Summary(
        sentences=(*_sentences(scenario, main), *_measured(scenarios, main), spent),
        tiles=tuple(_tiles(scenario, main)),
        terms=(TERMS,),
        defenses=(_no_defense(scenario),),
        table=table,
        note=note,
        attacker=attacker(tried, scenarios),
        notes=(INTERVAL, *LIMITS),
    )


def is_black_box(row: ReleasedRow) -> bool:
    """Whether the attacker sees the model's answers alone."""
    return "weights" not in row.threat.sees if row.threat else row.attack == BLACK_BOX


def attacker(groups: Sequence[Attack], scenarios: Sequence[Scenario]) -> tuple[tuple[str, str], ...]:
    """The threat model of attacks as questions and answers, without jargon."""
    asks = [is_black_box(group.first) for group in groups]
    sees = "The model's answers to any record they ask it about, and not its inside."
    if not all(asks):
        sees = "The whole model: every number that it has learned, not only its answers."
        sees += " In some of the attacks only its answers." if any(asks) else ""
    entries = [entry for scenario in scenarios for entry in scenario.entries]
    sizes = sorted({size for entry in entries if (size := entry.size("public_rows")) is not None})
    n = " to ".join(dict.fromkeys(map(count, (sizes[0], sizes[-1])))) if sizes else ""
    holds = "Whoever was given the released model, or can ask it." if any(asks) else "Whoever holds the released model."
    return (
        ("Who is the attacker?", holds),
        ("What do they see?", sees),
        ("What else do they know?", joined(n, "public records: the same columns, of other people.", by=" ")),
        ("What do they not have?", "Any of the private records, or the model that recognizes what they make up."),
        ("What would they learn?", "What the people of a private group typically look like. Not who they are."),
    )


def equal_records(scenario: Scenario, main: Attack) -> str:
    """How many made-up records equal a private one, beside those of public data; empty where not measured."""
    found = main.value("exact_match_rate")
    if found is None:
        return ""
    if found.mean == 0:
        return "No made-up record equals a private one in every column."
    said = f"{capital(of_hundred(found))} of 100 made-up records equal a private one in every column"
    public = [one.value("exact_match_rate") for one in scenario.baselines if one.attack.startswith("public")]
    highest = max((one for one in public if one), key=lambda one: one.mean, default=None)
    if highest is None:
        return f"{said}."
    compared = difference(found, highest)
    no_sign = ", so that equal records alone say nothing about copying"
    as_many = compared is not None and compared.low is not None and compared.low <= 0
    return f"{said}; of public ones {of_hundred(highest)} do{no_sign * as_many}."


def outcomes(main: Attack) -> str:
    """What each measure says; empty where a single training was measured, or nothing was compared."""
    found = {words: main.having(outcome) for outcome, words in OUTCOMES.items()}
    if main.having("one training") or len(main.having("unknown")) == len(main.measures):
        return ""
    each = (f"{words}: {', '.join(MEASURES[one.name] for one in same)}" for words, same in found.items() if same)
    return f"{'; '.join(each)}."


def _sentences(scenario: Scenario, main: Attack) -> Iterator[str]:
    value, real = main.value(), scenario.real_rows
    assert value is not None  # `most_telling` keeps only groups with an accuracy
    who = "Whoever may ask the released model" if is_black_box(main.first) else "Whoever holds the released model"
    kinds = f"its {scenario.n_classes} groups" if scenario.n_classes else "its groups"
    spread = interval_words(value) if value.has_interval else "one training: no interval"
    yield (
        f"{who} could make up records of {kinds}, of which another model recognizes {of_hundred(value)} of 100 "
        f"({spread})."
    )
    yield _beside_public(scenario, main)
    yield _together(main)
    yield _seeing_nothing(scenario)
    if real is not None:
        typical = TYPICAL if (value.mean if value.low is None else value.low) > real.mean else ""
        yield (
            f"Of real private records that no model has learned from, it recognizes {of_hundred(real)} of 100{typical}."
        )
    yield _single_records(scenario, main)


def _measured(scenarios: Sequence[Scenario], main: Attack) -> Iterator[str]:
    n, each = len(main.evaluations), f" of {count(main.samples)} records" if main.samples else ""
    times = f", in {counted(n, 'evaluation')}{each}{' each' * bool(n > 1 and each)}"
    once = "" if main.n_trainings > 1 else ": nothing says how another training would come out"
    yield f"Measured on {counted(main.n_trainings, 'released model')}{times}{once}."
    measured = sum(one.value() is not None for each in scenarios for one in each.attacks)
    if measured > 1:
        yield (
            f"It is the attack that most surely exceeds public data of {measured} that were measured; as it was picked "
            "afterwards, the figure is slightly optimistic for the attacker."
        )


def _beside_public(scenario: Scenario, main: Attack) -> str:
    gain, best = scenario.gain(main), scenario.reference
    if gain is None or best is None:
        return (
            "Nothing was measured with public data alone, so nothing says how much of this the model gave away and how "
            "much anybody could have known."
        )
    more, spread = "more" if gain.mean >= 0 else "fewer", interval_words(gain, -1.0)
    said = (
        f"Without opening the model, the best were {BASELINES[best.attack]}: {of_hundred(best.value())} of 100, so "
        f"that the attack has {unsigned_points(gain)} {more} ({spread})."
    )
    if gain.low is None or gain.high is None:
        return f"{said} Whether that is chance is not known."
    return said if gain.low > 0 or gain.high < 0 else f"{said} That may be chance."


def _together(main: Attack) -> str:
    """The conclusion, which takes every measure; a few of them only describe the records."""
    n = len(main.measures)
    if main.gives_away:
        return (
            f"By each of {n} measures the made-up records show more of the groups than {_MERELY}: the model gives away "
            "what its groups look like."
        )
    if main.having("one training"):
        return "On a single model nothing is concluded of what it gives away."
    if len(main.having("unknown")) == n:
        return f"They were not compared with {_MERELY}, so nothing is concluded of what the model gives away."
    return (
        f"The made-up records show more of the groups than {_MERELY} by {len(main.having('more'))} of "
        f"{n - len(main.having('unknown'))} measures; that the model gives away what its groups look like would take "
        f"all {n}."
    )


def _seeing_nothing(scenario: Scenario) -> str:
    blind = next((one.value() for one in scenario.baselines if one.attack == "public_random"), None)
    if blind is not None:
        return f"Someone who never saw the model, and took public records at random, would have {of_hundred(blind)}."
    if scenario.chance is not None:
        return f"Someone who never saw the model, and only guessed, would have {of_hundred(scenario.chance)}."
    return "What someone would have who never saw the model was not measured."


def _single_records(scenario: Scenario, main: Attack) -> str:
    share, public = main.memory.value, scenario.nearest_public
    if share is None:
        return "Whether single private records come through was not measured."
    said = (
        f"{of_hundred(share)} of 100 made-up records lie nearer to a record that the model learned from than to one it "
        f"never saw{in_brackets(share, words='95% interval')}, where chance gives 50"
    )
    return {
        "unknown": f"{said}.",
        "too few": f"Too few private records were held out to say whether single ones are copied: {said}.",
        "none": f"No sign that single records are copied: {said}.",
        "as public": f"No sign that single records are copied: {said}, but {of_hundred(public)} of 100 public records, "
        "which are no copies, do so too.",
        "may be": f"Single records may come through: {said}.",
        "traces": f"Traces of single records come through: {said}; of public records {of_hundred(public)} do.",
    }[scenario.copied(main)]


def _tiles(scenario: Scenario, main: Attack) -> Iterator[Tile]:
    value, public = main.value(), scenario.reference.value() if scenario.reference else None
    if value is not None:
        yield Tile(of_hundred(value), "of 100 made-up records recognized", interval_words(value))
    if public is not None:
        yield Tile(of_hundred(public), "of 100 without opening the model", interval_words(public))
    if scenario.real_rows is not None:
        yield Tile(of_hundred(scenario.real_rows), "of 100 real private records", "that no model has learned from")


def _no_defense(scenario: Scenario) -> str:
    useful = _quality(scenario)
    said = f" The released model now judges {useful} of 100 new records correctly." if useful else ""
    return (
        "An audit of a released model tries no defense, so what one would change, and what it would cost, is not known "
        f"from this report.{said} To find out, train the model with a defense, audit it as well, and set the two side "
        "by side."
    )


def _quality(scenario: Scenario) -> str:
    """How many of 100 held-out records the released model judges correctly, with an interval."""
    scores = {one.seed: one for one in scenario.entries if "test_accuracy" in one.target_scores}
    value = estimate(one.target_scores["test_accuracy"] for one in scores.values())
    if value is None:
        return ""
    if value.low is None or value.low == value.high:  # equal trainings are no surer than their rows allow
        n = next(iter(scores.values())).size("private_test_rows")
        value = proportion(value.mean, n) if n and 0 <= value.mean <= 1 else value
    return of_hundred(value) + in_brackets(value, words="95% interval")


def _table(scenarios: Sequence[Scenario], scenario: Scenario, main: Attack) -> tuple[Table, str]:
    """The attack and what it is compared with; of other settings the attack that stands out in each."""
    best = by_key((one for one in scenario.baselines if one.value()), lambda one: BASELINES[one.attack])  # sorted
    lines = [Judged("The attack", scenario, main)]
    lines += [Judged(capital(words), scenario, same[0]) for words, same in best.items()]
    lines += [Judged("Real private records", scenario)] if scenario.real_rows else []
    others = [found for one in scenarios if one is not scenario and (found := most_telling([one]))]
    room = max(MOST_LINES - len(lines), 1)
    groups = [(capital(scenario.title) or "The released model", lines)]
    groups += [(capital(one.title), [Judged("The attack", one, group)]) for one, group in others[:room]]
    note = (
        "Small figures are 95% intervals. Nearer to a learned record: 50 is what chance gives. A dash: not measured, "
        "or nothing to compare."
    )
    if len(others) > room or any(len(one.groups) > 1 for one, _ in others):
        note += " What is not shown here follows further down."
    return table_of("Made-up records that are recognized", _COLUMNS, groups, css="risk stack"), note


_COLUMNS: tuple[Column[Judged], ...] = (
    Column("What is judged", lambda one: _what(one)),
    Column("Recognized, of 100", lambda one: share_cell(one.group.value() if one.group else one.scenario.real_rows)),
    Column(
        "More than public data give, points",
        lambda one: points_cell(one.scenario.gain(one.group) if one.group else None),
    ),
    Column("Equal to a private record, of 100", lambda one: share_cell(_equal(one.group) if one.group else None)),
    Column("Nearer to a learned record, of 100", lambda one: share_cell(one.group.memory.value if one.group else None)),
)


def _what(one: Judged) -> Cell:
    if one.group is None:
        return Cell(one.title, ("that no model has learned from",))
    samples = f" of {count(one.group.samples)} records" if one.group.samples else ""
    return Cell(one.title, (f"{counted(one.group.n_trainings, 'released model')}{samples}",))


def _equal(group: Attack) -> Estimate | None:
    equal = group.value("exact_match_rate")
    if equal is None or equal.low != equal.high:
        return equal
    return proportion(equal.mean, group.samples) if group.samples else Estimate(equal.mean)  # as sure as its rows allow
