"""Terms of rows, held against the chain's own gradient."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.core.seeds import generator


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("hidden", [(12, 9), (8, 7, 6)])
def test_terms_sum_to_the_gradient(make_batch: Any, n_classes: int, hidden: tuple[int, ...]) -> None:
    batch = make_batch(n_classes=n_classes, hidden=hidden, precise=True)
    terms = Nodes.of([batch.chain]).terms(batch.x)
    found = terms.gradient(terms.of_labels(batch.truth.labels, len(batch.x)))
    rows, counts = batch.distinct()
    expected = batch.chain.gradient(rows, counts, len(batch.x))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_nodes_are_summed_with_their_shares(make_batch: Any) -> None:
    batch, other = make_batch(n_classes=3, seed=0), make_batch(n_classes=3, seed=5)
    labels, n = batch.truth.labels, len(batch.x)
    together = Nodes.of([batch.chain, other.chain], (0.25, 0.75)).terms(batch.x)
    found = together.gradient(together.of_labels(labels, n))
    each = []
    for chain, share in ((batch.chain, 0.25), (other.chain, 0.75)):
        terms = Nodes.of([chain]).terms(batch.x)
        each.append([share * g for g in terms.gradient(terms.of_labels(labels, n))])
    for joint, first, second in zip(found, *each, strict=True):
        torch.testing.assert_close(joint, first + second)


def test_first_preactivations_may_be_given(make_batch: Any) -> None:
    batch = make_batch()
    nodes = Nodes.of([batch.chain])
    first = batch.chain.forward(batch.x).preactivations[0].unsqueeze(0)
    given, own = nodes.terms(batch.x, first), nodes.terms(batch.x)
    for one, other in zip((*given.hidden, *given.errors), (*own.hidden, *own.errors), strict=True):
        torch.testing.assert_close(one, other)


def test_a_row_of_the_terms_is_the_terms_of_the_row(make_batch: Any) -> None:
    batch = make_batch(n_classes=3)
    nodes, weights = Nodes.of([batch.chain]), torch.randn(1, 2, generator=generator(0), dtype=torch.float64)
    taken, alone = nodes.terms(batch.x).row(2).gradient(weights), nodes.terms(batch.x[2:3]).gradient(weights)
    for one, other in zip(taken, alone, strict=True):
        torch.testing.assert_close(one, other)
