"""Layers of zeros, as a head that starts at zero, end no attack."""

from typing import Any

import pytest
import torch
from torch import nn

from lightleak.attacks import ATTACKS
from lightleak.protocols import fedavg, fedsgd
from lightleak.protocols.client_training import LocalTraining
from lightleak.targets.spec import NetworkSpec, build_network

SMALL = {
    "exact": {},
    "exact_joint": {"steps": 20, "restarts": 1, "rounds": 1},
    "exact_fedavg": {"steps": 20, "restarts": 1},
    "audit_max": {"exact_joint": {"steps": 20, "restarts": 1, "rounds": 1}, "tableak": {"restarts": 1, "steps": 2}},
}


@pytest.mark.parametrize("attack", SMALL)
@pytest.mark.parametrize(("layer", "n"), [(1, 1), (1, 4), (2, 2)])
def test_rows_behind_a_layer_of_zeros_are_attacked_without_proof(
    make_batch: Any, attack: str, layer: int, n: int
) -> None:
    batch = make_batch(n)
    spec = NetworkSpec("mlp", 2, batch.encoder.layout, {"hidden": [16, 16]})
    network = build_network(spec, 0)
    with torch.no_grad():
        [one for one in network.modules() if isinstance(one, nn.Linear)][layer].weight.zero_()
    x, labels = batch.truth.inputs, batch.truth.labels
    if attack == "exact_fedavg":
        once = LocalTraining(1, n, 0.1, 0.0)
        update, _ = fedavg.client_update(network, spec, batch.encoder, x, labels, once, share_labels="none", seed=0)
    else:
        update, _ = fedsgd.client_update(network, spec, batch.encoder, x, labels, share_labels=False)
    found = ATTACKS.get(attack)(**SMALL[attack]).run(update)
    assert len(found.rows) == n and found.certificate is not None and not found.certificate.certified
