"""The algebra of a chain against plain autograd."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, layer_names, observed_gradient
from lightleak.attacks.gradient_inversion.network.row_network import with_one
from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.targets.spec import NetworkSpec, build_network

CHAINS = [((9, 8), 2), ((9, 8), 3), ((7, 6, 5), 2), ((7, 6, 5), 5), ((6, 5, 5, 4), 3)]


@pytest.mark.parametrize(("hidden", "n_classes"), CHAINS)
def test_gradient_is_autograds_mean_cross_entropy(make_batch: Any, hidden: tuple[int, ...], n_classes: int) -> None:
    # Equal rows with equal and with different labels are among them.
    rows, labels = (3, 3, 8, 3, 20, 8, 41), (0, 1, 1, 0, 0, 1, n_classes - 1)
    batch = make_batch(hidden=hidden, n_classes=n_classes, rows=rows, labels=labels, precise=True)
    x, counts = batch.distinct()
    assert len(x) == 4 and counts.sum() == 7
    found = batch.chain.gradient(x, counts, len(rows))
    assert len(found) == batch.chain.depth == len(hidden) + 1
    for layer, expected in zip(found, batch.observed, strict=True):
        torch.testing.assert_close(layer, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("hidden", "n_classes"), CHAINS)
def test_a_batch_is_the_sum_of_its_rows(make_batch: Any, hidden: tuple[int, ...], n_classes: int) -> None:
    batch = make_batch(n=6, hidden=hidden, n_classes=n_classes)
    x, counts = batch.distinct()
    whole = batch.chain.gradient(x, counts, 6)
    parts = [batch.chain.gradient(x[i : i + 1], counts[i : i + 1], 6) for i in range(len(x))]
    for layer, *of_rows in zip(whole, *parts, strict=True):
        torch.testing.assert_close(layer, sum(of_rows), rtol=1e-10, atol=1e-14)
    nothing = batch.chain.gradient(x[:0], counts[:0], 6)
    assert all(not layer.any() and layer.shape == other.shape for layer, other in zip(nothing, whole, strict=True))


def test_forward_and_errors_are_the_networks(make_batch: Any) -> None:
    batch = make_batch(n=5, hidden=(7, 6, 5), n_classes=3)
    network = build_network(NetworkSpec.from_dict(batch.update.network), 0).double()
    network.load_state_dict({name: value.double() for name, value in batch.update.parameters.items()})
    x = batch.x.clone().requires_grad_()
    activations = batch.chain.forward(batch.x)
    logits = network(x)
    torch.testing.assert_close(activations.probabilities, logits.softmax(-1).detach())
    assert [len(part) for part in (activations.hidden, activations.preactivations)] == [4, 3]
    for mask, preactivation in zip(activations.masks, activations.preactivations, strict=True):
        assert torch.equal(mask.bool(), preactivation > 0) and mask.dtype == torch.float64
    # e_1 carried through the first weights is the derivative of the loss by the rows.
    (by_rows,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, batch.truth.labels, reduction="sum"), x)
    output = activations.probabilities - torch.nn.functional.one_hot(batch.truth.labels, 3)
    errors = batch.chain.errors(activations, output)
    torch.testing.assert_close(errors[0] @ batch.chain.weights[0], by_rows)
    assert torch.equal(errors[-1], output)


@pytest.mark.parametrize(("hidden", "n_classes"), CHAINS)
def test_slopes_are_autograds_by_every_direction(make_batch: Any, hidden: tuple[int, ...], n_classes: int) -> None:
    batch = make_batch(n=6, hidden=hidden, n_classes=n_classes)
    chain, x = batch.chain, batch.x
    directions = torch.randn(4, x.shape[1], generator=generator(2, "directions"), dtype=torch.float64)
    found = list(chain.slopes(chain.forward(x), directions))
    assert len(found) == chain.depth
    for f, direction in enumerate(directions):
        _, expected = torch.autograd.functional.jvp(lambda rows: chain.forward(rows).hidden, x, direction.expand_as(x))
        for of_layer, other in zip(found, expected, strict=True):
            torch.testing.assert_close(of_layer[:, f], other)
    shaped = chain.slopes(chain.forward(x.view(2, 3, -1)), directions)
    for of_layer, flat in zip(shaped, found, strict=True):
        torch.testing.assert_close(of_layer.flatten(0, 1), flat)


def test_rows_may_have_any_leading_dimensions(make_batch: Any) -> None:
    batch = make_batch(n=6)
    flat = batch.chain.forward(batch.x)
    shaped = batch.chain.forward(batch.x.view(2, 3, -1))
    torch.testing.assert_close(shaped.probabilities.flatten(0, 1), flat.probabilities)
    assert torch.equal(with_one(batch.x)[:, :-1], batch.x) and bool((with_one(batch.x)[:, -1] == 1).all())


def test_precision_and_what_is_read_from_an_update(make_batch: Any) -> None:
    batch = make_batch(n=3, hidden=(9, 8))
    assert layer_names(batch.update) == ["linears.0", "linears.1", "linears.2"]
    assert {w.dtype for w in batch.chain.weights} == {torch.float64}
    assert {w.dtype for w in batch.chain.to(torch.float32).biases} == {torch.float32}
    assert ReLUChain.of(batch.update, dtype=torch.float32).weights[0].dtype == torch.float32
    for layer, name in zip(observed_gradient(batch.update), layer_names(batch.update), strict=True):
        assert torch.equal(layer[:, :-1], batch.update.update[f"{name}.weight"].double())
        assert torch.equal(layer[:, -1], batch.update.update[f"{name}.bias"].double())


@pytest.mark.parametrize(
    ("network", "options", "found"),
    [
        ("mlp", {"activation": "tanh"}, "is for plain ReLU networks .*the network has activation 'tanh'"),
        ("mlp", {"norm": "layer"}, "is for plain ReLU networks .*and norm 'layer'"),
        ("resnet", {}, "is for plain ReLU networks .*ConcatenatingResNet is built otherwise"),
        ("linear", {}, "needs a hidden layer, and this network has none"),
    ],
)
def test_other_networks_are_refused(make_update: Any, network: str, options: dict[str, Any], found: str) -> None:
    update, _ = make_update(n=3, network=network, **options)
    with pytest.raises(UnsupportedError, match=found):
        ReLUChain.of(update)
