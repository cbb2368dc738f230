"""Which trials count: against slow, obvious counting."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.report.tuning.result import Objective, Trial
from lightleak.report.tuning.run_folder import load_tuning_run
from lightleak.report.tuning.study import account, last_value, running_best

STATES = st.sampled_from(["complete", "pruned", "failed", "running"])


@st.composite
def attempts(draw) -> list[Trial]:
    """Attempts of which each may run an earlier one, or one that is not in the file, again."""
    states = draw(st.lists(STATES, max_size=12))
    return [
        Trial(number, state, retry_of=draw(st.none() | st.integers(0, number - 1)) if number else None)
        for number, state in enumerate(states)
        if not draw(st.booleans()) or number % 4
    ]


@given(attempts(), st.randoms())
@settings(max_examples=50)
def test_every_attempt_is_counted_once_and_every_chain_as_its_last(trials: list[Trial], random) -> None:
    shuffled = list(trials)
    random.shuffle(shuffled)
    found = account(shuffled)
    # Slowly: merge the sets of whatever is linked.
    groups = [{one.number} for one in trials]
    known = {one.number for one in trials}
    for one in trials:
        if one.retry_of in known:
            mine = next(group for group in groups if one.number in group)
            other = next(group for group in groups if one.retry_of in group)
            if mine is not other:
                groups.remove(other)
                mine |= other
    state = {one.number: one.state for one in trials}
    assert sorted((max(group), state[max(group)]) for group in groups) == sorted(
        (one.number, name) for name, counted in found.counted.items() for one in counted
    )
    assert found.trials + len(found.repeats) == found.attempts == len(trials)
    assert all(first < second for first, second in found.repeats)
    followed = [second for _, second in found.repeats]
    assert len(set(followed)) == len(followed)


def test_a_chain_counts_once_whether_it_names_its_first_or_the_one_before() -> None:
    for second in (0, 1):
        chain = [Trial(0, "failed"), Trial(1, "failed", retry_of=0), Trial(2, "complete", retry_of=second)]
        found = account(chain, asked=1)
        assert (found.trials, found.repeats) == (1, ((0, 1), (1, 2)))
        assert [one.number for one in found.counted["complete"]] == [2] and not found.counted["failed"]


@given(st.lists(st.tuples(STATES, st.floats(-5, 5)), max_size=12), st.booleans())
def test_the_running_best_is_the_best_of_all_before(ended, maximise: bool) -> None:
    trials = [
        Trial(number, state, values={"a": value} if state == "complete" else {}, intermediate=((1, 100 * value),))
        for number, (state, value) in enumerate(ended)
    ]
    found = running_best(trials[::-1], Objective("a", maximise, "a"))
    best = max if maximise else min
    for number in range(len(trials)):
        before = [one.values["a"] for one in trials[: number + 1] if one.state == "complete"]
        reached = [one.values["a"] for one in found if one.number <= number]
        assert (reached[-1] if reached else None) == (best(before) if before else None)


def test_a_pruned_trial_ends_at_its_last_reported_value_and_is_never_ranked(make_study) -> None:
    run = load_tuning_run(make_study())
    objective = run.study.objectives[0]
    pruned = next(one for one in run.trials if one.state == "pruned")
    assert last_value(pruned, objective) == pruned.intermediate[-1][1]
    assert {one.state for one in run.ranked} == {"complete"}
    values = [one.values["cell_accuracy"] for one in run.ranked]
    assert values == sorted(values, reverse=True) and run.chosen is run.ranked[0]
    assert run.default is not None and run.default.number == 0


def test_the_trial_that_the_file_names_best_is_first_and_else_the_best_value(make_study) -> None:
    def another(rows) -> None:
        for row in rows:
            row["is_best"] = row["trial"] == 3

    assert load_tuning_run(make_study(change=another)).chosen.number == 3
    unnamed = load_tuning_run(make_study(change=lambda rows: [row.update(is_best=False) for row in rows]))
    assert unnamed.chosen.values["cell_accuracy"] == max(one.values["cell_accuracy"] for one in unnamed.measured)


def test_the_least_comes_first_where_less_is_better(make_study) -> None:
    objective = {"name": "cell_accuracy", "direction": "minimize"}
    unnamed = make_study(study={"objectives": [objective]}, change=lambda rows: [r.update(is_best=False) for r in rows])
    values = [one.values["cell_accuracy"] for one in load_tuning_run(unnamed).ranked]
    assert values == sorted(values)


def test_several_objectives_propose_the_knee(make_study) -> None:
    run = load_tuning_run(make_study(several=True))
    assert run.chosen is not None and run.chosen.is_knee and run.chosen in run.front
    flat = load_tuning_run(make_study(several=True, change=lambda rows: [row.update(is_knee=False) for row in rows]))
    assert flat.chosen is None
