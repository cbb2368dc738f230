"""Estimates of shares by parties of vertical federated learning: what their page shows."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from markupsafe import Markup

from lightleak.core.parties import KINDS
from lightleak.core.results import NONE, VerticalRow
from lightleak.report.charts import EstimateRow, Style, ends_of, estimate_chart, legend_mark, series_style
from lightleak.report.compare import by_key, differing
from lightleak.report.format import (
    DASH,
    attack_title,
    counted,
    in_brackets,
    joined,
    listed,
    percent,
    points,
    score,
    unsigned_points,
)
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.vertical_groups import (
    FIXED,
    Groups,
    Line,
    Property,
    VerticalGroup,
    attack_name,
    attacks,
    chosen,
    chosen_on_other_seeds,
    compare,
    error_of,
    lines_of,
    most_telling,
    properties,
    reference_of,
    titled,
    undefended,
)
from lightleak.report.kinds.vertical_words import beside_own_columns, defense_label, setting_words, summary, worth_words
from lightleak.report.page import (
    Block,
    Bullets,
    Cell,
    Column,
    Figure,
    Legend,
    Page,
    Paragraph,
    Section,
    figures,
    folded,
    table_of,
    text,
)
from lightleak.report.plot.axis import axis
from lightleak.report.plot.chart import Line as Trace
from lightleak.report.plot.chart import Mark, Plot, Points, Rule, draw
from lightleak.report.read import Run
from lightleak.report.sections.norms import KIND_TITLES, norm_entries, norms_section
from lightleak.report.sections.run_facts import run_section
from lightleak.report.sections.subject import subject_of, subject_section, title_of
from lightleak.report.sections.summary import summary_section
from lightleak.report.sections.warnings import warnings_section

STYLES = {"C1": Style("s0", "circle"), "C2": Style("s1", "square")}
OTHER_STYLE, UNDEFENDED_STYLE = Style("s2", "triangle"), Style("validation", "cross")
HEADINGS = {"C1": "C1, with the labels", "C2": "C2, without the labels"}
ROLES = {
    "C1": "the company that holds the labels; active party: it holds the labels and the top network, sees what every "
    "party sends and which gradients go back, record by record",
    "C2": "a company without the labels; passive party: of each record it sees only the output of its own network",
}
MOST_PANELS = 4
"""Panels of defenses whose table is shown without unfolding."""

_NUMBER = re.compile(r"(?<![A-Za-z])\d[\d.,]*(?:e[-+]?\d+)?")
"""Not the digit of a name such as C1."""


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of vertical runs; with ``redact`` it shows no share, estimated or true."""
    rows = [row for run in runs for row in run.of(VerticalRow)]
    groups = compare(rows)
    tried, measured = attacks(groups), properties(groups)
    best = chosen([group for group in tried if group.defense == reference_of(tried)])
    main = most_telling(list(best.values()))
    norms = norm_entries(runs)
    return Page(
        title=title_of(runs, "Property leakage report"),
        subject=subject_of(runs),
        private=text(
            "<strong>Redacted.</strong> Estimated and true shares are left out of this file; how far off the estimates "
            "are is not."
        )
        if redact
        else "",
        sections=[
            summary_section(summary(tried, best, redact)),
            _subject(runs, groups),
            None if redact else _shares(measured),
            _errors(measured, list(best.values()), main, redact),
            _kinds(measured),
            _defenses(tried, redact) if any(group.defense != NONE for group in tried) else None,
            norms_section(norms, main.first.property_name if main else ""),
            warnings_section(_warnings(groups, redact)),
            run_section(runs, rows, _contents(bool(norms), redact), unit=("estimate", "estimates"), title=attack_name),
        ],
    )


def _contents(has_norms: bool, redact: bool) -> str:
    shares = "" if redact else "estimated and true shares, "
    norms = "histograms of norms, " if has_norms else ""
    aside = (
        ""
        if redact
        else " A true share may be confidential by itself; with <code>--redact</code> the shares are left out."
    )
    return text(
        "No record and no value of a record: names of columns and properties, {}errors, {}and the settings of the "
        "run." + aside,
        shares,
        norms,
    )


def _subject(runs: Sequence[Run], groups: Groups) -> Section:
    rows = [group.first for group in groups]
    adversaries = sorted({row.adversary for row in rows})
    facts = [
        ("Dataset", [row.dataset or "not stated" for row in rows]),
        ("Target network", [row.target or "not stated" for row in rows]),
        (
            "What travels",
            [
                "every party sends the output of its own network for each record; the party with the labels sends back "
                "gradients"
            ],
        ),
        ("Properties", [row.property_name for row in rows]),
        ("Attacked in epoch", [str(row.epoch) for row in rows if row.epoch is not None]),
        ("Defenses", [defense_label(group) for group in groups]),
        ("AUC of the model", _auc(groups)),
        *((f"Adversary {name}", [ROLES[name]]) for name in adversaries if name in ROLES),
    ]
    before = Paragraph(
        "In vertical federated learning several companies hold different columns about the same people. Each passes "
        "its columns through a network of its own and sends the outputs on; one company, which holds the labels, joins "
        "them, trains, and sends gradients back. No column leaves its company, but the outputs and gradients depend on "
        "them."
    )
    return subject_section(runs, facts, groups, before=(before,))


def _auc(groups: Groups) -> list[str]:
    """AUC without a defense by table: with its interval, or over its properties, which may be trained apart."""
    found = []
    by_table = by_key(undefended(groups), lambda group: group.first.dataset)
    for dataset, same in by_table.items():
        of_property = by_key(same, lambda group: group.first.property_name).values()
        means = [value for some in of_property if (value := VerticalGroup(_trainings(some)).mean("auc")) is not None]
        words = sorted({score(Estimate(value.mean)) for value in means})
        if words:
            told = score(means[0]) if len(means) == 1 else " to ".join(dict.fromkeys((words[0], words[-1])))
            told += ", by property" if len(words) > 1 else ""
            found.append(f"{dataset or 'dataset not stated'}: {told}" if len(by_table) > 1 else told)
    return found


def _trainings(groups: Groups) -> tuple[VerticalRow, ...]:
    """One row of each training."""
    return tuple({(row.run, str(row.seed)): row for group in groups for row in group.rows}.values())


def _shares(measured: Sequence[Property]) -> Section | None:
    drawn = [figure for one in measured if (figure := _share_chart(one))]
    if not drawn:
        return None
    groups = [group for one in measured for group in one.groups]
    how = "Bars are the attack's own 95% intervals."
    if any(len(group.rows) > 1 for group in groups):
        how = (
            "Large marks are means over seeds and their bars 95% intervals of the mean; small dots are single seeds, "
            "each with another split, training and auxiliary sample. The gray band is how far the truth itself differs "
            "between splits."
        )
    marks: list[tuple[str, str]] = [
        (legend_mark(STYLES[name]), name) for name in STYLES if any(g.first.adversary == name for g in groups)
    ]
    if any(group.error for group in groups):
        marks.append(("", "right: mean absolute error in points"))
    words = (
        "Share of records with each property as the attacks estimate it. The solid line is the truth. “Own columns "
        f"alone” reads nothing of the exchange. {how}"
    )
    return Section(
        "shares",
        "Estimates against the truth",
        (Paragraph(words), Legend(tuple(marks)), *figures(drawn)),
    )


def _share_chart(one: Property) -> Figure | None:
    """A row per attack, C1 above C2, the closest first; None where there is no estimate."""
    known = [(title, group) for title, group in _named(one.groups) if group.values("estimated")]
    rows, before = [], None
    for title, group in known:
        adversary = group.first.adversary
        rows.append(_share_row(title, group, HEADINGS.get(adversary, adversary) if adversary != before else ""))
        before = adversary
    if not rows:
        return None
    true = [value for group in one.groups for value in group.values("true_fraction")]
    ends = [end for row in rows for end in (row.value.mean, *ends_of(row.value), *(value for value, _ in row.singles))]
    x = axis([min(max(e, 0.0), 1.0) for e in (*ends, *true) if e is not None], ends="round", percent=True)
    name = f"Estimated share of records with {one.name}, by attack, against the true share"
    rules = []
    if true:
        mean = sum(true) / len(true)
        rules.append(Rule(mean, "truth", f"true {percent(mean)}", ends=(min(true), max(true))))
    return Figure(estimate_chart(name, rows, rules, x), one.title, plot="bars")


def _share_row(title: str, group: VerticalGroup, heading: str) -> EstimateRow:
    value, (low, high) = group.mean("estimated"), group.first.ends
    assert value is not None
    if value.n == 1 and low is not None and high is not None:
        value = Estimate(value.mean, 1, low, high)
    singles = [(row.estimated, _hover(row)) for row in group.rows if row.estimated is not None]
    return EstimateRow(
        label=title,
        value=value,
        singles=tuple(singles) if len(group.rows) > 1 else (),
        style=STYLES.get(group.first.adversary, OTHER_STYLE),
        note=unsigned_points(group.error) if group.error else "",
        heading=heading,
    )


def _hover(row: VerticalRow) -> str:
    low, high = row.ends
    own = "" if low is None or high is None else f", own interval {100 * low:.1f} to {100 * high:.1f}"
    true = "" if row.true_fraction is None else f", true {percent(row.true_fraction)}"
    return f"seed {row.seed}: {percent(row.estimated)}{own}{true}"


def _setting(group: VerticalGroup, names: Sequence[str]) -> str:
    return joined(*setting_words(group, [name for name in names if name != "dataset"]), by=" · ")


def _varying(groups: Groups) -> list[str]:
    return differing((group.first for group in groups), FIXED)


def _named(groups: Groups) -> list[tuple[str, VerticalGroup]]:
    """Every group with its title, and what else its setting differs in."""
    names = _varying(groups)
    return [(joined(group.title, _setting(group, names), by=" · "), group) for group in groups]


_AttackLine = tuple[str, dict[str, VerticalGroup]]
"""Title of an attack, and its group by adversary."""


def _errors(measured: Sequence[Property], places: Groups, main: VerticalGroup | None, redact: bool) -> Section | None:
    tables = [(one.title, _attack_lines(one, redact)) for one in measured]
    tables = [(title, lines) for title, lines in tables if lines]
    if not tables:
        return None
    adversaries = sorted({name for _, lines in tables for _, cells in lines for name in cells})
    closest = {
        id(min(same, key=error_of))
        for one in measured
        for same in by_key((g for g in attacks(one.groups) if g.error), lambda g: g.first.adversary).values()
    }
    per = 3 if redact else 4
    table = table_of(
        "Errors compared",
        [
            Column("Attack", lambda line: line[0]),
            *(column for name in adversaries for column in _of_adversary(name, closest, redact)),
            Column("Seeds", lambda line: ", ".join(map(str, sorted({len(g.rows) for g in line[1].values()})))),
        ],
        tables,
        css="errors",
        line_css=lambda line: "" if _reads_exchange(line) else "baseline",
    )
    if len(adversaries) > 1:
        table = replace(table, over=(("", 1), *((name, per) for name in adversaries), ("", 1)))
    worth = (
        "“Worth a random sample of” is the size of a random sample of records with known property whose share would be "
        "as close, p (1 − p) / mean squared error, with its 95% interval. "
    )
    note = (
        "“Off by” is the mean absolute difference between the estimated and the true share over seeds, in percentage "
        "points, with its 95% interval. “Closer than own columns” is what the attack learned from the exchange: how "
        "much nearer to the truth it is than the same kind of classifier on the adversary's own columns (of the "
        "company with the labels on these as well), which reads nothing of the exchange, paired by seed: more than "
        "chance where its whole interval is above 0 (one line by itself: of many lines some are by chance). An "
        f"attacker who reads both together may do better than either. {'' if redact else worth}“Own interval right” "
        "counts how many of the 95% intervals that the attack itself gives contain the truth; about 95 of 100 should. "
        "Bold: the closest. A "
        "dash marks what was not measured or has no interval because there was one seed. Half of the auxiliary sample "
        "has the property by construction, so that its share says nothing and is no baseline. An interval over seeds "
        "describes other splits and other trainings on this same table, not other data, networks or splits of the "
        "columns."
    )
    return Section(
        "errors", "Errors compared", (*_verdict(measured, places, main, redact), table, Paragraph(note, "note"))
    )


def _attack_lines(one: Property, redact: bool) -> list[_AttackLine]:
    """C1 and C2 share a line; variants do where each adversary has one, such as LR+MR in C1 and MR in C2.

    ``redact`` leaves out what reads no exchange: its error would tell the share where own columns say nothing.
    """
    names = _varying(one.groups)
    lines: list[_AttackLine] = []
    kept = [group for group in one.groups if group.reads_exchange or not redact]
    same_attack = by_key(kept, lambda group: (group.attack, group.variant, _setting(group, names)))
    for (attack, detail, setting), same in same_attack.items():
        shared = {group.first.adversary: group for group in same}
        some = [shared] if len(shared) == len(same) else []
        by_variant = by_key(same, lambda group: group.first.variant).values()
        for cells in some or [{group.first.adversary: group for group in members} for members in by_variant]:
            variants = {name: group.first.variant for name, group in cells.items()}
            title = attack_name(next(iter(cells.values())).first)
            if len(set(variants.values())) > 1:
                title = f"{attack_title(attack)} ({', '.join(f'{name}: {v}' for name, v in variants.items())})"
            title += f" ({detail})" if detail else ""
            lines.append((joined(title, setting, by=" · "), cells))
    return sorted(lines, key=lambda line: (not _reads_exchange(line), min(map(error_of, line[1].values()))))


def _reads_exchange(line: _AttackLine) -> bool:
    return all(group.reads_exchange for group in line[1].values())


def _of_adversary(name: str, closest: set[int], redact: bool) -> list[Column[_AttackLine]]:
    def off(group: VerticalGroup) -> Cell:
        return Cell(_off(group.error), css="first best" if id(group) in closest else "first")

    def learned(group: VerticalGroup) -> str:
        return _learned(group, redact) if group.reads_exchange else DASH

    def worth(group: VerticalGroup) -> str:
        found = group.worth()
        return found.words if found else DASH

    def right(group: VerticalGroup) -> str:
        return f"{group.coverage[0]} of {group.coverage[1]}" if group.coverage else DASH

    def column(title: str, cell: Callable[[VerticalGroup], str | Cell], css: str = "") -> Column[_AttackLine]:
        return Column(title, lambda line: cell(line[1][name]) if name in line[1] else DASH, css=css)

    spread = "" if redact else ", points (95% interval)"
    return [
        column("Off by, points (95% interval)", off, "first"),
        column(f"Closer than own columns{spread}", learned),
        *([] if redact else [column("Worth a random sample of", worth)]),
        column("Own interval right", right),
    ]


def _off(value: Estimate | None) -> str:
    return unsigned_points(value) + in_brackets(value)


def _change(value: Estimate | None) -> str:
    return points(value) + in_brackets(value, -1.0)


def _learned(group: VerticalGroup, redact: bool) -> str:
    """How much closer than own columns alone; redacted, whether it measurably is."""
    learned = group.learned()
    if not redact:
        return _change(learned)
    return DASH if learned is None or not learned.has_interval else "yes" if group.leaks() else "not shown"


def _verdict(
    measured: Sequence[Property], places: Groups, main: VerticalGroup | None, redact: bool
) -> tuple[Block, ...]:
    """On the property of the summary, the attacks that were chosen and what others got; then all properties."""
    if main is None:
        return ()
    here = [group for group in places if group.place[:2] == main.place[:2]]
    tried = [group for one in measured for group in one.groups]
    told = [_of_group(group, tried, group is main, len(places), redact) for group in here]
    names = dict.fromkeys(group.place[:2] for group in places)
    leaking = {group.place[:2] for group in places if group.leaks(len(places))}
    if len(names) > 1:
        told.append(f"Of {len(names)} properties, the exchange measurably gave something away on {len(leaking)}.")
    known = {group.place[:2] for group in places if (learned := group.learned()) and learned.has_interval}
    if unshown := [name for dataset, name in names if (dataset, name) in known - leaking and len(names) > 1]:
        told.append(f"Nothing was shown to be learned from the exchange on {listed(unshown)}.")
    return Bullets(tuple(told), "verdict"), Paragraph(_selection(main, here, places), "note")


def _of_group(group: VerticalGroup, tried: Groups, is_main: bool, places: int, redact: bool) -> str:
    """What one adversary got; figures of the one that the summary is about are left to the summary."""
    how = "departs from" if group.manipulates else "follows"
    verdict = "measurably closer than its own columns alone"
    if not group.leaks(places):
        learned = group.learned(places)
        is_unsure = learned is None or not learned.has_interval
        verdict = "not comparable with its own columns alone" if is_unsure else f"not {verdict}"
    spread = in_brackets(group.error, words="95% interval")
    words: list[str] = [
        text("<strong>{}</strong> used {}, which {} the protocol: ", group.place[2], group.title, how)
        + f"{unsigned_points(group.error)} points off{spread}, {verdict}."
    ]
    if not is_main and not redact:
        words += [beside_own_columns(group, places), worth_words(group)]
    honest = chosen_on_other_seeds([one for one in tried if one.place == group.place and not one.manipulates])
    if group.manipulates and honest is not None:
        words.append(
            f"Without manipulating the training it came to within {unsigned_points(honest.error)} points"
            f"{in_brackets(honest.error, words='95% interval')} by {honest.title}."
        )
    return Markup(" ").join(filter(None, words))


def _selection(main: VerticalGroup, here: Groups, places: Groups) -> str:
    """How the attacks and the property were chosen."""
    seeds, among = max(len(group.rows) for group in here), max(group.chosen_among for group in here)
    setting = _setting(main, [name for name in _varying(places) if name != "defense"])
    told = [f"{counted(seeds, 'seed')}; {joined(defense_label(main), setting)}."]
    if among > 1:
        how = "for each seed the one that was closest on the other seeds" if seeds > 1 else "afterwards, on this seed"
        told.append(f"The attack was chosen among {among}: {how}.")
    if len({group.place[:2] for group in places}) > 1:
        told.append("The property was picked afterwards.")
    if len(places) > 1:
        told.append(
            f"What is called learned, or measurably closer, holds for all {len(places)} combinations of property and "
            "adversary at once (Bonferroni)."
        )
    return " ".join(told)


def _kinds(measured: Sequence[Property]) -> Section | None:
    """Attacks that estimate from several kinds of results; None where no attack does or there is no truth."""
    found = []
    for one in measured:
        lines = [(title, group) for title, group in _named(one.groups) if len(group.means("kind_errors")) > 1]
        if lines:
            found.append((one.title, lines))
    if not found:
        return None
    several = len({group.place[2] for _, lines in found for _, group in lines}) > 1
    columns: list[Column[tuple[str, VerticalGroup]]] = [
        Column("Attack", lambda line: joined(line[0], line[1].place[2] if several else "", by=" · ")),
        *(_of_kind(kind) for kind in KINDS),
        Column("Together", lambda line: _off(line[1].error)),
    ]
    words = (
        "Mean absolute error in points where an attack estimates from one kind of intermediate result alone, and from "
        "all together. Letters: A is the adversary's, V the victim's; O is an output, G a gradient."
    )
    table = table_of("Error by kind of intermediate result", columns, found)
    return Section("kinds", "By what was read", (Paragraph(words), table))


def _of_kind(kind: str) -> Column[tuple[str, VerticalGroup]]:
    return Column(
        f"{kind}, {KIND_TITLES[kind]}",
        lambda line: _off(line[1].mean(lambda row: row.kind_errors.get(kind))),
        optional=True,
    )


def _defenses(tried: Groups, redact: bool) -> Section:
    by_defense = lines_of(tried)
    several = len({group.first.dataset for group in tried}) > 1
    panels = []
    for place in dict.fromkeys(group.place for group in tried):
        lines = [at[place] for at in by_defense.values() if place in at]
        if any(line.group.defense != NONE for line in lines):
            panels.append((joined(titled(place, several), place[2], by=" · "), lines))
    names = dict.fromkeys(_family(group) for group in tried if group.defense != NONE)
    styles = {name: series_style(index) for index, name in enumerate(names)} | {"no defense": UNDEFENDED_STYLE}
    drawn = [figure for title, lines in panels if (figure := _error_chart(title, lines, styles, redact))]
    is_unaware = not redact and any(
        row.unaware_error != row.error for _, lines in panels for line in lines for row in line.group.rows
    )
    table = table_of(
        "Defenses",
        [column for column in _defense_columns(redact) if is_unaware or column.title not in UNAWARE],
        panels,
        line_css=lambda line: "baseline" if line.group.defense == NONE else "",
    )
    words = (
        "A defense is worth having if it moves the attacker up, further from the truth, and not to the left, where the "
        "model is worse. Lines join the strengths of one defense; whiskers are 95% intervals over seeds."
    )
    own = (
        " The dashed line is what the adversary's own columns alone are off by without a defense: where a defense "
        "reaches it, nothing is left to learn from the exchange."
    )
    unaware = (
        " “Not knowing the defense” is the error of an adversary who takes its estimate at face value, and “off the "
        "trained share” how far that is from the share among the rows that were left."
    )
    note = (
        "The adversary knows the defense and its strength, and inverts what it does to the share: a defense that "
        "withdraws rows is measured against the share before the withdrawal. It uses the attack that is closest on the "
        "other seeds. “More than without” and “Change of AUC” compare the same seeds with and without the defense, "
        f"over the attacks that were tried with both.{unaware if is_unaware else ''}"
    )
    used = {_family(line.group) for _, lines in panels for line in lines}
    return Section(
        "defenses",
        "Defenses",
        (
            Paragraph(words + ("" if redact else own)),
            Legend(tuple((legend_mark(style), name) for name, style in styles.items() if name in used)),
            *figures(drawn),
            *folded("The numbers", table, when=len(panels) > MOST_PANELS),
            Paragraph(note, "note"),
        ),
    )


UNAWARE = ("Off by, not knowing the defense", "That one off the trained share")


def _defense_columns(redact: bool) -> list[Column[Line]]:
    return [
        Column("Defense", lambda line: defense_label(line.group)),
        Column("Off by, points (95% interval)", lambda line: _off(line.error)),
        Column("More than without", lambda line: _change(line.rise)),
        Column("Closer than own columns", lambda line: _learned(line.group, redact)),
        Column(UNAWARE[0], lambda line: _off(line.group.mean("unaware_error"))),
        Column(UNAWARE[1], lambda line: _off(line.group.mean("trained_error"))),
        Column("Attack", lambda line: line.group.title),
        Column("AUC (95% interval)", lambda line: score(line.group.mean("auc"))),
        Column("Change of AUC, points", lambda line: _change(line.cost)),
        Column("Seeds", lambda line: str(len(line.group.rows))),
    ]


def _family(group: VerticalGroup) -> str:
    """The defense without its strength; the label where the file does not tell them apart."""
    return defense_label(group) if group.defense == NONE else (group.first.defense_name or defense_label(group))


def _error_chart(title: str, lines: Sequence[Line], styles: dict[str, Style], redact: bool) -> Figure | None:
    """The attacker's error in points (upwards) against the AUC (rightwards), with intervals; None without an AUC.

    What the adversary's own columns alone are off by is a dashed line.
    """
    own = None if redact else lines[0].group.own_error
    # What the others are compared with is drawn last, over them.
    by_family = by_key(sorted(lines, key=lambda line: line.group.defense == NONE), lambda line: _family(line.group))
    layers: list[Trace | Points] = []
    for name, same in by_family.items():
        same.sort(key=lambda line: line.group.first.defense_strength or 0.0)
        if marks := [mark for line in same if (mark := _mark(line, name, styles[name]))]:
            layers += [Trace([(mark.x, mark.y or 0.0) for mark in marks], "link", styles[name].css), Points(marks)]
    marks = [mark for layer in layers if isinstance(layer, Points) for mark in layer.marks]
    if not marks:
        return None
    highest = max([end for mark in marks for end in (mark.y, mark.y_ends[1]) if end is not None])
    aucs = [end for mark in marks for end in (mark.x, *mark.x_ends) if end is not None]
    x = axis([min(max(end, 0.0), 1.0) for end in aucs], ends="round", title="AUC of the model")
    y = axis([0.0, min(max(highest, 100 * own.mean if own else 0.0), 100.0)], ends="round")
    rules = [] if own is None else [Rule(100 * own.mean, "guess faint", "own", along="y")]
    drawing = draw(Plot(f"Error against AUC: {title}", x, y, layers, rules, height=240, grid="y"))
    return Figure(drawing, title, "Upwards: error of the attacker in points", plot="scatter")


def _mark(line: Line, family: str, style: Style) -> Mark | None:
    auc, error, strength = line.group.mean("auc"), line.error, line.group.first.defense_strength
    if auc is None:
        return None
    label = "" if strength is None else f"{strength:g}"
    name = joined(family, label, by=" ") if line.group.first.defense_name else family
    hover = f"{name}: {unsigned_points(error)} points off, AUC {auc.mean:.3f}"
    low, high = (None if end is None else 100 * end for end in ends_of(error))
    return Mark(auc.mean, 100 * error.mean, style, hover, ends_of(auc), (low, high), label)


def _warnings(groups: Groups, redact: bool) -> list[tuple[str, list[str]]]:
    """What attacks warned of, and where; warnings that differ in numbers alone stand once, with the first's numbers.

    Under ``redact`` their numbers are left out: a warning may quote an estimate.
    """
    found: dict[str, tuple[str, Counter[str]]] = {}
    totals: Counter[str] = Counter()
    for group in groups:
        place = joined(*group.place[1:], group.title)
        totals[place] += len(group.rows)
        for row in group.rows:
            for blank, warning in {_NUMBER.sub("…", warning): warning for warning in row.warnings}.items():
                found.setdefault(blank, (blank if redact else warning, Counter()))[1][place] += 1
    return [
        (words, [f"{place} ({count} of {totals[place]} estimates)" for place, count in places.items()])
        for words, places in found.values()
    ]
