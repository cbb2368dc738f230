"""What one FedSGD client sends."""

import pandas as pd
import pytest
import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.protocols.fedsgd import client_update, require_replay
from lightleak.targets import NETWORKS, NetworkSpec, build_network
from lightleak.targets.functional import gradients
from lightleak.targets.spec import is_differentiable

Rows = tuple[Tensor, Tensor]


def spec_of(encoder: TableEncoder, name: str = "mlp", **options: object) -> NetworkSpec:
    return NetworkSpec(name, 2, encoder.layout, options)


def norm_layer(network: torch.nn.Module) -> torch.nn.Module:
    return next(m for m in network.modules() if isinstance(m, torch.nn.BatchNorm1d))


DROPPING = {"danet", "ft_transformer", "tabm", "realmlp_like", "deeptab_mlp"}
DROPPING |= {"frame_mlp", "frame_resnet", "frame_ft_transformer"}
"""Networks whose dropout draws anew in every forward in train mode."""


@pytest.mark.parametrize(
    ("name", "training_mode"),
    [
        (name, training_mode)
        for name in sorted({*filter(is_differentiable, NETWORKS.names())} - {"image_cnn"})
        for training_mode in (True, False)
        if not (training_mode and name in DROPPING)
    ],
)
def test_update_is_the_gradient_of_the_mean_loss(
    encoder: TableEncoder, rows: Rows, name: str, training_mode: bool
) -> None:
    spec = spec_of(encoder, name)
    network = build_network(spec, seed=1)
    inputs, labels = rows[0][:8], rows[1][:8]
    update, truth = client_update(
        network, spec, encoder, inputs, labels, share_labels=True, training_mode=training_mode
    )
    network.train(training_mode)
    expected = gradients(network, dict(network.named_parameters()), dict(network.named_buffers()), inputs, labels)
    for parameter, gradient in expected.items():
        torch.testing.assert_close(update.update[parameter], gradient, rtol=1e-4, atol=1e-6)
    assert torch.equal(truth.inputs, inputs)
    assert torch.equal(truth.labels, labels)
    assert require_replay(update, truth) == 0.0


def test_loss_is_that_of_the_forward(encoder: TableEncoder, rows: Rows) -> None:
    spec = spec_of(encoder)
    network = build_network(spec, seed=1)
    _, truth = client_update(network, spec, encoder, *rows, share_labels=False)
    assert truth.loss == pytest.approx(torch.nn.functional.cross_entropy(network(rows[0]), rows[1]).item())


def test_client_keeps_its_network(encoder: TableEncoder, rows: Rows) -> None:
    spec = spec_of(encoder, norm="batch", dropout=0.5)
    network = build_network(spec, seed=1)
    network.eval()
    norm_layer(network).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    modes = [module.training for module in network.modules()]
    update, _ = client_update(network, spec, encoder, *rows, share_labels=True, training_mode=True)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert [module.training for module in network.modules()] == modes
    assert all(parameter.grad is None for parameter in network.parameters())
    # Nor does what was sent follow the network when it trains on.
    with torch.no_grad():
        for value in (*network.parameters(), *network.buffers()):
            value.zero_()
    assert all(torch.equal(update.parameters[name], before[name]) for name in update.parameters)
    assert all(torch.equal(update.buffers[name], before[name]) for name in update.buffers)


def test_dropout_follows_the_seed_alone(encoder: TableEncoder, rows: Rows) -> None:
    spec = spec_of(encoder, dropout=0.5)
    network = build_network(spec, seed=1)

    def gradient(seed: int | None) -> Tensor:
        update, truth = client_update(network, spec, encoder, *rows, share_labels=True, seed=seed)
        assert require_replay(update, truth) == 0.0
        return update.update["linears.0.weight"]

    before = torch.get_rng_state()
    first = gradient(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert torch.equal(gradient(3), first)
    assert not torch.equal(gradient(4), first)
    assert not torch.equal(gradient(None), gradient(None))


def test_only_what_is_shared_is_sent(encoder: TableEncoder, rows: Rows, frame: pd.DataFrame) -> None:
    spec = spec_of(encoder, norm="batch")
    network = build_network(spec, seed=1)
    least, _ = client_update(network, spec, encoder, *rows, share_labels=False, share_buffers=False)
    assert least.labels is None
    assert least.marginals is None
    assert not least.buffers
    assert not least.batch_statistics
    marginals = Marginals.of(encoder.schema, frame)
    most, _ = client_update(
        network, spec, encoder, *rows, share_labels=True, share_statistics=True, marginals=marginals, epoch=3, step=9
    )
    assert torch.equal(most.labels, rows[1])
    assert most.buffers.keys() == dict(network.named_buffers()).keys()
    assert Marginals.from_dict(most.marginals) == marginals
    assert (most.facts.n_rows, most.facts.batch_size, most.facts.epoch, most.facts.step) == (len(rows[0]),) * 2 + (3, 9)


def test_statistics_are_those_of_the_batch(encoder: TableEncoder, rows: Rows) -> None:
    spec = spec_of(encoder, hidden=[6], norm="batch")
    network = build_network(spec, seed=1)
    update, _ = client_update(network, spec, encoder, *rows, share_labels=True, share_statistics=True)
    hidden = network.linears[0](rows[0])
    assert sorted(update.batch_statistics) == ["norms.0.mean", "norms.0.var"]
    torch.testing.assert_close(update.batch_statistics["norms.0.mean"], hidden.mean(0))
    torch.testing.assert_close(update.batch_statistics["norms.0.var"], hidden.var(0))
    assert not any(value.requires_grad for value in update.batch_statistics.values())


def test_a_network_without_batch_norm_has_no_statistics(encoder: TableEncoder, rows: Rows) -> None:
    spec = spec_of(encoder)
    update, _ = client_update(
        build_network(spec, seed=1), spec, encoder, *rows, share_labels=True, share_statistics=True
    )
    assert not update.batch_statistics


def test_encoder_can_be_rebuilt_from_the_update(encoder: TableEncoder, rows: Rows, frame: pd.DataFrame) -> None:
    spec = spec_of(encoder)
    update, _ = client_update(build_network(spec, seed=1), spec, encoder, *rows, share_labels=True)
    assert torch.equal(TableEncoder.from_state(update.encoder, update.encoder_tensors).encode(frame), rows[0])


def test_update_survives_its_journey(encoder: TableEncoder, rows: Rows, tmp_path) -> None:
    spec = spec_of(encoder, norm="batch", dropout=0.4)
    update, truth = client_update(
        build_network(spec, seed=1), spec, encoder, *rows, share_labels=True, share_statistics=True
    )
    update.save(tmp_path)
    assert require_replay(ClientUpdate.load(tmp_path), truth) == 0.0


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (torch.zeros(2, 4), torch.zeros(2, dtype=torch.long), r"encoded rows \[n, 5\]"),
        (torch.zeros(5), torch.zeros(5, dtype=torch.long), r"encoded rows \[n, 5\]"),
        (torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), "n >= 1"),
        (torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, dtype=torch.long), "torch.int64"),
        (torch.zeros(2, 5), torch.zeros(3, dtype=torch.long), r"labels must be int64 \[2\]"),
        (torch.zeros(2, 5), torch.zeros(2), "torch.float32"),
        (torch.zeros(2, 5), torch.tensor([0, 2]), "from 0 to 1, got 0 to 2"),
        (torch.zeros(2, 5), torch.tensor([-1, 0]), "got -1 to 0"),
    ],
)
def test_batches_the_network_cannot_take_are_refused(
    encoder: TableEncoder, inputs: Tensor, labels: Tensor, message: str
) -> None:
    spec = spec_of(encoder)
    with pytest.raises(UsageError, match=message):
        client_update(build_network(spec, seed=1), spec, encoder, inputs, labels, share_labels=True)
