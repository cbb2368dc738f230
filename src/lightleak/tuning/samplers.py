"""How a study chooses the next settings and which trials it stops early: Optuna's samplers and pruners, as data."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lightleak.core.errors import UsageError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

_SAMPLER_OPTIONS = {"tpe": ("n_startup_trials",), "nsga2": ("population_size",), "random": ()}
_PRUNER_OPTIONS = {
    "none": (),
    "median": ("n_startup_trials", "n_warmup_steps"),
    "hyperband": ("min_resource", "max_resource", "reduction_factor"),
}


@dataclass(frozen=True)
class SamplerConfig:
    """How settings are chosen; options left out are Optuna's.

    Attributes:
        name: ``tpe`` (a model of good and of bad trials, of all settings together), ``nsga2`` (generations of trials,
            for several objectives) or ``random``.
        n_startup_trials: of ``tpe``: random trials before the model.
        population_size: of ``nsga2``: trials of a generation.
    """

    name: Literal["tpe", "nsga2", "random"] = "tpe"
    n_startup_trials: int | None = None
    population_size: int | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for an unknown name, or an option out of range or of another sampler."""
        _check_options("sampler", self, _SAMPLER_OPTIONS, {"n_startup_trials": 1, "population_size": 2})


@dataclass(frozen=True)
class PrunerConfig:
    """Which trials are stopped early; options left out are Optuna's.

    A step is an epoch of training, or what else the trial reports after; the first is 1.

    Attributes:
        name: ``none``, ``median`` (stops what is worse than half of the others at the same step) or ``hyperband``
            (many trials with few steps against few with many).
        n_startup_trials: of ``median``: finished trials before any is stopped.
        n_warmup_steps: of ``median``: steps of a trial before it may be stopped.
        min_resource: of ``hyperband``: steps of a trial before it may be stopped.
        max_resource: of ``hyperband``: steps of a whole trial; left out, those of the first that finishes.
        reduction_factor: of ``hyperband``: one in this many continues.
    """

    name: Literal["none", "median", "hyperband"] = "none"
    n_startup_trials: int | None = None
    n_warmup_steps: int | None = None
    min_resource: int | None = None
    max_resource: int | None = None
    reduction_factor: int | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for an unknown name, or an option out of range or of another pruner."""
        least = {"n_startup_trials": 0, "n_warmup_steps": 0, "min_resource": 1, "max_resource": 1}
        _check_options("pruner", self, _PRUNER_OPTIONS, {**least, "reduction_factor": 2})
        if self.max_resource is not None and self.max_resource < (self.min_resource or 1):
            raise UsageError(
                f"pruner.max_resource must be at least min_resource ({self.min_resource}), got {self.max_resource}"
            )


def build_sampler(config: SamplerConfig, seed: int, n_objectives: int = 1) -> "BaseSampler":
    """Optuna's sampler. The same seed gives the same settings, so every worker of a study needs its own seed.

    Raises:
        UsageError: ``nsga2`` for one objective.
        UnsupportedError: Optuna is not installed.
    """
    samplers = import_optuna().samplers
    number = seed % 2**32  # what NumPy's RandomState takes
    if config.name == "random":
        return samplers.RandomSampler(seed=number)
    if config.name == "nsga2":
        if n_objectives < 2:
            raise UsageError("sampler 'nsga2' weighs several objectives, got one; choose tpe")
        return samplers.NSGAIISampler(seed=number, **_given(config, ("population_size",)))
    optuna = import_optuna()
    with warnings.catch_warnings():
        # Models of several settings at once, of conditional ones, and of trials that still run: Optuna notes that
        # their arguments may change.
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        return samplers.TPESampler(
            seed=number, multivariate=True, group=True, constant_liar=True, **_given(config, ("n_startup_trials",))
        )


def build_pruner(config: PrunerConfig, n_objectives: int = 1) -> "BasePruner":
    """Optuna's pruner.

    Raises:
        UsageError: a pruner for several objectives, of which Optuna cannot say which trial is worse.
        UnsupportedError: Optuna is not installed.
    """
    pruners = import_optuna().pruners
    if config.name == "none":
        return pruners.NopPruner()
    if n_objectives > 1:
        raise UsageError(f"pruner {config.name!r} needs one objective, got {n_objectives}; choose none")
    options = _given(config, _PRUNER_OPTIONS[config.name])
    return pruners.MedianPruner(**options) if config.name == "median" else pruners.HyperbandPruner(**options)


def import_optuna() -> Any:
    """Return Optuna, imported when first used."""
    import optuna

    return optuna


def _check_options(
    section: str,
    config: SamplerConfig | PrunerConfig,
    known: dict[str, tuple[str, ...]],
    least: dict[str, int],
) -> None:
    if config.name not in known:
        raise UsageError(f"{section} must be one of {', '.join(known)}, got {config.name!r}")
    for option, at_least in least.items():
        value = getattr(config, option, None)
        if value is None:
            continue
        if option not in known[config.name]:
            owners = [name for name, options in known.items() if option in options]
            raise UsageError(f"{section}.{option} is an option of {' and '.join(owners)}, got it with {config.name!r}")
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            raise UsageError(f"{section}.{option} must be a whole number of at least {at_least}, got {value!r}")


def _given(config: SamplerConfig | PrunerConfig, options: tuple[str, ...]) -> dict[str, int]:
    return {option: getattr(config, option) for option in options if getattr(config, option) is not None}
