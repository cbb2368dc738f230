"""Attacks on the updates that clients send: what their page shows."""

from collections.abc import Mapping, Sequence

from lightleak.report.budget import fewer
from lightleak.report.charts import (
    BASELINE_STYLE,
    Bar,
    Pair,
    Series,
    Style,
    bar_chart,
    legend_mark,
    line_chart,
    pair_chart,
    series_style,
    spread,
)
from lightleak.report.compare import by_key, fixed
from lightleak.report.format import (
    capital,
    defense_title,
    duration,
    in_brackets,
    interval,
    joined,
    labels_phrase,
    percent,
    points,
)
from lightleak.report.intervals import bounded
from lightleak.report.kinds.updates_groups import (
    UpdateGroup,
    at_start,
    attacks,
    compare,
    is_baseline,
    leakage,
    place_without_labels,
    proven_share,
    strongest_first,
)
from lightleak.report.kinds.updates_summary import summary
from lightleak.report.kinds.updates_words import (
    FIXED,
    defense_phrase,
    local_phrase,
    of_rows,
    parts_title,
    rows_axis,
    server_knowledge,
    source_phrase,
    time_unit,
    varying,
    what_the_server_gets,
)
from lightleak.report.page import (
    Block,
    Column,
    Figure,
    Legend,
    Page,
    Paragraph,
    Section,
    figures,
    table_of,
    text,
)
from lightleak.report.read import Run
from lightleak.report.sections.certificates import certificates_section, size_of
from lightleak.report.sections.change import change_section
from lightleak.report.sections.columns import gains, pair_legend, pairs_by_name
from lightleak.report.sections.rows import Batch, rows_section, typical_batch
from lightleak.report.sections.run_facts import run_section
from lightleak.report.sections.subject import subject_of, subject_section, title_of
from lightleak.report.sections.summary import summary_section
from lightleak.report.sections.training import training_section

ACCURACY = "cell_accuracy"
MOST_NAMED = 3
"""Columns that are named in a sentence."""

HONEST = (
    "“Honest but curious” means that the server runs the training as agreed and only looks closer at what it receives. "
    "“Guessing” draws every cell from how often each value occurs and never looks at the update: whatever an attack "
    "reaches above it is what the update gave away."
)
COUNTS_AS_RIGHT = (
    "A category counts as recovered when it is exactly the true one, a number when it is within 0.319 standard "
    "deviations of its column. A row is exact when every value equals the true one."
)


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of runs that attacked updates."""
    groups = compare(runs)
    main, styles = at_start(groups), _styles(groups)
    strongest = strongest_first(main)
    best = strongest[0] if strongest else None
    unproven = sorted((group for group in attacks(main) if group not in strongest), key=proven_share, reverse=True)
    batch = typical_batch(runs, [*strongest, *unproven])
    unit = ("update", "updates") if any(group.first.on_fedavg for group in main) else ("batch", "batches")
    return Page(
        title=title_of(runs, "Leakage report"),
        subject=subject_of(runs),
        private=_private(batch, redact),
        sections=[
            summary_section(summary(runs)),
            change_section(runs, unit),
            _subject(runs, main, groups),
            _attacks(groups, main, styles, unit, strongest),
            certificates_section(groups, unit),
            training_section(runs, groups, styles),
            _columns(best) if best else None,
            rows_section(batch, unit, redact),
            _certainty([group for group in attacks(main) if best is None or _same_place(group, best)]),
            run_section(
                runs, [row for group in groups for row in group.rows], _contents(batch, redact, unit), unit=unit
            ),
        ],
    )


def _styles(groups: Sequence[UpdateGroup]) -> dict[str, Style]:
    """One look for each title of an attack, the same in every chart of a report; the baseline's comes last."""
    titles = dict.fromkeys(group.title for group in attacks(groups))
    guesses = dict.fromkeys((group.title for group in groups if is_baseline(group)), BASELINE_STYLE)
    return {title: series_style(index) for index, title in enumerate(titles)} | guesses


def _same_place(group: UpdateGroup, other: UpdateGroup) -> bool:
    names = (*FIXED, "batch_size")
    return fixed(group.first, names) == fixed(other.first, names)


def _private(batch: Batch | None, redact: bool) -> str:
    if batch is None:
        return ""
    if redact:
        return text(
            "<strong>Redacted.</strong> True and reconstructed values are left out of this file; column names and hit "
            "rates are not."
        )
    return text(
        "<strong>This file contains private data.</strong> It shows records of a client and what an attack made of "
        "them. Treat it like the data itself, or build it again with <code>--redact</code> before you pass it on."
    )


def _contents(batch: Batch | None, redact: bool, unit: tuple[str, str]) -> str:
    if batch is None:
        return "Column names, averages and the settings of the run. No records."
    if redact:
        return (
            "Column names, averages, marks for right and wrong cells, and the settings of the run. No true and no "
            "reconstructed value."
        )
    return text(
        "Records of clients as they are in the table, and their reconstructions, for one {}; column names, averages, "
        "and the settings of the run. With <code>--redact</code> the records and reconstructions are replaced by "
        "marks for right and wrong.",
        unit[0],
    )


def _subject(runs: Sequence[Run], main: Sequence[UpdateGroup], groups: Sequence[UpdateGroup]) -> Section:
    rows = [group.first for group in attacks(main) or main]
    # The privacy that was granted stands with the training's rows.
    granted = {(g.first.defense, g.first.defense_strength): g.first for g in groups if g.first.epsilon is not None}
    defended = [granted.get((row.defense, row.defense_strength), row) for row in rows]
    on_fedavg = any(row.on_fedavg for row in rows)
    sizes = sorted({group.first.batch_size for group in main if group.first.batch_size is not None})
    facts = [
        ("Dataset", [row.dataset or "not stated" for row in rows]),
        ("Target network", [row.target or "not stated" for row in rows]),
        ("What travels", [what_the_server_gets(row) for row in rows]),
        (
            "Rows behind an update" if on_fedavg else "Rows in a client's batch",
            [str(size) for size in sizes] or ["not stated"],
        ),
        ("When", [source_phrase(row.source) for row in rows]),
        ("Labels", [labels_phrase(row.labels) for row in rows]),
        ("Defense", [defense_phrase(row) for row in defended]),
    ]
    knowledge = dict.fromkeys(filter(None, (server_knowledge(group.first) for group in main)))
    return subject_section(runs, facts, main, after=(*knowledge, HONEST, COUNTS_AS_RIGHT))


def _attacks(
    groups: Sequence[UpdateGroup],
    main: Sequence[UpdateGroup],
    styles: Mapping[str, Style],
    unit: tuple[str, str],
    strongest: Sequence[UpdateGroup],
) -> Section | None:
    if not main:
        return None
    scenarios = _scenarios(main)
    told = varying(same[0].first for same in scenarios)
    drawn = [figure for same in scenarios if (figure := _chart(same, styles, told))]
    blocks: list[Block] = [Paragraph(words, "verdict") for words in _verdicts(strongest, groups)[:1]]
    blocks += [Paragraph(words, "note") for words in _verdicts(strongest, groups)[1:]]
    if drawn:
        legend = (
            f"Share of cells recovered. Whiskers are 95% confidence intervals of the mean over {unit[1]}; the dashed "
            "line is guessing without the update."
        )
        blocks += [Paragraph(legend), *figures(drawn)]
    titled = [(parts_title(same[0].first, told), same) for same in scenarios]
    proves = any(group.values("certified_share") for same in scenarios for group in same)
    restored = any(group.first.labels == "restored" for group in main)
    best = strongest[0] if strongest else None
    table = table_of(
        "Attacks compared",
        [column for column in _COLUMNS if restored or column.title != "Wrong labels"],
        titled,
        css="dense" if proves else "",
        line_css=lambda group: "baseline" if is_baseline(group) else "best" if group is best else "",
    )
    note = (
        f"“Over guessing” is the difference in points to guessing on the same {unit[1]}, with its own 95% interval. A "
        f"dash marks what was not measured or has no interval because there was one {unit[0]}. Seconds are the "
        f"attack's wall time for one {unit[0]}."
    )
    return Section("attacks", "Attacks compared", (*blocks, table, Paragraph(note, "note")))


def _share(group: UpdateGroup, name: str) -> str:
    return percent(group.mean(name))


_COLUMNS: tuple[Column[UpdateGroup], ...] = (
    Column("Attack", lambda group: group.title),
    Column("Rows in batch", size_of),
    Column("Cells recovered (95% interval)", lambda g: _share(g, ACCURACY) + in_brackets(g.mean(ACCURACY))),
    Column("Over guessing, points (95% interval)", lambda g: points(leakage(g)) + in_brackets(leakage(g), -1.0)),
    Column("Categories", lambda group: _share(group, "categorical_accuracy")),
    Column("Numbers", lambda group: _share(group, "numerical_accuracy")),
    Column("Whole rows exact", lambda group: _share(group, "exact_match_rate")),
    Column("Rows proven", lambda group: _share(group, "certified_share"), optional=True),
    Column("Wrong labels", lambda group: _share(group, "label_count_error"), optional=True),
    Column("Batches", lambda group: str(len(group.values(ACCURACY)) or len(group.rows))),
    Column("Seconds", lambda group: duration(group.mean("seconds"))),
)


def _scenarios(groups: Sequence[UpdateGroup]) -> list[list[UpdateGroup]]:
    """All attacks of one setting; guessing, which reads no labels, stands in each setting that it serves."""
    setting = {id(group): fixed(group.first, FIXED) for group in groups}
    found = by_key(attacks(groups), lambda group: setting[id(group)])
    guesses = [group for group in groups if is_baseline(group)]
    served = {place_without_labels(group.first)[:-1] for group in attacks(groups)}
    for group in guesses:
        if place_without_labels(group.first)[:-1] not in served:
            found.setdefault(setting[id(group)], [])
    everything = []
    for key, members in found.items():
        first = next(group for group in (*members, *groups) if setting[id(group)] == key).first
        place = place_without_labels(first)[:-1]
        serving = [group for group in guesses if place_without_labels(group.first)[:-1] == place]
        serving.sort(key=lambda group: group.first.labels == first.labels)
        one_a_size = {group.first.batch_size: group for group in serving}
        everything.append(sorted([*members, *one_a_size.values()], key=_reading_order))
    return everything


def _reading_order(group: UpdateGroup) -> tuple[int, bool, float]:
    accuracy = group.mean(ACCURACY)
    return group.first.batch_size or 0, is_baseline(group), -accuracy.mean if accuracy else 0.0


def _chart(groups: Sequence[UpdateGroup], styles: Mapping[str, Style], told: Sequence[str]) -> Figure | None:
    """Bars of one batch size, lines over several; None where no accuracy is known."""
    known = [(group, value) for group in groups if (value := group.mean(ACCURACY)) is not None]
    if not known:
        return None
    title = parts_title(next((g.first for g in groups if not is_baseline(g)), groups[0].first), told)
    sizes = sorted({group.first.batch_size for group, _ in known if group.first.batch_size is not None})
    if len(sizes) <= 1:
        guess = next((value for group, value in known if is_baseline(group)), None)
        bars = [Bar(group.title, value, styles[group.title]) for group, value in known]
        name = "Share of cells recovered by each attack, with 95% intervals"
        return Figure(bar_chart(name, bars, guess), title, plot="bars")
    # Batch sizes stand at even distances: they are usually powers of two.
    place = dict(zip(sizes, spread([float(index) for index in range(len(sizes))], margin=0.08), strict=True))
    of_title = by_key(known, lambda pair: pair[0].title)
    series = [
        Series(name, tuple((place[g.first.batch_size], v) for g, v in of_title[name] if g.first.batch_size), style)
        for name, style in styles.items()
        if name in of_title
    ]
    axis = rows_axis(groups[0].first)
    name = f"Share of cells recovered by each attack over the {axis}, with 95% intervals"
    drawing = line_chart(name, series, [(place[size], str(size)) for size in sizes], axis)
    return Figure(drawing, title, legend=Legend(tuple((legend_mark(one.style), one.label) for one in series)))


def _verdicts(strongest: Sequence[UpdateGroup], groups: Sequence[UpdateGroup]) -> list[str]:
    """What the strongest attack reached above guessing, and how it was selected; nothing where there is none."""
    if not strongest:
        return _unmeasured(groups)
    best = strongest[0]
    return [f"{best.title}: {_beside_guessing(best)}", _selection(best, strongest, groups)]


def _unmeasured(groups: Sequence[UpdateGroup]) -> list[str]:
    if not attacks(groups):
        return ["Only the guessing baseline has finished: no attack has been measured yet."]
    return [
        "The rows behind the attacked updates are not part of this run, so how much was recovered rightly is "
        "unknown. The attacker's own confidence and the time spent are still listed."
    ]


def _beside_guessing(group: UpdateGroup) -> str:
    over, guess = leakage(group), group.baseline.mean(ACCURACY) if group.baseline else None
    if over is None or guess is None:
        return "guessing without the update was not measured, so how much of this the update gave away is unknown."
    if over.low is None or over.high is None:
        side = "above" if over.mean > 0 else "not above"
        return (
            f"{side} guessing ({points(over)} points), but too few batches were measured to tell whether the "
            "difference is more than chance."
        )
    spread_words = f"(95% interval {interval(over, -1)})"
    if over.low > 0:
        closed = (
            f", {over.mean / (1 - guess.mean):.0%} of the way from guessing to full recovery" if guess.mean < 1 else ""
        )
        return f"the update gave away more than guessing does: {points(over)} points of cells {spread_words}{closed}."
    lacking = joined(*fewer(group.attack, group.first.settings))
    weak = f" It ran with {lacking}, less than published, so nothing follows from that." if lacking else ""
    if over.high < 0:
        return f"the attack did worse than guessing ({points(over)} points of cells).{weak}"
    return (
        f"the attack was not measurably better than guessing: the difference of {points(over)} points {spread_words} "
        f"may be chance.{weak}"
    )


def _selection(best: UpdateGroup, strongest: Sequence[UpdateGroup], groups: Sequence[UpdateGroup]) -> str:
    row, n = best.first, len(best.values(ACCURACY))
    units = ("update", "updates") if row.on_fedavg else ("batch", "batches")
    told = f"Measured on {n} {units[n != 1]}"
    told += f", each after {local_phrase(row)}" if row.on_fedavg else ""
    told += (
        f", {source_phrase(row.source)}; labels {labels_phrase(row.labels)}; defense: "
        f"{defense_title(row.defense, row.defense_strength)}"
    )
    others = [name for name in varying(group.first for group in strongest) if name in ("run", "dataset", "target")]
    told += f" ({parts_title(row, others)})." if others else "."
    if len(strongest) > 1:
        wide = bounded(best.values(ACCURACY), comparisons=len(strongest))
        told += (
            f" This is the strongest of {len(strongest)} combinations of attack and setting, picked afterwards, and "
            "the highest of several is partly luck"
        )
        told += (
            f": to allow for the choice, read {interval(wide)} as the interval of its cells (Bonferroni)."
            if wide is not None and wide.has_interval
            else "."
        )
    return told + _higher_later(best, groups)


def _higher_later(best: UpdateGroup, groups: Sequence[UpdateGroup]) -> str:
    """A figure from before training must not hide a higher one from later on."""
    later = [group for group in attacks(groups) if group.first.source == "training"]
    known = [(value.mean, index) for index, group in enumerate(later) if (value := group.mean(ACCURACY))]
    highest, index = max(known, default=(0.0, 0))
    accuracy = best.mean(ACCURACY)
    if not known or accuracy is None or highest <= accuracy.mean:
        return ""
    group, row = later[index], later[index].first
    when = "" if row.epoch is None else f" in {time_unit(row)} {row.epoch}"
    size = f" ({of_rows(row)})" if row.batch_size else ""
    return f" During training a higher value was measured: {percent(highest)} by {group.title}{when}{size}."


def _columns(group: UpdateGroup) -> Section | None:
    reached = group.means("column_accuracy")
    if not reached:
        return None
    guessed = group.baseline.means("column_accuracy") if group.baseline else {}
    found = gains(reached, guessed)
    most = [name for name in list(found)[:MOST_NAMED] if (found[name] or 0.0) > 0]
    first = ", most leakage over guessing first" if guessed else ""
    words = text(
        "{}: share of right cells in each column{}. {}A column that is easy to guess, because nearly everyone has "
        "the same value, can be recovered well and still leak little.{}",
        joined(group.title, of_rows(group.first)),
        first,
        text("Most was given away about <strong>{}</strong>. ", ", ".join(most)) if most else "",
        "" if guessed else " Guessing was not measured here.",
    )
    label = f"Share of right cells in each of {len(reached)} columns, guessed and recovered; most leakage first"
    drawn = pairs_by_name(label, reached, guessed, "guessing", "recovered")
    return Section("columns", "By column", (Paragraph(words), *drawn))


def _certainty(groups: Sequence[UpdateGroup]) -> Section | None:
    """Whether the attacker's own confidence tells which cells to believe (TabLeak Sec. 3.2)."""
    panels = []
    start, end = "least confident quarter", "most confident quarter"
    for kind in ("categorical", "numerical"):
        known = [(group, group.mean(f"bottom25_{kind}"), group.mean(f"top25_{kind}")) for group in groups]
        pairs = [
            Pair(group.title, low.mean, high.mean, points(high.mean - low.mean))
            for group, low, high in known
            if low and high
        ]
        if pairs:
            name = f"Share of right {kind} cells in the least and the most confident quarter, by attack"
            panels.append(
                Figure(pair_chart(name, pairs, start, end, stacked=True), f"{capital(kind)} cells", plot="bars")
            )
    if not panels:
        return None
    words = (
        "An attacker has no truth to compare with. But when many restarts of an attack agree on a cell (low "
        "entropy), it is more often right. If the most confident quarter of the cells is far more accurate than the "
        "least confident one, the server can tell which of its findings to believe."
    )
    return Section(
        "confidence", "The attacker's confidence", (Paragraph(words), pair_legend(start, end), *figures(panels))
    )
