"""Setting attacks beside their baselines, over trainings and their evaluations."""

import statistics
from typing import Any

import pytest

from lightleak.core.results import read_row
from lightleak.report.intervals import Estimate, bounded
from lightleak.report.kinds.released_entries import Entry
from lightleak.report.kinds.released_groups import Scenario, compare, most_telling, topics
from lightleak.report.kinds.released_scores import Attack


def scenarios(*rows: dict[str, Any], entries: tuple[Entry, ...] = ()) -> tuple[Scenario, ...]:
    found = [read_row(row | {"kind": "released-model"}, "row", row.get("run", "run")) for row in rows]
    return compare(found, entries)  # type: ignore[arg-type]


def group(*found: dict[str, Any]) -> Attack:
    ((only,),) = (scenario.groups for scenario in scenarios(*found))
    return only


def rows(attack: str, *accuracies: float | None, **fields: Any) -> list[dict[str, Any]]:
    """One training, evaluated once, for each accuracy."""
    return [
        {"attack": attack, "evaluation_index": 0, "seed": index, "attack_accuracy": value, "class": "all", **fields}
        for index, value in enumerate(accuracies)
    ]


def test_a_group_is_one_attack_with_one_search_and_bridge() -> None:
    made = [
        *rows("plgmi", 0.7), *rows("plgmi", 0.7, label="b"), *rows("plgmi", 0.7, latent_search="tpe"),
        *rows("plgmi", 0.7, bridge="shared"), *rows("plgmi", 0.7, setting="3"), *rows("plgmi", 0.7, target="xgboost"),
        *rows("plgmi", 0.7, run="other", seed=1),
    ]  # fmt: skip
    found = scenarios(*made)
    assert [len(scenario.groups) for scenario in found] == [4, 1, 1]
    assert len(found[0].groups[0].evaluations) == 2  # another run of the same is pooled
    twice = scenarios(*rows("plgmi", 0.7), *rows("plgmi", 0.8, run="other"))
    assert [one.variant for one in twice[0].groups] == ["run other", "run run"]  # unless it is the same evaluation


def test_runs_of_one_attack_with_other_options_stay_apart() -> None:
    made = [
        row | {"run": f"alpha {alpha}", "seed": seed, "options": {"alpha": alpha, "seed": seed, "steps": 9}}
        for alpha, seeds in ((0.2, (0, 1)), (0.5, (2, 3)))
        for seed in seeds
        for row in rows("plgmi", 0.7)
    ]
    entries = tuple(Entry("plgmi", "plgmi", seed=row["seed"], run=row["run"]) for row in made)
    (scenario,) = scenarios(*made, entries=entries)
    assert [(one.variant, len(one.rows), len(one.entries)) for one in scenario.groups] == [
        ("alpha 0.2", 2, 2),
        ("alpha 0.5", 2, 2),
    ]
    assert [one.name for one in scenario.groups] == ["PLG-MI · alpha 0.2", "PLG-MI · alpha 0.5"]


def test_runs_whose_models_were_made_otherwise_stay_apart() -> None:
    accuracy = {"a": 0.9, "b": 0.5}
    made = [row | {"run": run} for run in "ab" for row in rows("plgmi", 0.7, 0.8, dataset="t", setting="2")]
    entries = tuple(
        Entry("plgmi", "plgmi", "t", "2", seed, target_scores={"test_accuracy": accuracy[run]}, run=run)
        for run in "ab"
        for seed in (0, 1)
    )
    found = [read_row(row | {"kind": "released-model"}, "row", row["run"]) for row in made]
    apart = compare(found, entries, {"a": "plain", "b": "defended"})  # type: ignore[arg-type]
    assert [one.title for one in apart] == ["run a", "run b"]
    assert [(one.quality.mean, len(one.groups), len(one.groups[0].entries)) for one in apart if one.quality] == [
        (0.9, 1, 2), (0.5, 1, 2),
    ]  # fmt: skip
    (together,) = compare(found, entries, {"a": "plain", "b": "plain"})  # type: ignore[arg-type]
    assert (together.title, together.quality.mean if together.quality else None) == ("", pytest.approx(0.7))


def test_attacks_come_before_baselines_and_the_best_first() -> None:
    (scenario,) = scenarios(
        *rows("public_random", 0.05), *rows("plgmi", 0.5), *rows("public_pseudo_labeled", 0.6),
        *rows("plgmi", 0.9, label="b"), *rows("gan_without_target", 0.4, latent_search="random"),
        *rows("gan_without_target", 0.7, latent_search="gradient"), *rows("plgmi", None, label="c"),
        *rows("gan_without_target", None, latent_search="softmax"),
    )  # fmt: skip
    names = [(one.first.name, one.search) for one in scenario.groups]
    # A generator that was not led by the model is an attack once its latent vectors are.
    assert names == [
        ("b", None), ("gan_without_target", "gradient"), ("plgmi", None), ("c", None),
        ("public_pseudo_labeled", None), ("gan_without_target", "random"), ("public_random", None),
        ("gan_without_target", "softmax"),
    ]  # fmt: skip
    assert scenario.reference is not None and scenario.reference.attack == "public_pseudo_labeled"
    assert [len(part) for part in (scenario.attacks, scenario.baselines)] == [4, 4]
    assert scenario.gain(scenario.groups[0]) == Estimate(pytest.approx(0.3))
    assert scenario.gain(scenario.reference) is None


def test_real_rows_and_chance() -> None:
    made = rows("plgmi", 0.5, 0.6, real_rows_accuracy=0.4, setting="2", dataset="t")
    (scenario,) = scenarios(*made)
    assert (scenario.real_rows, scenario.chance) == (Estimate(pytest.approx(0.4)), None)
    (scenario,) = scenarios(*made, *(made[0] | {"class": name} for name in "abcd"))
    assert scenario.chance == Estimate(0.25)
    entry = Entry("plgmi", "plgmi", "t", "2", task={"classes": 20})
    (scenario,) = scenarios(*made, entries=(Entry("x", "x", "u", "2", task={"classes": 3}), entry))
    assert scenario.chance == Estimate(0.05)


def test_the_most_telling_attack_surely_exceeds_the_baseline() -> None:
    baseline = rows("public_random", 0.49, 0.5, 0.51)
    steady, lucky = rows("plgmi", 0.7, 0.71, 0.72, label="steady"), rows("plgmi", 0.3, 0.95, 0.96, label="lucky")
    found = most_telling(scenarios(*baseline, *steady, *lucky))
    assert found is not None and found[1].first.name == "steady"
    alone = rows("plgmi", 0.99, label="alone", setting="3")  # nothing says how much of it is known anyway
    found = most_telling(scenarios(*baseline, *steady, *alone))
    assert found is not None and found[1].first.name == "steady"
    found = most_telling(scenarios(*steady, *lucky))
    assert found is not None and found[1].first.name == "steady"
    assert most_telling(scenarios(*baseline, *rows("plgmi", None))) is None


def once(attack: str, *accuracies: float | None, **fields: Any) -> list[dict[str, Any]]:
    """One training, with an evaluation for each accuracy."""
    return [
        {"attack": attack, "evaluation_index": index, "seed": 0, "attack_accuracy": value, "class": "all", **fields}
        for index, value in enumerate(accuracies)
    ]


def test_evaluations_of_one_training_give_no_interval() -> None:
    found = group(*once("plgmi", 0.7, 0.8, 0.9, None))
    assert found.value() == Estimate(pytest.approx(0.8), 1)
    assert found.n_trainings == 1
    assert found.deviation() == pytest.approx(0.1)
    assert found.singles() == [
        (0.7, "evaluation 0: 70.0%"), (0.8, "evaluation 1: 80.0%"), (0.9, "evaluation 2: 90.0%"),
    ]  # fmt: skip


def test_evaluations_of_one_training_are_no_independent_trainings() -> None:
    found = group(*once("plgmi", 0.7, 0.72), *once("plgmi", 0.9, seed=1), *once("plgmi", 0.8, seed=2))
    assert found.value() == bounded([0.71, 0.9, 0.8])
    assert found.n_trainings == 3
    assert found.deviation() == pytest.approx(statistics.stdev([0.71, 0.9, 0.8]))
    assert found.singles()[-1] == (0.8, "seed 2, evaluation 0: 80.0%")


def test_equal_trainings_are_no_surer_than_their_number_allows() -> None:
    both = [*once("plgmi", 1.0), *once("plgmi", 1.0, seed=1)]
    assert group(*both).value() == bounded([1.0, 1.0])
    loss = group(*(row | {"inversion_loss": 2.0} for row in both)).value("inversion_loss")
    assert loss == Estimate(2.0, 2)  # without bounds equal values say nothing of others


def test_where_all_classes_together_are_unknown_their_mean_stands_in() -> None:
    one = once("plgmi", 0.7, gower_distance=None, samples=300)
    classes = [one[0] | {"class": str(k), "gower_distance": 0.1 * k, "attack_accuracy": 0.2 * k} for k in (1, 2, 3)]
    found = group(*one, *classes)
    assert found.value("gower_distance").mean == pytest.approx(0.2)
    assert found.value().mean == 0.7
    assert found.samples == 300
    assert found.by_class("gower_distance") == pytest.approx({"1": 0.1, "2": 0.2, "3": 0.3})
    assert group(*classes).value().mean == pytest.approx(0.4)


def test_changes_are_paired_by_training() -> None:
    def of(shift: float, **fields: Any) -> Attack:
        made = [*once("plgmi", 0.5, 0.6), *once("plgmi", 0.7, seed=1), *once("plgmi", 0.9, seed=2)]
        jitter = {0: 0.0, 1: 0.01, 2: -0.01}
        for row in made:
            row["attack_accuracy"] += shift and shift + jitter[row["seed"]]
        return group(*(row | fields for row in made))

    change = of(0.1, latent_search="gradient").change(of(0.0))
    assert change.mean == pytest.approx(0.1) and change.n == 3 and 0 < change.low < 0.1 < change.high < 0.2
    single = group(*once("plgmi", 0.6, latent_search="gradient"))
    assert single.change(group(*once("plgmi", 0.5))) == Estimate(pytest.approx(0.1))
    assert single.change(group(*once("plgmi", 0.5, seed=7))) == Estimate(pytest.approx(0.1), 0)  # nothing is shared


def test_entries_find_their_attack_and_the_main_one_comes_first() -> None:
    rows = [
        {"attack": attack, "latent_search": search, "setting": setting, "dataset": "t", "attack_accuracy": 0.5}
        for attack, search, setting in (
            ("public_random", "random", "2"), ("plgmi", "random", "2"), ("plgmi", "tpe", "2"), ("plgmi", "random", "3"),
        )
    ]  # fmt: skip

    def entry(attack: str, search: str | None, setting: str | None, seed: int = 0) -> Entry:
        return Entry(attack, attack, "t", setting, seed, search, run="run")

    entries = [
        entry("public_random", "random", "2"), entry("plgmi", "random", "2"), entry("plgmi", "random", "3"),
        entry("plgmi", "tpe", "2"), entry("plgmi", "tpe", "2", 1), entry("plgmi", None, "2"),
        entry("unfinished", "gradient", "2"),
    ]  # fmt: skip
    known = scenarios(*rows, entries=tuple(entries))
    main = next(one for one in known[0].groups if one.search == "tpe")
    found = topics(known, entries, main)
    assert [(one.name, one.is_baseline, len(one.entries)) for one in found] == [
        ("PLG-MI · Bayesian search (TPE) · setting 2", False, 3),  # that without a search is about every search
        ("PLG-MI · random\u00a0z · setting 2", False, 1),
        ("PLG-MI · setting 3", False, 1),
        ("unfinished · gradient search", False, 1),
        ("Public rows at random · setting 2", True, 1),
    ]
    assert found[0].fit_name == found[1].fit_name == "PLG-MI · setting 2"
    assert topics(scenarios(*rows), [], None) == []


def test_entries_of_equal_attacks_in_two_runs_stay_apart() -> None:
    row = {"attack": "plgmi", "seed": 0, "evaluation_index": 0, "attack_accuracy": 0.5}
    entries = (Entry("plgmi", run="b"), Entry("plgmi", run="a"))
    found = topics(scenarios(*(row | {"run": name} for name in ("a", "b")), entries=entries), entries, None)
    assert {one.name: one.entries[0].run for one in found} == {"PLG-MI · run a": "a", "PLG-MI · run b": "b"}


def test_entries_without_rows_stay_apart_by_run() -> None:
    found = topics((), (Entry("plgmi", run="b"), Entry("plgmi", run="a")), None)
    assert {one.name for one in found} == {"PLG-MI · run a", "PLG-MI · run b"}


def test_names_of_older_versions_are_read() -> None:
    ((only,),) = (one.groups for one in scenarios({"attack": "plgmi", "ceiling": 0.3, "ceiling_class": 0.2}))
    assert dict(only.first.metrics) == {"real_rows_accuracy": 0.3, "real_rows_accuracy_class": 0.2}
