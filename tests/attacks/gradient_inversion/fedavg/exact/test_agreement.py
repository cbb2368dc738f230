"""Candidates with one dual are one group, however many there are."""

import torch

from lightleak.attacks.gradient_inversion.fedavg.exact.agreement import groups
from lightleak.attacks.gradient_inversion.fedavg.exact.candidates import Candidates


def test_a_hundred_thousand_candidates_are_grouped_by_their_duals() -> None:
    """All of their cosines at once would take 80 GB."""
    random = torch.Generator().manual_seed(0)
    duals = torch.linalg.qr(torch.randn(5, 5, generator=random, dtype=torch.float64)).Q[:3]
    true = torch.randint(3, (100_000,), generator=random)
    sign = torch.where(torch.rand(100_000, generator=random) < 0.5, -1.0, 1.0).unsqueeze(1)
    misfit = 1 + true.double() + torch.rand(100_000, generator=random, dtype=torch.float64)
    none = torch.zeros(100_000, 0)
    found = groups(Candidates(none.long(), none.double(), none.bool(), sign * duals[true], misfit))
    assert torch.equal(found, true)  # the best fitting ones' group is the first
