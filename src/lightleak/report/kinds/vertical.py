"""Estimates of shares by parties of vertical federated learning: what their page shows."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lightleak.core.grouping import by_key
from lightleak.core.parties import KINDS
from lightleak.core.results import VerticalRow
from lightleak.report import charts
from lightleak.report.blocks import Cell, Column, Figure, Legend, Page, Section, Table
from lightleak.report.compare import attacks, differing
from lightleak.report.format import DASH, joined, of_hundred, percent, points, unsigned_points, with_interval
from lightleak.report.intervals import bounded
from lightleak.report.kinds.vertical_findings import Findings, Outcome
from lightleak.report.kinds.vertical_groups import FIXED, VerticalGroup, attack_name, compare, properties
from lightleak.report.kinds.vertical_worth import worth_words
from lightleak.report.page import figures, fill, folded, table_of
from lightleak.report.plot.axis import axis
from lightleak.report.plot.chart import Line, Mark, Plot, Points, Rule
from lightleak.report.plot.svg import draw
from lightleak.report.read import Run
from lightleak.report.sections.norms import KIND_TITLES, norm_entries, norms_section
from lightleak.report.sections.subject_and_run import audit_page, run_section, subject_section, warnings_section
from lightleak.report.sections.summary import below, first_page, interval_cell, of_hundred_cell
from lightleak.report.sections.tested import CONTROLLER, NOT_TESTED, evidence_section
from lightleak.report.sections.tested import Findings as Results

ByProperty = Mapping[str, Sequence[VerticalGroup]]
"""Attacks on each property (`properties`)."""

words = partial(fill, "vertical")
STYLES = {"C1": charts.Style("s0", "circle"), "C2": charts.Style("s1", "square")}
OTHER_STYLE, UNDEFENDED_STYLE = charts.Style("s2", "triangle"), charts.Style("validation", "cross")
HEADINGS = {"C1": "C1, with the labels", "C2": "C2, without the labels"}
ROLES = {
    "C1": "active party: it holds the labels and the top network, sees what every party sends and which gradients go "
    "back, record by record",
    "C2": "passive party, without the labels: of each record it sees only the output of its own network",
}
TRAVELS = "every party sends the output of its own network for each record; the party with the labels returns gradients"
MOST_PLACES = 4
"""Combinations of company and trait on the first page."""

MOST_PANELS = 4
"""Panels of defenses whose table is shown without unfolding."""


_NUMBER = re.compile(r"(?<![A-Za-z])\d[\d.,]*(?:e[-+]?\d+)?")
"""What warnings of one sort differ in, such as an estimate that it quotes; not the digit of a name such as C1."""


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of vertical runs; with ``redact`` it shows no share, estimated or true."""
    rows = [row for run in runs for row in run.of(VerticalRow)]
    found = Findings(compare(rows), redact, runs)
    measured, norms = properties(found.groups), norm_entries(runs)
    shown = [row for group in found.groups for row in group.rows]
    results: Results = {"property_inference": words("found", found.main, redact)} if found.main else {}
    reading = words("reading_vertical", found) if found.tried else ""
    contents, answers = words("contents", bool(norms), redact), _answers(found)
    placed = [(joined(*group.place[1:], group.title), group.rows) for group in found.groups]
    return audit_page(
        runs,
        "Property leakage report",
        private=words("redacted") if redact else "",
        sections=[
            summary_section(found),
            evidence_section(
                runs, shown, results, answers=answers, unit="estimate", title=attack_name, reading=reading
            ),
            _subject(runs, found.groups),
            None if redact else _shares(measured),
            _errors(measured, redact),
            _kinds(measured),
            _outcomes(found),
            norms_section(norms, found.main.first.property_name if found.main else ""),
            warnings_section(placed, "estimate", lambda warning: _NUMBER.sub("…", warning), redact),
            run_section(runs, rows, contents, unit=("estimate", "estimates"), title=attack_name),
        ],
    )


def summary_section(found: Findings) -> Section:
    """Summarize in plain language what these runs measured."""
    rows = [row for group in found.tried for row in group.rows]
    lead = words("first_sentence", found)
    if not found.main:
        facts = [("Estimate", words("estimated", found)), ("Limits", found.caution)] if found.tried else []
        return first_page((lead,), facts, rows)
    facts = [
        ("Most exposed", words("most_learned", found)),
        ("The three risks", words("risks")),
        ("What would help", words("defenses", found)),
        ("Limits", found.caution),
    ]
    return first_page((lead, _summary_chart(found), _summary_table(found)), facts, rows)


def _answers(found: Findings) -> dict[str, str]:
    """Answers to questions of the checklist: of a share, which is all that the attacks estimate."""
    main = found.main
    if main is None:
        return {}
    costs = [(one, one.change.cost) for one in found.defended if one.change.cost is not None]
    own = main.own_error if not found.redact else None
    share = f"{NOT_TESTED}: what is estimated is a share of people, which singles out and links nobody"
    return {
        **dict.fromkeys(("direct", "singling_out", "linkage", "persons"), share),
        "inference": words("inference", main, found.redact),
        "groups": words("most_learned", found),
        "baseline": words("baseline", main.error, own) if own else "",
        "control": f"{NOT_TESTED}: nobody who took no part was attacked",
        "attempts": words("attempts", main, found.places),
        "behind": "One: results are exchanged record by record; an estimate reads many of them",
        "utility": "; ".join(f"AUC with {one.group.defense_label}: {_change(cost)} points" for one, cost in costs),
        "epsilon": f"{CONTROLLER}: nothing is counted; an epsilon of a defense's name is its authors' claim"
        if any(group.is_defended for group in found.groups)
        else "",
    }


def _most_learned(found: Findings) -> list[VerticalGroup]:
    """The combinations of company and trait that the first page shows, the most telling first."""
    others = (group for group in found.best if group is not found.main)
    most_first = sorted(others, key=lambda group: group.learned_mean, reverse=True)
    return [group for group in (found.main, *most_first) if group][:MOST_PLACES]


def _summary_chart(found: Findings) -> Figure:
    """How far off attacks are, next to own columns alone and the most protective defense; no share of records."""
    shown = _most_learned(found)
    rows = [charts.EstimateRow(_titled(group, found), group.error, _style(group)) for group in shown if group.error]
    main, best = shown[0], found.most_protective
    if main.own_error and not found.redact:
        rows.insert(1, charts.EstimateRow("the same by own columns alone", main.own_error, charts.BASELINE_STYLE))
    if best and not (found.redact and best.change.reads_own) and (error := bounded(best.change.after)):
        rows.insert(1, charts.EstimateRow(f"the same with {best.group.defense_label}", error, OTHER_STYLE))
    x = charts.share_axis((0.0, *(end for row in rows for end in (row.value.mean, *row.value.ends))))
    name = "How far the attacker's estimate is off the true share"
    return charts.estimate_figure(name, rows, (), x, name)


def _summary_table(found: Findings) -> Table:
    columns: list[Column[VerticalGroup]] = [
        Column("Points off the true share", lambda group: _titled(group, found)),
        Column("By attack", lambda group: interval_cell(group.error, of_hundred)),
        Column("By own columns alone", lambda group: _own(group, found.redact), optional=True),
        Column("Closer than own columns", lambda group: _learned(group, found.redact, found.places)),
    ]
    return table_of("Inference of a share", columns, [("", _most_learned(found))], css="risk stack")


def _own(group: VerticalGroup, redact: bool) -> Cell:
    return Cell(DASH) if redact else of_hundred_cell(group.own_error, otherwise="not measured")


def _titled(group: VerticalGroup, found: Findings) -> str:
    several = len({one.first.dataset for one in found.best}) > 1
    return joined(group.topic(several), group.first.adversary, by=" · ")


def _style(group: VerticalGroup) -> charts.Style:
    return STYLES.get(group.first.adversary, OTHER_STYLE)


def _subject(runs: Sequence[Run], groups: Sequence[VerticalGroup]) -> Section:
    rows = [group.first for group in groups]
    adversaries = sorted({row.adversary for row in rows})
    facts = [
        ("Dataset", [row.dataset or "not stated" for row in rows]),
        ("Target network", [row.target or "not stated" for row in rows]),
        ("What travels", [TRAVELS]),
        ("Properties", [row.property_name for row in rows]),
        ("Attacked in epoch", [str(row.epoch) for row in rows if row.epoch is not None]),
        ("Defenses", [group.defense_label for group in groups]),
        *((f"Adversary {name}", [ROLES[name]]) for name in adversaries if name in ROLES),
    ]
    return subject_section(runs, facts, before=(words("setting"),))


def _shares(measured: ByProperty) -> Section | None:
    drawn = [figure for title, same in measured.items() if (figure := _share_chart(title, same))]
    if not drawn:
        return None
    groups = [group for same in measured.values() for group in same]
    adversaries = {group.first.adversary for group in groups}
    legend = Legend([(style, name) for name, style in STYLES.items() if name in adversaries])
    said = words("shares", any(len(group.rows) > 1 for group in groups), _has_splits(groups))
    return Section("shares", "Estimates against the truth", (said, legend, *figures(drawn)))


def _has_splits(groups: Sequence[VerticalGroup]) -> bool:
    """Whether seeds differ in their split, as far as is known: with one split for all, the true share is the same."""
    return any(len(set(group.values("true_fraction"))) != 1 for group in groups)


def _share_chart(title: str, groups: Sequence[VerticalGroup]) -> Figure | None:
    """A row per attack, C1 above C2, the closest first; None where there is no estimate."""
    names, rows = _varying(groups), []
    for adversary, same in by_key(groups, lambda group: group.first.adversary).items():
        known = [
            charts.EstimateRow(_name(group, names), value, _style(group), _singles(group))
            for group in same
            if (value := group.estimate)
        ]
        rows += [replace(row, heading="" if i else HEADINGS.get(adversary, adversary)) for i, row in enumerate(known)]
    if not rows:
        return None
    true = [value for group in groups for value in group.values("true_fraction")]
    ends = [end for row in rows for end in (row.value.mean, *row.value.ends, *(value for value, _ in row.singles))]
    name = f"Estimated share of records with {groups[0].first.property_name}, by attack, against the true share"
    mean = sum(true) / len(true) if true else 0.0
    rules = [Rule(mean, "truth", f"true {percent(mean)}", ends=(min(true), max(true)))] if true else []
    return charts.estimate_figure(name, rows, rules, charts.share_axis((*ends, *true)), title)


def _singles(group: VerticalGroup) -> tuple[tuple[float, str], ...]:
    """The estimate of each seed with its text on hover, where there are several seeds."""
    singles = ((row.estimated, _hover(row)) for row in group.rows if row.estimated is not None)
    return tuple(singles) if len(group.rows) > 1 else ()


def _hover(row: VerticalRow) -> str:
    low, high = row.ends
    own = "" if low is None or high is None else f"own interval {100 * low:.1f} to {100 * high:.1f}"
    true = "" if row.true_fraction is None else f"true {percent(row.true_fraction)}"
    return joined(f"seed {row.seed}: {percent(row.estimated)}", own, true)


def _varying(groups: Sequence[VerticalGroup]) -> list[str]:
    """Names of the fields in which the groups differ, but for the table, which is part of a property's title."""
    return differing((group.first for group in groups), [name for name in FIXED if name != "dataset"])


def _name(group: VerticalGroup, names: Sequence[str]) -> str:
    """The attack, and what else its setting differs in."""
    return joined(group.title, *group.setting_words(names), by=" · ")


def _errors(measured: ByProperty, redact: bool) -> Section | None:
    """A line for each attack; ``redact`` leaves out baselines: their error may give away the share."""
    tables = _tables(measured, lambda group: not (redact and group.is_baseline))
    if not tables:
        return None
    every = [group for _, same in tables for group in same]
    names = _varying(every)
    closest = {id(known[0]) for _, same in tables if (known := [group for group in attacks(same) if group.error])}
    columns: list[Column[VerticalGroup]] = [
        Column("Attack", lambda group: _name(group, names)),
        Column(
            "Off by, points (95% interval)",
            lambda group: Cell(_off(group.error), css="best" if id(group) in closest else ""),
        ),
        Column("Closer than own columns", lambda group: DASH if group.is_baseline else _learned(group, redact)),
        *([] if redact else [Column("Worth a random sample of", lambda group: worth_words(group.worth))]),
        Column("Own interval right", lambda group: "{} of {}".format(*group.coverage) if group.coverage else DASH),
        Column("Seeds", lambda group: str(len(group.rows))),
    ]
    table = table_of("Errors compared", columns, tables, css="errors", line_css=lambda group: group.css)
    return Section("errors", "Errors compared", (table, words("errors_note", redact, _has_splits(every))))


def _outcome_css(one: Outcome) -> str:
    return "" if one.group.is_defended else "baseline"


def _tables(measured: ByProperty, kept: Callable[[VerticalGroup], bool]) -> list[tuple[str, list[VerticalGroup]]]:
    """Groups of each property and adversary, in the order of `properties`: attacks first, the closest on top."""
    return [
        (joined(title, adversary, by=" · "), same)
        for title, groups in measured.items()
        for adversary, same in by_key(filter(kept, groups), lambda group: group.first.adversary).items()
    ]


_off = partial(with_interval, said=unsigned_points)
_change = partial(with_interval, said=points)


def _learned(group: VerticalGroup, redact: bool, places: int = 1) -> str:
    """How much closer than own columns alone; redacted, whether it measurably is."""
    learned = group.learned(places)
    if not redact:
        return _change(learned)
    return DASH if learned is None or not learned.has_interval else "yes" if group.leaks(places) else "not shown"


def _outcomes(found: Findings) -> Section | None:
    """What each company got by the attack chosen on other seeds, without a defense and with each."""
    several = len({group.first.dataset for group in found.tried}) > 1
    panels = []
    for place in dict.fromkeys(group.place for group in found.tried):
        if outcomes := [at[place] for at in found.outcomes.values() if place in at]:
            panels.append((joined(outcomes[0].group.topic(several), place[2], by=" · "), outcomes))
    if not panels:
        return None
    every = [one for _, outcomes in panels for one in outcomes]
    names = dict.fromkeys(_family(one.group) for one in every if one.group.is_defended)
    others = (one.group.defense_label for one in every if not one.group.is_defended)
    styles = {name: charts.series_style(index) for index, name in enumerate(names)}
    styles |= dict.fromkeys(others, UNDEFENDED_STYLE)
    drawn = [figure for title, same in panels if (figure := _error_chart(title, same, styles, found.redact))]
    is_unaware = not found.redact and any(row.unaware_error != row.error for one in every for row in one.group.rows)
    columns = _outcome_columns(found.redact, is_unaware)
    table = table_of("What each company got", columns, panels, css="wrap below dense", line_css=_outcome_css)
    setting = joined(*found.main.setting_words(["defense", *_varying(found.best)])) if found.main else ""
    pictures = (Legend([(look, name) for name, look in styles.items()]), *figures(drawn)) if names and drawn else ()
    numbers = folded("The numbers", table, when=len(panels) > MOST_PANELS)
    blocks = (words("outcomes", found), *pictures, *numbers, words("outcomes_note", found, setting, is_unaware))
    name, title = ("defenses", "Defenses") if names else ("learned", "What each company learned")
    return Section(name, title, blocks)


def _outcome_columns(redact: bool, is_unaware: bool) -> list[Column[Outcome]]:
    unaware: list[Column[Outcome]] = [
        Column("Off by, not knowing the defense", lambda one: below(_off(one.group.mean("unaware_error")))),
        Column("That one off the trained share", lambda one: below(_off(one.group.mean("trained_error")))),
    ]
    return [
        Column("Defense", lambda one: one.group.defense_label),
        Column("Attack", lambda one: one.group.title, css="words"),
        Column("Off by, points", lambda one: below(_off(one.error))),
        Column("More than without", lambda one: below(_rise(one, redact)), optional=True),
        Column("Own columns off by", lambda one: below(DASH if redact else _off(one.group.own_error)), optional=True),
        Column("Worth a random sample of", lambda one: below(_worth(one, redact)), optional=True),
        Column("Closer than own columns", lambda one: below(_learned(one.group, redact)), optional=True),
        *(unaware if is_unaware else []),
        Column("AUC, of 100", lambda one: below(with_interval(one.group.mean("auc"), of_hundred)), optional=True),
        Column("Change of AUC, points", lambda one: below(_change(one.change.cost)), optional=True),
        Column("Seeds", lambda one: str(len(one.group.rows))),
    ]


def _worth(one: Outcome, redact: bool) -> str:
    return DASH if redact else worth_words(one.group.worth)


def _rise(one: Outcome, redact: bool) -> str:
    """How much further off than without the defense; redacted, only where own columns alone have no part in it."""
    return DASH if redact and one.change.reads_own else _change(one.change.rise())


def _family(group: VerticalGroup) -> str:
    """The defense without its strength; the label where the file does not separate them."""
    return (group.first.defense_name or group.defense_label) if group.is_defended else group.defense_label


def _error_chart(
    title: str, outcomes: Sequence[Outcome], styles: dict[str, charts.Style], redact: bool
) -> Figure | None:
    """The attacker's error in points (upwards) against the AUC (rightwards), with intervals; None without an AUC.

    What the adversary's own columns alone are off by is a dashed line.
    """
    own = None if redact else outcomes[0].group.own_error
    # What the others are compared with is drawn last, over them.
    by_family = by_key(sorted(outcomes, key=lambda one: not one.group.is_defended), lambda one: _family(one.group))
    layers: list[Line | Points] = []
    drawn: list[Mark] = []
    for name, same in by_family.items():
        same.sort(key=lambda one: one.group.first.defense_strength or 0.0)
        if marks := [mark for one in same if (mark := _mark(one, name, styles[name]))]:
            layers += [Line([(mark.x, mark.y or 0.0) for mark in marks], "link", styles[name].css), Points(marks)]
            drawn += marks
    if not drawn:
        return None
    highest = max([end for mark in drawn for end in (mark.y, mark.y_ends[1]) if end is not None])
    x = charts.share_axis((end for mark in drawn for end in (mark.x, *mark.x_ends)), title="AUC of the model")
    y = axis([0.0, min(max(highest, 100 * own.mean if own else 0.0), 100.0)], ends="round")
    rules = [] if own is None else [Rule(100 * own.mean, "guess faint", "own", along="y")]
    drawing = draw(Plot(f"Error against AUC: {title}", x, y, layers, rules, height=240, grid="y"))
    return Figure(drawing, title, "Upwards: error of the attacker in points", plot="scatter")


def _mark(one: Outcome, family: str, style: charts.Style) -> Mark | None:
    auc, error, strength = one.group.mean("auc"), one.error, one.group.first.defense_strength
    if auc is None:
        return None
    label = "" if strength is None else f"{strength:g}"
    name = joined(family, label, by=" ") if one.group.first.defense_name else family
    hover = f"{name}: {unsigned_points(error)} points off, AUC {auc.mean:.3f}"
    low, high = (None if end is None else 100 * end for end in error.ends)
    return Mark(auc.mean, 100 * error.mean, style, hover, auc.ends, (low, high), label)


def _kinds(measured: ByProperty) -> Section | None:
    """Attacks that estimate from several kinds of results; None where no attack does or there is no truth."""
    found = _tables(measured, lambda group: not group.is_baseline and len(group.means("kind_errors")) > 1)
    if not found:
        return None
    names = _varying([group for _, same in found for group in same])
    columns: list[Column[VerticalGroup]] = [
        Column("Attack", lambda group: _name(group, names)),
        *map(_of_kind, KINDS),
        Column("Together", lambda group: _off(group.error)),
    ]
    table = table_of("Error by kind of intermediate result", columns, found)
    return Section("kinds", "By what was read", (words("kinds"), table))


def _of_kind(kind: str) -> Column[VerticalGroup]:
    return Column(
        f"{kind}, {KIND_TITLES[kind]}",
        lambda group: _off(group.mean(lambda row: row.kind_errors.get(kind))),
        optional=True,
    )
