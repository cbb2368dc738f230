"""A study as typed data: an audit's config with searches in place of values, and the section ``study``."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lightleak.core.bounds import Section, bounded
from lightleak.core.errors import UsageError
from lightleak.experiments.settings import build_settings, override, plain, read_settings
from lightleak.tuning.objective import ObjectiveConfig
from lightleak.tuning.samplers import PrunerConfig, SamplerConfig
from lightleak.tuning.space import Space, read_space

SECTION = "study"


@dataclass(frozen=True)
class BudgetConfig(Section):
    """What every attack of a trial may spend on one update; its ``steps`` follow from it. At most one is given.

    Attributes:
        restart_steps: steps of all restarts together: ``steps`` is this divided by ``restarts``.
        seconds: of one CPU thread or device, measured on a first client of the trial; ``steps`` is what fits.
    """

    section = "study.budget"

    restart_steps: int | None = bounded(None, gt=0)
    seconds: float | None = bounded(None, gt=0)

    def check(self) -> None:
        """Refuse both together."""
        if self.restart_steps is not None and self.seconds is not None:
            raise UsageError("study.budget takes restart_steps or seconds, got both")

    @property
    def is_given(self) -> bool:
        """Whether there is a budget."""
        return self.restart_steps is not None or self.seconds is not None

    @property
    def words(self) -> str | None:
        """In words, for the report."""
        if self.restart_steps is not None:
            return f"{self.restart_steps:,} steps over all restarts, for each update"
        return None if self.seconds is None else f"{self.seconds:g} seconds for each update"


@dataclass(frozen=True)
class StudyConfig(Section):
    """The section ``study``.

    Attributes:
        objectives: what trials are judged by; several make a Pareto front.
        trials: how many; pruned and failed ones count, trials whose process died are repeated.
        sampler: how settings are chosen.
        pruner: which trials are stopped early.
        budget: what an attack may spend.
        report_every: fresh clients between two checks of the pruner.
        held_out: fresh clients of rows that no trial saw, on which the best is compared with the defaults; where the
            training alone is tuned, trainings from other seeds, judged on the test rows; in other kinds of audit,
            other seeds, of a frontier as many clients as it has. Of several objectives the first is compared. 0: no
            comparison.
        storage: RDB URL of Optuna's storage; left out, a journal file in the study's folder. ``$NAME`` is replaced by
            an environment variable, so that no password is stored.
        seed: root seed of the sampler.
    """

    section = "study"

    objectives: tuple[ObjectiveConfig, ...]
    trials: int = bounded(50, ge=1)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    pruner: PrunerConfig = field(default_factory=PrunerConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    report_every: int = bounded(2, ge=1)
    held_out: int = bounded(20, ge=0)
    storage: str | None = None
    seed: int = 0

    def check(self) -> None:
        """Refuse objectives and pruners that do not fit together."""
        if not self.objectives:
            raise UsageError("study.objectives must name at least one, such as {metric: cell_accuracy}")
        names = [objective.metric for objective in self.objectives]
        if len(set(names)) < len(names):
            raise UsageError(f"study.objectives must be different metrics, got {', '.join(names)}")
        if len(self.objectives) > 1 and self.pruner.name != "none":
            raise UsageError(f"study.pruner {self.pruner.name!r} needs one objective, got {len(names)}; choose none")
        if len(self.objectives) == 1 and self.sampler.name == "nsga2":
            raise UsageError("study.sampler 'nsga2' weighs several objectives, got one; choose tpe")
        if self.held_out == 1:
            raise UsageError("study.held_out must be 0 or at least 2: one client has no interval")


@dataclass(frozen=True)
class TuneConfig:
    """A whole study.

    Attributes:
        study: how it searches.
        space: what it searches; fills an audit's config.
        tree: the file's content, with flags, as plain values.
    """

    study: StudyConfig
    space: Space
    tree: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """YAML-ready form, which reads as this study again."""
        return {**plain(self.tree), SECTION: plain(asdict(self.study))}


def load_tune_config(path: Path, overrides: Mapping[str, Any] | None = None) -> TuneConfig:
    """Read a study's YAML; ``overrides`` maps dotted keys to values and wins.

    Raises:
        UsageError: the file is missing or no YAML mapping, names no search, or the section ``study`` is wrong. What the
            audit's own settings may be is checked with the first trial's config, before any work.
    """
    tree = override(read_settings(path), overrides, lambda _: None)
    section = tree.pop(SECTION, None)
    if not isinstance(section, dict):
        raise UsageError(f"{path}: tuning needs a section {SECTION!r} with its objectives, got {section!r}")
    space = read_space(tree)
    if not space.parameters:
        raise UsageError(
            f"{path}: nothing is searched; write {{search: float, low: .., high: .., default: ..}} for a value"
        )
    study = build_settings(StudyConfig, _full(section), f"{path}: {SECTION}")
    if study.budget.is_given:
        _refuse_steps(tree, path)
    return TuneConfig(study, space, tree)


def _full(section: Mapping[str, Any]) -> dict[str, Any]:
    """Short forms written out: a name for a sampler or pruner, a metric for an objective."""
    full: dict[str, Any] = plain({name: value for name, value in section.items() if value is not None})
    for name in ("sampler", "pruner"):
        if isinstance(full.get(name), str):
            full[name] = {"name": full[name]}
    objectives = full.get("objectives")
    if isinstance(objectives, dict | str):
        objectives = [objectives]
    if isinstance(objectives, list):
        full["objectives"] = [{"metric": one} if isinstance(one, str) else one for one in objectives]
    return full


def _refuse_steps(tree: Mapping[str, Any], path: Path) -> None:
    attacks = tree.get("attacks")
    for name, options in attacks.items() if isinstance(attacks, dict) else ():
        if isinstance(options, dict) and "steps" in options:
            raise UsageError(f"{path}: attacks.{name}.steps follows from study.budget; leave it out, search restarts")
