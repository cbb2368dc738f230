"""The noise level, read off equations that gradients fulfill."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.noise import estimated_noise
from lightleak.core.seeds import generator


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_deviation_is_found(make_batch: Any, encoding: str, n_classes: int) -> None:
    batch = make_batch(encoding=encoding, n_classes=n_classes, n=20)
    assert estimated_noise(batch.observed, batch.encoder) == 0
    for deviation in (1e-4, 1e-2):
        noised = [
            g + deviation * torch.randn(g.shape, generator=generator(i), dtype=torch.float64)
            for i, g in enumerate(batch.observed)
        ]
        assert estimated_noise(noised, batch.encoder) == pytest.approx(deviation, rel=0.15)
