"""The frame of the attacks by optimization: memory budget, restarts in chunks, matching, pooling and assessment."""

import copy
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor

from lightleak.attacks.attack import PartOfWork, Progress, UpdateAttack
from lightleak.attacks.gradient_inversion.config import EngineConfig, Precision
from lightleak.attacks.gradient_inversion.network.checks import alike
from lightleak.attacks.gradient_inversion.optimize.chain_options import require_options, restricted
from lightleak.attacks.gradient_inversion.optimize.engine import initial_candidates, invert
from lightleak.attacks.gradient_inversion.optimize.matcher import Matcher
from lightleak.attacks.gradient_inversion.optimize.pooling import align_rows, pool
from lightleak.attacks.gradient_inversion.optimize.priors import BelievedMatcher, RowBelief
from lightleak.attacks.gradient_inversion.tables.codec import RowCodec, RowRelaxation, TableCodec
from lightleak.core.devices import free_memory, require_tf32, synchronize, tf32_products
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel

Config = TypeVar("Config", bound=EngineConfig)

MEMORY_SHARE = 0.8
"""Part of a GPU's free memory that a call plans to take: `RestartedInversion.bytes_per_restart` is an estimate. Of a
campaign's calls, part of all its memory (`RestartedInversion.on_card`)."""


@dataclass(frozen=True)
class Posed:
    """What a group of updates asks of the engine.

    Attributes:
        matcher: loss and derivative of the variables.
        labels: LongTensor ``[updates, n]``, of the rows that `rows` returns.
        variables: rows of variables per candidate; n where every row has one.
        rows: from relaxed variables ``[updates, restarts, variables, d]`` to rows ``[updates, restarts, n, d]``.
        variables_of: rows back to variables, to judge them by the matcher.
    """

    matcher: Matcher
    labels: Tensor
    variables: int
    rows: Callable[[Tensor], Tensor]
    variables_of: Callable[[Tensor], Tensor]


class RestartedInversion(UpdateAttack, Generic[Config]):
    """The course of every attack of this family: pose a problem, optimize restarts of it, match and pool them.

    Args:
        name: registry name.
        citation: the paper.
        config: the settings.
        title: the field's name for it.
        threat_model: what the attack may know with these settings; options that use a prior of the rows add marginals.

    Attributes:
        precisions: those that it can work in.

    Raises:
        UnsupportedError: a precision that is none of these.
    """

    packs_updates = True
    precisions: ClassVar[tuple[Precision, ...]] = ("float32", "float64", "tf32")

    def __init__(self, name: str, citation: str, config: Config, title: str, threat_model: ThreatModel) -> None:
        if config.precision not in self.precisions:
            raise UnsupportedError(
                f"{name}: precision must be one of {', '.join(self.precisions)}, got {config.precision!r}"
            )
        knows = replace(threat_model, marginals=threat_model.marginals or bool(config.needs_prior))
        self.name, self.citation, self.title = name, citation, title
        self.config, self.threat_model = config, knows

    def options(self) -> dict[str, Any]:
        """The settings of the attack."""
        return self.config.to_dict()

    @abstractmethod
    def codec(self, update: ClientUpdate, device: torch.device) -> RowCodec:
        """What the encoded rows of an update stand for."""

    @abstractmethod
    def pose(
        self, pairs: Sequence[tuple[ClientUpdate, int]], codec: RowCodec, device: torch.device, dtype: torch.dtype
    ) -> Posed:
        """The problem of updates that are alike, each with its seed."""

    @abstractmethod
    def bytes_per_restart(self, update: ClientUpdate) -> int:
        """Memory that one restart takes in a step."""

    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """See `UpdateAttack.run_many`. Work beyond the memory budget runs in chunks of updates, then of restarts."""
        pairs, device = list(zip(updates, seeds, strict=True)), torch.device(device)
        for update in updates:
            self.check(update)
            require_options(self.name, update, self.config)
        self.check_device(device)
        attack = self._within_memory_of(device)
        results: dict[int, Reconstruction] = {}
        with tf32_products(self.config.precision == "tf32"):
            for members in _groups(updates):
                at_once = attack._restarts_at_once(updates[members[0]])
                size = max(1, at_once // self.config.restarts)
                for chunk in (members[i : i + size] for i in range(0, len(members), size)):
                    found = attack._run_chunk([pairs[i] for i in chunk], device, at_once, progress)
                    results |= zip(chunk, found, strict=True)
        return [results[i] for i in range(len(updates))]

    def check_device(self, device: torch.device) -> None:
        """See `UpdateAttack.check_device`: the device must have the precision."""
        if self.config.precision == "tf32":
            require_tf32(device)

    def on_card(self, device: torch.device) -> Self:
        """See `UpdateAttack.on_card`; a budget in the settings stays, and so does a CPU's."""
        if self.config.memory_mb is not None or device.type == "cpu":
            return self
        return self._with_budget(int(MEMORY_SHARE * card_memory(device)) // 2**20)

    def uncut(self, update: ClientUpdate, updates: int) -> Self:
        """See `UpdateAttack.uncut`."""
        return self._with_budget(math.ceil(updates * self.config.restarts * self.bytes_per_restart(update) / 2**20))

    def is_cut(self, update: ClientUpdate, device: torch.device) -> bool:
        """See `UpdateAttack.is_cut`; chunks are of restarts."""
        return self._within_memory_of(device)._restarts_at_once(update) < self.config.restarts

    def updates_at_once(self, update: ClientUpdate, device: torch.device) -> int:
        """See `UpdateAttack.updates_at_once`, by the engine's estimate."""
        return max(1, self._within_memory_of(device)._restarts_at_once(update) // self.config.restarts)

    def memory(self, update: ClientUpdate, updates: int, device: torch.device) -> int:
        """See `UpdateAttack.memory`, by the engine's estimate."""
        attack = self._within_memory_of(device)
        restarts = min(updates * self.config.restarts, attack._restarts_at_once(update))
        return int(restarts * attack.bytes_per_restart(update))

    def _within_memory_of(self, device: torch.device) -> Self:
        """This attack with a budget for the device where the settings name none."""
        if self.config.memory_mb is not None or device.type == "cpu":
            return self
        return self._with_budget(int(MEMORY_SHARE * free_memory(device)) // 2**20)

    def _with_budget(self, memory_mb: int) -> Self:
        attack = copy.copy(self)
        attack.config = self.config.with_options(memory_mb=max(1, memory_mb))
        return attack

    def _restarts_at_once(self, update: ClientUpdate) -> int:
        return max(1, int(self.config.memory_bytes / self.bytes_per_restart(update)))

    def _run_chunk(
        self,
        pairs: Sequence[tuple[ClientUpdate, int]],
        device: torch.device,
        at_once: int,
        progress: Progress | None,
    ) -> list[Reconstruction]:
        """Attack updates that are alike, each with its seed, ``at_once`` candidates at a time."""
        began = time.perf_counter()
        config, seeds = self.config, [seed for _, seed in pairs]
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        codec = self.codec(pairs[0][0], device)
        posed = self.pose(pairs, codec, device, dtype)
        posed, relaxation, start = self._informed(posed, [update for update, _ in pairs], codec, device, dtype)
        width = max(1, min(config.restarts, at_once // len(pairs)))
        ends, losses = [], []
        for first in range(0, config.restarts, width):
            restarts = range(first, min(first + width, config.restarts))
            drawn = initial_candidates(seeds, restarts, posed.variables, codec.width, config.initialization)
            begin = start(drawn.to(device, dtype))
            share = len(pairs) * len(restarts) / (config.steps * config.restarts)
            report = PartOfWork(progress, share)
            end = posed.rows(invert(begin, relaxation, posed.matcher, config, report).x)
            ends.append(end)
            losses.append(posed.matcher.value_and_grad(posed.variables_of(codec.project(end)))[0])
        ensemble, loss = torch.cat(ends, 1), torch.cat(losses, 1)
        synchronize(device)
        seconds = (time.perf_counter() - began) / len(pairs)
        each = zip(ensemble, loss, posed.labels, strict=True)
        return [self._finish(codec, of_update, of_restart, y, seconds) for of_update, of_restart, y in each]

    def _informed(
        self,
        posed: Posed,
        updates: Sequence[ClientUpdate],
        codec: RowCodec,
        device: torch.device,
        dtype: torch.dtype,
    ) -> tuple[Posed, RowRelaxation, Callable[[Tensor], Tensor]]:
        """The problem with what is known of rows beforehand, its relaxation, and the map from drawn numbers to starts.

        What is known: what the first layer shows of them, and a prior.
        """
        config = self.config
        if not isinstance(codec, TableCodec):
            return posed, codec.relaxation(config, dtype, device), unchanged  # the check refuses these options
        relaxation = codec.relaxation(config, dtype, device)
        if config.mask_absent or config.tie_numbers:
            relaxation = restricted(relaxation, updates, codec.encoder, config)
        if config.initialization != "prior" and config.prior_weight == 0:
            return posed, relaxation, unchanged
        belief = RowBelief.of(updates, codec.encoder, device, dtype)
        if config.prior_weight > 0:
            # A row may have several variables, one per epoch: together they count once.
            weight = config.prior_weight * posed.labels.shape[1] / posed.variables
            posed = replace(posed, matcher=BelievedMatcher(posed.matcher, belief, weight))
        start = partial(belief.start, relaxation=relaxation) if config.initialization == "prior" else unchanged
        return posed, relaxation, start

    def _finish(
        self, codec: RowCodec, ensemble: Tensor, loss: Tensor, labels: Tensor, seconds: float
    ) -> Reconstruction:
        best = int(loss.argmin())
        aligned = align_rows(codec.similarity, ensemble[best], ensemble)
        pooled = pool(aligned, best, self.config.pooling)
        return Reconstruction(
            attack=self.name,
            threat_model=self.threat_model,
            rows=codec.decode(pooled),
            labels=labels,
            encoded=pooled.cpu(),
            uncertainty=codec.uncertainty(aligned, self.config.entropy),
            loss=float(loss[best]),
            seconds=seconds,
            ensemble=aligned.cpu() if self.config.keep_ensemble else None,
        )


def card_memory(device: torch.device) -> int:
    """Bytes of a GPU, free or not."""
    return int(torch.cuda.get_device_properties(device).total_memory)


def unchanged(values: Tensor) -> Tensor:
    """Variables that are rows, or starts that are the drawn numbers."""
    return values


def _groups(updates: Sequence[ClientUpdate]) -> list[list[int]]:
    """Indices of the updates, those that can be attacked in one call together."""
    groups: list[list[int]] = []
    for i, update in enumerate(updates):
        group = next((group for group in groups if alike(updates[group[0]], update)), None)
        if group is None:
            groups.append([i])
        else:
            group.append(i)
    return groups
