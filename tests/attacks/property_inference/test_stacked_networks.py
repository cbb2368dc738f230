"""Networks side by side are the networks PyTorch would train one by one."""

import math

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks.property_inference import stacked_networks
from lightleak.attacks.property_inference.stacked_networks import (
    FeatureRows,
    Schedule,
    StackedNetworks,
    initial_networks,
    train,
)
from lightleak.core.errors import UsageError
from lightleak.core.seeds import generator

ROWS, D = 90, 5


def made(n_networks: int, n_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = generator(0, "made")
    inputs = torch.randn(ROWS, D, generator=draw)
    classes = (inputs @ torch.randn(D, n_classes, generator=draw)).argmax(1)
    # 70 rows in batches of 16: the last batch of an epoch has 6.
    members = torch.stack([torch.randperm(ROWS, generator=draw)[:70] for _ in range(n_networks)])
    return inputs, members, classes[members]


def as_modules(networks: StackedNetworks, index: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for weight, bias in zip(networks.weights, networks.biases, strict=True):
        linear = nn.Linear(weight.shape[1], weight.shape[2])
        linear.weight.data, linear.bias.data = weight[index].T.clone(), bias[index, 0].clone()
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def train_one(
    module: nn.Sequential, inputs: Tensor, labels: Tensor, schedule: Schedule, order: torch.Generator
) -> None:
    """The slow, obvious reference: autograd and PyTorch's losses, on probabilities as ProVFL's code has them."""
    kind = torch.optim.Adam if schedule.method == "adam" else torch.optim.SGD
    optimizer = kind(module.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, schedule.decay)
    for _ in range(schedule.epochs):
        for batch in torch.randperm(len(inputs), generator=order).split(schedule.batch_size):
            logits, y = module(inputs[batch]), labels[batch]
            if logits.shape[1] == 1:
                loss = nn.functional.binary_cross_entropy(logits.squeeze(1).sigmoid(), y.float())
            else:
                loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        decay.step()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "schedule", [Schedule(epochs=4, batch_size=16, weight_decay=0.05), Schedule("sgd", 4, 16, 0.1, 0.01, 0.5)]
)
def test_training_equals_pytorchs_one_by_one(n_classes: int, schedule: Schedule) -> None:
    inputs, members, labels = made(3, n_classes)
    widths = (D, 7, 4, 1 if n_classes == 2 else n_classes)
    networks = initial_networks(3, widths, "kaiming_normal", seed=5)
    modules = [as_modules(networks, i) for i in range(3)]
    train(networks, FeatureRows(inputs), members, labels, schedule, seed=6)
    for i, module in enumerate(modules):
        start = as_modules(networks, i)(inputs)
        train_one(module, inputs[members[i]], labels[i], schedule, generator(6, "order", i))
        torch.testing.assert_close(start, module(inputs), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(module(inputs), as_modules(initial_networks(3, widths, "torch", 9), i)(inputs))


def test_a_network_does_not_depend_on_its_neighbors() -> None:
    inputs, members, labels = made(3, 2)
    outputs = []
    for k in (1, 3):
        networks = initial_networks(k, (D, 6, 1), "torch", seed=1)
        train(networks, FeatureRows(inputs), members[:k], labels[:k], Schedule(epochs=5), seed=2)
        outputs.append(networks.outputs(FeatureRows(inputs), torch.arange(ROWS)))
    torch.testing.assert_close(outputs[0][0], outputs[1][0], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(outputs[1][0], outputs[1][1])


def test_gathering_in_small_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, members, labels = made(2, 2)
    outputs = []
    for size in (stacked_networks.BLOCK_BYTES, 2000):
        monkeypatch.setattr(stacked_networks, "BLOCK_BYTES", size)
        rows = FeatureRows(inputs).standardized(members[0])
        networks = initial_networks(2, (D, 6, 1), "torch", seed=1)
        train(networks, rows, members, labels, Schedule(epochs=2), seed=2)
        outputs.append(networks.outputs(rows, torch.arange(ROWS)))
    torch.testing.assert_close(outputs[0], outputs[1])


def test_outputs_can_be_read_of_an_inner_layer() -> None:
    networks = initial_networks(2, (D, 6, 4, 1), "torch", seed=1)
    inputs, at = torch.randn(8, D), torch.tensor([3, 1])
    expected = torch.stack([as_modules(networks, i)[:2](inputs[at]) for i in range(2)])
    torch.testing.assert_close(networks.outputs(FeatureRows(inputs), at, layer=1), expected)


def test_standardized_rows_have_mean_0_and_deviation_1_over_the_given_rows() -> None:
    values = torch.tensor([[1, 0, 7], [0, 1, 7], [1, 1, 7], [0, 0, 7], [1, 0, 9]], dtype=torch.uint8)
    at = torch.tensor([0, 1, 2, 4])
    taken = FeatureRows(values).standardized(at).take(torch.arange(5))
    known = values[at].double()
    varying = ((values - known.mean(0)) / known.std(0, correction=0)).float()
    torch.testing.assert_close(taken, varying)
    flat = FeatureRows(values[:4]).standardized(torch.arange(4)).take(torch.arange(4))
    assert flat[:, 2].tolist() == [0.0] * 4  # a constant column


def test_standardizing_survives_an_offset_far_larger_than_the_spread() -> None:
    values = torch.randn(200, 1) + 1000
    taken = FeatureRows(values).standardized(torch.arange(200)).take(torch.arange(200))
    assert abs(float(taken.std(correction=0)) - 1) < 1e-3


def test_initial_weights_follow_their_law() -> None:
    normal = initial_networks(20, (50, 40, 1), "kaiming_normal", seed=0)
    uniform = initial_networks(20, (50, 40, 1), "torch", seed=0)
    assert float(normal.weights[0].std()) == pytest.approx(math.sqrt(2 / 50), rel=0.02)
    assert float(uniform.weights[0].std()) == pytest.approx(math.sqrt(1 / 50 / 3), rel=0.02)
    assert float(uniform.weights[0].abs().max()) <= math.sqrt(1 / 50)
    for networks in (normal, uniform):
        assert 0.9 / math.sqrt(50) < float(networks.biases[0].abs().max()) <= 1 / math.sqrt(50)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"method": "lbfgs"}, "method must be one of adam, sgd, got 'lbfgs'"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"decay": math.nan}, "decay must be a finite number"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
    ],
)
def test_a_schedule_out_of_range_is_refused(setting: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Schedule(**setting)  # type: ignore[arg-type]
