"""The tables: every trial in its place, and no trial twice."""

import pytest

from lightleak.report.tuning.run_folder import load_tuning_run
from lightleak.report.tuning.study import account
from lightleak.report.tuning.tables import (
    MOST_BEST,
    MOST_LISTED,
    attempt_rows,
    best_rows,
    errors,
    outcome_rows,
    space_rows,
    worker_rows,
)


def test_the_best_come_first_and_the_defaults_are_always_there(make_study) -> None:
    def bad_default(rows) -> None:
        rows[0]["values"] = {"cell_accuracy": 0.1}

    run = load_tuning_run(make_study(change=bad_default))
    rows = best_rows(run)
    assert [row.trial for row in rows[:-1]] == list(run.ranked[:MOST_BEST])
    assert rows[0].role == "best" and (rows[-1].trial.number, rows[-1].role) == (0, "defaults")
    assert len({row.trial.number for row in rows}) == len(rows) == MOST_BEST + 1


def test_a_default_that_is_not_complete_is_shown_as_what_it_is(make_study) -> None:
    run = load_tuning_run(make_study(change=lambda rows: rows[0].update(state="failed", values=None)))
    last = best_rows(run)[-1]
    assert (last.role, last.values) == ("defaults, failed", ("–",))


def test_of_several_objectives_the_front_is_listed(make_study) -> None:
    run = load_tuning_run(make_study(several=True))
    rows = best_rows(run)
    assert {row.trial.number for row in rows} >= {one.number for one in run.front[:MOST_BEST]}
    assert [row.role for row in rows if row.trial is run.chosen] == ["knee"]
    assert all(len(row.values) == 2 for row in rows)


def test_exactly_what_differs_from_the_default_is_emphasised(make_study) -> None:
    run = load_tuning_run(make_study())
    for row in best_rows(run):
        for parameter, cell in zip(run.study.parameters, row.cells, strict=True):
            value = row.trial.parameters.get(parameter.key)
            assert cell.is_changed == (parameter.key in row.trial.parameters and value != parameter.default)
            if parameter.kind != "choice" and cell.is_changed:
                assert cell.sign == ("▲" if value > parameter.default else "▼")
            else:
                assert cell.sign == ""
            assert (cell.text == "–") == (parameter.key not in row.trial.parameters)


def test_outcomes_add_up_to_the_trials_that_were_asked_for(make_study) -> None:
    run = load_tuning_run(make_study())
    done = account(run.trials, run.study.asked)
    rows = outcome_rows(done)
    assert [number for _, number, _ in rows] == [30, 9, 1, 0]
    assert sum(number for _, number, _ in rows) == done.trials == done.asked == 40
    assert done.attempts == 41 and done.repeats == ((12, 40),)
    # the attempt that was run again is not among those that failed for good
    assert rows[2][2] == "trial 22"


def test_every_attempt_is_listed_with_what_it_repeats(make_study) -> None:
    run = load_tuning_run(make_study())
    rows = {row.number: row for row in attempt_rows(run, account(run.trials))}
    assert len(rows) == 41
    assert rows[12].note == "run again as trial 40" and rows[40].note == "runs trial 12 again"
    assert rows[0].note == "the defaults" and rows[0].values == ("80.0%",)
    assert rows[7].note.endswith("when stopped at step 1") and rows[7].values == ("–",)
    many = load_tuning_run(make_study(trials=MOST_LISTED + 20))
    assert len(attempt_rows(many, account(many.trials))) == MOST_LISTED


def test_equal_errors_are_told_once_with_their_trials(make_study) -> None:
    def fail(rows) -> None:
        for row in rows[2:5]:
            row |= {"state": "failed", "values": None, "error": "x" * 1000}

    run = load_tuning_run(make_study(change=fail))
    found = dict(errors(run))
    assert set(found) == {"trials 2, 3, 4", "trial 12", "trial 22"}
    assert len(found["trials 2, 3, 4"]) == 300 and found["trial 12"].startswith("it left no message")


def test_workers_share_all_attempts(make_study) -> None:
    run = load_tuning_run(make_study())
    rows = worker_rows(run.trials)
    assert [name for name, _, _ in rows] == ["node1 4711", "node1 4712"]
    assert sum(number for _, number, _ in rows) == 41


@pytest.mark.parametrize("several", [False, True])
def test_the_space_names_ranges_defaults_and_conditions(make_study, several: bool) -> None:
    run = load_tuning_run(make_study(several=several))
    rows = {row.key.removeprefix("attacks.tableak."): row for row in space_rows(run)}
    assert rows["learning_rate"].values == "0.005 to 0.3, logarithmic" and rows["learning_rate"].default == "0.06"
    assert rows["restarts"].values == "5 to 60, whole numbers"
    assert rows["schedule"].values == "constant, cosine, warmup_then_cosine"
    assert rows["lambda_inv"].when == "attacks.tableak.sign is true" and rows["sign"].when == "always"
    assert rows["schedule"].best == run.chosen.parameters["attacks.tableak.schedule"]
