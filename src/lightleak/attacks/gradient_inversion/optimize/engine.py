"""The engine of every gradient-inversion attack: all restarts of several updates optimized in one go.

The variable is ``z [updates, restarts, rows, d]``. Each step relaxes it to encoded rows, asks a matcher for the
gradient of the objective, carries that back through the relaxation and lets Adam move ``z``. Restarts never interact,
so they may be cut into chunks to fit a memory budget.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import EngineConfig, Initialization
from lightleak.attacks.gradient_inversion.optimize.matcher import Annealed, Matcher, Repeating
from lightleak.attacks.gradient_inversion.tables.codec import RowRelaxation
from lightleak.core.devices import keep_freed_memory
from lightleak.core.seeds import generator
from lightleak.data.relaxation import Relaxation

CHECK_EVERY = 50  # steps between two looks at the losses; a look synchronizes the device
REPORT_EVERY = 1.0  # seconds; slower steps are reported one by one

RECORDED_AT = 4
"""Step at which a GPU records: in the first three Adam makes its state, and libraries choose kernels."""
FEWEST_RECORDED = 50
"""Steps below which recording, which waits for the device and empties caches, does not pay."""

LEAST_RATE = 2e-3
"""Share of the learning rate that a cosine schedule adds throughout, so that the last steps still move."""

Part = TypeVar("Part")

Progress = Callable[[int], None]
"""Called with the number of steps done since the last call."""


@dataclass(frozen=True)
class Inversion:
    """Where the optimization ended.

    Attributes:
        x: relaxed rows ``[updates, restarts, rows, d]``.
        loss: objective ``[updates, restarts]`` that the last step started from.
        steps: steps taken.
    """

    x: Tensor
    loss: Tensor
    steps: int


def initial_candidates(
    seeds: Sequence[int], restarts: Sequence[int], rows: int, width: int, initialization: Initialization = "unit"
) -> Tensor:
    """Starts ``[updates, restarts, rows, width]``, by default uniform in [0, 1] (TabLeak Alg. 1, line 12).

    Each (update, restart) has its own generator, so a start does not depend on the other updates and restarts.

    Args:
        seeds: one per update.
        restarts: indices of the restarts.
        rows: rows n of the batch.
        width: encoded features d.
        initialization: see `EngineConfig`; ``prior`` draws standard normal noise, which
            `RowBelief.start` lays around the prior.
    """
    draw = torch.randn if initialization in ("normal", "prior") else torch.rand
    starts = [[draw(rows, width, generator=generator(seed, "restart", r)) for r in restarts] for seed in seeds]
    stacked = torch.stack([torch.stack(of_update) for of_update in starts])
    return 2 * stacked - 1 if initialization == "symmetric" else stacked


def invert(
    start: Tensor, relaxation: RowRelaxation, matcher: Matcher, config: EngineConfig, progress: Progress | None = None
) -> Inversion:
    """Optimize ``start`` (copied) for ``config.steps`` steps of Adam (TabLeak Alg. 1, lines 2-7).

    Args:
        start: ``[updates, restarts, rows, d]`` on the device and in the precision of the work.
        relaxation: from ``z`` to encoded rows.
        matcher: loss and derivative of encoded rows.
        config: learning rates and their course, steps, sign, early stop.
        progress: called with the steps done; those saved by early stopping count as done.
    """
    keep_freed_memory()
    z, stop_below, is_cuda = start.clone(), config.stop_below, start.device.type == "cuda"
    rate = config.learning_rate
    # A recorded step reads its learning rate from the device, and Adam's kernel there wants it in float32.
    learning_rate = torch.tensor(rate, dtype=torch.float32, device=z.device) if is_cuda else rate
    optimizer = torch.optim.Adam([z], lr=learning_rate, fused=True, capturable=is_cuda)
    limits = _Limits.of(relaxation, config)
    loss = torch.full(z.shape[:2], float("inf"), dtype=z.dtype, device=z.device)
    relaxation_at, matcher_at = _course(relaxation), _course(matcher)
    taken, reported, last_report = 0, 0, time.monotonic()

    def advance(share: float) -> Tensor:
        now = relaxation_at(share)
        x, state = now.forward(z)
        found, by_x = matcher_at(share).value_and_grad(x)
        by_z = now.backward(by_x, state)
        z.grad = by_z.sign_() if config.sign else by_z
        before = z.clone() if stop_below is not None or limits.pace is not None else z
        optimizer.step()
        limits.keep(z, before)
        if stop_below is not None:
            z.copy_(torch.where((found < stop_below)[..., None, None], before, z))
        return found

    is_long = config.steps >= FEWEST_RECORDED
    take = _Recorded(advance, (relaxation, matcher), z.device) if is_cuda and is_long else advance
    for step in range(config.steps):
        share = step / config.steps
        if config.schedule == "cosine":
            _set_rate(optimizer, config.learning_rate * _cosine(share))
        loss = take(share)
        taken = step + 1
        if config.schedule == "step" and taken % config.decay_every == 0:
            rate *= config.learning_rate_decay
            _set_rate(optimizer, rate)
        is_checked = taken % CHECK_EVERY == 0
        if progress is not None and (is_checked or time.monotonic() - last_report > REPORT_EVERY):
            progress(taken - reported)
            reported, last_report = taken, time.monotonic()
        if is_checked and stop_below is not None and bool((loss < stop_below).all()):
            break
    if progress is not None:
        progress(config.steps - reported)
    return Inversion(relaxation_at(1.0).forward(z)[0], loss.clone(), taken)


class _Recorded:
    """Steps on a GPU whose launches are recorded once and then repeated together (a CUDA graph).

    Launching a step of 167 operations one by one takes 2.5 ms, longer than the operations do on up to 32 rows
    (`benchmarks/RESULTS.md`). The first steps run as they are; steps that change, or need the host, are never
    recorded.

    Args:
        advance: a step, given the share of the steps before it; returns the loss.
        parts: what decides whether steps repeat.
        device: where they run.
    """

    def __init__(self, advance: Callable[[float], Tensor], parts: Sequence[object], device: torch.device) -> None:
        self.advance, self.parts, self.device, self.taken = advance, parts, device, 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, share: float) -> Tensor:
        self.taken += 1
        if self.taken == RECORDED_AT and all(isinstance(part, Repeating) and part.repeats for part in self.parts):
            self.graph = torch.cuda.CUDAGraph()
            # Other threads, such as one that loads data, may go on meanwhile.
            with torch.cuda.device(self.device), torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.loss = self.advance(share)  # recorded, not run
        if self.graph is None:
            return self.advance(share)
        self.graph.replay()
        return self.loss


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    group = optimizer.param_groups[0]
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


@dataclass(frozen=True)
class _Limits:
    """How a step of Adam is bent for numbers.

    Attributes:
        pace: part of its step that each variable goes ``[d]``.
        bounds: where variables must stay.
    """

    pace: Tensor | None
    bounds: tuple[Tensor, Tensor] | None

    @classmethod
    def of(cls, relaxation: RowRelaxation, config: EngineConfig) -> "_Limits":
        if not isinstance(relaxation, Relaxation):
            return cls(None, None)
        pace = None
        if config.numerical_learning_rate is not None:
            slowed = torch.full_like(relaxation.span, config.numerical_learning_rate / config.learning_rate)
            pace = torch.where(relaxation.numbers, slowed, torch.ones_like(slowed))
        return cls(pace, relaxation.bounds)

    def keep(self, z: Tensor, before: Tensor) -> None:
        """Change ``z`` after a step."""
        if self.pace is not None:
            torch.lerp(before, z, self.pace, out=z)
        if self.bounds is not None:
            z.clamp_(*self.bounds)


def _course(part: Part) -> Callable[[float], Part]:
    """Return what gives the part after a share of the steps; to ask a protocol in every step would take 20 us each."""
    return part.at if isinstance(part, Annealed) else lambda share: part


def _cosine(share: float) -> float:
    """Factor of the learning rate after that share of the steps."""
    return 0.5 * (1 + math.cos(math.pi * share)) + LEAST_RATE
