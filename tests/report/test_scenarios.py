from dataclasses import replace

from lightleak.report.comparison import compare
from lightleak.report.run_folder import load_run
from lightleak.report.scenarios import attack_styles, scenarios


def test_one_batch_size_gives_bars_and_several_give_lines(make_run) -> None:
    groups = compare([load_run(make_run(batch_sizes=(32,), n_batches=2, keep_rows=False))])
    (one,) = scenarios(groups, attack_styles(groups))
    assert 'class="bar s0"' in one.drawing
    assert not one.styles
    groups = compare([load_run(make_run(batch_sizes=(8, 32), n_batches=2, keep_rows=False))])
    (several,) = scenarios(groups, attack_styles(groups))
    assert 'class="link"' in several.drawing
    assert list(several.styles) == ["TabLeak", "Inverting Gradients", "Guessing"]


def test_reading_order_is_batch_size_then_accuracy_with_guessing_last(make_run) -> None:
    groups = compare([load_run(make_run(batch_sizes=(32, 8), n_batches=2, keep_rows=False))])
    (scenario,) = scenarios(groups, attack_styles(groups))
    order = [(group.batch_size, group.attack) for group in scenario.groups]
    attacks = ["tableak", "inverting_gradients", "random"]
    assert order == [(size, attack) for size in (8, 32) for attack in attacks]


def test_the_baseline_stands_in_every_label_setting_once(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=2, keep_rows=False))
    restored = [
        replace(result, setting=replace(result.setting, labels="restored"))
        for result in run.results
        if result.attack == "tableak"
    ]
    groups = compare([replace(run, results=(*run.results, *restored))])
    found = scenarios(groups, attack_styles(groups))
    assert [scenario.setting.labels for scenario in found] == ["true", "restored"]
    assert [sum(group.is_baseline for group in scenario.groups) for scenario in found] == [1, 1]


def test_a_baseline_that_ran_ahead_of_the_attacks_is_listed(make_run) -> None:
    run = load_run(make_run(n_batches=2, keep_rows=False))
    finished = [result for result in run.results if result.attack == "random" or result.batch_size == 8]
    groups = compare([replace(run, results=tuple(finished))])
    (scenario,) = scenarios(groups, attack_styles(groups))
    assert (32, "random") in [(group.batch_size, group.attack) for group in scenario.groups]
    alone = compare([replace(run, results=tuple(result for result in run.results if result.attack == "random"))])
    assert [group.attack for group in scenarios(alone, attack_styles(alone))[0].groups] == ["random", "random"]


def test_no_truth_no_drawing(make_run) -> None:
    run = load_run(make_run(batch_sizes=(8,), n_batches=2, keep_rows=False))
    blind = tuple(replace(result, metrics={"seconds": 1.0}) for result in run.results)
    groups = compare([replace(run, results=blind)])
    assert scenarios(groups, attack_styles(groups))[0].drawing is None
