"""Label counts read off a gradient: exact by the last bias of an untrained network, close by Geng et al."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.optimize import attack as attack_module
from lightleak.attacks.gradient_inversion.optimize.labels import (
    DUMMY_ROWS,
    expand_counts,
    geng_rows,
    last_linear,
    plausible_rows,
    require_restorable,
    restore_counts,
    round_counts,
)
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.data.column import Column
from lightleak.data.encoder import TableEncoder
from lightleak.data.layout import EncodedLayout
from lightleak.data.schema import TableSchema
from lightleak.data.table import Table
from lightleak.targets.spec import NETWORKS, NetworkSpec, build_network, is_differentiable

MakeUpdate = Callable[..., tuple[ClientUpdate, object]]


def restored(encoder: TableEncoder, update: ClientUpdate, method: str, seed: int) -> Tensor:
    """Real-valued counts as the attack estimates them."""
    draws = generator(seed, "labels")
    dummy = plausible_rows(encoder, DUMMY_ROWS, draws) if method == "bias" else geng_rows(encoder, draws)
    tensors = update.parameters, update.buffers, update.update
    return restore_counts(client_network(update), *tensors, update.facts.n_rows, dummy, method)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("n", [1, 4, 32])
def test_the_last_bias_of_an_untrained_network_tells_the_count(
    encoder: TableEncoder, make_update: MakeUpdate, n: int, classes: int
) -> None:
    for seed in range(25):
        update, truth = make_update(n, "mlp", seed, n_classes=classes, share_labels=False)
        counts = round_counts(restored(encoder, update, "bias", seed), n)
        assert counts.tolist() == torch.bincount(truth.labels, minlength=classes).tolist()


@pytest.mark.parametrize("classes", [2, 5])
def test_geng_comes_close(encoder: TableEncoder, make_update: MakeUpdate, classes: int) -> None:
    n, wrong, exact = 16, 0.0, 0
    for seed in range(25):
        update, truth = make_update(n, "mlp", seed, n_classes=classes, share_labels=False)
        counts = round_counts(restored(encoder, update, "geng", seed), n)
        gap = (counts - torch.bincount(truth.labels, minlength=classes)).abs().sum().item() / 2
        wrong, exact = wrong + gap / n / 25, exact + (gap == 0)
    # Measured: 1 to 3% of the labels wrong; a guess of equal shares has 13% (2 classes) and 24% (5 classes) wrong.
    assert wrong < 0.06 and exact >= 8


@pytest.mark.parametrize("encoding", ["onehot", "minmax", "quantile"])
def test_geng_takes_its_dummy_rows_from_where_rows_lie(
    make_batch: Callable[..., Any], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, seen = make_batch(8, encoding=encoding), []

    def spy(*args: Any) -> Tensor:
        seen.append(args[5])
        return restore_counts(*args)

    monkeypatch.setattr(attack_module, "restore_counts", spy)
    ATTACKS.get("tableak")(labels="geng", steps=1, restarts=1).run(batch.update, 0)
    lower, upper = batch.encoder.encoded_bounds()
    (dummy,) = seen
    assert dummy.shape == (DUMMY_ROWS, batch.encoder.width)
    assert ((dummy >= lower - 1e-5) & (dummy <= upper + 1e-5)).all()


def test_gengs_dummy_rows_are_standard_normal_where_rows_are_standardized(encoder: TableEncoder) -> None:
    expected = torch.randn(DUMMY_ROWS, encoder.width, generator=generator(3))
    assert torch.equal(geng_rows(encoder, generator(3)), expected)


@pytest.mark.parametrize("method", ["bias", "geng"])
def test_real_valued_counts_sum_to_the_rows(encoder: TableEncoder, make_update: MakeUpdate, method: str) -> None:
    update, _ = make_update(9, "mlp", 0, n_classes=4, share_labels=False)
    assert restored(encoder, update, method, 0).sum().item() == pytest.approx(9, abs=1e-3)


def test_a_true_mean_probability_makes_the_bias_exact(make_update: MakeUpdate) -> None:
    update, truth = make_update(12, "resnet", 3, n_classes=3, hidden=[9, 8], share_labels=False)
    tensors = update.parameters, update.buffers, update.update
    counts = restore_counts(client_network(update), *tensors, 12, truth.inputs, "bias")
    expected = torch.bincount(truth.labels, minlength=3).double()
    torch.testing.assert_close(counts, expected, rtol=0, atol=1e-4)


@given(st.lists(st.floats(-5, 40), min_size=2, max_size=8), st.integers(1, 60))
def test_whole_counts_sum_to_the_rows(counts: list[float], n: int) -> None:
    rounded = round_counts(torch.tensor(counts), n)
    assert int(rounded.sum()) == n and (rounded >= 0).all()
    labels = expand_counts(rounded)
    assert labels.dtype == torch.long and torch.equal(torch.bincount(labels, minlength=len(counts)), rounded)


@given(st.lists(st.integers(0, 20), min_size=2, max_size=6).filter(any), st.integers(0, 1000))
def test_whole_counts_survive_small_errors(counts: list[int], seed: int) -> None:
    error = 0.45 * (2 * torch.rand(len(counts), generator=torch.Generator().manual_seed(seed)) - 1)
    assert round_counts(torch.tensor(counts) + error - error.mean(), sum(counts)).tolist() == counts


@pytest.mark.parametrize("method", ["bias", "geng"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_restoring_changes_nothing_and_takes_any_precision(
    encoder: TableEncoder, make_update: MakeUpdate, method: str, dtype: torch.dtype
) -> None:
    update, _ = make_update(6, "resnet", 0, hidden=[9, 8], share_labels=False, share={"share_statistics": False})
    groups = [{k: v.to(dtype) for k, v in g.items()} for g in (update.parameters, update.update)]
    buffers = {name: b.double() if b.is_floating_point() else b for name, b in update.buffers.items()}
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    dummy = torch.randn(50, encoder.width)
    counts = restore_counts(client_network(update), groups[0], buffers, groups[1], 6, dummy, method)
    assert counts.isfinite().all()
    assert all(torch.equal(buffers[name], value) for name, value in before.items())


def test_every_network_registers_the_layer_of_its_logits_last(encoder: TableEncoder) -> None:
    without = {"tabm", "realmlp_like"}  # layers of their own in its place: labels are not restored
    for name in {*filter(is_differentiable, NETWORKS.names())} - without:
        if getattr(NETWORKS.get(name), "missing_package", lambda: None)() is not None:
            continue
        layout, options = encoder.layout, {}
        if name == "image_cnn":
            layout, options = EncodedLayout.of_numerical(64), {"shape": [1, 8, 8]}
        network = build_network(NetworkSpec(name, 7, layout, options), seed=0)
        assert last_linear(network)[1].out_features == 7
    realmlp = build_network(NetworkSpec("realmlp_like", 7, encoder.layout), seed=0)
    with pytest.raises(UnsupportedError, match="restored from a last Linear layer; RealMLPLike has none"):
        last_linear(realmlp)


def test_networks_labels_cannot_be_restored_from_are_refused() -> None:
    layout = EncodedLayout.of_numerical(4)
    linear = build_network(NetworkSpec("linear", 2, layout), seed=0)
    with pytest.raises(UnsupportedError, match="labels='geng' needs a hidden layer, this network has none"):
        require_restorable(linear, "geng")
    require_restorable(linear, "bias")
    unbiased = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False))
    with pytest.raises(UnsupportedError, match="labels='bias' needs a bias in the last layer"):
        require_restorable(unbiased, "bias")
    require_restorable(unbiased, "geng")
    for method in ("geng", "bias"):  # neither is proposed in place of the other
        with pytest.raises(UnsupportedError, match=f"labels='{method}' needs [a-z ,]*$"):
            require_restorable(nn.Linear(4, 2, bias=False), method)
    with pytest.raises(UnsupportedError, match="restored from a last Linear layer; Conv1d has none"):
        require_restorable(nn.Conv1d(1, 1, 1), "geng")


def test_plausible_rows_follow_the_encoders_statistics(table: Table, encoder: TableEncoder) -> None:
    rows = plausible_rows(encoder, 20_000, generator(0))
    real = encoder.encode(table.train)
    for block in encoder.layout.blocks:
        # Tails beyond the bounds are cut off, hence the tolerance.
        torch.testing.assert_close(rows[:, block.slice].mean(0), real[:, block.slice].mean(0), rtol=0, atol=0.06)
        torch.testing.assert_close(rows[:, block.slice].std(0), real[:, block.slice].std(0), rtol=0.06, atol=0)


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax", "quantile"])
def test_plausible_rows_lie_where_rows_lie(encoding: str) -> None:
    columns = (Column.integer("age", 18, 90), Column.categorical("sex", ["F", "M"]), Column.continuous("height", 1, 2))
    schema = TableSchema(columns, Column.categorical("y", ["0", "1"]))
    frame = pd.DataFrame({"age": [20, 30, 80, 85], "sex": list("FMMF"), "height": [1.5, 1.6, 1.7, 1.8], "y": "0"})
    encoder = TableEncoder(schema, encoding).fit(frame)
    rows = plausible_rows(encoder, 2_000, generator(1))
    lower, upper = encoder.encoded_bounds()
    assert rows.dtype == torch.float32
    assert ((rows >= lower - 1e-5) & (rows <= upper + 1e-5)).all()
    decoded = encoder.decode(rows)
    assert decoded["age"].nunique() > 30 and set(decoded["sex"]) == {"F", "M"}
    sums = (rows.double() * encoder.scale + encoder.shift)[:, encoder.column_slices["sex"]].sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)
