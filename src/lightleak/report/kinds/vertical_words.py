"""What a vertical audit found, in words for a reader without training in the field."""

from collections.abc import Iterable, Mapping

from lightleak.core.results import NONE
from lightleak.report.budget import budget
from lightleak.report.format import (
    UNSURE,
    capital,
    change_words,
    counted,
    in_brackets,
    interval_words,
    joined,
    of_hundred,
    points,
    sign_of,
)
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.vertical_groups import (
    Groups,
    Line,
    Place,
    VerticalGroup,
    error_of,
    lines_of,
    most_telling,
    titled,
)
from lightleak.report.page import Cell, Column, Table, Tile, table_of
from lightleak.report.sections.subject import other_assumptions
from lightleak.report.sections.summary import (
    INTERVAL,
    MOST_LINES,
    NO_PROOF,
    THIS_ALONE,
    Summary,
    is_long,
    points_cell,
    share_cell,
)

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
"""What a defense does, by its name."""

TERMS = (
    "“Customers” are the people whom the tables are about. A “trait” is a value in one of the other company's columns, "
    "written column=value. “Own columns” is what the same company tells without the exchange; being closer is "
    "“learned”. “AUC” says how good the model is: of 100 pairs of customers with different outcomes, how many it puts "
    "in the right order; 50 is no better than tossing a coin."
)
LIMITS = (
    "Public statistics may tell the share as well: an estimate close to the truth need not be news.",
    NO_PROOF,
    THIS_ALONE,
)

ByDefense = Mapping[str, Mapping[Place, Line]]


def defense_label(group: VerticalGroup) -> str:
    """The defense as the config calls it."""
    return "no defense" if group.defense == NONE else group.defense.replace("_", " ")


def setting_words(group: VerticalGroup, names: Iterable[str]) -> list[str]:
    """The named fields of `vertical_groups.FIXED`, each as a short phrase."""
    row = group.first
    phrases = {
        "dataset": row.dataset or "dataset not stated",
        "target": row.target or "network not stated",
        "epoch": "epoch not stated" if row.epoch is None else f"epoch {row.epoch}",
        "defense": defense_label(group),
    }
    return [phrases[name] for name in names]


def who(adversary: str) -> str:
    """The attacker in full."""
    return WHO.get(adversary, f"the company {adversary}".strip())


def short(adversary: str) -> str:
    """The attacker, once it has been introduced."""
    return SHORT.get(adversary, f"the company {adversary}".strip())


def summary(groups: Groups, best: Mapping[Place, VerticalGroup], redact: bool) -> Summary:
    """Say in plain language what these runs measured.

    Args:
        groups: attacks that read the exchange, with and without defenses.
        best: by place, what an adversary gets without a defense (`vertical_groups.chosen`).
        redact: leave out every share, and with it how far off the adversary's own columns alone are.
    """
    main = most_telling(list(best.values()))
    spent = budget(row for group in groups for row in group.rows).sentence
    if not groups:
        return Summary(("Nothing can be said yet: no attack on the exchange has finished.",))
    if main is None:
        unknown = "The true shares are not part of this run, so nothing says how close an attacker's estimate is."
        return Summary((unknown, *_estimate(groups, redact), spent), attacker=_attacker(groups), notes=LIMITS)
    (reference, own), *others = lines_of(groups).items()
    by_defense = dict(others)
    table, note = _table({reference: own} | by_defense, main, redact)
    tried = ("The attacker is assumed to know which defense is used, and how strong.",) if by_defense else ()
    return Summary(
        sentences=(*_sentences(best, main, redact), spent),
        tiles=_tiles(main, by_defense, redact),
        terms=(TERMS,),
        defenses=_defenses(main, by_defense),
        table=table,
        note=note,
        attacker=_attacker(groups),
        notes=(INTERVAL, *LIMITS, *tried),
    )


def _estimate(groups: Groups, redact: bool) -> tuple[str, ...]:
    """The first estimate, where there is no truth."""
    first = next((group for group in groups if group.values("estimated")), None)
    if first is None or redact:
        return ()
    row = first.first
    low, high = row.ends
    is_single = len(first.rows) == 1 and low is not None and high is not None
    value = Estimate(first.values("estimated")[0], 1, low, high) if is_single else first.mean("estimated")
    return (
        f"By {first.title}, {who(row.adversary)} estimated that {of_hundred(value)} of 100 of the other company's "
        f"customers have “{row.property_name}”{in_brackets(value, words='95% interval')}.",
    )


def _sentences(best: Mapping[Place, VerticalGroup], main: VerticalGroup, redact: bool) -> tuple[str, ...]:
    places = len(best)
    found = [_first(main, places)]
    if main.own_error is None:
        found.append(
            "What it can tell from its own columns, without the exchange, is not known: nothing shows that the "
            "exchange gives it away."
        )
    elif not redact:
        found += [beside_own_columns(main, places), worth_words(main)]
    if (true := main.mean("true_fraction")) is not None and not redact:
        found.append(
            f"In truth {of_hundred(true)} of 100 have it; the estimates say {of_hundred(main.mean('estimated'))}."
        )
    if main.manipulates:
        found.append("To come so close it departs from the agreed procedure and bends its own part of the training.")
    if places > 1:
        leaking = sum(group.leaks(places) for group in best.values())
        found.append(
            f"Something was measurably learned in {leaking} of {places} combinations of company and trait; this one is "
            "named afterwards, which its range allows for."
        )
    found.append(f"Measured in {counted(len(main.rows), 'training')}, each with other customers.")
    if main.chosen_among > 1:
        how = "for each training by the other trainings"
        how = how if len(main.rows) > 1 else "afterwards, so that it looks a little better than it is"
        found.append(f"The attack is one of {main.chosen_among}, picked {how}.")
    return tuple(found)


def _first(main: VerticalGroup, places: int) -> str:
    row, error, learned = main.first, Line(main).error, main.learned()
    share = f"the share of the other company's customers with “{row.property_name}”"
    spread = f" ({interval_words(error)})" if error.has_interval else " (one training: no interval)"
    told = f"{of_hundred(error)} point{'' if of_hundred(error) == '1' else 's'}"
    average = " on average" if error.n > 1 else ""
    if main.leaks(places):
        words = f"could learn {share} from what is exchanged, to within {told}{average}{spread}."
    elif learned is None or not learned.has_interval:
        words = f"could estimate {share} to within {told}{average}{spread}."
    else:
        words = (
            f"was not shown to learn {share} from what is exchanged: its estimate was {told} off{spread}, not "
            "measurably closer than what its own columns tell."
        )
    under = "" if main.defense == NONE else f"With {defense_label(main)}, "
    return capital(f"{under}{who(row.adversary)} {words}")


def beside_own_columns(group: VerticalGroup, places: int) -> str:
    """How far off own columns alone are, and how much of the closeness comes from the exchange; empty if unknown."""
    own, learned = group.own_error, group.learned(places)
    if own is None or learned is None:
        return ""
    chance = ", which may be chance: more trainings would tell" if sign_of(learned) == UNSURE else ""
    spread = f"{interval_words(learned, -1.0)}{chance}" if learned.has_interval else "one training is too few to tell"
    more = "more" if learned.mean >= 0 else "less"
    return (
        f"From its own columns alone, without the exchange, it would be {of_hundred(own)} points off: "
        f"{points(abs(learned.mean)).lstrip('+')} points {more} ({spread})."
    )


def worth_words(group: VerticalGroup) -> str:
    """The sample that is worth as much; empty where that is unknown."""
    worth, own = group.worth(), group.worth("own_columns_error")
    if worth is None:
        return ""
    beside = "" if own is None else f", its own columns alone {own.words}"
    return f"That is worth asking {worth.words} customers drawn at random{beside}."


def _helping(main: VerticalGroup, by_defense: ByDefense) -> list[Line]:
    return [lines[main.place] for lines in by_defense.values() if main.place in lines and lines[main.place].helps]


def _most_protective(main: VerticalGroup, by_defense: ByDefense) -> Line | None:
    """The defense that measurably helps and leaves the attacker furthest off."""
    return max(_helping(main, by_defense), key=lambda line: line.error.mean, default=None)


def _tiles(main: VerticalGroup, by_defense: ByDefense, redact: bool) -> tuple[Tile, ...]:
    error, own, best = Line(main).error, main.own_error, _most_protective(main, by_defense)
    tiles = [Tile(of_hundred(error), "points off the true share", joined(short(main.place[2]), interval_words(error)))]
    if own is not None and not redact:
        tiles.append(Tile(of_hundred(own), "points off by its own columns alone", interval_words(own)))
    if best is not None:
        words = f"points off with {defense_label(best.group)}"
        tiles.append(Tile(of_hundred(best.error), words, interval_words(best.error)))
        if best.cost is not None:
            tiles.append(Tile(points(best.cost), "points of the model's AUC", interval_words(best.cost, -1.0)))
    return tuple(tiles)


def _defenses(main: VerticalGroup, by_defense: ByDefense) -> tuple[str, ...]:
    if not by_defense:
        which = "No defense was tried" if main.defense == NONE else f"Only {_described(main)} was tried"
        return (
            f"{which}. What a defense would change, and what it would cost, is not known from this report; an audit "
            "with and without one, reported together, tells.",
        )
    helping, best = _helping(main, by_defense), _most_protective(main, by_defense)
    if best is None:
        tried = [lines[main.place] for lines in by_defense.values() if main.place in lines]
        if not any(line.rise is not None and line.rise.has_interval for line in tried):
            return ("Defenses were tried, but not in the same situation or too few times to compare them.",)
        which = "The defense that was tried does not help"
        which = f"None of the {len(by_defense)} defenses that were tried helps" if len(by_defense) > 1 else which
        return (f"{which} measurably; see the table.",)
    found = []
    if len(by_defense) > 1:
        found.append(
            f"{len(helping)} of {len(by_defense)} defenses help measurably. Which to name was decided after the "
            "fact: measure again, with other random draws, before you rely on one."
        )
    found.append(_defense(best, main))
    cheapest = max(helping, key=lambda line: line.cost.mean if line.cost else -1.0)
    if cheapest is not best:
        found.append(f"The least costly of those that help. {_defense(cheapest, main)}")
    return tuple(found)


def _defense(line: Line, main: VerticalGroup) -> str:
    assert line.rise is not None  # it helps
    helps = (
        f"{capital(_described(line.group))} helps: an attacker who knows of it is then {of_hundred(line.error)} points "
        f"off instead of {of_hundred(main.error)} ({change_words(line.rise)})."
    )
    cost, left = line.cost, line.group.mean("auc")
    if cost is None or left is None:
        return f"{helps} What it costs is not known: the model's AUC was not measured with and without it."
    chance = "; it may be chance" if cost.has_interval and sign_of(cost) == UNSURE else ""
    return f"{helps} The price: an AUC of {of_hundred(left)} of 100 ({change_words(cost)}{chance})."


def _described(group: VerticalGroup) -> str:
    """The defense by its label, and what it does where that is known."""
    words = DEFENSES.get(group.first.defense_name or "")
    return f"{defense_label(group)} ({words})" if words else defense_label(group)


def _table(every: ByDefense, main: VerticalGroup, redact: bool) -> tuple[Table, str]:
    """By trait and company, with a line for each defense; of many, the trait that comes out best."""
    reference, *tried = every
    places = list(every[reference])
    several = len({place[0] for place in places}) > 1
    note = "Small figures are 95% intervals over trainings, each line by itself."
    if tried:
        note += f" ▲ measurably more, ▼ measurably less, ○ not measurably different from {defense_label(main)}."
    is_short = is_long([[name for name in every if place in every[name]] for place in places])
    if is_short and tried:
        places = [main.place]
        helpful = sorted(tried, key=lambda name: -_at(every[name], main.place))
        # Two lines less than elsewhere: what own columns tell takes their room on the one sheet.
        kept = (reference, *helpful[: MOST_LINES - 3])
        every = {name: lines for name, lines in every.items() if name in kept}
    elif is_short:
        places = sorted(places, key=lambda place: error_of(every[reference][place].group))[:MOST_LINES]
    if is_short:
        note += " What is not shown here follows further down."

    titles = {place: joined(titled(place, several), short(place[2])) for place in places}
    if tried:
        groups = [(titles[place], [at[place] for at in every.values() if place in at]) for place in places]
        first = Column[Line]("The trait, who estimates, and the defense", lambda line: _cell(line, _named(line)))
    else:
        groups = [(_named(every[reference][main.place]), [every[reference][place] for place in places])]
        first = Column[Line]("The trait, and who estimates", lambda line: _cell(line, titles[line.group.place]))
    columns = [first, *(column for column in _COLUMNS if not redact or column not in _OF_OWN)]
    return table_of("How far off an attacker is", columns, groups, css="risk stack"), note


def _named(line: Line) -> str:
    return capital(defense_label(line.group))


def _cell(line: Line, words: str) -> Cell:
    return Cell(words, (counted(len(line.group.rows), "training"),))


_OF_OWN: tuple[Column[Line], ...] = (
    Column("Own columns, points", lambda line: share_cell(line.group.own_error)),
    Column("Learned, points", lambda line: points_cell(line.group.learned())),
)
_COLUMNS: tuple[Column[Line], ...] = (
    Column("Off by, points", lambda line: share_cell(line.error, line.rise)),
    *_OF_OWN,
    Column("AUC, of 100", lambda line: share_cell(line.group.mean("auc"), line.cost)),
)


def _at(lines: Mapping[Place, Line], place: Place) -> float:
    return lines[place].error.mean if place in lines else -1.0


def _attacker(groups: Groups) -> tuple[tuple[str, str], ...]:
    """Questions and answers that make up the threat model, without jargon."""
    rows = [row for group in groups for row in group.rows]
    names = sorted({row.adversary for row in rows if row.adversary})
    bends = [group.manipulates for group in groups]
    conduct = "It follows the agreed procedure and only looks closely at what it receives."
    if any(bends):
        who_bends = "It" if all(bends) else "In some of the attacks it"
        rest = "" if all(bends) else "; in the others it only looks closely at what it receives"
        conduct = f"{who_bends} departs from the agreed procedure and bends its own part of the training{rest}."
    sees = [SEES[name] for name in names if name in SEES]
    sizes = sorted({row.threat.sample for row in rows if row.threat and row.threat.sample is not None})
    sample = "some customers" if not sizes else counted(sizes[0], "customer")
    sample = f"{sizes[0]} to {sizes[-1]} customers" if len(sizes) > 1 else sample
    return (
        (
            "Who is the attacker?",
            f"One of the companies that train a model together: {' or '.join(map(who, names))}. {conduct}",
        ),
        (
            "What do they see?",
            "The companies hold different columns about the same customers; no column leaves its company. "
            + (f"{'. '.join(sees)}." if sees else "The attacker sees what is exchanged in training."),
        ),
        (
            "What else do they know?",
            joined(
                f"Of {sample} whether they have the trait. A company without such a sample cannot do this.",
                *other_assumptions(rows),
                by=" ",
            ),
        ),
        ("What do they not have?", "The other company's columns, its computers, or help from someone who works there."),
        (
            "What would they learn?",
            "How many of the other company's customers have the trait: a share, not a list. No customer is identified.",
        ),
    )
