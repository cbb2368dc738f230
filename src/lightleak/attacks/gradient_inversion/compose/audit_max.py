"""The strongest attack on an update that is here: exact inversion first, optimization on what it leaves unproven."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch

from lightleak.attacks.attack import ATTACKS, PartOfWork, Progress, UpdateAttack
from lightleak.attacks.gradient_inversion.compose.composition import Course, joined_threat_model, refusal
from lightleak.attacks.gradient_inversion.compose.peeling import as_one_batch
from lightleak.attacks.settings import AttackSettings
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.observations import ClientUpdate, UpdateKind
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed

CITATION = (
    "After SPEAR (Dimitrov et al., NeurIPS 2024), DAGER (Petrov et al., NeurIPS 2024) and, for what they leave, "
    "TabLeak (Vero et al., ICML 2023)"
)

Labels = Literal["true", "restored"]


@dataclass(frozen=True)
class AuditMaxConfig(AttackSettings):
    """Settings of ``audit_max``: its own, and those of its stages under their names.

    Attributes:
        labels: whether the optimization stage is given the labels or restores them; exact inversion needs none.
        exact: settings of exact inversion of gradients.
        exact_joint: of joint optimization of the rows beyond the rank limit.
        tableak: of the last stage on gradients.
        exact_fedavg: of exact inversion of weight updates.
        tableak_fedavg: of the last stage on weight updates.

    Raises:
        UsageError: a value of the wrong type, or a setting that a stage does not have.
    """

    owner: ClassVar[str] = "audit_max"

    labels: Labels = "restored"
    exact: Mapping[str, Any] | None = None
    exact_joint: Mapping[str, Any] | None = None
    tableak: Mapping[str, Any] | None = None
    exact_fedavg: Mapping[str, Any] | None = None
    tableak_fedavg: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in STAGES["gradient"] + STAGES["delta"]:
            settings = getattr(self, name)
            if settings is not None and not isinstance(settings, Mapping):
                raise UsageError(f"{name} must be a mapping of settings, got {settings!r}")

    def stages(self, kind: UpdateKind) -> list[UpdateAttack]:
        """The stages for updates of one kind, in their order.

        TabLeak masks absent categories where it can, and restores labels of a network without a hidden layer from its
        bias.
        """
        stages = [self._stage(name) for name in STAGES[kind]]
        if kind == "gradient":
            set_by_user = self.tableak or {}
            if _may_mask(set_by_user):
                stages.insert(-1, self._stage("tableak", mask_absent=True))
            if self.labels == "restored" and "labels" not in set_by_user:
                stages.append(self._stage("tableak", labels="bias"))
        return stages

    def _stage(self, name: str, **usual: Any) -> UpdateAttack:
        if name in RESTORED_BY:
            usual = {"labels": "true" if self.labels == "true" else RESTORED_BY[name], **usual}
        try:  # what the user has set wins
            return ATTACKS.get(name)(**{**usual, **(getattr(self, name) or {})})
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error


def _may_mask(settings: Mapping[str, Any]) -> bool:
    """Whether settings of TabLeak leave it open to mask categories, which needs a softmax."""
    return "mask_absent" not in settings and settings.get("categorical", "softmax") == "softmax"


STAGES: dict[UpdateKind, tuple[str, ...]] = {
    "gradient": ("exact", "exact_joint", "tableak"),
    "delta": ("exact_fedavg", "tableak_fedavg"),
}
"""Registry names of the stages for each kind of update."""

RESTORED_BY = {"tableak": "geng", "tableak_fedavg": "interpolated"}
"""How the stages that need labels restore them."""


def audit_max(**options: Any) -> "ComposedAttack":
    """Make the attack; raises `UsageError` for an unknown setting."""
    config = AuditMaxConfig.of(**options)
    stages = {kind: config.stages(kind) for kind in STAGES}
    settings = {stage.name: stage.options() for of_kind in stages.values() for stage in reversed(of_kind)}
    return ComposedAttack("audit_max", CITATION, stages, {"labels": config.labels, **settings}, "Exact + TabLeak")


class ComposedAttack(UpdateAttack):
    """Attacks in turn: each works on what the ones before it left unproven, and the best explanation is returned.

    Rows that a stage certifies are taken out of a gradient (`peeled_update`), so that the next stage sees the gradient
    of the others alone; a weight update is seen whole by every stage. Of the reconstructions that are not certified the
    one that explains the update best is returned (`misfit`), which needs no truth. If no row is certified and a guess
    from public marginals explains the update at least as well, the guess is returned. A stage that refuses an update is
    passed over. Stages of one name are alternatives: only the first that serves is run.

    Args:
        name: registry name.
        citation: the papers.
        stages: by kind of update, in their order.
        settings: what `options` returns.
        title: the field's name for it.
    """

    def __init__(
        self,
        name: str,
        citation: str,
        stages: Mapping[UpdateKind, Sequence[UpdateAttack]],
        settings: Mapping[str, Any] | None = None,
        title: str = "",
    ) -> None:
        self.name, self.citation, self.stages = name, citation, {kind: list(of) for kind, of in stages.items()}
        self.threat_model = joined_threat_model([s.threat_model for of_kind in self.stages.values() for s in of_kind])
        self.title, self._settings = title, dict(settings or {})

    def options(self) -> dict[str, Any]:
        """Its own settings, and those of its stages under their names."""
        return copy.deepcopy(self._settings)

    def check(self, update: ClientUpdate) -> None:
        """Refuse an update that no stage serves.

        Raises:
            ObservationError: what the last stage has against it.
            UnsupportedError: likewise.
        """
        stages = self._stages_of(update)
        if all(refusal(stage, as_one_batch(update)) for stage in stages):
            stages[-1].check(update)

    def check_device(self, device: torch.device) -> None:
        """Raise `UnsupportedError` where a device lacks the precision of a stage."""
        for of_kind in self.stages.values():
            for stage in of_kind:
                stage.check_device(device)

    def label_stage(self, kind: UpdateKind) -> str | None:
        """The last stage, which is named after the protocol's own attack; the others need no labels."""
        stages = self.stages.get(kind)
        return stages[-1].name if stages else None

    def stepped(
        self, update: ClientUpdate, seed: int, device: torch.device
    ) -> tuple[UpdateAttack, ClientUpdate] | None:
        """See `UpdateAttack.stepped`: the last stage, on what the others leave."""
        course, stages = self._course(update, seed), self._stages_of(update)
        for stage in stages:
            if course.is_over:
                break
            if stage.name != stages[-1].name:
                _run_stage(stage, [course], device, None)
            elif course.is_served_by(stage):
                return stage, course.rest
        return None

    def on_card(self, device: torch.device) -> Self:
        """See `UpdateAttack.on_card`, for every stage."""
        attack = copy.copy(self)
        attack.stages = {kind: [stage.on_card(device) for stage in of_kind] for kind, of_kind in self.stages.items()}
        return attack

    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """See `UpdateAttack.run_many`."""
        for update in updates:
            self.check(update)
        courses = [self._course(update, seed) for update, seed in zip(updates, seeds, strict=True)]
        most = max(len(of_kind) for of_kind in self.stages.values())
        report = PartOfWork(progress, 1 / max(len({one.name for one in of_kind}) for of_kind in self.stages.values()))
        for turn in range(most):
            for kind, stages in self.stages.items():
                if turn < len(stages):
                    open_ones = [c for c in courses if c.update.kind == kind and not c.is_over]
                    _run_stage(stages[turn], open_ones, device, report)
        if progress is not None:
            progress(len(updates) - report.done)  # stages that were not needed
        return [course.best(self.name) for course in courses]

    def _course(self, update: ClientUpdate, seed: int) -> Course:
        return Course(update, seed, knows_marginals=self.threat_model.marginals)

    def _stages_of(self, update: ClientUpdate) -> list[UpdateAttack]:
        if not self.stages.get(update.kind):
            raise UnsupportedError(f"{self.name} has no stage for an update of kind {update.kind!r}")
        return self.stages[update.kind]


def _run_stage(
    stage: UpdateAttack, courses: Sequence[Course], device: torch.device | str, report: Progress | None
) -> None:
    served = [course for course in courses if course.is_served_by(stage)]
    if served:
        seeds = [derive_seed(course.seed, stage.name) for course in served]
        found = stage.run_many([course.rest for course in served], seeds, device, report)
        for course, one in zip(served, found, strict=True):
            course.add(stage, one)
