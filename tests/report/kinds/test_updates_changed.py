import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from lightleak.report.kinds.updates_runs import (
    changed_groups,
    changed_settings,
    measured_runs,
    run_title,
)
from lightleak.report.read import load_run


def edited(folder: Path, **settings) -> Path:
    config = yaml.safe_load((folder / "config.yaml").read_text()) | settings
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def test_every_metric_is_compared_pair_by_pair(plain, defended) -> None:
    first = plain()
    before, after = load_run(first), load_run(defended(first, 0.5))
    rows = [pd.DataFrame(json.loads((run.path / "results.json").read_text())["rows"]) for run in (before, after)]
    keys = ["attack", "batch_size", "source", "batch_index"]
    pairs = rows[0].merge(rows[1], on=keys, suffixes=("_0", "_1"))
    groups = changed_groups(before, after)
    assert {group.group.title for group in groups} == {"TabLeak", "Inverting Gradients", "Guessing"}
    for group in groups:
        name = {"TabLeak": "tableak", "Inverting Gradients": "inverting_gradients", "Guessing": "random"}[
            group.group.title
        ]
        for metric in ("cell_accuracy", "numerical_accuracy", "exact_match_rate", "rmse"):
            mine = pairs[(pairs.attack == name) & (pairs.batch_size == group.group.first.batch_size)]
            change = group.changes[metric]
            assert change.difference.mean == pytest.approx(
                (mine[f"{metric}_1"] - mine[f"{metric}_0"]).mean(), abs=1e-12
            )
            assert change.before.mean == pytest.approx(mine[f"{metric}_0"].mean())
        assert group.pairs == 6 and group.n == (6, 6)
    signs = {group.group.title: group.changes["cell_accuracy"].sign for group in groups}
    assert signs == {"TabLeak": "▼", "Inverting Gradients": "▼", "Guessing": "="}


def test_pairs_narrow_the_interval(plain, defended) -> None:
    first = plain()
    before, after = load_run(first), load_run(defended(first, 0.9))
    paired = changed_groups(before, after)[0].changes["cell_accuracy"].difference
    edited(after.path, seed=5)
    for file in (after.path / "reconstructions").glob("*.csv"):
        file.unlink()
    apart = changed_groups(before, load_run(after.path))[0].changes["cell_accuracy"].difference
    assert (paired.n, apart.n) == (6, 0)
    assert paired.mean == pytest.approx(apart.mean)
    assert paired.high - paired.low < apart.high - apart.low


def test_rows_that_differ_are_not_paired_whatever_the_configs_say(plain, defended) -> None:
    first = plain()
    after = defended(first)
    for file in (after / "reconstructions").glob("*.csv"):
        cells = pd.read_csv(file, dtype=str, keep_default_na=False)
        cells["true"] = "another"
        cells.to_csv(file, index=False)
    assert {group.pairs for group in changed_groups(load_run(first), load_run(after))} == {0}


def test_the_order_of_rows_in_an_update_does_not_matter(plain, defended) -> None:
    first = plain()
    after = defended(first)
    for file in (after / "reconstructions").glob("*.csv"):
        cells = pd.read_csv(file, dtype=str, keep_default_na=False)
        order = np.random.default_rng(0).permutation(cells["row"].unique())
        pd.concat([cells[cells["row"] == row] for row in order]).to_csv(file, index=False)
    assert {group.pairs for group in changed_groups(load_run(first), load_run(after))} == {6}


def test_dp_sgd_draws_batches_of_its_own_in_training(plain, defended) -> None:
    first = plain(epochs=2, keep_rows=False)
    noisy = load_run(defended(first))
    assert {group.pairs for group in changed_groups(load_run(first), noisy) if group.moment == "during training"} == {4}
    edited(noisy.path, defense={"name": "dp_sgd", "options": {}})
    groups = changed_groups(load_run(first), load_run(noisy.path))
    assert {group.pairs for group in groups if group.moment == "during training"} == {0}
    assert {group.pairs for group in groups if group.moment == "before training"} == {6}


def test_only_what_changes_a_score_is_listed(plain, defended) -> None:
    first = plain()
    before, after = load_run(first), load_run(defended(first))
    edited(before.path, title="one", workers=1, defense={"name": "none", "options": {}})
    assert changed_settings(load_run(before.path), after) == (
        ("defense.name", "none", "gaussian_noise"),
        ("defense.options.scale", "not set", "0.01"),
    )
    assert changed_settings(before, before) == ()
    (before.path / "config.yaml").write_text("{")
    assert changed_settings(load_run(before.path), after) is None


def test_another_table_is_not_compared(plain, defended) -> None:
    first = plain()
    after = defended(first)
    raw = json.loads((after / "results.json").read_text())
    for row in raw["rows"]:
        row["dataset"] = "german"
    (after / "results.json").write_text(json.dumps(raw))
    assert changed_groups(load_run(first), load_run(after)) == ()


def test_another_network_is(plain, defended) -> None:
    first = plain()
    after = defended(first)
    raw = json.loads((after / "results.json").read_text())
    for row in raw["rows"]:
        row["target"] = "linear"
    (after / "results.json").write_text(json.dumps(raw))
    assert changed_groups(load_run(first), load_run(after))


def test_the_undefended_run_is_the_reference_wherever_it_stands(plain, defended) -> None:
    first = plain()
    before, after = load_run(first), load_run(defended(first))
    assert measured_runs([after, after])[0].reference is after and measured_runs([]) == ()
    first_of, other = measured_runs([after, before])
    assert (first_of.run, other.run, other.reference) == (before, after, before)
    assert (first_of.title, other.title) == ("no defense", "noise of standard deviation 0.01")
    assert (run_title(after), run_title(before)) == ("noise of standard deviation 0.01 (noisy)", "no defense (plain)")
    assert first_of.is_reference and len(measured_runs([before])) == 1


def test_what_it_costs_has_an_interval_where_the_test_rows_are_counted(plain, defended) -> None:
    first = plain(0.85)
    _, found = measured_runs([load_run(first), load_run(defended(first, accuracy=0.80))])
    assert found.cost is not None and found.cost.mean == pytest.approx(-0.05)
    assert -0.08 < found.cost.low < -0.05 < found.cost.high < -0.02
    before, after = found.utilities
    assert (before.test.auroc, after.test.auroc) == pytest.approx((0.9, 0.85))
    (first / "training.json").write_text(
        json.dumps({"epochs": 3, "test": {"test/accuracy": 0.85}})
    )  # an earlier version
    _, found = measured_runs([load_run(first), found.run])
    assert not found.cost.has_interval and found.utilities[0].test.auroc is None
    (first / "training.json").unlink()
    assert measured_runs([load_run(first), found.run])[1].cost is None
