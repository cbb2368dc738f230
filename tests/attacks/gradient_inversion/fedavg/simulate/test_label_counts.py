"""Label counts from a FedAvg update: Eq. 2 averaged over the local steps, its limits, and what it refuses."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.fedavg.simulate.label_counts import (
    FedAvgLabelMethod,
    last_layer_statistics,
    momentum_steps,
    restore_fedavg_counts,
)
from lightleak.attacks.gradient_inversion.optimize import labels
from lightleak.attacks.gradient_inversion.optimize.labels import restore_counts, round_counts
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.targets.spec import NetworkSpec, build_network

WIDTH, CLASSES, ROWS = 6, 4, 12
METHODS: tuple[FedAvgLabelMethod, ...] = ("interpolated", "geng_server", "geng_client")
Named = dict[str, Tensor]


def make(name: str = "mlp", seed: int = 0, **options: object) -> nn.Module:
    """A small network in float64."""
    options = options or {"hidden": [9, 8]}
    return build_network(NetworkSpec(name, CLASSES, EncodedLayout.of_numerical(WIDTH), options), seed).double()


def weights(network: nn.Module) -> Named:
    return {name: p.detach().clone() for name, p in network.named_parameters()}


def trained(network: nn.Module, x: Tensor, y: Tensor, epochs: int, batches: int, **sgd: float) -> Named:
    """The weights after local SGD by PyTorch's own optimizer; the network is put back."""
    before = weights(network)
    optimizer = torch.optim.SGD(network.parameters(), **sgd)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).chunk(batches):
            optimizer.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
    after = weights(network)
    network.load_state_dict(before, strict=False)
    return after


def printed_formula(network: nn.Module, before: Named, after: Named, rate: float, steps: int, dummy: Tensor) -> Tensor:
    """Sec. 4.5 word by word, with the interpolation weights in the order in which the paper prints them."""

    def statistics(values: Named) -> tuple[Tensor, Tensor]:
        network.load_state_dict(values)
        hidden = dummy
        for linear in network.linears[:-1]:
            hidden = linear(hidden).relu()
        return network.linears[-1](hidden).softmax(-1).mean(0), hidden.sum(1).mean()

    (p_server, o_server), (p_client, o_client) = statistics(before), statistics(after)
    last = f"linears.{len(network.linears) - 1}.weight"
    gradient = ((before[last] - after[last]) / (rate * steps)).sum(1)
    total = torch.zeros(CLASSES, dtype=torch.float64)
    for i in range(1, steps + 1):
        p = i / steps * p_server + (steps - i) / steps * p_client
        o = i / steps * o_server + (steps - i) / steps * o_client
        total += ROWS * p - ROWS * gradient / o
    return (total / steps).detach()


@pytest.fixture
def rows() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, labels and dummy rows."""
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, WIDTH, generator=draws, dtype=torch.float64)
    return x, torch.randint(CLASSES, (ROWS,), generator=draws), torch.randn(60, WIDTH, generator=draws)


@pytest.mark.parametrize(("epochs", "batches"), [(1, 1), (1, 4), (3, 4)])
def test_interpolated_is_the_papers_formula(rows: tuple[Tensor, ...], epochs: int, batches: int) -> None:
    network, (x, y, dummy) = make(), rows
    before, after = weights(network), trained(network, x, y, epochs, batches, lr=0.3)
    got = restore_fedavg_counts(network, before, after, {}, ROWS, 0.3, epochs * batches, dummy)
    expected = printed_formula(network, before, after, 0.3, epochs * batches, dummy.double())
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("method", METHODS)
def test_each_end_is_geng_at_its_weights(rows: tuple[Tensor, ...], method: FedAvgLabelMethod) -> None:
    """Of one step the interpolation knows the start alone."""
    network, (x, y, dummy) = make("resnet", hidden=[9, 8]), rows
    before, after = weights(network), trained(network, x, y, 1, 1, lr=0.3)
    gradient = {name: (before[name] - after[name]) / 0.3 for name in before}
    at = after if method == "geng_client" else before
    expected = restore_counts(network, at, {}, gradient, ROWS, dummy)
    got = restore_fedavg_counts(network, before, after, {}, ROWS, 0.3, 1, dummy, method)
    torch.testing.assert_close(got, expected)


def test_with_equal_activations_interpolated_lies_between_the_ends(rows: tuple[Tensor, ...]) -> None:
    """Only the last layer moves, so only the probabilities differ: (U + 1) parts of the start, U - 1 of the end."""
    network, (x, y, dummy) = make(), rows
    before = weights(network)
    moved = trained(network, x, y, 2, 4, lr=0.3)
    after = {name: moved[name] if name.startswith("linears.2") else before[name] for name in before}
    middle, start, end = (
        restore_fedavg_counts(network, before, after, {}, ROWS, 0.3, 8, dummy, method) for method in METHODS
    )
    torch.testing.assert_close(middle, (9 * start + 7 * end) / 16)
    assert not torch.allclose(start, end)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "settings", [{}, {"momentum": 0.9}, {"weight_decay": 0.5}, {"momentum": 0.5, "weight_decay": 0.1}]
)
def test_exact_where_the_dummy_rows_are_the_clients(method: FedAvgLabelMethod, settings: dict[str, float]) -> None:
    """Equal rows have one activation sum and one probability, and short steps leave both where they were."""
    network = make(seed=3)
    y = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 3, 3, 3])
    x = torch.randn(1, WIDTH, dtype=torch.float64).expand(ROWS, WIDTH)
    before, after = weights(network), trained(network, x, y, 5, 3, lr=1e-5, **settings)
    counts = restore_fedavg_counts(network, before, after, {}, ROWS, 1e-5, 15, x, method, **settings)
    expected = torch.bincount(y, minlength=CLASSES).double()
    # Momentum weighs the batches of an epoch unequally; without it short steps add up to the batch gradient.
    torch.testing.assert_close(counts, expected, rtol=0, atol=1.0 if "momentum" in settings else 0.01)


def test_weights_that_only_decay_tell_nothing_of_labels() -> None:
    """Without a gradient the counts are the mean probabilities, to the second order in what decays (here 10%)."""
    network, dummy = make(seed=2), torch.randn(60, WIDTH)
    before = weights(network)
    after = {name: weight * (1 - 0.01 * 1.0) ** 10 for name, weight in before.items()}
    counts = restore_fedavg_counts(network, before, after, {}, ROWS, 0.01, 10, dummy, "geng_server", weight_decay=1.0)
    probability, activation = last_layer_statistics(network, before, {}, dummy)
    first_order = ROWS * before["linears.2.weight"].sum(1).abs().max() / activation
    assert (counts - ROWS * probability).abs().max() < 0.01 * first_order


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=15)
@given(seed=st.integers(0, 1000), epochs=st.integers(1, 4), batches=st.integers(1, 5))
def test_counts_sum_to_the_rows(method: FedAvgLabelMethod, seed: int, epochs: int, batches: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    network = make(seed=seed)
    x, dummy = torch.randn(2, ROWS, WIDTH, generator=draws, dtype=torch.float64)
    y = torch.randint(CLASSES, (ROWS,), generator=draws)
    before, after = weights(network), trained(network, x, y, epochs, batches, lr=0.1)
    counts = restore_fedavg_counts(network, before, after, {}, ROWS, 0.1, epochs * batches, dummy, method)
    assert counts.sum().item() == pytest.approx(ROWS, abs=1e-9)
    whole = round_counts(counts, ROWS)
    assert int(whole.sum()) == ROWS and bool((whole >= 0).all())


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_momentum_steps_move_as_far_as_the_optimizer(steps: int, momentum: float) -> None:
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=momentum)
    for _ in range(steps):
        weight.grad = -torch.ones_like(weight)
        optimizer.step()
    assert momentum_steps(steps, momentum) == pytest.approx(weight.item(), rel=1e-12)


def test_many_dummy_rows_are_averaged_in_parts(rows: tuple[Tensor, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    network, dummy = make(), rows[2]
    whole = last_layer_statistics(network, weights(network), {}, dummy)
    monkeypatch.setattr(labels, "ROWS_AT_ONCE", 7)
    torch.testing.assert_close(last_layer_statistics(network, weights(network), {}, dummy), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_changes_and_any_precision_is_taken(rows: tuple[Tensor, ...], dtype: torch.dtype) -> None:
    network, (x, y, dummy) = make("mlp", hidden=[9, 8], norm="batch").train(), rows
    buffers = {name: b.clone() for name, b in network.named_buffers()}
    before, after = weights(network), trained(network, x, y, 2, 3, lr=0.1)
    held, own = ({name: v.clone() for name, v in g.items()} for g in (buffers, network.state_dict()))
    groups = [{name: p.to(dtype) for name, p in group.items()} for group in (before, after)]
    assert restore_fedavg_counts(network, *groups, buffers, ROWS, 0.1, 6, dummy).isfinite().all()
    assert all(torch.equal(buffers[name], held[name]) for name in held)
    assert all(torch.equal(network.state_dict()[name], own[name]) for name in own)


def test_what_has_no_meaning_is_refused(rows: tuple[Tensor, ...]) -> None:
    network, dummy = make(), rows[2]
    tensors = weights(network), weights(network), {}, ROWS, 0.1
    with pytest.raises(UsageError, match="method must be one of interpolated, geng_server, geng_client, got 'bias'"):
        restore_fedavg_counts(network, *tensors, 4, dummy, "bias")
    with pytest.raises(UsageError, match="local_steps must be at least 1, got 0"):
        restore_fedavg_counts(network, *tensors, 0, dummy)
    linear = build_network(NetworkSpec("linear", CLASSES, EncodedLayout.of_numerical(WIDTH)), seed=0)
    with pytest.raises(UnsupportedError, match="needs a hidden layer"):
        restore_fedavg_counts(linear, weights(linear), weights(linear), {}, ROWS, 0.1, 4, dummy)
