"""State dicts from anywhere become the updates that our own protocols make, and wrong ones are named."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.integrations.server_view import ServerView
from lightleak.integrations.state_dicts import client_update
from lightleak.targets import NetworkSpec
from lightleak.targets.own import hand_over

HARD = {"hidden": [8], "norm": "batch"}


def same(one: ClientUpdate, other: ClientUpdate) -> None:
    assert (one.kind, one.state, one.facts) == (other.kind, other.state, other.facts)
    assert (one.network, one.encoder, one.marginals) == (other.network, other.encoder, other.marginals)
    for group in ("parameters", "update", "encoder_tensors", "buffers"):
        left, right = getattr(one, group), getattr(other, group)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left), group


@pytest.mark.parametrize("options", [{"hidden": [8]}, HARD])
def test_weights_before_and_after_are_our_own_capture(federation: Any, options: dict[str, Any]) -> None:
    made = federation(**options)
    before = made.network().state_dict()
    same(client_update(before, made.trained(1, before), made.view(), 6), made.own(1)[0])


def test_a_delta_and_a_gradient_are_our_own_capture(federation: Any) -> None:
    made = federation(hidden=[8])
    before, own = made.network().state_dict(), made.own(2)[0]
    same(client_update(before, own.update, made.view(sends="delta"), 6), own)
    gradient = made.gradient(2, before)
    same(client_update(before, gradient, made.view(sends="gradient"), 6), made.own(2, "gradient")[0])


def test_one_step_is_recorded_as_its_gradient(federation: Any) -> None:
    made = federation(one_step=True, hidden=[8])
    before = made.network().state_dict()
    found = client_update(before, made.trained(0, before), made.view(as_gradient=True), 6)
    own = made.own(0, "gradient")[0]
    assert (found.kind, found.facts) == (own.kind, own.facts)
    for name, value in own.update.items():
        # A weight of about 1 moved by 0.5 of the gradient: half a unit of its last place is 2e-7 of the gradient.
        torch.testing.assert_close(found.update[name], value, rtol=0, atol=5e-7)


def test_one_step_with_weight_decay_is_recorded_as_the_gradient_of_the_loss(federation: Any) -> None:
    made = federation(one_step=True, hidden=[8])
    before = made.network().state_dict()
    gradient = made.gradient(0, before)
    after = {name: before[name] - 0.5 * (value + 0.1 * before[name]) for name, value in gradient.items()}
    found = client_update(before, after, made.view(as_gradient=True, weight_decay=0.1), 6)
    for name, value in gradient.items():
        torch.testing.assert_close(found.update[name], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("batch_size", [3, None])
def test_several_steps_have_no_single_gradient(federation: Any, batch_size: int | None) -> None:
    made = federation(one_step=True, hidden=[8])
    before = made.network().state_dict()
    with pytest.raises(ObservationError, match="as_gradient needs a client's 6 rows in one step"):
        client_update(before, before, made.view(as_gradient=True, batch_size=batch_size), 6)


def test_arrays_without_names_are_taken_in_order(federation: Any) -> None:
    made = federation(**HARD)
    before = made.network().state_dict()
    after = made.trained(0, before)
    named = client_update(before, after, made.view(), 6)
    same(
        client_update([v.numpy() for v in before.values()], [v.numpy() for v in after.values()], made.view(), 6), named
    )
    with pytest.raises(ObservationError, match=r"sent: 2 arrays without names; the network 'mlp' has 9 tensors"):
        client_update(before, list(after.values())[:2], made.view(), 6)


@pytest.mark.parametrize(
    "form", [lambda v: v[..., ::-1].copy()[..., ::-1], lambda v: v.astype(v.dtype.newbyteorder(">"))]
)
def test_arrays_may_be_reversed_or_of_another_byte_order(federation: Any, form: Any) -> None:
    made = federation(**HARD)
    before = made.network().state_dict()
    after = made.trained(0, before)
    arrays = [
        {name: form(v.numpy()) if v.dim() else v.numpy() for name, v in state.items()} for state in (before, after)
    ]
    same(client_update(*arrays, made.view(), 6), client_update(before, after, made.view(), 6))


def test_names_are_text(federation: Any) -> None:
    made = federation(hidden=[8])
    before = made.network().state_dict()
    with pytest.raises(ObservationError, match="sent: names of tensors must be text, got 0"):
        client_update(before, dict(enumerate(before.values())), made.view(), 6)


def test_a_prefix_leaves_out_what_is_not_the_networks(federation: Any) -> None:
    made = federation(hidden=[8])
    before = made.network().state_dict()
    after = made.trained(0, before)
    module = [{f"network.{name}": v for name, v in s.items()} | {"loss.weight": torch.ones(2)} for s in (before, after)]
    same(client_update(*module, made.view(prefix="network."), 6), client_update(before, after, made.view(), 6))
    with pytest.raises(ObservationError, match=r"lacks 'linears.0.weight', .*; prefix='network.' would find it"):
        client_update(*module, made.view(), 6)


def test_rows_may_be_counted_by_numpy(federation: Any) -> None:
    made = federation(hidden=[8])
    before = made.network().state_dict()
    update = client_update(before, before, made.view(), np.int64(6))
    assert update.facts.n_rows == 6 and type(update.facts.n_rows) is int


def test_a_view_may_be_stated_by_numpy(federation: Any, tmp_path: Any) -> None:
    made = federation(hidden=[8])
    view = made.view(batch_size=np.int64(3), learning_rate=np.float32(0.5), epochs=np.int64(2))
    assert view == made.view(batch_size=3, learning_rate=0.5, epochs=2)
    view.save(tmp_path)
    before = made.network().state_dict()
    update = client_update(before, before, ServerView.load(tmp_path), 6, round_number=np.int64(1))
    update.save(tmp_path / "update")
    assert ClientUpdate.load(tmp_path / "update").facts == update.facts
    with pytest.raises(ObservationError, match="n_rows must be a whole number from 1 to 1000000000"):
        client_update(before, before, view, 10**12)


def test_nothing_is_shared_with_what_came_in(federation: Any) -> None:
    made = federation(hidden=[8])
    before = {name: value.clone() for name, value in made.network().state_dict().items()}
    found = client_update(before, before, made.view(sends="delta"), 6)
    kept = {name: value.clone() for name, value in found.parameters.items()}
    for value in before.values():
        value.zero_()
    for name, value in kept.items():
        assert torch.equal(found.parameters[name], value) and torch.equal(found.update[name], value)


def test_labels_are_shared_where_they_are_known(federation: Any) -> None:
    made = federation(hidden=[8])
    before = made.network().state_dict()
    told = [1, 0, 1, 0, 0, 1]
    delta = client_update(before, before, made.view(), 6, labels=told)
    assert delta.labels is not None and delta.labels.tolist() == sorted(told)
    gradient = client_update(before, before, made.view(sends="gradient"), 6, labels=torch.tensor(told))
    assert gradient.labels is not None and gradient.labels.tolist() == told
    with pytest.raises(ObservationError, match="labels must be class indices from 0 to 1, got 0 to 2"):
        client_update(before, before, made.view(), 6, labels=[2, 0, 1, 0, 0, 1])
    with pytest.raises(ObservationError, match=r"labels must have shape \(6,\)"):
        client_update(before, before, made.view(), 6, labels=[1])


def changed(state: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {key: kept for key, kept in {**state, name: value}.items() if kept is not None}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("linears.0.weight", None, r"sent lacks 'linears.0.weight' of the network 'mlp'"),
        ("linears.9.weight", torch.ones(1), r"sent: 'linears.9.weight' are not tensors of the network 'mlp'"),
        ("linears.0.bias", torch.ones(9), r"sent: 'linears.0.bias' must have shape \(8,\).*got \(9,\)"),
        (
            "linears.0.bias",
            np.ones(8, dtype=int),
            r"'linears.0.bias' must hold floating-point numbers, got torch.int",
        ),
        ("linears.0.bias", "eight", r"sent: 'linears.0.bias' must be a tensor or an array, got str"),
        ("linears.0.bias", torch.full((8,), float("nan")), r"update 'linears.0.bias' must be finite"),
    ],
)
def test_the_wrong_tensor_is_named(federation: Any, name: str, value: Any, message: str) -> None:
    made = federation(hidden=[8])
    before = made.network().state_dict()
    with pytest.raises(ObservationError, match=message):
        client_update(before, changed(before, name, value), made.view(), 6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sends": "logits"}, "sends must be one of weights, delta, gradient, got 'logits'"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 to 1000000000, got 0"),
        ({"batch_size": True}, "batch_size must be a whole number from 1 to 1000000000, got True"),
        ({"epochs": 0}, "epochs must be a whole number from 1 to 1000000000, got 0"),
        ({"learning_rate": "0.1"}, "learning_rate must be a finite number from 0, got '0.1'"),
        ({"learning_rate": float("inf")}, "learning_rate must be a finite number from 0, got inf"),
        ({"learning_rate": True}, "learning_rate must be a finite number from 0, got True"),
        ({"momentum": "x"}, "momentum must be a finite number from 0, got 'x'"),
        ({"weight_decay": float("nan")}, "weight_decay must be a finite number from 0, got nan"),
        ({"optimizer": None}, "optimizer must be text, got None"),
        ({"loss": None}, "loss must be text, got None"),
        ({"loss": "nosuch"}, "unknown criterion 'nosuch'"),
        ({"defense": None}, "defense must be text, got None"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number from 0, got -1.0"),
        ({"learning_rate": 0}, "learning_rate must be above 0, got 0"),
        ({"as_gradient": True, "sends": "gradient"}, "sends='gradient' needs no turning"),
        # Of several conditions only those that do not hold are named.
        ({"as_gradient": True, "learning_rate": None}, "needs a known learning_rate; got learning_rate=None$"),
        ({"as_gradient": True, "epochs": 2}, "needs epochs=1; got epochs=2$"),
        (
            {"as_gradient": True, "epochs": 3, "optimizer": "adam"},
            "needs optimizer='sgd' and epochs=1; got optimizer='adam', epochs=3$",
        ),
    ],
)
def test_a_view_that_cannot_be_is_refused(federation: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        federation(one_step=True).view(**settings)


def test_a_view_of_another_table_is_refused(federation: Any) -> None:
    made = federation()
    layout = replace(made.encoder.layout, blocks=made.encoder.layout.blocks[:-1])
    with pytest.raises(UsageError, match="encoded features, the encoder makes other columns"):
        ServerView(NetworkSpec("mlp", 2, layout), made.encoder)


def test_a_view_is_read_as_it_was_saved(federation: Any, tmp_path: Any) -> None:
    made = federation(**HARD)
    view = made.view(prefix="net.", defense="clipped to 1", batch_size="all")
    view.save(str(tmp_path / "view"))
    loaded = ServerView.load(str(tmp_path / "view"))
    before = {f"net.{name}": value for name, value in made.network().state_dict().items()}
    same(client_update(before, before, loaded, 6), client_update(before, before, view, 6))
    assert (tmp_path / "view" / "view.json").stat().st_mode & 0o077 == 0
    text = (tmp_path / "view" / "view.json").read_text()
    (tmp_path / "view" / "view.json").write_text(text.replace('"sends"', '"sent"'))
    with pytest.raises(ObservationError, match="does not describe a server's view"):
        ServerView.load(tmp_path / "view")


@pytest.mark.parametrize(
    ("classes", "error", "message"),
    [(1, UnsupportedError, r"return logits .* of at least 2 classes; it returned \[3, 1\]"), (3, UsageError, "got 3")],
)
def test_a_view_refuses_a_network_of_ones_own_with_other_logits(
    federation: Any, classes: int, error: type[Exception], message: str
) -> None:
    made = federation(hidden=[8])
    name = hand_over(nn.Linear(made.encoder.width, classes))
    with pytest.raises(error, match=message):
        ServerView(NetworkSpec(name, 2, made.encoder.layout), made.encoder, sends="gradient")
