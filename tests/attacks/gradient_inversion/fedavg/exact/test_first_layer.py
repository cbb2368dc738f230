"""Rows by the first layer alone: clients that drop units, and weight updates of networks that are no ReLU chain."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from lightleak.attacks import ATTACKS
from lightleak.core.certificate import Certificate
from lightleak.core.errors import UnsupportedError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.certificate import wrong_certificates
from lightleak.protocols import fedavg, fedsgd
from lightleak.protocols.client_training import LocalTraining
from lightleak.targets.own import hand_over
from lightleak.targets.spec import NetworkSpec, build_network

Fitted = Callable[..., Any]


@pytest.fixture
def client(make_batch: Any) -> Callable[..., tuple[ClientUpdate, GroundTruth, TableEncoder]]:
    """A client of a network with options of an MLP, or with a module of its own."""

    def make(
        n: int, module: nn.Module | None = None, local: LocalTraining | None = None, seed: int = 0, **options: Any
    ) -> tuple[ClientUpdate, GroundTruth, TableEncoder]:
        batch = make_batch(n, seed=seed)
        encoder, truth = batch.encoder, batch.truth
        spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [60, 30], **options})
        if module is not None:
            spec = NetworkSpec(hand_over(module), 2, encoder.layout)
        network = build_network(spec, seed)
        torch.manual_seed(seed)
        if local is None:
            update, _ = fedsgd.client_update(network, spec, encoder, truth.inputs, truth.labels, share_labels=False)
        else:
            update, _ = fedavg.client_update(
                network, spec, encoder, truth.inputs, truth.labels, local, share_labels="none", seed=seed
            )
        return replace(update, marginals=batch.update.marginals), truth, encoder

    return make


def certificate(found: Reconstruction, truth: GroundTruth, encoder: TableEncoder) -> Certificate:
    """The certificate, which claims no labels and nothing wrong."""
    assert found.certificate is not None and not found.certificate.labels_proven
    assert wrong_certificates(found, truth, encoder) == (0, 0)
    assert found.certificate.feasibility.reason.endswith("labels are not proven")
    return found.certificate


@pytest.mark.parametrize("n", [4, 8])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_every_row_of_a_relu_network_with_dropout_is_proven(client: Any, n: int, rate: float) -> None:
    update, truth, encoder = client(n, dropout=rate, seed=2)
    found = ATTACKS.get("exact")().run(update, 0)
    proof = certificate(found, truth, encoder)
    assert proof.certified == proof.certified_digits == n and proof.residual < 1e-6


def test_rows_of_a_smooth_network_with_dropout_that_the_span_needs_are_proven(client: Any) -> None:
    proven = 0
    for seed in range(4):
        update, truth, encoder = client(4, dropout=0.3, activation="gelu", seed=seed)
        proven += certificate(ATTACKS.get("exact")().run(update, 0), truth, encoder).certified
    assert proven >= 8


def test_a_row_that_others_of_the_span_may_replace_is_not_proven(make_batch: Any) -> None:
    """``a + b - c`` of three rows of the batch is a row of the table, so that neither it nor they are certain."""
    batch = make_batch(4, seed=0)
    encoder = batch.encoder
    codes, numbers = encoder.project(batch.truth.inputs)
    codes[:3], numbers[:3] = codes[0], numbers[0]
    codes[1, 1], numbers[2, 1] = (codes[0, 1] + 1) % 3, numbers[0, 1] + 1000
    x = encoder.assemble(codes, numbers)
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [60, 30], "activation": "gelu", "dropout": 0.3})
    torch.manual_seed(0)
    update, _ = fedsgd.client_update(build_network(spec, 0), spec, encoder, x, batch.truth.labels, share_labels=False)
    found = ATTACKS.get("exact")().run(update, 0)
    truth = GroundTruth(x, batch.truth.labels)
    proof = certificate(found, truth, encoder)
    proven = {i for i, status in enumerate(proof.status) if status == "certified"}
    same = (encoder.project(found.encoded)[0][:, [0, 2, 3]] == codes[0, [0, 2, 3]]).all(1)
    of_three = set(same.nonzero().flatten().tolist())
    assert len(of_three) >= 2 and not proven & of_three


def test_dropout_in_front_of_the_first_linear_layer_is_refused(client: Any, make_batch: Any) -> None:
    width = make_batch(4).encoder.width
    module = nn.Sequential(
        nn.Dropout(0.2), nn.Linear(width, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 2)
    )
    update, _, _ = client(4, module)
    with pytest.raises(UnsupportedError, match=r"in front of the first linear layer \('1'\)"):
        ATTACKS.get("exact")().check(update)
    ATTACKS.get("exact")().check(replace(update, training_mode=False))


def test_the_whole_audit_keeps_what_is_proven_behind_dropout(client: Any) -> None:
    update, truth, encoder = client(5, dropout=0.3, activation="gelu", seed=1)
    alone = ATTACKS.get("exact")().run(update, 0)
    joint = {"steps": 100, "rounds": 1, "round_steps": 50}  # it proves nothing here, with its own steps neither
    composed = ATTACKS.get("audit_max")(tableak={"restarts": 1, "steps": 3}, exact_joint=joint).run(update, 0)
    assert composed.certificate is not None and not composed.certificate.labels_proven
    assert composed.certificate.certified == certificate(alone, truth, encoder).certified > 0


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("activation", ["gelu", "tanh"])
def test_weight_updates_of_networks_that_are_no_chains_are_read_by_the_first_layer(
    client: Any, epochs: int, activation: str
) -> None:
    local = LocalTraining(epochs, 4 // min(2, epochs), 0.1, 0.0)
    proven, right = 0, 0
    for seed in (0, 2, 3):
        update, truth, encoder = client(4, local=local, activation=activation, norm="layer", seed=seed)
        found = ATTACKS.get("exact_fedavg")().run(update, 0)
        proven += certificate(found, truth, encoder).certified
        (codes, _), (true, _) = encoder.project(found.encoded), encoder.project(truth.inputs)
        right += int((codes[:, None] == true).all(-1).any(0).sum())
    assert proven >= 8 and right >= 10


def test_weight_updates_behind_embeddings_are_served_for_one_step(client: Any, make_batch: Any) -> None:
    layout = make_batch(8).encoder.layout
    module = Embedded(layout)
    one, two = (client(8, module, LocalTraining(epochs, 8, 0.1, 0.0), seed=3) for epochs in (1, 2))
    update, truth, encoder = one
    attack = ATTACKS.get("exact_fedavg")()
    assert certificate(attack.run(update, 0), truth, encoder).certified >= 0
    with pytest.raises(UnsupportedError, match="only one step is served"):
        attack.check(two[0])


class Embedded(nn.Module):
    """An embedding per categorical column as a product, GELU behind."""

    def __init__(self, layout: Any) -> None:
        super().__init__()
        self.blocks = layout.categorical
        self.numbers = [block.start for block in layout.numerical]
        self.tables = nn.ModuleList(nn.Linear(block.width, 3, bias=False) for block in self.blocks)
        self.rest = nn.Sequential(nn.Linear(3 * len(self.blocks) + len(self.numbers), 40), nn.GELU(), nn.Linear(40, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cells = [table(x[:, block.slice]) for table, block in zip(self.tables, self.blocks, strict=True)]
        return self.rest(torch.cat([*cells, x[:, self.numbers]], 1))


def test_a_batch_norm_that_is_never_called_needs_no_statistics(make_batch: Any) -> None:
    class Unused(nn.Sequential):
        def __init__(self, width: int) -> None:
            layers = nn.Linear(width, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 2)
            super().__init__(*layers)
            self.unused = nn.ModuleList([nn.BatchNorm1d(5)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.Sequential(*list(self)[:6])(x)

    batch = make_batch(6)
    network = Unused(batch.encoder.width)
    spec = NetworkSpec(hand_over(network), 2, batch.encoder.layout)
    x, y = batch.truth.inputs, batch.truth.labels
    update, _ = fedsgd.client_update(network, spec, batch.encoder, x, y, share_labels=False, share_statistics=True)
    assert "unused.0.mean" not in update.batch_statistics
    ATTACKS.get("exact")(batch_statistics=True).check(update)
