"""One trial: what it runs, what it is judged by, when it stops, and that it resumes where it was killed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from optuna import TrialPruned

from lightleak.core.errors import UsageError
from lightleak.experiments import campaign
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.load import parse_config
from lightleak.tuning import budget
from lightleak.tuning.budget import steps_within, with_measured_steps, with_steps
from lightleak.tuning.config import BudgetConfig
from lightleak.tuning.held_out import held_out_tree
from lightleak.tuning.trial import (
    check_trial,
    run_trial,
    trial_folder,
    trial_tree,
)

VALUES = {"attacks.tableak.restarts": 3, "attacks.tableak.learning_rate": 0.1}


def clients(tree: dict[str, Any], folder: Path) -> list[torch.Tensor]:
    """Rows of the fresh clients of an audit, one tensor each."""
    config = parse_config(tree)
    units = plan_units(config, prepare_experiment(config), folder / "none")
    return [truth.inputs for unit in units if unit.attack == "random" for _, truth in [unit.observe()] if truth]


def test_validation_and_held_out_clients_share_no_row(tmp_path: Path, tiny_study: Any) -> None:
    config = tiny_study(initial__batches=30, data__options={"n_discrete": 2, "n_continuous": 2, "n_rows": 300})
    tree = trial_tree(config, VALUES)
    validation = torch.cat(clients(tree, tmp_path))
    held_out = torch.cat(clients(held_out_tree(tree, 30), tmp_path))
    seed = torch.cat(clients(held_out_tree({**tree, "seed": 5}, 30), tmp_path))
    for others in (held_out, seed):  # continuous columns tell rows apart
        assert not (validation[:, None] == others[None]).all(-1).any()
    assert len(torch.unique(held_out, dim=0)) > 60, "clients of the held-out rows draw from most of them"


def test_a_budget_of_steps_is_shared_by_the_restarts(tiny_study: Any) -> None:
    config = tiny_study(study__budget={"restart_steps": 100})
    assert trial_tree(config, VALUES)["attacks"]["tableak"]["steps"] == 33
    short = with_steps({"attacks": ["tableak", "random"]}, BudgetConfig(restart_steps=3000))
    assert short["attacks"] == {"tableak": {"steps": 100}, "random": {}}, "30 restarts are TabLeak's own"
    with pytest.raises(UsageError, match="restart_steps must be at least the restarts of tableak, 30, got 29"):
        with_steps({"attacks": "tableak"}, BudgetConfig(restart_steps=29))


def test_a_budget_of_seconds_counts_what_steps_cost(
    tmp_path: Path, tiny_study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock of our own: 2 s before and after the steps, 0.5 s a step; 12 s leave 20 steps."""
    now = [0.0]

    class Attack:
        def __init__(self, steps: int, **_: Any) -> None:
            self.steps = steps

        def run_many(self, *_: Any) -> None:
            now[0] += 2.0 + 0.5 * self.steps

    config = tiny_study(study__budget={"seconds": 12.0})
    tree = trial_tree(config, VALUES)
    loaded = parse_config(tree)
    unit = plan_units(loaded, prepare_experiment(loaded), tmp_path / "none")[0]
    monkeypatch.setattr(budget.ATTACKS, "get", lambda _: Attack)
    monkeypatch.setattr(budget.time, "perf_counter", lambda: now[0])
    assert steps_within(unit, 12.0, torch.device("cpu")) == 20
    assert steps_within(unit, 0.1, torch.device("cpu")) == 1


def test_steps_are_measured_once(tmp_path: Path, tiny_study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_study(study__budget={"seconds": 1.0})
    tree = trial_tree(config, VALUES)
    for measured in (17, 99):
        monkeypatch.setattr(budget, "steps_within", lambda *_, n=measured: n)
        assert with_measured_steps(config.study, tree, tmp_path / "trial")["attacks"]["tableak"]["steps"] == 17


@pytest.mark.parametrize("initial", [{"batch_sizes": [4, 5], "batches": 2}, {"batches": 0}])
def test_seconds_need_fresh_clients_of_one_size(tmp_path: Path, tiny_study: Any, initial: dict[str, Any]) -> None:
    config = tiny_study(study__budget={"seconds": 1.0}, initial=initial, training={"epochs": 1})
    with pytest.raises(UsageError, match="fresh clients of one size"):
        check_trial(config, trial_tree(config, VALUES))


def test_folders_are_told_apart_by_settings_alone(tmp_path: Path, tiny_study: Any) -> None:
    config = tiny_study()
    one = trial_folder(tmp_path, trial_tree(config, VALUES))
    assert trial_folder(tmp_path, trial_tree(config, dict(reversed(VALUES.items())))) == one
    assert trial_folder(tmp_path, trial_tree(config, {**VALUES, "attacks.tableak.restarts": 4})) != one


class Told:
    """A trial that keeps what is reported, and is pruned at a step."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.reports: list[tuple[int, float]] = []

    def report(self, value: float, step: int) -> None:
        self.reports.append((step, value))

    def should_prune(self) -> bool:
        return self.reports[-1][0] == self.stop_at


def test_the_mean_so_far_is_reported_and_a_pruned_trial_stops(tmp_path: Path, tiny_study: Any) -> None:
    config = tiny_study(study__report_every=1, study__pruner="median", initial__batches=4)
    tree, trial = trial_tree(config, VALUES), Told()
    (value,) = run_trial(config.study, tree, tmp_path / "whole", trial)
    assert [step for step, _ in trial.reports] == [1, 2, 3], "after the last client there is nothing to be saved"
    accuracies = [
        json.loads((tmp_path / "whole" / "units" / f"tableak-initial-b4-{i:03d}.json").read_text())["cell_accuracy"]
        for i in range(4)
    ]
    means = [sum(accuracies[:n]) / n for n in (1, 2, 3, 4)]
    assert [mean for _, mean in trial.reports] == pytest.approx(means[:3]) and value == pytest.approx(means[3])
    with pytest.raises(TrialPruned):
        run_trial(config.study, tree, tmp_path / "stopped", Told(stop_at=2))
    assert len(list((tmp_path / "stopped" / "units").iterdir())) == 4, "two clients, two attacks"
    (again,) = run_trial(config.study, tree, tmp_path / "stopped")
    assert again == value, "what was stopped continues to the same value"


def test_a_trial_that_was_killed_does_only_what_is_left(
    tmp_path: Path, tiny_study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_study()
    tree = trial_tree(config, VALUES)
    first = run_trial(config.study, tree, tmp_path / "trial")
    monkeypatch.setattr(campaign, "run_pack", lambda *_: pytest.fail("nothing is left to do"))
    assert run_trial(config.study, tree, tmp_path / "trial") == first


TRAINED = {
    "training": {"epochs": 2, "batch_size": 16},
    "capture": {"epochs": [0], "per_epoch": 2},
    "initial__batches": 0,
    "study__held_out": 2,
}


def test_a_training_and_the_attack_on_it_are_judged_together(tmp_path: Path, tiny_study: Any) -> None:
    both = [{"metric": "val/accuracy"}, {"metric": "leakage", "direction": "minimize", "where": {"attack": "tableak"}}]
    config = tiny_study(**TRAINED, study__objectives=both)
    accuracy, leakage = run_trial(config.study, trial_tree(config, VALUES), tmp_path / "trial")
    assert 0 <= accuracy <= 1 and -1 <= leakage <= 1
    assert len(list((tmp_path / "trial" / "captures").iterdir())) == 2


def test_captures_beside_fresh_clients_judge_nothing(tmp_path: Path, tiny_study: Any) -> None:
    """They come from all training rows, the held-out clients' among them."""
    config = tiny_study(training={"epochs": 1, "batch_size": 16}, capture={"epochs": [0], "per_epoch": 2})
    run_trial(config.study, trial_tree(config, VALUES), tmp_path / "trial")
    assert len(list((tmp_path / "trial" / "captures").iterdir())) == 2
    assert all("initial" in file.name for file in (tmp_path / "trial" / "units").iterdir())


def test_a_pruned_training_is_not_taken_for_a_finished_one(tmp_path: Path, tiny_study: Any) -> None:
    config = tiny_study(**{**TRAINED, "training": {"epochs": 3, "batch_size": 16}}, study__objectives="val/accuracy")
    tree, first, second = trial_tree(config, VALUES), Told(stop_at=1), Told()
    with pytest.raises(TrialPruned):
        run_trial(config.study, tree, tmp_path / "trial", first)
    assert [step for step, _ in first.reports] == [1] and not (tmp_path / "trial" / "training.json").exists()
    (value,) = run_trial(config.study, tree, tmp_path / "trial", second)
    assert [step for step, _ in second.reports] == [1, 2, 3], (
        "the second of the same settings resumes, and reports what the first had reached"
    )
    (whole,) = run_trial(config.study, tree, tmp_path / "whole")
    assert value == whole


@pytest.mark.filterwarnings("ignore:AUROC is undefined")
def test_a_training_that_diverged_is_pruned_by_its_auroc(tmp_path: Path, tiny_study: Any) -> None:
    diverging = {"epochs": 2, "batch_size": 16, "optimizer": {"learning_rate": 1e18}}
    config = tiny_study(**{**TRAINED, "training": diverging}, study__objectives="val/auroc")
    with pytest.raises(TrialPruned, match="val/auroc is nan after epoch 1"):
        run_trial(config.study, trial_tree(config, VALUES), tmp_path / "trial", Told())


SEARCHED = {"search": "int", "low": 3, "high": 4, "default": 3}
VERTICAL: dict[str, Any] = {
    "kind": "vertical",
    "properties": ["d0=0"],
    "training": {"epochs": SEARCHED},
    "attacks": {"provfl_b_mixture": {}},
    **dict.fromkeys(("initial", "target")),
}
RELEASED: dict[str, Any] = {
    "kind": "released-model",
    "training": {"max_epochs": SEARCHED},
    "attacks": {"public_random": {}},
    "initial": None,
}
FRONTIER: dict[str, Any] = {"kind": "defense-frontier", "training": {"epochs": 1}, "defenses": ["sign"], "seeds": 1}


def test_a_training_alone_attacks_nothing(tmp_path: Path, tiny_study: Any) -> None:
    config = tiny_study(**TRAINED, study__objectives="val/loss")
    (loss,) = run_trial(config.study, trial_tree(config, VALUES), tmp_path / "trial")
    assert loss > 0 and not (tmp_path / "trial" / "units").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"study__objectives": "val/accuracy"}, "needs a training; training.epochs is 0"),
        ({"study__objectives": {"metric": "rmse", "where": {"attack": "tableak2"}}}, "where.attack must be one of"),
        ({"study__objectives": "leakage", "attacks__random": None}, "measured against 'random'"),
        ({"study__objectives": "rmse", "attacks__inverting_gradients": {}}, "of which attack"),
        ({"study__objectives": "rmse"}, "of which attack"),
        ({**FRONTIER, "study__objectives": "cell_accuracy"}, "of which attack.* one of random, tableak"),
        ({**FRONTIER, "study__objectives": "auroc"}, "of the test rows"),
        ({**VERTICAL, "study__objectives": "auc"}, "'auc' of an audit of kind vertical is of the test rows"),
        ({**VERTICAL, "study__objectives": "accuracy"}, "of the test rows"),
        ({**RELEASED, "study__objectives": "target_test_accuracy"}, "of kind released-model is of the test rows"),
        ({"attacks__tableak__restarts": "many"}, "restarts"),
        ({"training": {"epochs": 1, "trainer": {"devices": 2}}}, "each trial on one device"),
        ({"target__network": "mlpp"}, "mlpp"),
        ({"initial__batch_sizes": [9999]}, "batch_size"),
    ],
)
def test_what_the_default_trial_cannot_serve_is_refused_before_any_work(
    tmp_path: Path, tiny_study: Any, changes: dict[str, Any], message: str
) -> None:
    config = tiny_study(**changes, study__budget=None)
    with pytest.raises(UsageError, match=message):
        tree = trial_tree(config, config.space.values(config.space.defaults()))
        check_trial(config, tree)
