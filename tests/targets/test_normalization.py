"""Our normalizations equal PyTorch's, keep still while an attack looks on, and show their batch statistics."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from lightleak.core.errors import UsageError
from lightleak.targets.normalization import (
    BatchNorm1d,
    LayerNorm,
    batch_statistics,
    frozen_statistics,
    record_statistics,
    with_functional_normalization,
)

SHAPES = [(7, 4), (7, 4, 5)]


def pair(**options: object) -> tuple[BatchNorm1d, nn.BatchNorm1d]:
    """Ours and PyTorch's with the same random affine parameters."""
    theirs = nn.BatchNorm1d(4, **options)
    if theirs.affine:
        nn.init.normal_(theirs.weight)
        nn.init.normal_(theirs.bias)
    ours = BatchNorm1d(4, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"momentum": 0.3, "eps": 0.1}],
)
def test_equals_pytorch_over_training_and_evaluation(shape: tuple[int, ...], options: dict[str, object]) -> None:
    ours, theirs = (layer.double() for layer in pair(**options))
    for step in range(4):
        x = torch.randn(shape, dtype=torch.float64) * (step + 1) + step
        torch.testing.assert_close(ours(x), theirs(x))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_first_and_second_derivatives_equal_pytorch(shape: tuple[int, ...]) -> None:
    results = []
    x = torch.randn(shape, dtype=torch.float64)
    weights = torch.randn(shape, dtype=torch.float64)
    for layer in (layer.double() for layer in pair()):
        leaf = x.clone().requires_grad_()
        first = torch.autograd.grad((layer(leaf) * weights).tanh().sum(), (leaf, layer.weight), create_graph=True)
        second = torch.autograd.grad(sum(part.square().sum() for part in first), (leaf, layer.weight))
        results.append((*first, *second))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [BatchNorm1d, LayerNorm])
def test_half_precision_is_normalized_in_float32(kind: type[nn.Module], dtype: torch.dtype) -> None:
    x = (torch.randn(64, 4) * 3 + 200).to(dtype)
    layer = kind(4)
    got = layer(x)
    assert got.dtype == dtype
    torch.testing.assert_close(got, layer(x.float()).to(dtype))


def test_layer_norm_equals_pytorch() -> None:
    theirs = nn.LayerNorm(6).double()
    nn.init.normal_(theirs.weight)
    ours = LayerNorm(6).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 1)])
def test_a_batch_of_one_row_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="at least 2 values per channel, got shape"):
        BatchNorm1d(4)(torch.randn(shape))
    assert BatchNorm1d(4).eval()(torch.randn(shape)).shape == shape


def test_conversion_keeps_values_parameters_and_buffers() -> None:
    network = nn.Sequential(
        nn.Linear(5, 4), nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.ReLU()), nn.LayerNorm(4, bias=False)
    )
    network.eval()
    network[1][0].running_mean.normal_()
    x = torch.randn(3, 5)
    expected, parameters = network(x), list(network.parameters())
    converted = with_functional_normalization(network)
    assert converted is network
    assert type(network[1][0]) is BatchNorm1d and type(network[2]) is LayerNorm
    torch.testing.assert_close(network(x), expected)
    assert [id(p) for p in network.parameters()] == [id(p) for p in parameters]
    assert type(with_functional_normalization(nn.BatchNorm1d(2))) is BatchNorm1d


class TestRunningStatistics:
    """They move in real training and nowhere else."""

    @pytest.fixture(params=[BatchNorm1d, nn.BatchNorm1d])
    def layer(self, request: pytest.FixtureRequest) -> nn.Module:
        return request.param(4)

    def test_frozen_within_the_block_only(self, layer: nn.Module) -> None:
        before = copy.deepcopy(layer.state_dict())
        with frozen_statistics(layer):
            normalized = layer(torch.randn(6, 4) + 3)
            torch.testing.assert_close(normalized.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
        assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
        layer(torch.randn(6, 4) + 3)
        assert not torch.equal(layer.running_mean, before["running_mean"])
        assert layer.num_batches_tracked == 1

    def test_freezing_ends_after_an_error(self, layer: nn.Module) -> None:
        with pytest.raises(RuntimeError), frozen_statistics(layer):
            raise RuntimeError
        assert layer.track_running_stats

    def test_evaluation_reads_them_while_frozen(self, layer: nn.Module) -> None:
        x = torch.randn(6, 4) + 3
        with frozen_statistics(layer.eval()):
            torch.testing.assert_close(layer(x), x / (1 + 1e-5) ** 0.5)

    @pytest.mark.parametrize("transform", [vmap, lambda f: grad(lambda x: f(x).sum())])
    def test_still_inside_a_transform(self, transform: object) -> None:
        layer = BatchNorm1d(4)
        before = copy.deepcopy(layer.state_dict())
        transform(layer)(torch.randn(2, 6, 4) if transform is vmap else torch.randn(6, 4))
        assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


class TestRecordedStatistics:
    """Mean and unbiased variance of what enters each BatchNorm layer."""

    @pytest.fixture
    def network(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(5, 4), BatchNorm1d(4), nn.ReLU(), nn.Unflatten(1, (2, 2)), BatchNorm1d(2), nn.Flatten()
        ).double()

    def test_values_and_names(self, network: nn.Module) -> None:
        x = torch.randn(6, 5, dtype=torch.float64)
        with record_statistics(network) as statistics:
            network(x)
        hidden = network[0](x)
        assert set(statistics) == {"1", "4"}
        torch.testing.assert_close(statistics["1"], (hidden.mean(0), hidden.var(0)))
        channels = network[1](hidden).relu().reshape(6, 2, 2)
        torch.testing.assert_close(statistics["4"], (channels.mean((0, 2)), channels.var((0, 2))))

    def test_evaluation_mode_shows_the_batch_too(self, network: nn.Module) -> None:
        x = torch.randn(6, 5, dtype=torch.float64)
        with record_statistics(network.eval()) as statistics:
            network(x)
        torch.testing.assert_close(statistics["1"][0], network[0](x).mean(0))

    def test_recording_ends_with_the_block(self, network: nn.Module) -> None:
        with record_statistics(network) as statistics:
            pass
        network(torch.randn(6, 5, dtype=torch.float64))
        assert statistics == {}

    def test_empty_where_there_is_no_batch_norm(self) -> None:
        network = nn.Sequential(nn.Linear(5, 4), LayerNorm(4))
        with record_statistics(network) as statistics:
            network(torch.randn(6, 5))
        assert statistics == {}

    def test_one_row_has_no_variance(self) -> None:
        with pytest.raises(UsageError, match="at least 2 values per channel"):
            batch_statistics(torch.randn(1, 3))

    def test_differentiable_inside_grad_and_vmap(self, network: nn.Module) -> None:
        """GradInversion's use: statistics come out beside the parameter gradient, and the input learns from them."""
        batches = torch.randn(3, 6, 5, dtype=torch.float64)
        parameters = {name: value.detach() for name, value in network.named_parameters()}

        def prior(inputs: Tensor) -> Tensor:
            def loss(values: dict[str, Tensor]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
                with record_statistics(network) as statistics:
                    logits = functional_call(network, values, (inputs,))
                return logits.square().sum(), dict(statistics)

            _, statistics = grad(loss, has_aux=True)(parameters)
            return sum(mean.square().sum() + variance.square().sum() for mean, variance in statistics.values())

        leaves = batches.clone().requires_grad_()
        (outside,) = torch.autograd.grad(vmap(prior)(leaves).sum(), leaves)
        inside = vmap(grad(prior))(batches)
        for index, inputs in enumerate(batches):
            leaf = inputs.clone().requires_grad_()
            with frozen_statistics(network), record_statistics(network) as statistics:
                network(leaf)
            reference = sum(mean.square().sum() + variance.square().sum() for mean, variance in statistics.values())
            (expected,) = torch.autograd.grad(reference, leaf)
            assert expected.abs().max() > 1e-3
            torch.testing.assert_close(outside[index], expected)
            torch.testing.assert_close(inside[index], expected)
