"""D4 moves the victim's columns of a share of the rows, and nothing else."""

import pytest
import torch
from torch import Tensor

from lightleak.data.vertical import VerticalRows
from lightleak.defenses.vertical.shuffle import ShuffleDefense


@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize(("ratio", "moved"), [(0.1, 4), (0.125, 5), (1.0, 40)])
def test_moves_the_columns_of_that_many_rows(
    rows: VerticalRows, has_property: Tensor, victim: int, ratio: float, moved: int
) -> None:
    prepared = ShuffleDefense(ratio).prepare(rows, has_property, victim, seed=0)
    for party, (before, after) in enumerate(
        zip(rows.inputs.split(rows.widths, 1), prepared.rows.inputs.split(rows.widths, 1), strict=True)
    ):
        if party != victim:
            assert torch.equal(before, after)
            continue
        assert int((before != after).any(1).sum()) == moved, "every chosen row gets another's columns"
        order = after[:, 0].argsort()
        assert torch.equal(after[order], before), "whole rows of the party move; none is lost or doubled"


def test_labels_ids_and_property_stay(rows: VerticalRows, has_property: Tensor) -> None:
    prepared = ShuffleDefense(0.5).prepare(rows, has_property, 0, seed=0)
    assert torch.equal(prepared.rows.ids, rows.ids) and torch.equal(prepared.rows.labels, rows.labels)
    assert torch.equal(prepared.has_property, has_property)
    assert torch.equal(prepared.source, torch.arange(40))


def test_rows_are_drawn_at_random(rows: VerticalRows, has_property: Tensor) -> None:
    moved = torch.stack(
        [
            (ShuffleDefense(0.25).prepare(rows, has_property, 0, seed).rows.inputs != rows.inputs).any(1)
            for seed in range(200)
        ]
    )
    # 200 draws of a quarter of the rows: 50 each, standard deviation 6.1.
    assert ((moved.sum(0) - 50).abs() < 28).all()


def test_a_share_of_less_than_two_rows_changes_nothing(rows: VerticalRows, has_property: Tensor) -> None:
    assert torch.equal(ShuffleDefense(0.01).prepare(rows, has_property, 0, 0).rows.inputs, rows.inputs)
