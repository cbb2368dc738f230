"""Pseudo-labels against a slow obvious reference, and what each setting promises."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig, pseudo_label
from lightleak.core.errors import ObservationError, UsageError


def draw_logits(rows: int, classes: int, seed: int = 0, levels: int | None = None) -> Tensor:
    """Logits in which later classes are rarer; with ``levels`` they are whole numbers, so that ties occur."""
    logits = torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed)) - torch.arange(classes) / 2
    return logits if levels is None else (logits * levels).round()


def reference(logits: Tensor, config: PseudoLabelConfig) -> dict[int, list[int]]:
    """Rows by class, in Python loops."""
    probabilities = logits.double().softmax(1).tolist()
    by_class: dict[int, list[int]] = {c: [] for c in range(logits.shape[1])}
    for i, row in enumerate(logits.tolist()):
        label = row.index(max(row))
        if probabilities[i][label] >= config.least_confidence:
            by_class[label].append(i)
    kept = {c: rows for c, rows in by_class.items() if len(rows) >= config.minimum}
    n = config.top_n
    if config.dynamic:
        n = max(n, int(config.largest_ratio * min(len(rows) for rows in kept.values())))
    # Rounded: equal logits in another order of classes may differ in the last bit of their probability.
    return {c: sorted(rows, key=lambda i, c=c: -round(probabilities[i][c], 12))[:n] for c, rows in kept.items()}  # type: ignore[misc]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(20, 200),
    classes=st.integers(2, 8),
    seed=st.integers(0, 1000),
    levels=st.sampled_from([None, 1, 2]),
    top_n=st.integers(2, 40),
    dynamic=st.booleans(),
    ratio=st.floats(1, 4),
    least=st.sampled_from([0.0, 0.4]),
)
def test_equals_the_loops(
    rows: int, classes: int, seed: int, levels: int | None, top_n: int, dynamic: bool, ratio: float, least: float
) -> None:
    config = PseudoLabelConfig(top_n, 2, dynamic, ratio, least)
    logits = draw_logits(rows, classes, seed, levels)
    chosen = pseudo_label(logits, config)
    expected = reference(logits, config)
    assert chosen.rows.tolist() == [row for c in sorted(expected) for row in expected[c]]
    assert chosen.labels.tolist() == [c for c in sorted(expected) for _ in expected[c]]
    assert chosen.used.tolist() == [len(expected.get(c, [])) for c in range(classes)]
    assert chosen.classes == tuple(sorted(expected))
    assert set(chosen.excluded) == set(range(classes)) - set(expected)
    probabilities = logits.double().softmax(1)[chosen.rows, chosen.labels]
    torch.testing.assert_close(chosen.confidence, probabilities)


def test_available_counts_every_row_and_the_summary_says_why() -> None:
    logits = torch.zeros(30, 4)
    logits[:25, 0], logits[25:, 2] = 1, 1
    chosen = pseudo_label(logits, PseudoLabelConfig(top_n=20, minimum=10))
    assert chosen.available.tolist() == [25, 0, 5, 0]
    assert chosen.rows.tolist() == list(range(20))  # equal confidence: the order of the rows
    assert chosen.summary()[0] == {"class": 0, "public_rows": 25, "used": 20, "excluded": None}
    assert chosen.summary()[2]["excluded"] == "5 public rows are taken for it; at least 10 are needed"
    assert [entry["used"] for entry in chosen.summary()] == [20, 0, 0, 0]


def test_an_excluded_class_shifts_no_other() -> None:
    """The published code numbers the classes that are left anew (PEERS.md)."""
    logits = draw_logits(300, 4)
    logits[:, 1] = -50
    chosen = pseudo_label(logits, PseudoLabelConfig(minimum=5))
    assert 1 in chosen.excluded
    assert set(chosen.labels.tolist()) == {0, 2, 3}
    assert torch.equal(chosen.labels, logits[chosen.rows].argmax(1))


def test_rows_are_ranked_where_probabilities_round_to_one() -> None:
    """An overfitted target is sure of many rows up to the last bit of a float; the order of logits still ranks them."""
    logits = torch.tensor([[100.0, 0.0], [300.0, 0.0], [200.0, 0.0]])
    chosen = pseudo_label(logits, PseudoLabelConfig(top_n=2, minimum=1))
    assert chosen.rows.tolist() == [1, 2]
    assert chosen.confidence.tolist() == [1.0, 1.0]


def test_dynamic_keeps_more_and_bounds_the_imbalance() -> None:
    logits = draw_logits(5000, 4)
    fixed = PseudoLabelConfig(top_n=50)
    plain = pseudo_label(logits, fixed)
    for ratio in (1.0, 1.5, 3.0):
        grown = pseudo_label(logits, dataclasses.replace(fixed, dynamic=True, largest_ratio=ratio))
        assert (grown.used >= plain.used).all()
        assert grown.used.sum() > plain.used.sum()
        assert grown.used.max() <= ratio * grown.used.min()


def test_dynamic_never_keeps_fewer_than_top_n() -> None:
    """The imbalance that ``top_n`` itself allows is not mended by throwing rows away."""
    logits = torch.zeros(520, 2)
    logits[:20, 1], logits[20:, 0] = 1, 1
    config = PseudoLabelConfig(top_n=100, minimum=10, dynamic=True, largest_ratio=2)
    assert pseudo_label(logits, config).used.tolist() == [100, 20]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"top_n": 0}, "top_n must be at least 1, got 0"),
        ({"minimum": True}, "minimum must be a whole number, got True"),
        ({"top_n": 5, "minimum": 6}, r"minimum must be at most top_n \(5\), got 6"),
        ({"largest_ratio": 0.5}, "largest_ratio must be at least 1, got 0.5"),
        ({"largest_ratio": float("nan")}, "largest_ratio must be a finite number, got nan"),
        ({"least_confidence": 1.0}, "least_confidence must be at least 0 and below 1, got 1.0"),
    ],
)
def test_settings_are_checked(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        PseudoLabelConfig(**setting)


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        (torch.zeros(5), r"\[rows, at least 2 classes\], got \[5\]"),
        (torch.zeros(5, 1), r"\[rows, at least 2 classes\], got \[5, 1\]"),
        (torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), "NaN or infinity in 1 of 2"),
        (torch.zeros(5, 2), r"none is the target's choice for 10 public rows \(the most has 5\)"),
        (torch.zeros(0, 2), r"the most has 0"),
    ],
)
def test_logits_that_cannot_be_used_are_refused(logits: Tensor, said: str) -> None:
    with pytest.raises(ObservationError, match=said):
        pseudo_label(logits)
