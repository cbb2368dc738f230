"""Samplers and pruners as data: repeatable, checked, and what Optuna is given."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import optuna
import pytest

from lightleak.core.errors import UsageError
from lightleak.tuning.samplers import PrunerConfig, SamplerConfig, build_pruner, build_sampler
from lightleak.tuning.space import read_space

SPACE = read_space(
    {
        "a": {"search": "choice", "of": ["x", "y"], "default": "x"},
        "b": {"search": "float", "low": 0.0, "high": 1.0, "default": 0.5, "when": {"a": "x"}},
        "c": {"search": "int", "low": 1, "high": 99, "default": 5},
    }
)
SAMPLERS = [
    SamplerConfig("tpe", n_startup_trials=3),
    SamplerConfig("nsga2", population_size=3),
    SamplerConfig("random"),
]


def trials(config: SamplerConfig, seed: int, n: int = 12) -> list[dict[str, Any]]:
    """What a study of two objectives tries."""
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=build_sampler(config, seed))
    for _ in range(n):
        trial = study.ask()
        values = SPACE.suggest(trial)
        study.tell(trial, (values.get("b", 0.7), values["c"]))
    return [trial.params for trial in study.trials]


@pytest.mark.parametrize("config", SAMPLERS, ids=lambda config: config.name)
def test_a_seed_gives_the_same_trials_again_and_another_gives_others(config: SamplerConfig) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = trials(config, seed=2**62 + 1)
    assert first == trials(config, seed=2**62 + 1)
    assert first != trials(config, seed=2**62 + 2)


def test_tpe_learns_where_a_conditional_setting_is_good() -> None:
    def mean_distance(config: SamplerConfig) -> float:
        study = optuna.create_study(sampler=build_sampler(config, 3))
        for _ in range(60):
            trial = study.ask()
            values = SPACE.suggest(trial)
            study.tell(trial, abs(values["b"] - 0.2) + abs(values["c"] - 80) / 99 if "b" in values else 2.0)
        late = [trial.value for trial in study.trials[30:]]
        return sum(late) / len(late)

    assert mean_distance(SamplerConfig("tpe")) < 0.5 * mean_distance(SamplerConfig("random"))


def test_tpe_models_settings_together_and_those_that_depend_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(optuna.samplers, "TPESampler", lambda **options: given.update(options))
    build_sampler(SamplerConfig("tpe", n_startup_trials=7), 2**32 + 5)
    assert given == {"seed": 5, "multivariate": True, "group": True, "constant_liar": True, "n_startup_trials": 7}


def test_options_reach_optuna() -> None:
    assert isinstance(build_pruner(PrunerConfig()), optuna.pruners.NopPruner)
    # One finished trial is enough, in place of Optuna's five, and no trial is stopped before its third step.
    study = optuna.create_study(pruner=build_pruner(PrunerConfig("median", n_startup_trials=1, n_warmup_steps=3)))
    assert prunes_at(study, 0.0) is None
    assert prunes_at(study, 1.0) == 3
    pruner = build_pruner(PrunerConfig("hyperband", min_resource=2, max_resource=8, reduction_factor=2))
    # Hyperband deals trials out by the name of their study.
    study = optuna.create_study(study_name="stops", pruner=pruner, sampler=optuna.samplers.RandomSampler(0))
    stops = [prunes_at(study, float(number)) for number in range(40)]
    assert set(stops) - {None} == {2, 4, 8}


def prunes_at(study: optuna.Study, value: float, steps: int = 8) -> int | None:
    """The step at which a trial that always reports ``value`` is stopped."""
    trial = study.ask()
    for step in range(1, steps + 1):
        trial.report(value, step)
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return step
    study.tell(trial, value)
    return None


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SamplerConfig("grid"), "sampler must be one of tpe, nsga2, random, got 'grid'"),
        (
            lambda: SamplerConfig("tpe", population_size=9),
            "sampler.population_size is an option of nsga2, got it with 'tpe'",
        ),
        (lambda: SamplerConfig("random", n_startup_trials=9), "sampler.n_startup_trials is an option of tpe"),
        (
            lambda: SamplerConfig("tpe", n_startup_trials=0),
            "sampler.n_startup_trials must be at least 1, got 0",
        ),
        (
            lambda: SamplerConfig("nsga2", population_size=1),
            "sampler.population_size must be at least 2, got 1",
        ),
        (lambda: PrunerConfig("asha"), "pruner must be one of none, median, hyperband, got 'asha'"),
        (
            lambda: PrunerConfig(n_startup_trials=3),
            "pruner.n_startup_trials is an option of median, got it with 'none'",
        ),
        (lambda: PrunerConfig("median", min_resource=3), "pruner.min_resource is an option of hyperband, got it with"),
        (
            lambda: PrunerConfig("median", n_warmup_steps=-1),
            "pruner.n_warmup_steps must be at least 0, got -1",
        ),
        (lambda: PrunerConfig("hyperband", reduction_factor=1), "pruner.reduction_factor must be at least 2, got 1"),
        (lambda: PrunerConfig("hyperband", min_resource=9, max_resource=8), "must be at least min_resource (9), got 8"),
    ],
)
def test_wrong_settings_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        build()
