"""The engine's options in whole attacks: refused before any work, seen in the threat model, and better on a batch."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.chain_options import (
    MOMENT_ROWS,
    chain_options,
    observed_domain,
    random_rows,
    restricted,
)
from lightleak.core.errors import UnsupportedError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.table import Table
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network

MakeUpdate = Callable[..., tuple[ClientUpdate, GroundTruth]]
CPU = torch.device("cpu")
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
}
CHAIN_ONLY = [
    {"mask_derivative": "straight_through"},
    {"whitening": 0.01},
    {"mask_absent": True},
    {"tie_numbers": True},
]
PRIOR = [
    {"mask_derivative": "straight_through"},
    {"whitening": 0.01},
    {"initialization": "prior"},
    {"prior_weight": 1.0},
]


def observe(table: Table, encoding: Encoding, n: int) -> tuple[ClientUpdate, GroundTruth, TableEncoder]:
    """A gradient of rows in some encoding."""
    encoder = TableEncoder(table.schema, encoding).fit(table.train)
    inputs, labels = encoder.encode(table.train)[:n], encoder.encode_labels(table.train)[:n]
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [100, 100]})
    update, truth = client_update(build_network(spec, 0), spec, encoder, inputs, labels, share_labels=True)
    return update, truth, encoder


def present_of(update: ClientUpdate, encoder: TableEncoder) -> list[list[int]]:
    """Categories that the first layer does not rule out."""
    return [kept.tolist() for kept in observed_domain(update, encoder, InversionConfig(mask_absent=True)).present]


@pytest.mark.parametrize("n", [2, 30])
@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
def test_present_categories_are_those_of_the_rows(table: Table, encoding: Encoding, n: int) -> None:
    update, truth, encoder = observe(table, encoding, n)
    codes, _ = encoder.project(truth.inputs)
    assert present_of(update, encoder) == [sorted(column.unique().tolist()) for column in codes.unbind(-1)]


def test_a_gradient_of_nothing_rules_nothing_out(table: Table) -> None:
    update, _, encoder = observe(table, "standardized", 4)
    nothing = replace(update, update={name: torch.zeros_like(value) for name, value in update.update.items()})
    assert present_of(nothing, encoder) == [list(range(block.width)) for block in encoder.layout.categorical]


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
def test_numbers_follow_what_the_first_layer_shows(table: Table, encoding: Encoding) -> None:
    """The first number follows a category in one update, is constant in the second and free in the third."""
    encoder = TableEncoder(table.schema, encoding).fit(table.train)
    number, category = encoder.schema.numerical[0].name, encoder.schema.categorical[0].name
    frame = table.train.iloc[:12].reset_index(drop=True)
    codes = pd.Categorical(frame[category], categories=list(encoder.schema.categorical[0].categories)).codes
    low, span = float(encoder.lower[0]), float(encoder.upper[0] - encoder.lower[0])
    frames = [
        frame.assign(**{number: low + span * (1 + codes % 3) / 4}),
        frame.assign(**{number: low + 0.3 * span}),
        frame,
    ]
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [100, 100]})
    labels = encoder.encode_labels(frame)
    observed = [
        client_update(build_network(spec, 0), spec, encoder, encoder.encode(one), labels, share_labels=True)
        for one in frames
    ]
    updates, config = [update for update, _ in observed], InversionConfig(tie_numbers=True)
    spaces = [observed_domain(update, encoder, config) for update in updates]
    assert [(list(space.ties), list(space.constants)) for space in spaces] == [([0], []), ([], [0]), ([], [])]
    relax = restricted(encoder.relaxation(dtype=torch.float64), updates, encoder, config)
    z = torch.randn(3, 2, 12, encoder.width, dtype=torch.float64)
    block = encoder.layout.categorical[0]
    for u, (_, truth) in enumerate(observed):  # softmaxes that are sure of the true categories
        raw = truth.inputs.double() * encoder.scale + encoder.shift
        z[u, :, :, block.slice] = 1e3 * raw[:, block.slice] / encoder.scale[block.slice]
    at = encoder.numerical_positions[0]
    x, free = relax(z)[..., at], encoder.relaxation(dtype=torch.float64)(z)[..., at]
    for u in (0, 1):
        torch.testing.assert_close(x[u, 0], observed[u][1].inputs[:, at].double(), rtol=0, atol=1e-3)
    assert torch.equal(x[2], free[2])


def test_random_rows_are_of_present_categories_and_always_the_same(table: Table) -> None:
    update, _, encoder = observe(table, "standardized", 2)
    rows = random_rows(update, InversionConfig(mask_absent=True), CPU)
    codes, numbers = encoder.project(rows)
    torch.testing.assert_close(encoder.assemble(codes, numbers)[:, :1].double(), rows[:, :1], rtol=0, atol=1)
    assert [sorted(of_column.unique().tolist()) for of_column in codes.unbind(-1)] == present_of(update, encoder)
    assert len(rows) == MOMENT_ROWS and torch.equal(rows, random_rows(update, InversionConfig(mask_absent=True), CPU))
    everything = encoder.project(random_rows(update, InversionConfig(), CPU))[0]
    assert len(everything[:, 0].unique()) == encoder.layout.categorical[0].width


def test_options_that_are_off_cost_nothing(table: Table) -> None:
    update, _, _ = observe(table, "standardized", 2)
    off = chain_options([update], InversionConfig(), CPU, torch.float32)
    assert off.straight_through is None and off.whitening is None
    straight = chain_options([update], InversionConfig(mask_derivative="straight_through"), CPU, torch.float64)
    assert straight.whitening is None and straight.straight_through is not None
    assert (
        straight.straight_through.deviations.shape == (1, 2)
        and straight.straight_through.deviations.dtype is torch.float64
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_true_rows_have_no_whitened_loss(make_update: MakeUpdate, n_classes: int) -> None:
    update, truth = make_update(5, hidden=[20, 17], n_classes=n_classes, dtype=torch.float64)
    attack = ATTACKS.get("tableak")(**ALL, precision="float64")
    codec = attack.codec(update, CPU)
    posed = attack.pose([(update, 0)], codec, CPU, torch.float64)
    at_truth, slope = posed.matcher.value_and_grad(truth.inputs.double()[None, None])
    elsewhere, _ = posed.matcher.value_and_grad(truth.inputs.double().flip(-1)[None, None])
    assert float(at_truth) < 1e-12 < 1e-3 < float(elsewhere) and slope.abs().max() < 1e-6


@pytest.mark.parametrize("options", CHAIN_ONLY, ids=str)
@pytest.mark.parametrize("network", ["resnet", "mlp"])
def test_networks_without_a_closed_form_are_refused(
    make_update: MakeUpdate, network: str, options: dict[str, object]
) -> None:
    update, _ = make_update(4, network, hidden=[9, 8], **({"activation": "tanh"} if network == "mlp" else {}))
    attack = ATTACKS.get("tableak")(**options)
    with pytest.raises(UnsupportedError, match=f"{next(iter(options))}.* is for plain ReLU networks.*{network!r}"):
        attack.check(update)


@pytest.mark.parametrize("options", CHAIN_ONLY[:2], ids=str)
def test_a_penalty_of_autograd_is_refused_beside_the_closed_forms_options(
    make_update: MakeUpdate, options: dict[str, object]
) -> None:
    update, _ = make_update(4, hidden=[9, 8])
    with pytest.raises(UnsupportedError, match=r"needs l2_prior 0, .*got 0\.1"):
        ATTACKS.get("tableak")(l2_prior=0.1, **options).check(update)


@pytest.mark.parametrize("options", PRIOR, ids=str)
def test_a_prior_needs_numbers_that_are_affine_and_is_declared(table: Table, options: dict[str, object]) -> None:
    attack = ATTACKS.get("tableak")(**options)
    assert attack.threat_model.marginals and not ATTACKS.get("tableak")().threat_model.marginals
    with pytest.raises(UnsupportedError, match="got the encoding 'quantile'"):
        attack.check(observe(table, "quantile", 4)[0])


def test_clamped_ranks_need_no_prior(table: Table) -> None:
    update, _, encoder = observe(table, "quantile", 3)
    found = ATTACKS.get("tableak")(numerical="clamp", steps=40, restarts=2).run(update)
    assert ((found.encoded >= 0) & (found.encoded <= 1))[:, encoder.numerical_positions].all()


def right_cells(encoder: TableEncoder, found: Reconstruction, truth: GroundTruth) -> float:
    """Cells that agree (TabLeak Eq. 6) under the best pairing of rows."""
    (codes, numbers), (guessed, guesses) = encoder.project(truth.inputs), encoder.project(found.encoded)
    near = (numbers[:, None] - guesses).abs() <= 0.319 * encoder.deviation
    hits = torch.cat([codes[:, None] == guessed, near], -1).double().mean(-1)
    return float(hits[linear_sum_assignment(hits, maximize=True)].mean())


@pytest.mark.parametrize("encoding", ["standardized", "onehot"])
def test_all_options_together_restore_more_than_none(table: Table, encoding: Encoding) -> None:
    update, truth, encoder = observe(table, encoding, 8)
    found, plain = (
        ATTACKS.get("tableak")(**options, steps=300, restarts=2).run(update, seed=1)
        for options in (ALL, {"pooling": "none"})
    )
    assert right_cells(encoder, found, truth) > right_cells(encoder, plain, truth)
    assert encoding != "onehot" or right_cells(encoder, found, truth) == 1


def test_several_updates_are_attacked_as_each_alone(make_update: MakeUpdate) -> None:
    updates = [make_update(3, hidden=[30, 20], seed=seed)[0] for seed in range(2)]
    updates[1] = replace(updates[1], marginals=None)
    attack = ATTACKS.get("tableak")(**ALL, prior_weight=1e-4, precision="float64", steps=30, restarts=2)
    together = attack.run_many(updates, [3, 4])
    for update, seed, found in zip(updates, (3, 4), together, strict=True):
        alone = attack.run(update, seed)
        torch.testing.assert_close(alone.encoded, found.encoded, rtol=0, atol=1e-8)
        assert alone.loss == pytest.approx(found.loss, abs=1e-10)


def test_results_repeat_bit_for_bit_and_chunks_do_not_matter(make_update: MakeUpdate) -> None:
    update, _ = make_update(3, hidden=[30, 20])
    attack = ATTACKS.get("tableak")(**ALL, steps=30, restarts=3, memory_mb=1)
    first, again = attack.run(update, 5), attack.run(update, 5)
    assert torch.equal(first.encoded, again.encoded) and first.loss == again.loss


def test_absent_categories_never_come_back(make_update: MakeUpdate, encoder: TableEncoder) -> None:
    update, _ = make_update(2, hidden=[30, 20])
    found = ATTACKS.get("tableak")(mask_absent=True, steps=3, restarts=4, keep_ensemble=True).run(update)
    codes: Tensor = encoder.project(found.ensemble)[0]
    for present, of_column in zip(present_of(update, encoder), codes.unbind(-1), strict=True):
        assert set(of_column.unique().tolist()) <= set(present)
