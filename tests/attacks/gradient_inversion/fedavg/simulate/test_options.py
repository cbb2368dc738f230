"""The engine's options on FedAvg updates: served for ReLU chains on tables, refused for everything else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.core.errors import UnsupportedError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.protocols.client_training import LocalTraining

MakeFedAvg = Callable[..., tuple[ClientUpdate, GroundTruth]]
Measure = Callable[[Reconstruction, GroundTruth], float]
ALL = {
    "sign": False,
    "learning_rate": 0.2,
    "numerical_learning_rate": 0.05,
    "schedule": "cosine",
    "temperature_end": 0.2,
    "mask_derivative": "straight_through",
    "whitening": 1e-2,
    "initialization": "prior",
    "numerical": "clamp",
    "mask_absent": True,
    "tie_numbers": True,
    "pooling": "none",
    "simulation": "shared",
}
ON_CHAINS = [{"mask_derivative": "straight_through"}, {"whitening": 0.01}, {"mask_absent": True}, {"tie_numbers": True}]
ON_TABLES: list[dict[str, Any]] = [
    *ON_CHAINS,
    {"initialization": "prior"},
    {"numerical": "clamp"},
    {"prior_weight": 1.0},
]


def test_all_options_together_restore_a_clients_rows(make_fedavg: MakeFedAvg, cell_accuracy: Measure) -> None:
    update, truth = make_fedavg(6, hidden=[60, 60], training=LocalTraining(2, 3, 0.01))
    found = ATTACKS.get("tableak_fedavg")(**ALL, steps=200, restarts=2).run(update, seed=1)
    assert cell_accuracy(found, truth) >= 0.85
    assert found.threat_model.marginals and not ATTACKS.get("tableak_fedavg")().threat_model.marginals


def test_a_rows_prior_counts_once_whatever_its_variables(make_fedavg: MakeFedAvg) -> None:
    update, truth = make_fedavg(6, hidden=[9, 8])
    losses = {}
    for simulation in ("full", "shared"):
        for weight in (0.0, 1.0):
            attack = ATTACKS.get("tableak_fedavg")(
                simulation=simulation, prior_weight=weight, epoch_prior=0.0, label_order="batches"
            )
            codec = attack.codec(update, torch.device("cpu"))
            posed = attack.pose([(update, 0)], codec, torch.device("cpu"), torch.float32)
            posed, _, _ = attack._informed(posed, [update], codec, torch.device("cpu"), torch.float32)
            rows = posed.variables_of(truth.inputs[None, None])
            losses[simulation, weight] = float(posed.matcher.value_and_grad(rows)[0])
    added = [losses[simulation, 1.0] - losses[simulation, 0.0] for simulation in ("full", "shared")]
    assert added[0] == pytest.approx(added[1], rel=1e-4) and added[0] > 1


@pytest.mark.parametrize("options", ON_CHAINS, ids=str)
def test_networks_without_a_closed_form_are_refused(make_fedavg: MakeFedAvg, options: dict[str, Any]) -> None:
    update, _ = make_fedavg(6, "resnet", hidden=[9, 8])
    with pytest.raises(UnsupportedError, match=f"{next(iter(options))}.* is for plain ReLU networks"):
        ATTACKS.get("tableak_fedavg")(**options).run(update)


@pytest.mark.parametrize("options", ON_TABLES, ids=str)
def test_images_are_refused(make_images: MakeFedAvg, options: dict[str, Any]) -> None:
    update, _ = make_images()
    with pytest.raises(UnsupportedError, match=f"{next(iter(options))}.* is for tables"):
        ATTACKS.get("fedavg_no_prior")(**{"categorical": "softmax"} | options).run(update)
