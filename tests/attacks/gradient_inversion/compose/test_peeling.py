"""A peeled update is the update of the rows that are left."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.compose.peeling import as_one_batch, label_counts, peeled_update
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.protocols.local_pass import local_pass
from lightleak.targets.spec import NetworkSpec, build_network


def gradient_of(update: ClientUpdate, rows: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """The mean loss's gradient by plain autograd in float64."""
    network = build_network(NetworkSpec.from_dict(update.network), seed=0).double()
    parameters = {name: value.double() for name, value in update.parameters.items()}
    return local_pass(network, parameters, {}, rows.double(), labels).gradient


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("known", [[0], [1, 3, 4], [0, 1, 2, 3, 4, 5]])
def test_it_is_the_gradient_of_the_remaining_rows(make_update: Any, known: list[int], n_classes: int) -> None:
    update, truth = make_update(n=7, hidden=[9, 8], n_classes=n_classes, dtype=torch.float64)
    rest = [i for i in range(7) if i not in known]
    peeled = peeled_update(update, truth.inputs[known].double(), label_counts(truth.labels[known], n_classes))
    expected = gradient_of(update, truth.inputs[rest], truth.labels[rest])
    assert peeled.facts.n_rows == peeled.facts.batch_size == len(rest) and peeled.labels is None
    assert list(peeled.update) == list(update.update)
    for name, value in expected.items():
        torch.testing.assert_close(peeled.update[name], value, rtol=1e-10, atol=1e-13)


def test_equal_rows_may_be_given_once_with_their_counts(make_update: Any) -> None:
    update, truth = make_update(n=5, hidden=[9, 8])
    row = truth.inputs[:1].double()
    once = peeled_update(update, row, torch.tensor([[1.0, 2.0]]))
    apart = peeled_update(update, row.expand(3, -1), label_counts(torch.tensor([1, 0, 1]), 2))
    assert once.facts == apart.facts and once.facts.n_rows == 2
    for name, value in once.update.items():
        torch.testing.assert_close(value, apart.update[name])


def test_nothing_known_changes_nothing_but_what_is_told_of_labels(make_update: Any) -> None:
    update, truth = make_update(n=4, hidden=[9, 8])
    same = peeled_update(update, truth.inputs[:0].double(), torch.empty(0, 2))
    for name, value in update.update.items():
        assert torch.equal(same.update[name], value.double())
    assert same.labels is None and same.facts.n_rows == 4


def test_what_cannot_be_peeled_is_refused(make_update: Any) -> None:
    update, truth = make_update(n=3, hidden=[9, 8])
    rows, counts = truth.inputs.double(), label_counts(truth.labels, 2)
    with pytest.raises(UsageError, match="fewer than the 3 of the batch, got 3"):
        peeled_update(update, rows, counts)
    with pytest.raises(UsageError, match=r"label_counts must have shape \(2, 2\), got \(3, 2\)"):
        peeled_update(update, rows[:2], counts)
    with pytest.raises(ObservationError, match="this update is a delta"):
        peeled_update(replace(update, kind="delta"), rows[:1], counts[:1])
    resnet, _ = make_update(n=3, network="resnet")
    with pytest.raises(UnsupportedError, match="with BatchNorm over the batch is no gradient of others"):
        peeled_update(resnet, rows[:1], counts[:1])
    resnet = replace(resnet, batch_statistics={})
    with pytest.raises(UnsupportedError, match="ConcatenatingResNet mixes the rows of a batch"):
        peeled_update(resnet, rows[:1], counts[:1])


def test_an_aggregate_of_equal_clients_is_one_batch(make_update: Any) -> None:
    update, truth = make_update(n=6, hidden=[9, 8])
    mean = replace(update, facts=replace(update.facts, n_clients=3, client_rows=(2, 2, 2), batch_size=2))
    assert as_one_batch(mean).facts == update.facts
    peeled = peeled_update(mean, truth.inputs[:1].double(), label_counts(truth.labels[:1], 2))
    assert (peeled.facts.n_clients, peeled.facts.n_rows) == (1, 5)
    unequal = replace(mean, facts=replace(mean.facts, client_rows=(1, 2, 3)))
    assert as_one_batch(unequal) is unequal
    assert as_one_batch(update) is update
