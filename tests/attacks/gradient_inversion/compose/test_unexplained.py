"""How much of an update a reconstruction leaves unexplained."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.compose import unexplained
from lightleak.attacks.gradient_inversion.compose.unexplained import misfit, unexplained_share
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.protocols.client_training import LocalTraining


def reconstruction(truth: GroundTruth, update: ClientUpdate) -> Reconstruction:
    rows = TableEncoder.from_state(update.encoder, update.encoder_tensors).decode(truth.inputs)
    nothing = pd.DataFrame(float("nan"), index=rows.index, columns=list(rows.columns))
    return Reconstruction("any", ThreatModel("restored"), rows, truth.labels, truth.inputs, nothing, 0.1, 2.0)


def wrong(x: Tensor) -> Tensor:
    """Rows of other people: every row one further and negated, so that no cell need be right."""
    return -x.roll(1, 0)


@pytest.mark.parametrize("network", ["mlp", "resnet", "cnn"])
def test_the_truth_leaves_nothing_unexplained_on_any_network(make_update: Any, network: str) -> None:
    update, truth = make_update(n=6, network=network)
    for judge in (unexplained_share, misfit):
        assert judge(update, reconstruction(truth, update)) < 1e-5
        assert judge(update, reconstruction(replace(truth, inputs=wrong(truth.inputs)), update)) > 1e-2
        relabeled = replace(truth, labels=1 - truth.labels)
        assert judge(update, reconstruction(relabeled, update)) > 1e-2


def test_misfit_is_whitened_for_chains_alone(make_update: Any) -> None:
    for network, same in (("mlp", False), ("resnet", True)):
        update, truth = make_update(n=4, network=network)
        other = reconstruction(replace(truth, inputs=wrong(truth.inputs)), update)
        assert (misfit(update, other) == unexplained_share(update, other)) is same
    # Nothing but update and reconstruction decides it.
    update, truth = make_update(n=4, hidden=[9, 8])
    other = reconstruction(replace(truth, inputs=wrong(truth.inputs)), update)
    assert misfit(update, other, 1) == misfit(update, other, 2)
    doubled = replace(update, update={name: 2 * value for name, value in update.update.items()})
    assert misfit(doubled, reconstruction(truth, update)) == pytest.approx(0.25, rel=1e-4)


@pytest.mark.parametrize("network", ["mlp", "resnet"])
def test_the_order_of_rows_decides_nothing(make_update: Any, network: str) -> None:
    update, truth = make_update(n=6, network=network)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    other = replace(truth, inputs=wrong(truth.inputs))
    shuffled = GroundTruth(other.inputs[order], other.labels[order])
    for judge in (unexplained_share, misfit):
        found = judge(update, reconstruction(other, update))
        assert judge(update, reconstruction(shuffled, update)) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("factor", [0.5, 4.0, -1.0])
def test_the_share_is_relative_to_the_update(make_update: Any, factor: float) -> None:
    update, truth = make_update(n=4)
    scaled = replace(update, update={name: factor * value for name, value in update.update.items()})
    expected = abs(1 - 1 / factor)
    assert unexplained_share(scaled, reconstruction(truth, update)) == pytest.approx(expected, rel=1e-4)


def test_no_rows_explain_an_update_of_zeros(make_update: Any) -> None:
    update, truth = make_update(n=4)
    nothing = replace(update, update={name: torch.zeros_like(value) for name, value in update.update.items()})
    assert unexplained_share(nothing, reconstruction(truth, update)) == 1.0


@pytest.mark.parametrize(("epochs", "size"), [(1, 8), (1, 4), (3, 3)])
def test_the_truth_explains_a_weight_update_better_than_others(weight_update: Any, epochs: int, size: int) -> None:
    training = LocalTraining(epochs, size, 0.05, momentum=0.5 if size == 8 else 0.0, weight_decay=0.01)
    update, truth = weight_update(training)
    right = unexplained_share(update, reconstruction(truth, update))
    other = reconstruction(replace(truth, inputs=wrong(truth.inputs)), update)
    assert right < 0.5 * unexplained_share(update, other)
    assert right < 1e-4 or size < 8  # the order of a single batch changes nothing
    untold = replace(update, facts=replace(update.facts, epochs=None, local_steps=training.steps(8), batch_size=None))
    assert unexplained_share(untold, reconstruction(truth, untold)) < 0.5 * unexplained_share(untold, other)


def test_of_a_weight_update_the_best_of_several_orders_is_told(
    weight_update: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, truth = weight_update(LocalTraining(3, 3, 0.05))
    shares = []
    for orders in (1, 2, 4, 8):
        monkeypatch.setattr(unexplained, "ORDERS", orders)
        shares.append(unexplained_share(update, reconstruction(truth, update)))
    assert shares == sorted(shares, reverse=True) and shares[-1] < shares[0]
    found = [unexplained_share(update, reconstruction(truth, update), seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert misfit(update, reconstruction(truth, update)) == found[0]
