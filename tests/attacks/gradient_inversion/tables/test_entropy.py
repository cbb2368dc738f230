"""Entropy of a cell: 0 where restarts agree, 1 where they are even, the Gaussian formula for numbers."""

import math

import pandas as pd
import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.tables.entropy import SMALLEST_VARIANCE, cell_entropy
from lightleak.data.column import Column
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.schema import TableSchema

SCHEMA = TableSchema(
    (Column.continuous("height", 0, 100), Column.categorical("work", list("abcd"))), Column.categorical("y", ["0", "1"])
)


@pytest.fixture(params=["standardized", "onehot", "minmax", "quantile"])
def encoder(request: pytest.FixtureRequest) -> TableEncoder:
    """A number with bounds 0 and 100, and four categories."""
    encoding: Encoding = request.param
    frame = pd.DataFrame({"height": [float(h) for h in range(0, 101, 5)], "work": list("abcd" * 5 + "a"), "y": "0"})
    return TableEncoder(SCHEMA, encoding).fit(frame)


def ensemble(encoder: TableEncoder, works: list[str], heights: list[float]) -> Tensor:
    """One row, as each restart has it: ``[restarts, 1, d]``."""
    return encoder.encode(pd.DataFrame({"height": heights, "work": works})).unsqueeze(1)


def entropy(encoder: TableEncoder, works: list[str], heights: list[float], method: str = "frequency") -> pd.Series:
    """Entropy of the cells of that row."""
    aligned = ensemble(encoder, works, heights)
    found = cell_entropy(encoder, aligned, method)
    assert found.shape == (1, 2) and list(found.columns) == ["height", "work"]
    return found.iloc[0]


@pytest.mark.parametrize("method", ["frequency", "soft"])
def test_agreement_has_no_entropy(encoder: TableEncoder, method: str) -> None:
    cells = entropy(encoder, ["b"] * 8, [30.0] * 8, method)
    assert cells["work"] == pytest.approx(0, abs=1e-5)
    assert cells["height"] == pytest.approx(0.5 + 0.5 * math.log(2 * math.pi * SMALLEST_VARIANCE))


@pytest.mark.parametrize("method", ["frequency", "soft"])
def test_an_even_vote_has_all_of_it(encoder: TableEncoder, method: str) -> None:
    assert entropy(encoder, list("abcd" * 2), [30.0] * 8, method)["work"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("method", ["frequency", "soft"])
def test_a_vote_has_the_entropy_of_its_shares(encoder: TableEncoder, method: str) -> None:
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(4)
    assert entropy(encoder, list("aaab"), [1.0] * 4, method)["work"] == pytest.approx(expected, abs=1e-5)


def test_numbers_have_the_entropy_of_a_gaussian(encoder: TableEncoder) -> None:
    heights = [10.0, 20.0, 25.0, 60.0]
    variance = pd.Series(heights).var() / float(encoder.deviation) ** 2
    expected = 0.5 + 0.5 * math.log(2 * math.pi * variance)
    assert entropy(encoder, list("aaaa"), heights)["height"] == pytest.approx(expected, abs=1e-4)


def test_less_agreement_is_more_entropy(encoder: TableEncoder) -> None:
    votes = ["aaaaaaaa", "aaaaaaab", "aaaaaabb", "aaaabbbb", "aaaabbcc", "aabbccdd"]
    by_vote = [entropy(encoder, list(vote), [30.0] * 8)["work"] for vote in votes]
    around = [[50.0 + spread * k for k in range(-4, 4)] for spread in (0, 0.5, 1, 4, 12)]
    by_spread = [entropy(encoder, ["a"] * 8, heights)["height"] for heights in around]
    assert by_vote == sorted(by_vote) and len(set(by_vote)) == len(votes)
    assert by_spread == sorted(by_spread) and len(set(by_spread)) == 5


@pytest.mark.parametrize("method", ["frequency", "soft"])
def test_one_restart_says_nothing_of_its_certainty(encoder: TableEncoder, method: str) -> None:
    assert entropy(encoder, ["a"], [30.0], method).isna().all()


def test_rows_keep_their_own_entropy(encoder: TableEncoder) -> None:
    sure, unsure = ensemble(encoder, ["c"] * 4, [5.0] * 4), ensemble(encoder, list("abcd"), [5.0, 10.0, 60.0, 90.0])
    both = torch.cat([sure, unsure], 1)
    found = cell_entropy(encoder, both)
    assert found["work"].tolist() == pytest.approx([0, 1])
    assert found["height"][0] < found["height"][1]


def test_restarts_without_any_weight_are_uncertain(encoder: TableEncoder) -> None:
    aligned = ensemble(encoder, list("ab"), [1.0, 2.0])
    nothing = torch.where(encoder.layout.categorical[0].slice.start <= torch.arange(encoder.width), -9.0, aligned)
    found = cell_entropy(encoder, nothing, "soft")
    assert found["work"][0] == pytest.approx(1)


def test_soft_entropy_is_of_the_mean_distribution_where_all_restarts_name_one_category() -> None:
    encoder = TableEncoder(SCHEMA, "onehot").fit(pd.DataFrame({"height": [0.0, 50.0], "work": ["a", "b"], "y": "0"}))
    aligned = ensemble(encoder, ["a", "a"], [1.0, 2.0])
    block = encoder.layout.categorical[0].slice
    aligned[0, 0, block] = torch.tensor([0.5, 0.5 - 1e-6, 0, 0])
    aligned[1, 0, block] = torch.tensor([1.0, 0, 0, 0])
    assert cell_entropy(encoder, aligned)["work"][0] == 0
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(4)
    assert cell_entropy(encoder, aligned, "soft")["work"][0] == pytest.approx(expected, abs=1e-5)


def test_whole_numbers_vary_as_found_before_they_are_rounded() -> None:
    schema = TableSchema((Column.integer("age", 0, 100),), Column.categorical("y", ["0", "1"]))
    encoder = TableEncoder(schema).fit(pd.DataFrame({"age": [20, 30, 40, 50], "y": "0"}))
    found = [30.0, 30.1, 29.9, 30.2]
    aligned = ((torch.tensor(found) - encoder.shift) / encoder.scale).view(4, 1, 1)
    variance = pd.Series(found).var() / float(encoder.deviation) ** 2
    assert cell_entropy(encoder, aligned)["age"][0] == pytest.approx(
        0.5 + 0.5 * math.log(2 * math.pi * variance), abs=1e-3
    )


def test_a_table_without_numbers_has_entropy_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    schema = TableSchema((Column.categorical("work", list("abcd")),), Column.categorical("y", ["0", "1"]))
    frame = pd.DataFrame({"work": list("abca"), "y": "0"})
    encoder = TableEncoder(schema, "onehot").fit(frame)
    found = cell_entropy(encoder, encoder.encode(frame).unsqueeze(1))
    assert found.shape == (1, 1) and found["work"].item() > 0 and not recwarn.list
