"""Every person of a training: who was proven, over the rounds, by group, and the three risks of WP216."""

from collections.abc import Sequence

from lightleak.core.grouping import by_key
from lightleak.core.people import Group, People, Rate, Risk
from lightleak.report.blocks import Block, Cell, Column, Figure, Heading, Legend, Section, Table
from lightleak.report.budget import BASELINES
from lightleak.report.charts import BASELINE_STYLE, SHARES, VALIDATION_STYLE, Series, Style, line_figure, series_style
from lightleak.report.format import DASH, attack_title, count, counted, duration, joined, of_hundred, points
from lightleak.report.intervals import Estimate, difference, of_rate, proportion
from lightleak.report.page import figures, fill, folded, table_of
from lightleak.report.plot.axis import axis
from lightleak.report.plot.chart import Line, Plot, Rule
from lightleak.report.plot.svg import draw
from lightleak.report.read import Run
from lightleak.report.sections.exposed import exposed_blocks
from lightleak.report.sections.means import memory_words
from lightleak.report.sections.summary import RiskLine, interval_cell

FEWEST = 20
"""People of a group from which it can be the most exposed one: of fewer, any share may be chance."""

MOST_GROUPS = 5
"""Groups of one column whose curves are drawn; the table has all of them."""

MOST_LISTED = 12
"""Groups of all columns whose table is open; of more it is folded."""

_AT = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Where a group's curve has marks: more whiskers than these cannot be distinguished."""

PROVEN, RECOVERED = series_style(0), series_style(1)


SIGNIFICANT = 0.05
"""Probability below which chance is no explanation."""


def strongest(run: Run, other: Run | None = None) -> People | None:
    """Return what the attack revealed that exposed most people; None where no whole epoch or round was attacked.

    An attack on a sample of the updates stands in its place where it measurably exposes a larger share. Guesses, which
    read no update, are not attacks.

    Args:
        run: whose people.
        other: a run to compare with: attacks that it did not try on as much are left out.
    """
    tried = {(one.attack, one.is_whole) for one in (other or run).people}
    attacks = [one for one in run.people if one.attack not in BASELINES and (one.attack, one.is_whole) in tried]
    whole = [one for one in attacks if one.is_whole]
    best = max(whole, key=lambda one: (one.proven + one.recovered, one.proven), default=None)
    sampled = [one for one in attacks if best and not one.is_whole and one.exposed.low > best.exposed.share]
    return max(sampled, key=lambda one: one.exposed.share, default=best)


def guess_of(run: Run) -> Rate | None:
    """Return the largest share of the people that a guess recovered, which reads no update; None without one."""
    guesses = [one.exposed for one in run.people if one.attack in BASELINES]
    return max(guesses, key=lambda rate: rate.share, default=None)


def people_section(runs: Sequence[Run]) -> Section | None:
    """Draw what every attack revealed of every person, the risks and the groups; None where that was not measured.

    Redacted runs name nobody: the most exposed people are left out, and small groups are merged.
    """
    measured = [(run, one) for run in runs for one in run.people]
    if not measured:
        return None
    blocks: list[Block] = [fill("people", "words", [one for _, one in measured]), _attacks_table(runs)]
    for run, one in measured:
        # The first page shows the curve of whole epochs.
        parts: list[Block] = [] if one.is_whole else [people_figure(one, guess_of(run))]
        parts += _risks_tables(one)
        if one.has_certificates or one.recovered:
            parts.append(fill("people", "linked", one))
            parts += [] if run.is_redacted else exposed_blocks(run, one)
            parts += [*_groups_table(one), *_groups_figures(one)] if one.groups else []
            parts += [fill("people", "merged", one.merged_below)] if one.merged_below else []
        blocks += [Heading(_title(run, one, runs)), *parts] if parts else []
    whole = any(one.is_whole for _, one in measured)
    title = "Every person" if whole else "The people behind the captured updates"
    return Section("people", title, tuple(blocks))


def people_figure(people: People, guessed: Rate | None = None) -> Figure:
    """Draw the share of people proven over the rounds, next to what guessing gives.

    Args:
        people: what an attack revealed.
        guessed: people whom a guess recovered (`guess_of`); without it guessed records stand in its place.
    """
    n, points = people.n, people.curve
    lines = [("people whose record was used so far", VALIDATION_STYLE, [(one.round, one.seen) for one in points])]
    if people.recovered:
        both = [(one.round, one.proven + one.recovered) for one in points]
        lines.append(("proven, or recovered without proof", RECOVERED, both))
    if people.has_certificates:
        lines.append(("proven at least once", PROVEN, [(one.round, one.proven) for one in points]))
    layers = [Line([(x, some / n) for x, some in values], "link", style.css) for _, style, values in lines]
    bands = [_band(values, n, style) for _, style, values in lines[1:]]
    guess = guessed or (people.singling_out.baseline if people.singling_out else None)
    rules = [Rule(guess.share, "guess faint", along="y")] if guess else []
    unit = "steps of the training" if people.unit == "step" else "rounds of the training"
    x = axis([0, *(point.round for point in points)], ends="exact", whole=True, title=unit)
    plot = Plot(f"Share of {n} people over the {unit}", x, SHARES, [*bands, *layers], rules, grid="y", height=250)
    entries = [(style, words) for words, style, _ in reversed(lines)]
    named = (
        "people recovered by guessing without an update, in every value"
        if guessed
        else "guessed records that fit exactly one person"
    )
    entries += [(BASELINE_STYLE, named)] if guess else []
    return Figure(draw(plot), legend=Legend(entries))


def _band(points: Sequence[tuple[float, int]], n: int, style: Style) -> Line:
    """The 95% intervals along a curve of (round, people exposed) of n people."""
    ends = [(x, _so_far(some, n).ends) for x, some in points]
    edge = [(x, high) for x, (_, high) in ends] + [(x, low) for x, (low, _) in reversed(ends)]
    return Line([(x, end) for x, end in edge if end is not None], "curve-band", style.css, is_area=True)


def _so_far(some: int, n: int) -> Estimate:
    return proportion(min(some, n) / n, n)


def risk_lines(people: People) -> list[RiskLine]:
    """Return the three risks, of inference the worst column; one that was not measured has no number."""
    column, of = (people.inference.column if people.inference else None), 1 + len(people.other_inferences)
    secret = f"a person's {column}" if column else "one private value"
    linked = "two proven records of one person"
    if people.has_certificates and not people.linkage and len(people.means.epochs) == 1:
        linked += f": takes two {'epochs' if people.unit == 'step' else 'rounds'}"
    if people.linkage and not people.linked:
        linked += ": nothing was proven"
    fits = "" if people.has_certificates else "per 100 records, not people: "
    # The attack has to name the right person by all values; a guess is counted by more lenient rules.
    has_guess = people.singling_out is not None and people.singling_out.baseline is not None
    guessed = "; a guess counts if its categories alone fit one person" if has_guess else ""
    named = (
        ("Singling out", f"{fits}a recovered record that fits nobody else{guessed}", people.singling_out),
        ("Linkage", linked, people.linked),
        ("Inference", secret + (f": the largest gain of {of} columns" if of > 1 else ""), people.inference),
    )
    return [RiskLine(name, meaning, *_estimates(risk)) for name, meaning, risk in named]


def compared_groups(people: People) -> list[Group]:
    """The groups that are compared: small ones are left out."""
    return [group for group in people.groups if group.n >= FEWEST]


def worst_group(people: People) -> Group | None:
    """Return the group that chance explains least, and then that with the largest share exposed; None without one."""
    return max(
        compared_groups(people),
        key=lambda group: (stands_out(group, people), group.exposed.share, group.exposed.low),
        default=None,
    )


def stands_out(group: Group, people: People) -> bool:
    """Whether so many of a group are exposed that chance is no explanation, given that it was picked among all groups.

    Fisher's exact test, one-sided, of the group against everybody else, times the number of groups (Bonferroni).
    """
    from scipy.stats import hypergeom

    exposed = people.proven if group.recovered is None else people.proven + people.recovered
    of_group = group.proven + (group.recovered or 0)
    by_chance = float(hypergeom.sf(of_group - 1, people.n, exposed, group.n))
    return by_chance * len(compared_groups(people)) < SIGNIFICANT


def worst_words(people: People) -> str:
    """Return what is said of the most exposed group."""
    group = worst_group(people)
    if group is None:
        why = "the table has no sensitive column of several groups (set sensitive in its schema)"
        if people.groups or (people.merged_below and people.inference):
            why = f"none that this report shows has {FEWEST} people"
        return f"No group of people was compared: {why}."
    of_all = people.proven_rate if group.recovered is None else people.exposed
    n_groups = len(compared_groups(people))
    return fill("people", "worst", group, n_groups, of_all.share, FEWEST, stands_out(group, people))


def _estimates(risk: Risk | None) -> tuple[Estimate | None, ...]:
    return tuple(map(of_rate, risk.rates if risk else (None, None, None)))


def _title(run: Run, people: People, runs: Sequence[Run]) -> str:
    part = "" if people.is_whole else counted(people.means.updates, "update")
    named = joined(run.name if len(runs) > 1 else "", part)
    return attack_title(people.attack) + (f" ({named})" if named else "")


def _attacks_table(runs: Sequence[Run]) -> Table:
    columns: list[Column[tuple[str, People]]] = [
        Column("Attack", lambda line: line[0]),
        Column("People", lambda line: count(line[1].n)),
        Column("Proven", lambda line: _part(line[1], line[1].proven) if line[1].has_certificates else DASH),
        Column("Recovered without proof", lambda line: _part(line[1], line[1].recovered)),
        Column("Not recovered", lambda line: _part(line[1], line[1].not_recovered)),
        Column("Wrong proofs", lambda line: Cell(count(line[1].wrong), (f"of {count(line[1].claims)}",))),
        Column("Processor time", lambda line: duration(line[1].means.cpu_seconds)),
        Column("Memory", lambda line: memory_words(line[1].means.peak_memory), optional=True),
    ]
    lines = [(_title(run, one, runs), one) for run in runs for one in run.people]
    return table_of("Every person, by attack", columns, [("", lines)], css="risk stack")


def _part(people: People, n: int) -> Cell:
    return Cell(count(n), (f"{of_hundred(n / people.n)} of 100",))


def _risks_tables(people: People) -> tuple[Block, ...]:
    """Draw the three risks; inference of all columns but the worst is folded."""
    others = [RiskLine("Inference", f"a person's {one.column}", *_estimates(one)) for one in people.other_inferences]
    first = _risks_table("The three risks, with sample sizes", risk_lines(people))
    said = f"Inference of {counted(len(others), 'other sensitive column')}"
    return first, *(folded(said, _risks_table(said, others)) if others else ())


def _risks_table(title: str, lines: list[RiskLine]) -> Table:
    columns: list[Column[RiskLine]] = [
        Column("Risk, of 100", lambda line: Cell(line.name, (line.meaning,))),
        Column("By attack", lambda line: _measured(line.attack)),
        Column("Control: not in the training", lambda line: _measured(line.control)),
        Column("Baseline: no update", lambda line: _measured(line.baseline)),
        Column(
            "Attack over baseline, points", lambda line: interval_cell(difference(line.attack, line.baseline), points)
        ),
    ]
    return table_of(title, columns, [("", lines)], css="risk stack")


def _measured(value: Estimate | None) -> Cell:
    """A share with its interval and the number of trials."""
    if value is None:
        return Cell("not measured")
    cell = interval_cell(value, of_hundred)
    return Cell(cell.text, (*cell.small, f"n = {count(value.n)}"))


def _groups_figures(people: People) -> tuple[Block, ...]:
    """Draw how the share exposed grows in each group of at least `FEWEST` people, the largest of each column."""
    drawn = []
    for name, same in by_key(people.groups, lambda group: group.column).items():
        groups = [group for group in same if group.n >= FEWEST and group.curve]
        if groups and people.proven + people.recovered:
            drawn.append(_group_figure(name, groups[:MOST_GROUPS], people.unit))
    return figures(drawn)


def _group_figure(name: str, groups: Sequence[Group], unit: str) -> Figure:
    end = max(group.curve[-1].round for group in groups)
    x = axis([0, end], ends="exact", whole=True, title=f"{unit}s of the training")
    series = []
    for index, group in enumerate(groups):
        points = [group.curve[i] for i in sorted({round(at * (len(group.curve) - 1)) for at in _AT})]
        known = tuple((point.round, _so_far(point.proven + point.recovered, group.n)) for point in points)
        series.append(Series(f"{group.category} ({count(group.n)})", known, series_style(index)))
    said = f"Share of each group of {name} that is proven or recovered so far, with 95% intervals"
    return line_figure(said, series, x, name)


def _groups_table(people: People) -> tuple[Block, ...]:
    columns: list[Column[Group]] = [
        Column("Group", lambda group: group.category),
        Column("People", lambda group: count(group.n)),
        Column("Proven, of 100", _proven),
    ]
    if any(group.recovered for group in people.groups):
        columns.append(Column("Proven or recovered, of 100", _exposed))
    groups = by_key(people.groups, lambda group: group.column).items()
    n, table = len(people.groups), table_of("People exposed, by group", columns, groups, css="risk stack")
    return folded(f"All {n} groups", table, when=n > MOST_LISTED)


def _proven(group: Group) -> Cell:
    return interval_cell(Estimate(group.proven / group.n, group.n, group.low, group.high), of_hundred)


def _exposed(group: Group) -> Cell:
    return interval_cell(of_rate(group.exposed), of_hundred)
