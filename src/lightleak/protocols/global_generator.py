"""State of torch's global generators: read, set for a block, restored."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from lightleak.core.errors import ObservationError


def generator_state(device: torch.device) -> Tensor:
    """State of torch's global generator of ``device``, uint8 ``[bytes]``; reading it draws nothing."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@contextmanager
def fresh_generator(seed: int | None, device: torch.device) -> Iterator[None]:
    """Within the block torch's global generators start from ``seed``; afterwards they are as they were.

    ``None`` changes nothing.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else [], enabled=seed is not None):
        if seed is not None:
            # Not torch.manual_seed: that reseeds every GPU as well, and only this one is put back.
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
        yield


@contextmanager
def generator_set_to(state: Tensor | None, device: torch.device) -> Iterator[None]:
    """Within the block torch's global generator of ``device`` starts from ``state``; afterwards it is as it was.

    Raises:
        ObservationError: the state is damaged.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        # A copy: set_rng_state crashes on a view that begins inside its storage (torch 2.13, CPU).
        try:
            if state is not None and device.type == "cuda":
                torch.cuda.set_rng_state(state.clone(), device)
            elif state is not None:
                torch.set_rng_state(state.clone())
        except (RuntimeError, TypeError) as error:
            raise ObservationError(f"the recorded generator state is damaged: {error}") from error
        yield
