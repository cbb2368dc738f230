"""The tables: every trial in its place, and no trial twice."""

from pathlib import Path

import pytest

from lightleak.report.blocks import Table
from lightleak.report.kinds.study_tables import (
    MOST_BEST,
    MOST_LISTED,
    best_trials,
    errors,
    outcomes,
    parameter_cell,
    space_table,
)
from lightleak.report.kinds.study_trials import Search, read_search
from lightleak.report.read import load_run


def search_of(folder: Path) -> Search:
    return read_search(load_run(folder))


def cells(table: Table) -> list[list[str]]:
    return [[cell.text for cell in line.cells] for line in table.groups[0].lines]


def listed(page, states: tuple[str, ...] = ("complete", "pruned", "failed", "running")) -> dict[int, list[str]]:
    """Lines of the list of all attempts, by trial."""
    return {int(row[0]): row for row in page.rows if len(row) == 6 and row[1] in states}


def test_the_best_come_first_and_the_defaults_are_always_there(page_of, make_study) -> None:
    def bad_default(rows) -> None:
        rows[0]["values"] = {"cell_accuracy": 0.1}

    folder = make_study(change=bad_default)
    run = search_of(folder)
    trials = best_trials(run)
    assert trials[:-1] == list(run.ranked[:MOST_BEST]) and trials[-1].trial == 0
    assert len({one.trial for one in trials}) == len(trials) == MOST_BEST + 1
    first, last = (
        next(row for row in page_of(folder).rows if row[:1] == [name])
        for name in (f"{trials[0].trial} best", "0 defaults")
    )
    assert (len(first), last[1]) == (9, "10.0%")


def test_a_default_that_is_not_complete_is_shown_as_what_it_is(page_of, make_study) -> None:
    page = page_of(make_study(change=lambda rows: rows[0].update(state="failed", values=None)))
    assert [row[1] for row in page.rows if row[:1] == ["0 defaults, failed"]] == ["–"]


def test_of_several_objectives_the_front_is_listed(page_of, make_study) -> None:
    folder = make_study(several=True)
    run = search_of(folder)
    assert {one.trial for one in best_trials(run)} >= {one.trial for one in run.front[:MOST_BEST]}
    (knee,) = [row for row in page_of(folder).rows if row and row[0].startswith(f"{run.chosen.trial} knee")]
    assert knee[1:3] == [f"{100 * run.chosen.values[name]:.1f}%" for name in ("accuracy", "leakage")]


def test_exactly_what_differs_from_the_default_is_emphasised(make_study) -> None:
    run = search_of(make_study())
    for trial in best_trials(run):
        for parameter in run.study.parameters:
            cell, value = parameter_cell(parameter, trial), trial.parameters.get(parameter.key)
            is_changed = parameter.key in trial.parameters and value != parameter.default
            assert cell.css == ("changed" if is_changed else "unchanged")
            sign = "▲" if is_changed and parameter.kind != "choice" and value > parameter.default else "▼"
            assert (cell.text[-1] in "▲▼") == (is_changed and parameter.kind != "choice")
            assert cell.text[-1] not in "▲▼" or cell.text[-1] == sign
            assert (cell.text == "–") == (parameter.key not in trial.parameters)


def test_outcomes_add_up_to_the_trials_that_were_asked_for(make_study) -> None:
    run = search_of(make_study())
    rows = cells(outcomes(run))
    assert [int(number) for _, number, _ in rows] == [30, 9, 1, 0, 40]
    assert len(run.chains) == run.study.asked == 40 and "41 attempts" in rows[-1][2]
    assert len(run.trials) == 41 and run.repeats == [(12, 40)]
    # the attempt that was run again is not among those that failed for good
    assert rows[2][2] == "trial 22"


def test_every_attempt_is_listed_with_what_it_repeats(page_of, make_study) -> None:
    rows = listed(page_of(make_study()))
    assert len(rows) == 41
    assert rows[12][-1] == "run again as trial 40" and rows[40][-1] == "runs trial 12 again"
    assert rows[0][-1] == "the defaults" and rows[0][2] == "80.0%"
    assert rows[7][-1].endswith("when stopped at step 1") and rows[7][2] == "–"
    many = page_of(make_study(trials=MOST_LISTED + 20))
    assert len(listed(many)) == MOST_LISTED and f"The first {MOST_LISTED} of {MOST_LISTED + 21}" in many.text


def test_equal_errors_are_told_once_with_their_trials(make_study) -> None:
    def fail(rows) -> None:
        for row in rows[2:5]:
            row |= {"state": "failed", "values": None, "error": "x" * 1000}

    run = search_of(make_study(change=fail))
    found = dict(errors(run.trials))
    assert set(found) == {"trials 2, 3, 4", "trial 12", "trial 22"}
    assert len(found["trials 2, 3, 4"]) == 300 and found["trial 12"].startswith("it left no message")


def test_workers_share_all_attempts(page_of, make_study) -> None:
    rows = [row for row in page_of(make_study()).rows if len(row) == 3 and row[0].startswith("node1")]
    assert [row[0] for row in rows] == ["node1 4711", "node1 4712"]
    assert sum(int(row[1]) for row in rows) == 41


@pytest.mark.parametrize("several", [False, True])
def test_the_space_names_ranges_defaults_and_conditions(make_study, several: bool) -> None:
    run = search_of(make_study(several=several))
    found = cells(space_table(run))
    rows = {one.key.rpartition(".")[2]: row[1:] for one, row in zip(run.study.parameters, found, strict=True)}
    assert rows["learning_rate"][:2] == ["0.005 to 0.3, logarithmic", "0.06"]
    assert rows["restarts"][0] == "5 to 60, whole numbers"
    assert rows["schedule"][0] == "constant, cosine, warmup_then_cosine"
    assert rows["lambda_inv"][3] == "attacks.tableak.sign is true" and rows["sign"][3] == "always"
    assert rows["schedule"][2] == run.chosen.parameters["attacks.tableak.schedule"]
    assert "<code>attacks.tableak.sign</code>" in found[3][0]
