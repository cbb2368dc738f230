"""What cannot be attacked is refused by name, before any work."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.network.checks import alike
from lightleak.attacks.gradient_inversion.optimize import attack, shell
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.observations import ClientUpdate

MakeUpdate = Callable[..., tuple[ClientUpdate, object]]
NAN = float("nan")


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where an attack starts its work."""

    def worked(*_: object) -> None:
        raise AssertionError("work began on an update that must be refused")

    for module, name in ((attack, "build_matcher"), (attack, "restore_counts"), (shell, "invert")):
        monkeypatch.setattr(module, name, worked)


def changed_facts(update: ClientUpdate, **facts: object) -> ClientUpdate:
    return replace(update, facts=replace(update.facts, **facts))


def changed(update: ClientUpdate, group: str, name: str, value: torch.Tensor | None) -> ClientUpdate:
    """With one tensor of a group replaced, or left out."""
    tensors = {**getattr(update, group), name: value}
    return replace(update, **{group: {key: tensor for key, tensor in tensors.items() if tensor is not None}})


def other_parameters(update: ClientUpdate) -> ClientUpdate:
    return replace(update, parameters={"w": torch.zeros(1)}, update={"w": torch.zeros(1)})


def wider_table(update: ClientUpdate) -> ClientUpdate:
    layout = {"blocks": update.network["layout"]["blocks"][:-1]}
    width = layout["blocks"][-1][2]
    cut = {"linears.0.weight": torch.zeros(9, width)}
    return replace(
        update,
        network={**update.network, "layout": layout},
        parameters={**update.parameters, **cut},
        update={**update.update, **cut},
    )


REFUSED = {
    "delta": (lambda u: replace(u, kind="delta"), "inverts one FedSGD gradient; this update is a delta of 1 epochs"),
    "epochs": (lambda u: changed_facts(u, epochs=5), "this update is a gradient of 5 epochs"),
    "clients": (lambda u: changed_facts(u, n_clients=3), "inverts one client's gradient; this one aggregates 3"),
    "loss": (lambda u: changed_facts(u, loss="focal"), "needs the loss 'cross_entropy', got 'focal'"),
    "no labels": (lambda u: replace(u, labels=None), "labels: restored in the config, or by --attacks.*labels geng"),
    "no such class": (lambda u: replace(u, labels=u.labels + 2), "labels must be classes from 0 to 1, got [23]"),
    "other parameters": (
        other_parameters,
        r"parameters of the network 'mlp': expected 'linears.0.bias' of shape \(9,\), got none",
    ),
    "other width": (
        lambda u: replace(u, network={**u.network, "options": {"hidden": [9, 7]}}),
        r"expected 'linears.1.bias' of shape \(7,\), got \(8,\)",
    ),
    "unknown network": (lambda u: replace(u, network={**u.network, "name": "mpl"}), "did you mean 'mlp'"),
    "incomplete network": (lambda u: replace(u, network={"name": "mlp"}), "network specification lacks 'n_classes'"),
    "other table": (wider_table, "the encoder must make rows of width"),
    "no encoder": (lambda u: replace(u, encoder={}), "the encoder of an observation needs 'schema'"),
    "no statistics": (lambda u: replace(u, encoder_tensors={}), "statistic 'shift' is missing"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.usefixtures("no_work")
def test_updates_no_attack_can_serve_are_refused_before_any_work(make_update: MakeUpdate, case: str) -> None:
    change, message = REFUSED[case]
    kind = {"loss": UnsupportedError, "unknown network": UsageError}.get(case, ObservationError)
    good, _ = make_update(4, hidden=[9, 8])
    bad = change(good)
    attack = ATTACKS.get("tableak")(steps=1)
    for use in (attack.check, attack.run, lambda update: attack.run_many([good, update], [0, 1])):
        with pytest.raises(kind, match=message):
            use(bad)


REFUSED_WITH_BATCH_NORM = {
    "no statistics": (
        lambda u: replace(u, batch_statistics={}),
        "batch_norm_prior: BatchNorm statistics of the client's batch: expected 'blocks.0.norm.mean'",
    ),
    "one missing": (
        lambda u: changed(u, "batch_statistics", "blocks.1.norm.var", None),
        r"expected 'blocks.1.norm.var' of shape \(8,\), got none",
    ),
    "wrong shape": (
        lambda u: changed(u, "batch_statistics", "blocks.1.norm.var", torch.ones(3)),
        r"expected 'blocks.1.norm.var' of shape \(8,\), got \(3,\)",
    ),
    "buffer missing": (
        lambda u: changed(u, "buffers", "blocks.0.norm.running_mean", None),
        r"buffers of the network 'resnet': expected 'blocks.0.norm.running_mean' of shape \(9,\), got none",
    ),
    "running statistics unknown": (
        lambda u: replace(u, training_mode=False, buffers={}),
        "the network 'resnet' computed in eval mode, by running statistics of BatchNorm that were not shared",
    ),
}


@pytest.mark.parametrize("case", REFUSED_WITH_BATCH_NORM)
@pytest.mark.usefixtures("no_work")
def test_batch_norm_is_not_attacked_without_what_it_needs(make_update: MakeUpdate, case: str) -> None:
    change, message = REFUSED_WITH_BATCH_NORM[case]
    good, _ = make_update(4, "resnet", hidden=[9, 8])
    attack = ATTACKS.get("gradinversion")(steps=1)
    attack.check(good)
    with pytest.raises(ObservationError, match=message):
        attack.run(change(good))


@pytest.mark.usefixtures("no_work")
def test_labels_that_cannot_be_restored_are_refused(make_update: MakeUpdate) -> None:
    linear, _ = make_update(4, "linear", share_labels=False)
    with pytest.raises(UnsupportedError, match="labels='geng' needs a hidden layer, this network has none"):
        ATTACKS.get("tableak")(labels="geng").run(linear)
    ATTACKS.get("tableak")(labels="bias").check(linear)


def test_in_train_mode_batch_norm_needs_no_buffers_and_without_a_prior_no_statistics(make_update: MakeUpdate) -> None:
    update, _ = make_update(4, "resnet", hidden=[9, 8])
    bare = replace(update, buffers={}, batch_statistics={})
    found = ATTACKS.get("tableak")(steps=3, restarts=2).run(bare)
    assert found.encoded.isfinite().all()
    plain, _ = make_update(4, hidden=[9, 8])
    assert ATTACKS.get("gradinversion")(steps=3).run(plain).encoded.isfinite().all()


def test_a_captured_update_with_values_that_are_not_finite_does_not_exist(make_update: MakeUpdate) -> None:
    update, _ = make_update(4, hidden=[9, 8])
    for group in ("parameters", "update"):
        with pytest.raises(ObservationError, match=r"'linears.0.bias' must be finite, got NaN or infinity"):
            changed(update, group, "linears.0.bias", torch.full((9,), NAN))


def test_alike_updates_are_of_one_network_table_and_size(make_update: MakeUpdate) -> None:
    update, _ = make_update(4, "resnet", 0, hidden=[9, 8])
    assert alike(update, update)
    assert alike(update, make_update(4, "resnet", 1, hidden=[9, 8])[0])
    others = [
        make_update(5, "resnet", 0, hidden=[9, 8])[0],
        make_update(4, "resnet", 0, hidden=[9, 7])[0],
        make_update(4, "resnet", 0, hidden=[9, 8], training_mode=False)[0],
        replace(update, buffers={}),
        replace(update, batch_statistics={}),
        changed(update, "encoder_tensors", "shift", update.encoder_tensors["shift"] + 1),
    ]
    assert not any(alike(update, other) or alike(other, update) for other in others)
