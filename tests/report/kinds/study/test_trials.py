"""Which trials count: against slow, obvious counting."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import UsageError
from lightleak.core.results import TrialRow
from lightleak.report.kinds.study_trials import (
    Objective,
    Search,
    last_value,
    read_search,
    running_best,
)
from lightleak.report.read import load_run


def search_of(folder: Path) -> Search:
    return read_search(load_run(folder))


STATES = st.sampled_from(["complete", "pruned", "failed", "running"])


@st.composite
def attempts(draw) -> list[TrialRow]:
    """Attempts of which each may run an earlier one, or one that is not in the file, again."""
    states = draw(st.lists(STATES, max_size=12))
    return [
        TrialRow(trial=number, state=state, retry_of=draw(st.none() | st.integers(0, number - 1)) if number else None)
        for number, state in enumerate(states)
        if not draw(st.booleans()) or number % 4
    ]


@given(attempts(), st.randoms())
@settings(max_examples=50)
def test_every_attempt_is_counted_once_and_every_chain_as_its_last(trials: list[TrialRow], random) -> None:
    shuffled = list(trials)
    random.shuffle(shuffled)
    found = Search(None, None, tuple(shuffled))
    # Slowly: merge the sets of whatever is linked.
    groups = [{one.trial} for one in trials]
    known = {one.trial for one in trials}
    for one in trials:
        if one.retry_of in known:
            mine = next(group for group in groups if one.trial in group)
            other = next(group for group in groups if one.retry_of in group)
            if mine is not other:
                groups.remove(other)
                mine |= other
    state = {one.trial: one.state for one in trials}
    assert sorted((max(group), state[max(group)]) for group in groups) == sorted(
        (chain[-1].trial, chain[-1].state) for chain in found.chains
    )
    assert len(found.chains) + len(found.repeats) == len(trials)
    assert all(first < second for first, second in found.repeats)
    followed = [second for _, second in found.repeats]
    assert len(set(followed)) == len(followed)


def test_a_chain_counts_once_whether_it_names_its_first_or_the_one_before() -> None:
    for second in (0, 1):
        chain = [
            TrialRow(trial=0, state="failed"),
            TrialRow(trial=1, state="failed", retry_of=0),
            TrialRow(trial=2, state="complete", retry_of=second),
        ]
        found = Search(None, None, tuple(chain))
        assert found.chains == [chain] and found.repeats == [(0, 1), (1, 2)]


@given(st.lists(st.tuples(STATES, st.floats(-5, 5)), max_size=12), st.booleans())
def test_the_running_best_is_the_best_of_all_before(ended, maximize: bool) -> None:
    trials = [
        TrialRow(
            trial=number,
            state=state,
            values={"a": value} if state == "complete" else {},
            intermediate=((1, 100 * value),),
        )
        for number, (state, value) in enumerate(ended)
    ]
    found = running_best(trials[::-1], Objective("a", "maximize" if maximize else "minimize"))
    best = max if maximize else min
    for number in range(len(trials)):
        before = [one.values["a"] for one in trials[: number + 1] if one.state == "complete"]
        reached = [one.values["a"] for one in found if one.trial <= number]
        assert (reached[-1] if reached else None) == (best(before) if before else None)


def test_a_pruned_trial_ends_at_its_last_reported_value_and_is_never_ranked(make_study) -> None:
    run = search_of(make_study())
    objective = run.study.objectives[0]
    pruned = next(one for one in run.trials if one.state == "pruned")
    assert last_value(pruned, objective) == pruned.intermediate[-1][1]
    assert {one.state for one in run.ranked} == {"complete"}
    values = [one.values["cell_accuracy"] for one in run.ranked]
    assert values == sorted(values, reverse=True) and run.chosen is run.ranked[0]
    assert run.default is not None and run.default.trial == 0


def test_the_trial_that_the_file_names_best_is_first_and_else_the_best_value(make_study) -> None:
    def another(rows) -> None:
        for row in rows:
            row["is_best"] = row["trial"] == 3

    assert search_of(make_study(change=another)).chosen.trial == 3
    unnamed = search_of(make_study(change=lambda rows: [row.update(is_best=False) for row in rows]))
    assert unnamed.chosen.values["cell_accuracy"] == max(one.values["cell_accuracy"] for one in unnamed.measured)


def test_the_least_comes_first_where_less_is_better(make_study) -> None:
    objective = {"name": "cell_accuracy", "direction": "minimize"}
    unnamed = make_study(study={"objectives": [objective]}, change=lambda rows: [r.update(is_best=False) for r in rows])
    values = [one.values["cell_accuracy"] for one in search_of(unnamed).ranked]
    assert values == sorted(values)


def test_several_objectives_propose_the_knee(make_study) -> None:
    run = search_of(make_study(several=True))
    assert run.chosen is not None and run.chosen.is_knee and run.chosen in run.front
    flat = search_of(make_study(several=True, change=lambda rows: [row.update(is_knee=False) for row in rows]))
    assert flat.chosen is None


def test_what_a_study_lacks_is_unknown(make_study) -> None:
    def bare(rows) -> None:
        rows[:] = [{"kind": "tuning", "trial": 3, "state": "running"}]
        rows.append({"kind": "tuning", "trial": 4, "state": "complete", "values": {"cell_accuracy": float("nan")}})

    folder = make_study(change=bare)
    raw = json.loads((folder / "results.json").read_text())
    raw["study"] = {"objectives": [{"name": "cell_accuracy", "direction": "maximize"}]}
    (folder / "results.json").write_text(json.dumps(raw))
    found = search_of(folder)
    assert (found.study.parameters, found.study.held_out, found.study.asked) == ((), None, None)
    assert found.study.first.words == "cell accuracy"
    assert found.measured == () and found.trials[0].values == found.trials[1].values == {}
    assert not any(one.is_default or one.is_best or one.on_front or one.is_knee for one in found.trials)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("trial", "3", "a whole number"),
        ("trial", None, "a whole number"),
        ("trial", -1, "at least 0"),
        ("trial", True, "a whole number"),
        ("state", "done", "one of complete, pruned, failed, running"),
        ("seconds", "12", "a number"),
        ("seconds", True, "a number"),
        ("values", [0.5], "a mapping"),
        ("parameters", "x", "a mapping"),
        ("intermediate", {"1": 0.5}, "a list"),
        ("intermediate", [0.5], "entry 0: expected a list of 2"),
        ("intermediate", [[1, 2, 3]], "entry 0: expected a list of 2"),
        ("intermediate", [[1, "a"]], "a number"),
        ("is_default", "no", "true or false"),
        ("is_best", 1, "true or false"),
        ("retry_of", "2", "a whole number"),
        ("retry_of", 9, "the number of an earlier trial"),
        ("retry_of", 5, "the number of an earlier trial"),
        ("error", {}, "text"),
    ],
)
def test_a_wrong_type_in_a_row_names_file_row_and_key(make_study, field: str, value: Any, expected: str) -> None:
    folder = make_study(trials=8, change=lambda rows: rows[5].update({field: value}))
    with pytest.raises(UsageError, match=f"{re.escape(str(folder))}.*row 5, key '{field}'.*{expected}"):
        search_of(folder)


OBJECTIVE = {"name": "loss", "direction": "minimize"}
HELD_OUT = {"metric": "loss", **{name: {"mean": 0.5} for name in ("default", "best", "difference")}}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("objectives", [], "key 'objectives': expected at least one"),
        ("objectives", [{"name": "a"}], "entry 0, key 'direction'"),
        ("objectives", [{"name": "a", "direction": "up"}], "expected one of maximize, minimize"),
        ("objectives", [OBJECTIVE, 3], "key 'objectives', entry 1: expected a mapping"),
        ("objectives", [{"direction": "minimize"}], "entry 0, key 'name': expected text"),
        ("parameters", [{"key": "a", "kind": "real"}], "entry 0, key 'kind': expected one of float, int, choice"),
        ("parameters", [{"kind": "int"}], "entry 0, key 'key': expected text"),
        ("parameters", [{"key": "a", "kind": "int", "low": "1"}], "entry 0, key 'low': expected a number"),
        ("parameters", [{"key": "a", "kind": "int", "default": "x"}], "default of 'a': expected a number"),
        ("parameters", [{"key": "a", "kind": "choice", "of": "ab"}], "entry 0, key 'of': expected a list"),
        ("importance", {"loss": 0.5}, "key 'importance', key 'loss': expected a mapping"),
        ("importance", {"loss": {"a": "b"}}, "key 'loss', key 'a': expected a number"),
        ("asked", 4.5, "key 'asked': expected a whole number"),
        ("budget", {}, "key 'budget': expected text"),
        ("held_out", "none", "key 'held_out': expected a mapping"),
        ("held_out", HELD_OUT | {"metric": "accuracy"}, "key 'metric': expected one of loss"),
        ("held_out", HELD_OUT | {"best": {"mean": None}}, "key 'best', key 'mean': expected a number"),
        ("held_out", HELD_OUT | {"difference": None}, "key 'difference'"),
    ],
)
def test_a_wrong_type_in_the_study_names_the_key(make_study, field: str, value: Any, expected: str) -> None:
    study = {"objectives": [OBJECTIVE], "parameters": [], "importance": {}, "held_out": None, field: value}
    with pytest.raises(UsageError, match=re.escape(expected)):
        search_of(make_study(trials=0, study=study))


def test_a_number_that_is_none_is_named_by_the_key_of_its_parameter(make_study) -> None:
    key = "attacks.tableak.restarts"
    folder = make_study(trials=3, change=lambda rows: rows[1]["parameters"].update({key: "many"}))
    with pytest.raises(UsageError, match=f"row 1, key 'parameters', key '{key}': expected a number, got 'many'"):
        search_of(folder)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[]", "expected a mapping"),
        ("{", "expected JSON"),
        ('{"schema_version": 2, "rows": [], "study": {}}', "schema_version must be 1, got 2"),
        ('{"schema_version": 1, "rows": []}', "key 'study': expected a mapping"),
        (json.dumps({"schema_version": 1, "rows": 3, "study": {"objectives": [OBJECTIVE]}}), "a list 'rows'"),
    ],
)
def test_a_file_that_is_no_study_is_refused_by_name(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(UsageError, match=f"results.json.*{re.escape(expected)}"):
        search_of(tmp_path)


def test_two_rows_of_one_trial_are_refused(make_study) -> None:
    folder = make_study(trials=4, change=lambda rows: rows.append(dict(rows[2])))
    with pytest.raises(UsageError, match="each trial must have one row, got several of trial 2"):
        search_of(folder)


def test_a_folder_is_read_whole_and_in_order(make_study) -> None:
    found = search_of(make_study(change=lambda rows: rows.reverse()))
    assert [trial.trial for trial in found.trials] == list(range(41))
    assert found.run.title == "Tuning TabLeak on Adult" and found.run.environment["device"] == "cpu"
    assert found.study.parameters[4].when == "attacks.tableak.sign is true"
    assert found.study.held_out is not None and found.study.held_out.n == 20
