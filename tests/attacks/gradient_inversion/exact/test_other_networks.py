"""Exact inversion of networks that are no ReLU chain: rows, labels and certificates of small batches."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks import ATTACKS
from lightleak.core.errors import UnsupportedError
from lightleak.core.ground_truth import GroundTruth
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.own import hand_over
from lightleak.targets.spec import NetworkSpec, build_network


class Gated(nn.Module):
    """A user's own network: two paths, a gate, a residual sum; its logits are of as many classes as it is told."""

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__()
        self.first, self.value, self.gate = nn.Linear(width, 40), nn.Linear(40, 40), nn.Linear(40, 40)
        self.out = nn.Linear(40, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.mish(self.first(x))
        return self.out(h + self.value(h) * torch.sigmoid(self.gate(h)))


def attacked(batch: Any, network: str, options: dict[str, Any], attack: str = "exact") -> tuple[Any, Any]:
    """What an attack makes of the batch's rows behind another network, and that batch."""
    encoder, truth = batch.encoder, batch.truth
    spec = NetworkSpec(network, encoder.schema.n_classes, encoder.layout, options)
    module = build_network(spec, seed=5)
    update, _ = client_update(
        module, spec, encoder, truth.inputs, truth.labels, share_labels=False, share_statistics=True
    )
    other = type(batch)(update, GroundTruth(truth.inputs, truth.labels), encoder)
    known = {"batch_statistics": True}
    settings = known if attack == "exact" else {"exact": known}
    return ATTACKS.get(attack)(**settings).run(update, seed=1), other


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize(
    ("network", "options"),
    [
        *(("mlp", {"hidden": [40, 40], "activation": name}) for name in ("gelu", "tanh", "leaky_relu", "elu")),
        ("mlp", {"hidden": [40, 40], "activation": "gelu", "norm": "layer"}),
        ("mlp", {"hidden": [40], "activation": "gelu"}),
        ("resnet_preact", {"width": 40, "norm": "layer"}),
        ("resnet_preact", {"width": 40}),
        ("resnet", {"hidden": [40, 40]}),
        ("mlp", {"hidden": [40, 40], "norm": "batch"}),
    ],
)
def test_every_row_is_found_and_certified(
    make_batch: Any, recovered: Any, certified_wrongly: Any, network: str, options: dict[str, Any], n_classes: int
) -> None:
    found, batch = attacked(make_batch(8, (4, 4), n_classes), network, options)
    assert recovered(found, batch, nearly=True) == 8
    assert found.certificate.certified == 8 and certified_wrongly(found, batch) == 0
    assert found.certificate.residual < 1e-6


def test_a_users_own_network_is_cut_by_what_it_computes(make_batch: Any, recovered: Any) -> None:
    base = make_batch(8, (4, 4), 3)
    name = hand_over(Gated(base.encoder.width, 3))
    for attack in ("exact", "audit_max"):
        found, batch = attacked(base, name, {}, attack)
        assert recovered(found, batch, nearly=True) == 8 and found.certificate.certified == 8


def test_statistics_of_the_batch_are_used_only_where_they_are_known(make_batch: Any) -> None:
    network = "mlp", {"hidden": [40, 40], "norm": "batch"}
    found, batch = attacked(make_batch(8, (4, 4)), *network)
    assert found.threat_model.batch_statistics and found.certificate.certified == 8
    with pytest.raises(UnsupportedError, match="mixes the rows of a batch by BatchNorm"):
        ATTACKS.get("exact")().check(batch.update)
    composed, _ = attacked(make_batch(8, (4, 4)), *network, "audit_max")
    assert composed.certificate.certified == 8


def test_equal_rows_are_counted(make_batch: Any, recovered: Any, certified_wrongly: Any) -> None:
    base = make_batch(8, (4, 4), 2, rows=(3, 3, 7, 9, 12, 12, 12, 20), labels=(0, 1, 0, 1, 1, 1, 1, 0))
    found, batch = attacked(base, "mlp", {"hidden": [40, 40], "activation": "gelu"})
    assert recovered(found, batch, nearly=True) == 8 and certified_wrongly(found, batch) == 0
