"""The first page of an audit of a released model, for a data-protection officer."""

from collections.abc import Sequence

from lightleak.report.estimate import Estimate, estimate
from lightleak.report.headline import Tile
from lightleak.report.intervals import proportion
from lightleak.report.plain import (
    INTERVAL,
    MOST_LINES,
    Block,
    Cell,
    Row,
    Summary,
    Table,
    capital,
    cell_of,
    counted,
    interval_of,
    of_hundred,
    signed_cell,
)
from lightleak.report.released.comparison import Scenario, most_telling
from lightleak.report.released.entries import Entry
from lightleak.report.released.group import Group
from lightleak.report.released.memorisation import copied, memory_of, share_of
from lightleak.report.released.plain import BASELINES, BLACK_BOX, LIMITS, MEASURES, TERMS, attacker
from lightleak.report.released.verdict import Measure, gives_away, having, measures_of
from lightleak.report.released.wording import scenario_titles
from lightleak.report.wording import points

COLUMNS = (
    "Recognised, of 100",
    "More than public data give, points",
    "Equal to a private record, of 100",
    "Nearer to a learned record, of 100",
)
TYPICAL = ": made-up ones show the typical case of a group, which most real people are not"
"""Why made-up records may be recognised more often than real ones."""


def summary(scenarios: Sequence[Scenario], entries: Sequence[Entry]) -> Summary:
    """Say in plain language what these runs measured."""
    tried = [group for scenario in scenarios for group in scenario.attacks]
    found = most_telling(scenarios)
    if found is None:
        told = "Nothing can be said yet: no attack on the model has finished."
        if tried:
            told = "No other model judged the made-up records, so nothing says how much of the groups they show."
        return Summary((told,), attacker=attacker(tried, entries) if tried else (), notes=LIMITS if tried else ())
    scenario, main = found
    return Summary(
        sentences=_sentences(scenarios, scenario, main, entries),
        tiles=_tiles(scenario, main),
        terms=(TERMS,),
        defences=(_no_defence(scenario, entries),),
        table=_table(scenarios, scenario, main, entries),
        attacker=attacker(tried, entries),
        notes=(INTERVAL, *LIMITS),
    )


def _sentences(
    scenarios: Sequence[Scenario], scenario: Scenario, main: Group, entries: Sequence[Entry]
) -> tuple[str, ...]:
    value = main.value()
    assert value is not None  # `most_telling` keeps only groups with an accuracy
    who = "Whoever may ask the released model" if main.attack == BLACK_BOX else "Whoever holds the released model"
    kinds = f"its {scenario.n_classes} groups" if scenario.n_classes else "its groups"
    spread = interval_of(value) if value.has_interval else "one training: no interval"
    found = [
        f"{who} could make up records of {kinds}, of which another model recognises {of_hundred(value)} of "
        f"100 ({spread}).",
        _beside_public(scenario, main),
        _together(measures_of(main)),
        _seeing_nothing(scenario),
    ]
    if scenario.real_rows_accuracy is not None:
        typical = (value.mean if value.low is None else value.low) > scenario.real_rows_accuracy
        found.append(
            f"Of real private records that no model has learned from, it recognises "
            f"{of_hundred(Estimate(scenario.real_rows_accuracy))} of 100{TYPICAL if typical else ''}."
        )
    found.append(_single_records(scenario, main, entries))
    once = "" if main.n_seeds > 1 else ", so that nothing says how another training would come out"
    found.append(f"Measured on {counted(main.n_seeds, 'released model')}{once}.")
    measured = sum(one.value() is not None for each in scenarios for one in each.attacks)
    if measured > 1:
        found.append(
            f"It is the attack that most surely exceeds public data of {measured} that were measured; picked "
            "afterwards, it looks a little better than it is."
        )
    return tuple(text for text in found if text)


def _beside_public(scenario: Scenario, main: Group) -> str:
    gain, best = scenario.gain(main), scenario.reference
    value = best.value() if best else None
    if gain is None or best is None or value is None:
        return (
            "Nothing was measured with public data alone, so nothing says how much of this the model gave away and how "
            "much anybody could have known."
        )
    more = "more" if gain.mean >= 0 else "fewer"
    told = (
        f"Without opening the model, the best were {BASELINES[best.attack]}: {of_hundred(value)} of 100, so that the "
        f"attack has {points(abs(gain.mean)).lstrip('+')} {more} ({interval_of(gain, -1.0)})."
    )
    if gain.low is None or gain.high is None:
        return f"{told} Whether that is chance is not known."
    return told if gain.low > 0 or gain.high < 0 else f"{told} That may be chance."


def _together(measures: Sequence[Measure]) -> str:
    """The conclusion, which takes every measure."""
    beside = "as many public records that the model merely sorted into the groups"
    if gives_away(measures):
        return (
            f"By each of {len(measures)} measures the made-up records show more of the groups than {beside}: the model "
            "gives away what its groups look like."
        )
    if having(measures, "one training"):
        return "On a single model nothing is concluded of what it gives away."
    known = [one for one in measures if one.outcome != "unknown"]
    if not known:
        return f"They were not compared with {beside}, so nothing is concluded of what the model gives away."
    more = having(known, "more")
    return (
        f"Beside {beside}, the made-up records show more of the groups by {len(more)} of {len(known)} measures"
        f"{f' ({_plainly(more)})' if more else ''}. That the model gives away what its groups look like would take all "
        f"{len(measures)}."
    )


def _plainly(measures: Sequence[Measure]) -> str:
    return ", ".join(MEASURES[one.name] for one in measures)


def _seeing_nothing(scenario: Scenario) -> str:
    blind = next((one.value() for one in scenario.baselines if one.attack == "public_random"), None)
    if blind is not None:
        return f"Someone who never saw the model, and took public records at random, would have {of_hundred(blind)}."
    if scenario.chance is not None:
        return f"Someone who never saw the model, and only guessed, would have {of_hundred(Estimate(scenario.chance))}."
    return "What someone would have who never saw the model was not measured."


def _single_records(scenario: Scenario, main: Group, entries: Sequence[Entry]) -> str:
    found = copied(memory_of(main, entries), [memory_of(one, entries) for one in scenario.baselines])
    share = share_of(memory_of(main, entries))
    if share is None:
        return "Whether single private records come through was not measured."
    spread = f" ({interval_of(share)})" if share.has_interval else ""
    told = (
        f"{of_hundred(share)} of 100 made-up records lie nearer to a record that the model learned from than to one it "
        f"never saw{spread}, where chance gives 50"
    )
    return {
        "unknown": f"{told}.",
        "too few": f"Too few private records were held out to say whether single ones are copied: {told}.",
        "none": f"No sign that single records are copied: {told}.",
        "as public": f"No sign that single records are copied: {told}, but public records, which are no copies, do so "
        "too.",
        "may be": f"Single records may come through: {told}.",
        "traces": f"Traces of single records come through: {told}.",
    }[found]


def _tiles(scenario: Scenario, main: Group) -> tuple[Tile, ...]:
    value, best = main.value(), scenario.reference
    assert value is not None  # `most_telling` keeps only groups with an accuracy
    tiles = [Tile(of_hundred(value), "of 100 made-up records recognised", interval_of(value))]
    public = best.value() if best else None
    if public is not None:
        tiles.append(Tile(of_hundred(public), "of 100 without opening the model", interval_of(public)))
    if scenario.real_rows_accuracy is not None:
        real = Estimate(scenario.real_rows_accuracy)
        tiles.append(Tile(of_hundred(real), "of 100 real private records", "that no model has learned from"))
    return tuple(tiles)


def _no_defence(scenario: Scenario, entries: Sequence[Entry]) -> str:
    useful = _quality(scenario, entries)
    told = f" The released model now judges {useful} of 100 new records rightly." if useful else ""
    return (
        "An audit of a released model tries no defence, so what one would change, and what it would cost, is not known "
        f"from this report.{told} To find out, train the model with a defence, audit it as well, and set the two side "
        "by side."
    )


def _quality(scenario: Scenario, entries: Sequence[Entry]) -> str:
    """How many of 100 held-out records the released model judges rightly, with an interval."""
    setting = scenario.setting
    own = [one for one in entries if (one.dataset, one.setting) == (setting.dataset, setting.setting)]
    scores = {one.seed: one for one in own if "test_accuracy" in one.target_scores}
    value = estimate(one.target_scores["test_accuracy"] for one in scores.values())
    if value is None:
        return ""
    if value.low is None or value.low == value.high:  # equal trainings are no surer than their rows allow
        n = next(iter(scores.values())).task.get("private_test_rows", 0)
        value = proportion(value.mean, int(n)) if n > 0 and 0 <= value.mean <= 1 else value
    return of_hundred(value) + (f" ({interval_of(value)})" if value.has_interval else "")


def _table(scenarios: Sequence[Scenario], scenario: Scenario, main: Group, entries: Sequence[Entry]) -> Table:
    """The attack and what it is compared with; of other settings the attack that stands out in each."""
    where = scenario_titles(scenarios)
    rows = [_row("The attack", main, scenario, entries)]
    rows += [_row(capital(BASELINES[one.attack]), one, scenario, entries) for one in _best_of_each(scenario.baselines)]
    if scenario.real_rows_accuracy is not None:
        real = Cell(of_hundred(Estimate(scenario.real_rows_accuracy)))
        rows.append(Row("Real private records", "that no model has learned from", (real, *[Cell("–")] * 3)))
    blocks = [Block(capital(where[scenario.setting]) or "The released model", "", tuple(rows))]
    others = [found for one in scenarios if one is not scenario and (found := most_telling([one])) is not None]
    room = max(MOST_LINES - len(rows), 1)
    for other, group in others[:room]:
        blocks.append(Block(capital(where[other.setting]), "", (_row("The attack", group, other, entries),)))
    note = (
        "Small figures are 95% intervals. Nearer to a learned record: 50 is what chance gives. A dash: not measured, "
        "or nothing to compare."
    )
    if len(others) > room or any(len(one.groups) > 1 for one, _ in others):
        note += " What is not shown here follows further down."
    return Table("Made-up records that are recognised", "What is judged", COLUMNS, tuple(blocks), note)


def _best_of_each(baselines: Sequence[Group]) -> list[Group]:
    """The strongest variant of each baseline; they come sorted."""
    found: dict[str, Group] = {}
    for one in baselines:
        if one.value() is not None:
            found.setdefault(BASELINES[one.attack], one)
    return list(found.values())


def _row(title: str, group: Group, scenario: Scenario, entries: Sequence[Entry]) -> Row:
    equal, nearer = group.value("exact_match_rate"), share_of(memory_of(group, entries))
    if equal is not None and equal.low == equal.high:  # equal measurements are no surer than their rows allow
        equal = proportion(equal.mean, group.samples) if group.samples else Estimate(equal.mean)
    gain = None if group.is_baseline else scenario.gain(group)
    samples = f" of {group.samples:,} records" if group.samples else ""
    detail = f"{counted(group.n_seeds, 'released model')}{samples}"
    return Row(title, detail, (cell_of(group.value()), signed_cell(gain), cell_of(equal), cell_of(nearer)))
