"""What a classifier reads: a row per record, or ProVFL's published layout of several kinds."""

import dataclasses

import numpy as np
import pytest
import torch

from lightleak.attacks.property_inference.record_features import published_features, raw_features, result_features
from lightleak.core.errors import ObservationError
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts
from lightleak.core.parties import Kind

CPU = torch.device("cpu")
N, WIDTH = 8, 2


def seen(features: torch.Tensor | None = None, **widths: int) -> IntermediateResults:
    """Ids 10, 20, .. 80; the entry of record i, kind k, unit j is 100 k + i + j / 10."""
    kinds: tuple[Kind, ...] = ("AO", "AG", "VO", "VG")
    results = {
        kind: 100.0 * k + torch.arange(N).unsqueeze(1) + torch.arange(widths.get(kind, WIDTH)) / 10
        for k, kind in enumerate(kinds)
    }
    known = AuxiliaryData("x=1", torch.tensor([70, 20, 40, 80]), torch.tensor([False, True, True, False]), ("a",))
    facts = VerticalFacts(2, 1, 0, ("a",), ("x",), 0, 4, 2)
    return IntermediateResults("C1", 10 * torch.arange(1, N + 1), results, known, facts, features)


def test_a_row_is_a_record_with_its_kinds_side_by_side() -> None:
    found = result_features(seen(), None, CPU)
    assert found.rows.values.shape == (N, 8) and found.n_records == N
    # The published code's order: VG, VO, AG, AO.
    expected = torch.tensor([303, 303.1, 203, 203.1, 103, 103.1, 3, 3.1])
    torch.testing.assert_close(found.rows.values[3], expected)
    assert found.at.tolist() == [6, 1, 3, 7]
    chosen = result_features(seen(), ("AO", "VO"), CPU).rows.values
    torch.testing.assert_close(chosen[3], torch.tensor([203, 203.1, 3, 3.1]))


@pytest.mark.parametrize("by_group", [True, False])
def test_the_published_layout_is_a_reshape_without_a_transpose(by_group: bool) -> None:
    observation = seen()
    found = published_features(observation, None, by_group, CPU)
    stacked = np.stack([observation.results[kind].numpy() for kind in ("VG", "VO", "AG", "AO")])
    np.testing.assert_array_equal(found.rows.values[:N], stacked.reshape(N, 8))
    # Positions of ids 20, 40 (with the property) and 70, 80 (without).
    groups = [[1, 3], [6, 7]] if by_group else [[1, 3, 6, 7]]
    auxiliary = np.concatenate([stacked[:, group].reshape(len(group), 8) for group in groups])
    order = [1, 2, 0, 3]  # rows of the auxiliary data: with, with, without, without
    np.testing.assert_array_equal(found.rows.values[found.at[torch.tensor(order)]], auxiliary)
    assert found.n_records == N and len(found.rows.values) == N + 4
    # A row mixes records of one kind: the first holds records 0 to 3 of VG.
    assert found.rows.values[0].tolist() == pytest.approx([300, 300.1, 301, 301.1, 302, 302.1, 303, 303.1])


def test_raw_features_keep_their_type() -> None:
    bits = torch.randint(2, (N, 5), dtype=torch.uint8)
    found = raw_features(seen(bits), CPU)
    assert found.rows.values.dtype == torch.uint8 and found.at.tolist() == [6, 1, 3, 7]
    torch.testing.assert_close(found.rows.take(found.at), bits[[6, 1, 3, 7]].float())


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ObservationError, match="the observation carries no features"):
        raw_features(seen(), CPU)
    with pytest.raises(ObservationError, match="features must be finite"):
        raw_features(seen(torch.full((N, 2), float("nan"))), CPU)
    with pytest.raises(ObservationError, match="needs kinds of one width, got widths 2, 2, 2, 3"):
        published_features(seen(AO=3), None, True, CPU)
    assert result_features(seen(AO=3), None, CPU).rows.values.shape == (N, 9)


def test_labels_stand_beside_the_own_columns_as_one_hot_columns() -> None:
    bits = torch.randint(2, (N, 5), dtype=torch.uint8)
    labels = torch.arange(N) % 2
    observation = dataclasses.replace(seen(bits), labels=labels)
    found = raw_features(observation, CPU).rows.values
    assert found.dtype == torch.uint8 and torch.equal(found[:, :5], bits)
    assert torch.equal(found[:, 5:], torch.stack([1 - labels, labels], 1).to(torch.uint8))
    assert torch.equal(raw_features(observation, CPU, with_labels=False).rows.values, bits)
