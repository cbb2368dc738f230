"""D5 takes rows with the property out of the training, for all parties."""

import pytest
import torch
from torch import Tensor

from lightleak.core.errors import DataError
from lightleak.data.vertical import VerticalRows
from lightleak.defenses.vertical.defense import VERTICAL_DEFENSES
from lightleak.defenses.vertical.withdraw import WithdrawDefense


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize(("ratio", "withdrawn"), [(0.1, 2), (0.2, 4), (0.5, 12), (0.99, 23)])
def test_withdraws_a_share_of_the_rows_with_the_property(
    rows: VerticalRows, has_property: Tensor, ratio: float, withdrawn: int, as_published: bool
) -> None:
    prepared = WithdrawDefense(ratio, as_published).prepare(rows, has_property, 0, seed=0)
    assert int(prepared.has_property.sum()) == 24 - withdrawn
    assert int((~prepared.has_property).sum()) == 16, "all other rows stay"
    assert len(prepared.source.unique()) == 40 - withdrawn
    assert torch.equal(prepared.rows.inputs, rows.inputs[prepared.source]), "all parties lose the same rows"
    assert torch.equal(prepared.rows.ids, rows.ids[prepared.source])
    assert torch.equal(prepared.rows.labels, rows.labels[prepared.source])
    assert prepared.rows.widths == rows.widths


def test_rows_keep_their_order(rows: VerticalRows, has_property: Tensor) -> None:
    prepared = WithdrawDefense(0.5).prepare(rows, has_property, 0, seed=0)
    assert (prepared.rows.ids.diff() > 0).all()


def test_as_published_takes_the_first_and_sorts_by_the_property(rows: VerticalRows, has_property: Tensor) -> None:
    prepared = WithdrawDefense(0.5, as_published=True).prepare(rows, has_property, 0, seed=0)
    having, others = has_property.nonzero().squeeze(1), (~has_property).nonzero().squeeze(1)
    assert prepared.source.tolist() == having[12:].tolist() + others.tolist()


def test_which_rows_leave_is_random(rows: VerticalRows, has_property: Tensor) -> None:
    left = torch.zeros(40)
    for seed in range(200):
        left[WithdrawDefense(0.5).prepare(rows, has_property, 0, seed).source] += 1
    assert (left[~has_property] == 200).all()
    # 200 draws of half of them: 100 each, standard deviation 7.1.
    assert ((left[has_property] - 100).abs() < 32).all()


def test_nobody_to_withdraw_is_refused(rows: VerticalRows) -> None:
    with pytest.raises(DataError, match="none of the 40 training rows has the property"):
        WithdrawDefense(0.5).prepare(rows, torch.zeros(40, dtype=torch.bool), 0, 0)


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_who_knows_the_ratio_inverts_the_share(ratio: float) -> None:
    """Rows are counted: of 1,000 with the property the ratio leaves, 2,000 without stay."""
    left = 1000 - int(ratio * 1000)
    defense = WithdrawDefense(ratio)
    assert defense.share_before(left / (left + 2000)) == pytest.approx(1 / 3)
    assert (defense.share_before(0.0), defense.share_before(1.0)) == (0.0, 1.0)


def test_no_other_defense_changes_the_share() -> None:
    others = [VERTICAL_DEFENSES.get(name)() for name in VERTICAL_DEFENSES if name != "withdraw"]
    assert {defense.name for defense in others} == {"none", "laplace", "ppdl", "r3elu", "shuffle"}
    assert all(defense.share_before(0.3) == 0.3 for defense in others)
