"""BatchNorm with known batch statistics: the sum over rows against autograd of the whole batch."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from lightleak.attacks.gradient_inversion.exact.row_tests.verification import verify
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import spaces_of, unit_scale
from lightleak.attacks.gradient_inversion.network.batch_normalized import BatchNormalizedNetwork
from lightleak.attacks.gradient_inversion.network.of_update import layer_gradients, names_of_layers, row_network
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.own import hand_over
from lightleak.targets.spec import NetworkSpec, build_network

NETWORKS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("mlp", {"hidden": [40, 40], "norm": "batch"}, ("linears.0", "linears.1", "linears.2")),
    ("resnet", {"hidden": [40, 30]}, ("blocks.0.linear", "blocks.1.linear", "output")),
    (
        "resnet_preact",
        {"width": 40},
        ("input", "blocks.0.contract", "blocks.1.expand", "blocks.1.contract", "output"),
    ),
]


def shared(batch: Any, network: str, options: dict[str, Any], statistics: bool = True) -> Any:
    """The update of a client with the batch's rows and another network, float64."""
    encoder, truth = batch.encoder, batch.truth
    spec = NetworkSpec(network, encoder.schema.n_classes, encoder.layout, options)
    module = build_network(spec, seed=5).double()
    x = truth.inputs.double()
    return client_update(module, spec, encoder, x, truth.labels, share_labels=False, share_statistics=statistics)[0]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(("network", "options", "names"), NETWORKS)
def test_rows_add_up_to_the_gradient_of_the_batch(
    make_batch: Any, network: str, options: dict[str, Any], names: tuple[str, ...], n_classes: int
) -> None:
    batch = make_batch(9, (4, 4), n_classes, rows=(1, 2, 3, 4, 5, 5, 6, 7, 8))
    update = shared(batch, network, options)
    found = row_network(update)
    assert isinstance(found, BatchNormalizedNetwork) and tuple(names_of_layers(update, found)) == names
    x, counts = batch.distinct()
    observed = layer_gradients(update, found)
    for at, (one, other) in enumerate(zip(found.gradient(x, counts, 9), observed, strict=True)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * float(other.norm()))
        assert found.shapes[at] == tuple(other.shape)
    activations = found.forward(x)
    for layer, error in enumerate(found.errors_of_rows(activations, counts, 9)):
        torch.testing.assert_close(found.error_of_rows(layer, activations, counts, 9), error)
    assert found.searched > 0 and not found.view().has_directions


def test_it_is_refused_without_the_statistics_or_with_others(make_batch: Any) -> None:
    batch = make_batch(6, (4, 4))
    network, options, _ = NETWORKS[0]
    with pytest.raises(UnsupportedError, match="mixes the rows of a batch by BatchNorm, whose statistics"):
        row_network(shared(batch, network, options, statistics=False))
    update = shared(batch, network, options)
    with pytest.raises(ObservationError, match="BatchNorm statistics of the client's batch"):
        row_network(replace(update, batch_statistics=dict(list(update.batch_statistics.items())[:1])))


def test_a_first_layer_too_narrow_for_the_mean_row_is_refused(make_batch: Any) -> None:
    with pytest.raises(UnsupportedError, match="fewer units than the batch has categories and numbers"):
        row_network(shared(make_batch(9, (4, 4)), "mlp", {"hidden": [6, 40], "norm": "batch"}))


def test_embedded_cells_before_the_first_batch_norm_are_refused(make_batch: Any) -> None:
    batch = make_batch(6, (4, 4))
    width = batch.encoder.width
    layers = [nn.Linear(width, 8, bias=False), nn.Linear(8, 40), nn.BatchNorm1d(40), nn.ReLU()]
    name = hand_over(nn.Sequential(*layers, nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 2)))
    with pytest.raises(UnsupportedError, match="BatchNorm follows '1', whose inputs are embedded cells"):
        row_network(shared(batch, name, {}))


@pytest.mark.parametrize(("network", "options", "names"), NETWORKS)
def test_many_equal_rows_are_counted(
    make_batch: Any, network: str, options: dict[str, Any], names: tuple[str, ...]
) -> None:
    batch = make_batch(9, (4, 4), rows=(1, 1, 1, 1, 1, 2, 3, 4, 5))
    update = shared(batch, network, options)
    found = row_network(update)
    x, counts = batch.distinct()
    layer = found.searched
    gradient = layer_gradients(update, found)[layer]
    spaces = spaces_of(gradient, unit_scale(gradient))
    verdict = verify(found, layer, spaces, x, 9, most_equal=9)
    assert torch.equal(verdict.counts, counts) and float(counts.sum(1).max()) == 5
    assert bool((verdict.coefficient_error < 1e-3).all()) and bool((verdict.unit_distance < 1e-3).all())
