"""Shadow-model property inference by one party of vertical federated learning (SM-PIA; ProVFL Sec. VI-B.3, Table VII).

Shadow-model attacks ask which of two fractions a model was trained at. They train many models on data of either
fraction and learn to distinguish their outputs on query rows (Mahloujifar et al., S&P 2022; Chaudhari et al., SNAP, S&P
2023).

The paper says that it replicates "the complete training process across the entire feature space", which no party can
do, and publishes no code. Here a shadow model is what a party can train: the target's bottom network and a head, on the
party's own columns of auxiliary rows resampled to a world's fraction, with the task's labels of these rows. The outputs
that are read exist for shadows and target alike and do not depend on the order of neurons: for every query row the mean
absolute value of the bottom network's output (AO), and, for the active party, the logits. The target's logits come from
all parties' columns, the shadows' from one party's; that gap is inherent in the setting.

Auxiliary rows are dealt into three parts: query rows, which no shadow is trained on, and two pools. Shadows of one pool
share its accidents, and a meta-classifier that learns these looks perfect among them even where the property leaves no
trace; so its accuracy is measured on shadows of the pool it was not trained on.
"""

import math
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightleak.attacks.property_inference.attack import require_distinct_rows
from lightleak.attacks.property_inference.property_classifiers import assign_folds
from lightleak.attacks.property_inference.stacked_networks import (
    FeatureRows,
    Schedule,
    StackedNetworks,
    initial_networks,
    train,
)
from lightleak.attacks.property_inference.two_worlds import check_worlds
from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.facts import Facts
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.seeds import derive_seed, generator

N_FOLDS = 5
POOLS = ((1, 2), (3, 4))
"""Folds of the auxiliary rows that make a pool; fold 0 holds the query rows."""

FAR = 3.0
"""Deviations of the shadows: a target further out than this on half of its outputs is not like any shadow."""


@dataclass(frozen=True)
class TaskKnowledge:
    """What the adversary knows of the task on the auxiliary rows, in their order.

    Attributes:
        labels: LongTensor ``[m]`` classes; the active party has them, a passive one must have come by them.
        logits: float ``[m, outputs]`` the top network's outputs; the active party's alone, else ``None``.
    """

    labels: Tensor
    logits: Tensor | None = None


@dataclass(frozen=True)
class ShadowConfig(AttackSettings):
    """Settings of SM-PIA.

    Attributes:
        n_shadows: shadow models per world, half of them of either pool; the literature takes at least 50.
        rows: rows each is trained on, drawn with replacement from its pool at the world's fraction.
        bottom_hidden: hidden widths of the bottom network.
        top_hidden: hidden widths of the head.
        schedule: how shadows are trained. The default is ProVFL's for Adult with five times its step, as fewer rows
            make fewer steps.
        ridge: weight of the meta-classifier's penalty, relative to the mean square of its standardized inputs.

    Raises:
        UsageError: a value out of range.
    """

    owner: ClassVar[str] = "sm_pia"

    n_shadows: int = 50
    rows: int = bounded(4000, ge=2)
    bottom_hidden: tuple[int, ...] = bounded((32,), ge=1)
    top_hidden: tuple[int, ...] = bounded((16,), ge=1)
    schedule: Schedule = field(default_factory=lambda: Schedule("sgd", 20, 64, 0.05, 3e-5, 0.97))
    ridge: float = bounded(0.1, gt=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_shadows < 2 or self.n_shadows % 2:
            raise UsageError(f"n_shadows must be even, half of them of either pool, got {self.n_shadows}")


@dataclass(frozen=True)
class WorldDecision:
    """Which world the target was trained in.

    Attributes:
        world: 0 or 1.
        score: of the meta-classifier, -1 for a typical shadow of world 0 and 1 for one of world 1.
        shadow_accuracy: its accuracy on shadows of the other pool; at 0.5 the worlds cannot be distinguished even
            among shadows.
        distance: median over the outputs of how many deviations of the shadows the target is away from their mean.
        seconds: wall time.
        warnings: why the decision should not be trusted.
    """

    world: int
    score: float
    shadow_accuracy: float
    distance: float
    seconds: float
    warnings: tuple[str, ...]


class ShadowModels:
    """SM-PIA between two fractions. It is no `PropertyAttack`: it names one of two worlds and estimates no fraction.

    Needs:
        * Two fractions to distinguish: it estimates none, so only ``lightleak reproduce provfl-table7`` runs it.
        * Auxiliary rows enough for three parts: query rows, and two pools that shadows are trained on.

    Deviates:
        * The paper says that it replicates the training across all features, which no party can, and publishes no code:
          here a shadow is what a party can train, its bottom network and a head.
        * The meta-classifier is judged on shadows of the pool it was not trained on.
    """

    name = "sm_pia"
    title = "SM-PIA"
    citation = (
        "Bai et al., ProVFL, IEEE TIFS 2025, Table VII; Mahloujifar, Ghosh and Chase, S&P 2022; Chaudhari et al., S&P "
        "2023"
    )
    facts: ClassVar[Facts] = Facts(
        "trains shadow models of two worlds and says which one it is",
        "One party that follows the protocol, trains models of its own on its columns of auxiliary rows with the "
        "task's labels, and reads the mean outputs (and, as the active party, the logits) of query rows.",
        settings=(ShadowConfig,),
    )
    """What its card says; it is in no registry because it is no `PropertyAttack`."""

    def __init__(self, worlds: tuple[float, float], config: ShadowConfig | None = None) -> None:
        """Choose the worlds.

        Raises:
            UsageError: see `check_worlds`.
        """
        check_worlds(worlds)
        self.worlds, self.config = worlds, config or ShadowConfig()

    def options(self) -> dict[str, Any]:
        """The settings, JSON-ready."""
        return {"worlds": list(self.worlds), **self.config.to_dict()}

    def check(self, observation: IntermediateResults, task: TaskKnowledge) -> None:
        """Refuse what cannot be attacked.

        Raises:
            ObservationError: no features or no AO; fewer distinct auxiliary rows with or without the property than
                folds; labels or logits that are not those of the auxiliary rows; logits for a passive party.
        """
        known, n_classes = observation.auxiliary, observation.facts.n_classes
        m = len(known.ids)
        if observation.features is None or "AO" not in observation.results:
            raise ObservationError("sm_pia needs the adversary's own encoded columns (features) and AO")
        require_distinct_rows(known, N_FOLDS, self.name)
        if task.labels.shape != (m,) or not 0 <= int(task.labels.min()) <= int(task.labels.max()) < n_classes:
            raise ObservationError(f"labels must hold one class below {n_classes} for each of {m} auxiliary rows")
        if task.logits is None:
            return
        if observation.adversary == "C2":
            raise ObservationError("a passive party (C2) sees no logits")
        if task.logits.shape != (m, _n_outputs(n_classes)):
            expected = f"[{m}, {_n_outputs(n_classes)}]"
            raise ObservationError(f"logits must have shape {expected}, got {tuple(task.logits.shape)}")

    def decide(
        self, observation: IntermediateResults, task: TaskKnowledge, seed: int = 0, device: torch.device | str = "cpu"
    ) -> WorldDecision:
        """Name the world the target was trained in; the same observation and seed give the same decision.

        Args:
            observation: what the adversary sees of the target's training.
            task: what it knows of the task.
            seed: root seed of draws, weights and orders.
            device: where the shadows are trained.

        Raises:
            ObservationError: see `check`.
        """
        began = time.perf_counter()
        self.check(observation, task)
        known = observation.auxiliary
        folds = assign_folds(known.ids.cpu(), known.has_property.cpu(), N_FOLDS, seed)
        queries = (folds == 0).nonzero().squeeze(1)
        shadows = self._shadow_outputs(observation, task, folds, queries, seed, device)
        target = _target_outputs(observation, task, queries)
        half = self.config.n_shadows // 2
        worlds = torch.tensor([-1.0, 1.0]).repeat_interleave(half).repeat(len(POOLS))
        accuracy = cross_pool_accuracy(shadows, worlds, self.config.ridge)
        score = float(ridge_scores(shadows, worlds, target.unsqueeze(0), self.config.ridge))
        away = float(((target - shadows.mean(0)).abs() / shadows.std(0).clamp(min=1e-12)).median())
        return WorldDecision(
            world=int(score > 0),
            score=score,
            shadow_accuracy=accuracy,
            distance=away,
            seconds=time.perf_counter() - began,
            warnings=_warnings(accuracy, away, len(worlds)),
        )

    def _shadow_outputs(
        self,
        observation: IntermediateResults,
        task: TaskKnowledge,
        folds: Tensor,
        queries: Tensor,
        seed: int,
        device: torch.device | str,
    ) -> Tensor:
        """Outputs ``[shadows, f]``: pool by pool, in each the shadows of world 0 first."""
        config, known = self.config, observation.auxiliary
        assert observation.features is not None  # `check` refuses
        rows = FeatureRows(observation.features[observation.positions(known.ids)].to(device))
        drawn = []
        for index, pool in enumerate(POOLS):
            at = torch.isin(folds, torch.tensor(pool)).nonzero().squeeze(1)
            for fraction in self.worlds:
                draw = generator(seed, "shadows", index, str(fraction))
                has_property, n_shadows = known.has_property.cpu()[at], config.n_shadows // 2
                drawn.append(at[shadow_members(has_property, fraction, n_shadows, config.rows, draw)])
        members = torch.cat(drawn)
        sent, n_outputs = observation.results["AO"].shape[1], _n_outputs(observation.facts.n_classes)
        widths = (rows.values.shape[1], *config.bottom_hidden, sent, *config.top_hidden, n_outputs)
        networks = initial_networks(len(members), widths, "torch", derive_seed(seed, "shadows"), device)
        labels = task.labels.cpu()[members].to(device)
        train(networks, rows, members.to(device), labels, config.schedule, derive_seed(seed, "shadows"))
        return self._read(networks, rows, queries.to(device), with_logits=task.logits is not None).cpu()

    def _read(self, networks: StackedNetworks, rows: FeatureRows, queries: Tensor, with_logits: bool) -> Tensor:
        sent = networks.outputs(rows, queries, layer=len(self.config.bottom_hidden) + 1)
        parts = [sent.abs().mean(2)]
        if with_logits:
            parts.append(networks.outputs(rows, queries).flatten(1))
        return torch.cat(parts, 1)


def shadow_members(has_property: Tensor, fraction: float, n_shadows: int, rows: int, draw: torch.Generator) -> Tensor:
    """Training rows of the shadows of one world, LongTensor ``[n_shadows, rows]`` of positions in ``has_property``.

    Rows are drawn with replacement, ``round(fraction * rows)`` of each shadow's among those with the property.

    >>> has = torch.tensor([True, True, False, False, False])
    >>> has[shadow_members(has, 0.3, n_shadows=2, rows=10, draw=torch.Generator())].sum(1).tolist()
    [3, 3]
    """
    n_with = round(fraction * rows)
    drawn = []
    for mask, size in ((has_property, n_with), (~has_property, rows - n_with)):
        among = mask.nonzero().squeeze(1)
        drawn.append(among[torch.randint(len(among), (n_shadows, size), generator=draw)])
    return torch.cat(drawn, 1)


def ridge_scores(inputs: Tensor, targets: Tensor, queries: Tensor, ridge: float) -> Tensor:
    """Ridge regression of ``targets`` on standardized inputs, and what it says of ``queries``, float ``[q]``.

    Args:
        inputs: ``[k, f]``.
        targets: ``[k]`` of mean 0, so that there is no intercept.
        queries: ``[q, f]``, standardized as the inputs are.
        ridge: penalty relative to the mean square of the standardized inputs, i.e. to the number of features.
    """
    mean, scale = inputs.mean(0), inputs.std(0)
    scale = torch.where(scale > 0, scale, 1.0)
    z, at = ((inputs - mean) / scale).double(), ((queries - mean) / scale).double()
    penalty = ridge * z.shape[1] * torch.eye(len(z), dtype=torch.float64)
    return (at @ z.T @ torch.linalg.solve(z @ z.T + penalty, targets.double())).float()


def cross_pool_accuracy(shadows: Tensor, worlds: Tensor, ridge: float) -> float:
    """Share of shadows whose world the sign of a meta-classifier trained on the other half of them names.

    Args:
        shadows: ``[k, f]`` outputs, those of one pool in the first half and those of the other in the second.
        worlds: ``[k]`` of -1 and 1, equally often in either half.
        ridge: see `ridge_scores`.
    """
    half = len(shadows) // 2
    halves = slice(None, half), slice(half, None)
    right = [
        ridge_scores(shadows[fit], worlds[fit], shadows[rest], ridge).sign() == worlds[rest]
        for fit, rest in (halves, halves[::-1])
    ]
    return float(torch.cat(right).float().mean())


def _target_outputs(observation: IntermediateResults, task: TaskKnowledge, queries: Tensor) -> Tensor:
    at = observation.positions(observation.auxiliary.ids).cpu()[queries]
    norms = observation.results["AO"].cpu()[at].abs().mean(1)
    return norms if task.logits is None else torch.cat([norms, task.logits.cpu()[queries].flatten()])


def _n_outputs(n_classes: int) -> int:
    return 1 if n_classes == 2 else n_classes


def _warnings(shadow_accuracy: float, distance: float, n_shadows: int) -> tuple[str, ...]:
    found = []
    if shadow_accuracy < 0.5 + 1.645 * math.sqrt(0.25 / n_shadows):
        found.append(
            f"the two worlds cannot be distinguished even among shadow models (accuracy {shadow_accuracy:.2f})"
        )
    if distance > FAR:
        found.append(
            f"the target's outputs are {distance:.1f} deviations away from the shadow models': the decision "
            "extrapolates"
        )
    return tuple(found)
