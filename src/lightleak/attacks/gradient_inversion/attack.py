"""Gradient inversion of FedSGD updates: restore labels, optimise restarts, match and pool, assess."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.attack import Progress, UpdateAttack
from lightleak.attacks.gradient_inversion.assessment import cell_entropy
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.engine import initial_candidates, invert
from lightleak.attacks.gradient_inversion.labels import DUMMY_ROWS, expand_counts, last_linear, restore_counts, round_counts
from lightleak.attacks.gradient_inversion.pooling import align, pool
from lightleak.attacks.gradient_inversion.problem import batch_norms, build_matcher, bytes_per_restart, client_network
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.targets.spec import NetworkSpec, build_network

class GradientInversion(UpdateAttack):
    """Reconstruct the batch behind a gradient. Every published attack of this family is a configuration of it."""

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
            ObservationError: a weight delta or an aggregate, labels that were not shared, BatchNorm statistics that were
                not shared, or parameters that do not fit the network.
            UnsupportedError: a loss other than cross-entropy.
        """
        facts = update.facts
        if update.kind != "gradient" or facts.epochs != 1:
            raise ObservationError(
                f"{self.name} inverts one FedSGD gradient; this update is a {update.kind} of {facts.epochs} epochs (FedAvg)"
            )
        if facts.n_clients != 1:
            raise ObservationError(f"{self.name} inverts one client's gradient; this one aggregates {facts.n_clients} clients")
        if facts.loss != "cross_entropy":
            raise UnsupportedError(f"{self.name} needs the loss 'cross_entropy', got {facts.loss!r}")
        if self.config.labels == "true" and update.labels is None:
            raise ObservationError(f"{self.name}: the update shares no labels; use labels='geng' or labels='bias'")
        network = build_network(NetworkSpec.from_dict(update.network), seed=0)
        expected = {name: tuple(p.shape) for name, p in network.named_parameters()}
        got = {name: tuple(p.shape) for name, p in update.parameters.items()}
        if expected != got:
            odd = sorted(k for k in expected.keys() | got.keys() if expected.get(k) != got.get(k))
            raise ObservationError(f"parameters {odd[:3]} do not fit the network {update.network['name']!r}")
        if self.config.labels != "true":
            last_linear(network)
        if self.config.batch_norm_prior > 0 and batch_norms(network) and not update.batch_statistics:
            raise ObservationError(f"{self.name}: batch_norm_prior needs the batch's BatchNorm statistics, which were not shared")

    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """See `UpdateAttack.run_many`. Work beyond the memory budget runs in chunks of updates, then of restarts."""
        for update in updates:
            self.check(update)
        per_restart = bytes_per_restart(updates[0], self.config.precision)
        at_once = max(1, int(self.config.memory_mb * 2**20 / per_restart))
        chunk = max(1, at_once // self.config.restarts)
        results: list[Reconstruction] = []
        for start in range(0, len(updates), chunk):
            part = slice(start, start + chunk)
            results += self._run_chunk(updates[part], seeds[part], torch.device(device), at_once, progress)
        return results

    def _run_chunk(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device,
        at_once: int,
        progress: Progress | None,
    ) -> list[Reconstruction]:
        began = time.perf_counter()
        config = self.config
        dtype = torch.float64 if config.precision == "float64" else torch.float32
        encoder = TableEncoder.from_state(updates[0].encoder, updates[0].encoder_tensors).to(device)
        labels = torch.stack([self._labels(u, s) for u, s in zip(updates, seeds, strict=True)])
        matcher = build_matcher(updates, labels, config, device, dtype)
        relaxation = encoder.relaxation(config.categorical, config.numerical, dtype, device)
        width = max(1, min(config.restarts, at_once // len(updates)))
        ends, n = [], updates[0].facts.n_rows
        for first in range(0, config.restarts, width):
            restarts = range(first, min(first + width, config.restarts))
            begin = initial_candidates(seeds, restarts, n, encoder.width).to(device, dtype)
            share = len(updates) * len(restarts) / (config.steps * config.restarts)
            report = None if progress is None else lambda steps, share=share: progress(steps * share)
            ends.append(invert(begin, relaxation, matcher, config, report).x)
        ensemble = torch.cat(ends, 1)
        projected = encoder.assemble(*encoder.project(ensemble)).to(dtype)
        loss = matcher.value_and_grad(projected)[0]
        seconds = (time.perf_counter() - began) / len(updates)
        return [
            self._finish(encoder, one, of_one, y, seconds) for one, of_one, y in zip(ensemble, loss, labels, strict=True)
        ]

    def _finish(self, encoder: TableEncoder, ensemble: Tensor, loss: Tensor, labels: Tensor, seconds: float) -> Reconstruction:
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
        network = client_network(update)
        draws = generator(seed, "labels")
        if self.config.labels == "bias":
            encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors)
            dummy = _rows_from_statistics(encoder, draws)
        else:
            dummy = torch.randn(DUMMY_ROWS, update.network["layout"]["blocks"][-1][2], generator=draws)
        counts = restore_counts(network, update.parameters, update.buffers, update.update, n, dummy, self.config.labels)
        return expand_counts(round_counts(counts, n))


def _rows_from_statistics(encoder: TableEncoder, draws: torch.Generator) -> Tensor:
    """Plausible rows from what the server's encoder statistics say of each column: category shares, mean and deviation."""
    codes = []
    for block in encoder.layout.categorical:
        shares = encoder.shift[block.slice].clamp_min(0)
        weights = shares if float(shares.sum()) > 0 else torch.ones_like(shares)
        codes.append(torch.multinomial(weights, DUMMY_ROWS, replacement=True, generator=draws))
    at = encoder.numerical_positions
    numbers = encoder.shift[at] + encoder.deviation * torch.randn(DUMMY_ROWS, len(at), generator=draws, dtype=torch.float64)
    empty = torch.empty(DUMMY_ROWS, 0, dtype=torch.long)
    return encoder.assemble(torch.stack(codes, -1) if codes else empty, numbers.clamp(encoder.lower, encoder.upper))
