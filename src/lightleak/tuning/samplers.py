"""Optuna's samplers, which choose the next settings, and pruners, which stop trials early, as data."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lightleak.core.bounds import Section, bounded, require_one_of
from lightleak.core.errors import UsageError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler


Options = Mapping[str, tuple[str, ...]]
"""Names of options by the name that takes them."""


@dataclass(frozen=True)
class _NamedOptions(Section):
    """A name, and options that some names take.

    Attributes:
        options: by name, the options that it takes.
    """

    options: ClassVar[Options]

    name: str

    def check(self) -> None:
        """Raise `UsageError` for an unknown name, or an option of another name."""
        require_one_of(self.section, self.name, self.options)
        for option in self.given:
            if option not in self.options[self.name]:
                owners = " and ".join(name for name, known in self.options.items() if option in known)
                raise UsageError(f"{self.section}.{option} is an option of {owners}, got it with {self.name!r}")

    @property
    def given(self) -> dict[str, Any]:
        """The options that are set."""
        return {option: value for option, value in vars(self).items() if option != "name" and value is not None}


@dataclass(frozen=True)
class SamplerConfig(_NamedOptions):
    """How settings are chosen; options left out are Optuna's.

    Attributes:
        name: ``tpe`` (a model of good and of bad trials, of all settings together), ``nsga2`` (generations of trials,
            for several objectives) or ``random``.
        n_startup_trials: of ``tpe``: random trials before the model.
        population_size: of ``nsga2``: trials of a generation.
    """

    section = "sampler"
    options: ClassVar[Options] = {"tpe": ("n_startup_trials",), "nsga2": ("population_size",), "random": ()}

    name: Literal["tpe", "nsga2", "random"] = "tpe"
    n_startup_trials: int | None = bounded(None, ge=1)
    population_size: int | None = bounded(None, ge=2)


@dataclass(frozen=True)
class PrunerConfig(_NamedOptions):
    """Which trials are stopped early; options left out are Optuna's.

    A step is an epoch of training, or another unit of work after which a trial reports; the first is 1.

    Attributes:
        name: ``none``, ``median`` (stops what is worse than half of the others at the same step) or ``hyperband``
            (many trials with few steps against few with many).
        n_startup_trials: of ``median``: finished trials before any is stopped.
        n_warmup_steps: of ``median``: steps of a trial before it may be stopped.
        min_resource: of ``hyperband``: steps of a trial before it may be stopped.
        max_resource: of ``hyperband``: steps of a whole trial; left out, those of the first that finishes.
        reduction_factor: of ``hyperband``: one in this many continues.
    """

    section = "pruner"
    options: ClassVar[Options] = {
        "none": (),
        "median": ("n_startup_trials", "n_warmup_steps"),
        "hyperband": ("min_resource", "max_resource", "reduction_factor"),
    }

    name: Literal["none", "median", "hyperband"] = "none"
    n_startup_trials: int | None = bounded(None, ge=0)
    n_warmup_steps: int | None = bounded(None, ge=0)
    min_resource: int | None = bounded(None, ge=1)
    max_resource: int | None = bounded(None, ge=1)
    reduction_factor: int | None = bounded(None, ge=2)

    def check(self) -> None:
        """Check as the base does, and refuse a ``max_resource`` below ``min_resource``."""
        super().check()
        if self.max_resource is not None and self.max_resource < (self.min_resource or 1):
            raise UsageError(
                f"pruner.max_resource must be at least min_resource ({self.min_resource}), got {self.max_resource}"
            )


@contextmanager
def without_experimental_warnings() -> Iterator[None]:
    """Within the block Optuna does not note that what is used may change."""
    import optuna

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        yield


def build_sampler(config: SamplerConfig, seed: int) -> "BaseSampler":
    """Return Optuna's sampler; the same seed gives the same settings."""
    from optuna import samplers

    number = seed % 2**32  # what NumPy's RandomState takes
    if config.name == "random":
        return samplers.RandomSampler(seed=number)
    if config.name == "nsga2":
        return samplers.NSGAIISampler(seed=number, **config.given)
    with without_experimental_warnings():  # of models of several, of conditional settings, and of running trials
        return samplers.TPESampler(seed=number, multivariate=True, group=True, constant_liar=True, **config.given)


def build_pruner(config: PrunerConfig) -> "BasePruner":
    """Return Optuna's pruner."""
    from optuna import pruners

    kinds = {"none": pruners.NopPruner, "median": pruners.MedianPruner, "hyperband": pruners.HyperbandPruner}
    return kinds[config.name](**config.given)
