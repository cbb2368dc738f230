"""Inputs that somebody else encoded: rows go through the encoder unchanged and come back in words."""

import pytest
import torch

from lightleak.core.errors import DataError
from lightleak.data.described_inputs import describe_inputs
from lightleak.data.encoder import TableEncoder


def inputs(n: int = 50) -> torch.Tensor:
    numbers = torch.randn(n, 2)
    sex = torch.nn.functional.one_hot(torch.arange(n) % 2, 2).float()
    ward = torch.nn.functional.one_hot(torch.arange(n) % 3, 3).float()
    standardized = (ward - ward.mean(0)) / ward.std(0)
    return torch.cat([numbers[:, :1], sex, numbers[:, 1:], standardized], -1)


NAMES = ["age", "f", "m", "weight", "A", "B", "C"]
ONE_HOT = {"ward": ["A", "B", "C"], "sex": ["f", "m"]}


def test_rows_come_through_as_they_are() -> None:
    rows = inputs()
    encoder = describe_inputs(rows, names=NAMES, one_hot=ONE_HOT)
    assert encoder.schema.names == ("age", "sex", "weight", "ward")
    table = encoder.decode(rows)
    assert table["sex"].tolist() == ["f", "m"] * 25 and table["ward"].tolist()[:4] == ["A", "B", "C", "A"]
    assert torch.allclose(encoder.encode(table), rows, atol=1e-6)
    facts, tensors = encoder.to_state()
    assert TableEncoder.from_state(facts, tensors).schema == encoder.schema
    relaxed = encoder.relax(torch.randn(4, 7))
    assert (relaxed[:, 0] >= rows[:, 0].min() - 1e-6).all() and (relaxed[:, 0] <= rows[:, 0].max() + 1e-6).all()


def test_without_words_every_position_is_a_number() -> None:
    rows = torch.randn(20, 3)
    encoder = describe_inputs(rows, n_classes=4)
    assert encoder.schema.names == ("x0", "x1", "x2") and encoder.schema.n_classes == 4
    assert torch.allclose(encoder.encode(encoder.decode(rows)), rows, atol=1e-6)


def test_numbers_on_one_side_of_zero_come_through_and_nothing_says_that_their_mean_is_zero() -> None:
    rows = 5 + torch.rand(20, 2)
    encoder = describe_inputs(rows)
    assert encoder.encoding == "minmax"
    assert torch.allclose(encoder.encode(encoder.decode(rows)), rows, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        (torch.randn(1, 3), {}, r"at least 2 rows, got \[1, 3\]"),
        (torch.randn(3), {}, r"inputs must be finite numbers \[n, d\]"),
        (torch.tensor([[1.0], [float("nan")]]), {}, "finite"),
        (torch.ones(3, 2), {}, "position 'x0' is constant"),
        (torch.randn(5, 2), {"names": ["a"]}, "names must be 2 different ones"),
        (torch.randn(5, 2), {"names": ["a", "a"]}, "names must be 2 different ones"),
        (torch.randn(5, 3), {"one_hot": {"c": ["x0", "x1"]}}, "must hold exactly 2 distinct values, got 5"),
        (torch.randn(5, 3), {"one_hot": {"c": ["x0", "x2"]}}, "follow each other"),
        (torch.randn(5, 3), {"one_hot": {"c": ["x0"]}}, "needs at least 2 positions"),
        (torch.randn(5, 3), {"one_hot": {"c": ["x0", "y"]}}, r"positions that are not there: \['y'\]"),
        (inputs(), {"names": NAMES, "one_hot": {"a": ["f", "m"], "b": ["f", "m"]}}, "share positions"),
    ],
)
def test_what_does_not_fit_is_named(rows: torch.Tensor, words: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        describe_inputs(rows, **words)
