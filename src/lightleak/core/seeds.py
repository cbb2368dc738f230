"""One root seed; every (dataset, batch, attack, restart) derives its own generator from it.

A derived stream depends on its keys alone, never on the order of the work, the number of devices or what else
runs. Generators live on the CPU, so the same numbers are drawn whatever device they are used on.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

CPU = torch.device("cpu")


def derive_seed(root: int, *keys: str | int) -> int:
    """A 63-bit seed that depends on ``root`` and every key.

    >>> derive_seed(0, "adult", 3) == derive_seed(0, "adult", 3)
    True
    >>> derive_seed(0, "adult", 3) == derive_seed(0, "adult", 4)
    False
    """
    text = "\x1f".join([str(root), *(f"{type(key).__name__}:{key}" for key in keys)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(root: int, *keys: str | int) -> torch.Generator:
    """A CPU ``torch.Generator`` seeded with `derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(root, *keys))


def numpy_generator(root: int, *keys: str | int) -> np.random.Generator:
    """A NumPy generator seeded with `derive_seed`."""
    return np.random.default_rng(derive_seed(root, *keys))


@contextmanager
def fresh_generator(seed: int | None, device: torch.device = CPU) -> Iterator[None]:
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
