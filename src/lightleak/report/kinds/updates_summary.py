"""The first page of attacks on updates, and the records at risk in every situation that was measured."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from lightleak.core.people import People
from lightleak.core.results import NONE, FrontierRow, UpdateRow
from lightleak.core.threat_model import Aim
from lightleak.report.blocks import Cell, Column, Figure, Section
from lightleak.report.budget import BASELINES, PROOFS, budget
from lightleak.report.charts import EstimateRow, bar_figure, most_gained, series_style
from lightleak.report.format import listed, points, with_interval
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.frontier_advice import OPTIMIZES, SAMPLE, recommend
from lightleak.report.kinds.frontier_groups import compare as frontiers_of
from lightleak.report.kinds.frontier_groups import fullest
from lightleak.report.kinds.updates_groups import Exposure, UpdateGroup
from lightleak.report.kinds.updates_runs import Measured
from lightleak.report.kinds.updates_words import words
from lightleak.report.page import fill, table_of
from lightleak.report.read import Run
from lightleak.report.sections.exposed import always_exposed
from lightleak.report.sections.means import roles
from lightleak.report.sections.people import guess_of, people_figure, risk_lines, strongest, worst_words
from lightleak.report.sections.subject_and_run import left_out
from lightleak.report.sections.summary import MOST_RUNS, RiskLine, first_page, of_hundred_cell, risks_table
from lightleak.report.sections.tested import NOT_TESTED, Findings

MOST_BARS = 6
"""Bars of the picture; with more, each run has one, for its worst situation."""


def summary_section(runs: Sequence[Run], found: Sequence[Measured], best: UpdateGroup | None, helped: str) -> Section:
    """Summarize in plain language who is at risk, which defense helps, and what it costs.

    Args:
        runs: the runs of the report.
        found: those that were measured, the reference first.
        best: the strongest attack, whose columns are named.
        helped: what frontiers say of defenses, see `from_frontiers`.
    """
    rows = _rows(found)
    unknown = list(left_out(runs))
    if not found:
        return first_page((words("nothing", unknown),), [("What would help", helped)], rows)
    reference, people = found[0], strongest(found[0].run)
    shown = _shown(found)
    judged = found[1:] if found[1:] and reference.is_undefended else found
    caution = next((said for one in judged if (said := _caution(one))), "")
    compared = bool(caution), _best(found), _people_of(found), {one.run.name: _further(one.run) for one in found}
    facts = [
        ("Most exposed", worst_words(people) if people else words("worst", reference.worst, _columns(best))),
        ("What would help", helped + (words("help", found, shown, *compared) if shown or not helped else "")),
        ("Limits", words("limits", caution, unknown)),
    ]
    if people:
        who = roles(rows) or "whoever reads the updates"
        defense = "" if reference.is_undefended else reference.title
        first = (fill("people", "lead", people, who, defense), people_figure(people, guess_of(found[0].run)))
        risks = risks_table(risk_lines(people), "people" if people.has_certificates else "people or records")
    else:
        first = (words("lead", reference), _picture([reference, *shown]))
        risks = risks_table(_risks(reference.worst), "records")
    return first_page((*first, risks), facts, rows)


def from_frontiers(runs: Sequence[Run], trainings: Sequence[Run]) -> str:
    """What frontiers recommend, given people of trainings, and what it costs; empty without any."""
    found = ((run, fullest(frontiers_of(run.of(FrontierRow), trainings))) for run in runs)
    return Markup("").join(words("frontier", run, one, recommend(one)) for run, one in found if one is not None)


def risk_section(found: Sequence[Measured]) -> Section | None:
    """Draw records at risk in every situation of every run; None where nothing was measured."""
    if not found:
        return None
    table = table_of("Records at risk", _RISKS, [(words("run", one), one.exposed) for one in found], css="risk stack")
    return Section("risk", "Records at risk", (table, words("at_risk", found)))


def findings(found: Sequence[Measured], groups: Iterable[UpdateGroup]) -> tuple[Findings, dict[str, str]]:
    """Return what attacks found, by what they tested, and answers to questions of the checklist."""
    if not found:
        return {}, {}
    worst, people = found[0].worst, strongest(found[0].run)
    results: dict[Aim, str] = {"reconstruction": words("reconstruction", worst, people, guess_of(found[0].run))}
    if worst.values or (people and people.inference):
        results["attribute_inference"] = words("attribute_inference", worst, people)
    risks = risk_lines(people) if people else _risks(worst)
    names = ("singling_out", "linkage", "inference")
    known: dict[str, str] = {
        name: words("risk", risk) if risk.attack else NOT_TESTED for name, risk in zip(names, risks, strict=True)
    }
    group = worst_words(people) if people else ""
    always = always_exposed(found[0].run, people) if people else None
    known |= {
        "direct": results["reconstruction"],
        "persons": words("persons", results["reconstruction"], group, always) if people else "",
        "groups": group if people and people.groups else "",
        "baseline": words("against", risks, "baseline", "by guessing") if any(one.baseline for one in risks) else "",
        "control": words("against", risks, "control", "of people who took no part") if people else "",
        "attempts": words("attempts", worst, people),
        "behind": Markup("; ").join(dict.fromkeys(words("behind", one.first) for one in groups)),
        "utility": "; ".join(f"{one.title}: {with_interval(one.cost, points)} points" for one in found if one.cost)
        or f"{NOT_TESTED}: no two runs here, with and without a defense, that both trained a model",
    }
    return results, known


def _further(run: Run) -> str:
    """Flags with which a run goes beyond `PROOFS` alone, from which nothing follows under noise."""
    attacks = {row.attack for row in run.rows} - {NONE, *BASELINES}
    if not attacks or not attacks <= set(PROOFS):
        return ""
    sample = f" --capture.sample.{OPTIMIZES} {SAMPLE}" if any(one.is_whole for one in run.people) else ""
    return f" --attacks.{OPTIMIZES} '{{}}'{sample}"


def _shown(found: Sequence[Measured]) -> list[Measured]:
    """Return the compared runs that leave least at risk, in their order."""
    least = sorted(found[1:], key=lambda one: one.worst.order)[:MOST_RUNS]
    return [one for one in found[1:] if one in least]


def _best(found: Sequence[Measured]) -> tuple[Measured | None, int]:
    """Return the run that helps most where the reference leaves most at risk, and how many help."""
    place = found[0].worst.place
    known = [(one, here) for one in found[1:] if (here := one.at(place)) and here.effect and here.effect.helps]
    best = min(known, key=lambda pair: pair[1].order, default=None)
    return best and best[0], len(known)


def _rows(found: Sequence[Measured]) -> list[UpdateRow]:
    """Rows of attacks."""
    return [row for one in found for exposure in one.exposed for row in exposure.rows]


def _caution(one: Measured) -> str:
    """Why nothing follows from what the attacks of a run did not recover; they stand for no other run's."""
    return budget(_rows([one])).caution


def _people_of(found: Sequence[Measured]) -> dict[str, tuple[People, People]]:
    """What was revealed of every person in the reference and in each other run, by name of the other.

    Of the attacks that both tried, each run's strongest counts, else of all.
    """
    known = {}
    for one in found[1:]:
        before, after = strongest(one.reference, one.run), strongest(one.run, one.reference)
        if not (before and after):
            before, after = strongest(one.reference), strongest(one.run)
        if before and after:
            known[one.run.name] = before, after
    return known


def _columns(best: UpdateGroup | None) -> str:
    if best is None or not best.baseline:
        return ""
    return listed(most_gained(best.means("column_accuracy"), best.baseline.means("column_accuracy")))


def _risks(worst: Exposure) -> list[RiskLine]:
    """Return the three risks as far as single messages show them."""
    return [
        RiskLine("Singling out", "a whole record", worst.risk, None, worst.guessed_rows),
        RiskLine("Linkage", "two records of one person"),
        RiskLine("Inference", "a single value", worst.values, None, worst.guess),
    ]


def _picture(shown: Sequence[Measured]) -> Figure:
    too_many = sum(len(one.exposed) for one in shown) > MOST_BARS
    titles = [one.title if len(shown) > 1 else "" for one in shown]
    bars = [
        EstimateRow(words("place", here), here.risk, series_style(index), heading="" if position else titles[index])
        for index, one in enumerate(shown)
        for position, here in enumerate([one.worst] if too_many else one.exposed)
    ]
    guessed = shown[0].worst.guessed_rows
    guess = Estimate(guessed.mean) if guessed else None  # its interval is in the table
    name = "Share of records at risk, in each situation"
    return bar_figure(name, bars, guess, name)


_RISKS: tuple[Column[Exposure], ...] = (
    Column(
        "Records in a message, and when it was sent",
        lambda one: Cell(f"{one.about}{one.batch_size or 'unknown'}", (words("situation", one),)),
    ),
    Column("Records at risk, of 100", lambda x: of_hundred_cell(x.risk, x.effect.rows if x.effect else None)),
    Column("Proven, of 100", lambda one: of_hundred_cell(one.proven)),
    Column("Values recovered, of 100", lambda x: of_hundred_cell(x.values, x.effect.values if x.effect else None)),
    Column("By guessing, of 100", lambda one: of_hundred_cell(one.guess)),
)
