"""Labels are split over batches at random but alike for every epoch; shared variables keep their labels."""

import torch

from lightleak.attacks.gradient_inversion.fedavg.simulate.label_split import random_split, shared_positions, stacked
from lightleak.core.seeds import generator


def test_a_split_is_one_order_per_client_for_all_epochs() -> None:
    labels = torch.tensor([[0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 2]])
    split = random_split(labels, 3, generator(0))
    assert split.shape == (2, 3, 6)
    assert torch.equal(split[:, 0], split[:, 2])
    assert torch.equal(split[:, 0].sort(-1).values, labels)
    assert torch.equal(split, random_split(labels, 3, generator(0)))
    assert not torch.equal(split, random_split(labels, 3, generator(1)))


def test_a_shared_variable_stands_where_its_label_is() -> None:
    draws = torch.Generator().manual_seed(0)
    first = torch.randint(3, (4, 1, 9), generator=draws)
    labels = torch.cat([first, first[..., torch.randperm(9, generator=draws)]], 1)
    positions = shared_positions(labels)
    assert torch.equal(positions.sort(-1).values, torch.arange(9).expand(4, 2, 9))  # every variable once per epoch
    assert torch.equal(positions[:, 0], torch.arange(9).expand(4, 9))
    assert torch.equal(first.expand(4, 2, 9).gather(-1, positions), labels)


def test_stacking_repeats_a_client_for_every_restart() -> None:
    parts = [torch.tensor([[1], [2]]), torch.tensor([[3], [4]])]
    assert stacked(parts, 2).flatten().tolist() == [1, 2, 1, 2, 3, 4, 3, 4]
