"""Gradient inversion of FedSGD updates: restore labels, optimise restarts, match and pool, assess."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.attack import Progress, UpdateAttack
from lightleak.attacks.gradient_inversion.assessment import cell_entropy
from lightleak.attacks.gradient_inversion.checks import alike, require_batch_statistics, require_fit
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.engine import initial_candidates, invert
from lightleak.attacks.gradient_inversion.labels import (
    DUMMY_ROWS,
    expand_counts,
    plausible_rows,
    require_restorable,
    restore_counts,
    round_counts,
)
from lightleak.attacks.gradient_inversion.pooling import align, pool
from lightleak.attacks.gradient_inversion.problem import build_matcher, bytes_per_restart, client_network
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder


class GradientInversion(UpdateAttack):
    """Reconstruct the batch behind a gradient. Every published attack of this family is a configuration of it.

    Args:
        name: registry name.
        citation: the paper.
        config: the settings.
    """

    def __init__(self, name: str, citation: str, config: InversionConfig) -> None:
        self.name, self.citation, self.config = name, citation, config
        self.threat_model = ThreatModel(
            labels="true" if config.labels == "true" else "restored",
            batch_statistics=config.batch_norm_prior > 0,
        )

    def options(self) -> dict[str, Any]:
        """The settings of the attack."""
        return self.config.to_dict()

    def check(self, update: ClientUpdate) -> None:
        """Refuse updates this attack has no meaning for.

        Raises:
            ObservationError: a weight delta or an aggregate, labels or BatchNorm statistics that were not shared, or
                tensors that do not fit the network.
            UnsupportedError: a loss other than cross-entropy, or labels that cannot be restored from this network.
        """
        facts, config = update.facts, self.config
        if update.kind != "gradient" or facts.epochs != 1:
            got = f"a {update.kind} of {facts.epochs} epochs (FedAvg)"
            raise ObservationError(f"{self.name} inverts one FedSGD gradient; this update is {got}")
        if facts.n_clients != 1:
            raise ObservationError(f"{self.name} inverts one client's gradient; this one aggregates {facts.n_clients}")
        if facts.loss != "cross_entropy":
            raise UnsupportedError(f"{self.name} needs the loss 'cross_entropy', got {facts.loss!r}")
        if config.labels == "true" and update.labels is None:
            raise ObservationError(f"{self.name}: the update shares no labels; use labels='geng' or labels='bias'")
        network = client_network(update)
        require_fit(update, network)
        if config.labels != "true":
            require_restorable(network, config.labels)
        if config.batch_norm_prior > 0:
            require_batch_statistics(update, network)

    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """See `UpdateAttack.run_many`. Work beyond the memory budget runs in chunks of updates, then of restarts."""
        pairs = list(zip(updates, seeds, strict=True))
        for update in updates:
            self.check(update)
        results: dict[int, Reconstruction] = {}
        for members in _groups(updates):
            at_once = self._candidates_at_once(updates[members[0]])
            size = max(1, at_once // self.config.restarts)
            for chunk in (members[i : i + size] for i in range(0, len(members), size)):
                found = self._run_chunk([pairs[i] for i in chunk], torch.device(device), at_once, progress)
                results |= zip(chunk, found, strict=True)
        return [results[i] for i in range(len(updates))]

    def _candidates_at_once(self, update: ClientUpdate) -> int:
        per_restart = bytes_per_restart(update, self.config.precision)
        return max(1, int(self.config.memory_mb * 2**20 / per_restart))

    def _run_chunk(
        self,
        pairs: Sequence[tuple[ClientUpdate, int]],
        device: torch.device,
        at_once: int,
        progress: Progress | None,
    ) -> list[Reconstruction]:
        """Attack updates that are alike, each with its seed, ``at_once`` candidates at a time."""
        began = time.perf_counter()
        config, updates, seeds = self.config, [update for update, _ in pairs], [seed for _, seed in pairs]
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        encoder = TableEncoder.from_state(updates[0].encoder, updates[0].encoder_tensors).to(device)
        labels = torch.stack([self._labels(update, seed) for update, seed in pairs])
        matcher = build_matcher(updates, labels, config, device, dtype)
        relaxation = encoder.relaxation(config.categorical, config.numerical, dtype, device)
        width = max(1, min(config.restarts, at_once // len(updates)))
        n, ends, losses = updates[0].facts.n_rows, [], []
        for first in range(0, config.restarts, width):
            restarts = range(first, min(first + width, config.restarts))
            begin = initial_candidates(seeds, restarts, n, encoder.width).to(device, dtype)
            share = len(updates) * len(restarts) / (config.steps * config.restarts)
            report = None if progress is None else partial(_report, progress, share)
            end = invert(begin, relaxation, matcher, config, report).x
            projected = encoder.assemble(*encoder.project(end)).to(dtype)
            ends.append(end)
            losses.append(matcher.value_and_grad(projected)[0])
        ensemble, loss = torch.cat(ends, 1), torch.cat(losses, 1)
        seconds = (time.perf_counter() - began) / len(updates)
        each = zip(ensemble, loss, labels, strict=True)
        return [self._finish(encoder, of_update, of_restart, y, seconds) for of_update, of_restart, y in each]

    def _finish(
        self, encoder: TableEncoder, ensemble: Tensor, loss: Tensor, labels: Tensor, seconds: float
    ) -> Reconstruction:
        best = int(loss.argmin())
        aligned = align(encoder, ensemble, best)
        pooled = pool(aligned, best, self.config.pooling)
        return Reconstruction(
            attack=self.name,
            threat_model=self.threat_model,
            rows=encoder.decode(pooled),
            labels=labels,
            encoded=pooled.cpu(),
            uncertainty=cell_entropy(encoder, aligned, pooled, self.config.entropy),
            loss=float(loss[best]),
            seconds=seconds,
            ensemble=aligned.cpu() if self.config.keep_ensemble else None,
        )

    def _labels(self, update: ClientUpdate, seed: int) -> Tensor:
        n = update.facts.n_rows
        if self.config.labels == "true":
            assert update.labels is not None  # `check` refuses an update without labels
            return update.labels.cpu()
        draws = generator(seed, "labels")
        encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors)
        if self.config.labels == "bias":
            dummy = plausible_rows(encoder, DUMMY_ROWS, draws)
        else:
            dummy = torch.randn(DUMMY_ROWS, encoder.width, generator=draws)
        network, method = client_network(update), self.config.labels
        counts = restore_counts(network, update.parameters, update.buffers, update.update, n, dummy, method)
        return expand_counts(round_counts(counts, n))


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


def _report(progress: Progress, share: float, steps: int) -> None:
    progress(steps * share)
