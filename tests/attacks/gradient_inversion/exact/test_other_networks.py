"""Exact inversion of networks that are no ReLU chain: rows, labels and certificates of small batches."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.network.traced import trace
from lightleak.core.errors import UnsupportedError
from lightleak.core.ground_truth import GroundTruth
from lightleak.data.layout import EncodedLayout
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


class Embedded(nn.Module):
    """A user's own network with one `nn.Embedding` per categorical column, concatenated or summed with the numbers."""

    def __init__(self, layout: EncodedLayout, n_classes: int, summed: bool = False, dim: int = 4) -> None:
        super().__init__()
        self.layout, self.summed = layout, summed
        self.numbers = [block.start for block in layout.numerical]
        self.tables = nn.ModuleList(nn.Embedding(block.width, 24 if summed else dim) for block in layout.categorical)
        self.lifted = nn.Linear(len(self.numbers), 24)
        into = 24 if summed else len(self.numbers) + dim * len(layout.categorical)
        layers = nn.Linear(into, 50), nn.ReLU(), nn.Linear(50, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU()
        self.rest = nn.Sequential(*layers, nn.Linear(30, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        numbers, blocks = x[:, self.numbers], self.layout.categorical
        parts = [table(x[:, block.slice].argmax(-1)) for table, block in zip(self.tables, blocks, strict=True)]
        return self.rest(self.lifted(numbers) + sum(parts) if self.summed else torch.cat([numbers, *parts], 1))


def embedded(batch: Any, n_classes: int = 2, summed: bool = False) -> Embedded:
    torch.manual_seed(5)
    return Embedded(batch.encoder.layout, n_classes, summed)


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
        ("gandalf", {"stages": 2}),
    ],
)
def test_every_row_is_found_and_certified(
    make_batch: Any, recovered: Any, certified_wrongly: Any, network: str, options: dict[str, Any], n_classes: int
) -> None:
    found, batch = attacked(make_batch(8, (4, 4), n_classes), network, options)
    assert recovered(found, batch, nearly=True) == 8
    assert found.certificate.certified == 8 and certified_wrongly(found, batch) == 0
    assert found.certificate.residual < 1e-6


def test_a_certificate_names_the_parameters_that_take_no_part(make_batch: Any) -> None:
    options = {"hidden": [40, 40], "activation": "gelu"}
    with_norms, _ = attacked(make_batch(8, (4, 4)), "mlp", {**options, "norm": "layer"})
    said = "take no part in proofs: norms.0.weight, norms.0.bias, norms.1.weight, norms.1.bias"
    assert with_norms.certificate.feasibility.reason.endswith(said)
    plain, _ = attacked(make_batch(8, (4, 4)), "mlp", options)
    assert "no part" not in plain.certificate.feasibility.reason
    gandalf, _ = attacked(make_batch(8, (4, 4)), "gandalf", {"stages": 2})
    assert "backbone.gflus.feature_masks" in gandalf.certificate.feasibility.reason


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


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("summed", [False, True])
def test_embeddings_are_inverted(
    make_batch: Any, recovered: Any, certified_wrongly: Any, summed: bool, n_classes: int
) -> None:
    base = make_batch(8, (4, 4), n_classes)
    name = hand_over(embedded(base, n_classes, summed))
    for attack in ("exact", "audit_max"):
        found, batch = attacked(base, name, {}, attack)
        assert recovered(found, batch, nearly=True) == 8 and certified_wrongly(found, batch) == 0
        assert found.certificate.residual < 1e-6
        # Sums of vectors could undo each other's exchanges: fewer rows are proven.
        assert found.certificate.certified == 8 or summed


def doubled(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return 2 * output


def hooked(width: int, name: str) -> str:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(width, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 2))
    network.get_submodule(name).register_forward_hook(doubled)
    return hand_over(network)


@pytest.mark.parametrize("name", ["1", "2"])
def test_hooks_take_part_in_what_a_network_computes(
    make_batch: Any, recovered: Any, certified_wrongly: Any, name: str
) -> None:
    base = make_batch(4, (4, 4), 2)
    found, batch = attacked(base, hooked(base.encoder.width, name), {})
    assert recovered(found, batch, nearly=True) == 4
    assert found.certificate.certified == 4 and certified_wrongly(found, batch) == 0


@pytest.mark.parametrize("name", ["", "0", "4"])
def test_hooks_of_the_first_and_the_last_layer_are_refused(make_batch: Any, name: str) -> None:
    base = make_batch(4, (4, 4), 2)
    with pytest.raises(UnsupportedError, match=r"are also used elsewhere|are not what a Linear layer"):
        attacked(base, hooked(base.encoder.width, name), {})


class OneHidden(nn.Module):
    """Embeddings of `more` numbers than a column has categories, by a product with one-hot cells; one hidden layer."""

    def __init__(self, layout: EncodedLayout, n_classes: int, more: int) -> None:
        super().__init__()
        self.layout, self.numbers = layout, [block.start for block in layout.numerical]
        dims = [block.width + more for block in layout.categorical]
        self.tables = nn.ParameterList(torch.randn(dim - more, dim) for dim in dims)
        self.rest = nn.Sequential(nn.Linear(len(self.numbers) + sum(dims), 64), nn.ReLU(), nn.Linear(64, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, b.slice] @ table for b, table in zip(self.layout.categorical, self.tables, strict=True)]
        return self.rest(torch.cat([x[:, self.numbers], *parts], 1))


@pytest.mark.parametrize("more", [-1, 0, 2])
def test_embeddings_before_one_hidden_layer_are_searched_by_what_the_layer_sees(
    make_batch: Any, recovered: Any, certified_wrongly: Any, more: int
) -> None:
    base = make_batch(4, (4, 4), 2)
    torch.manual_seed(0)
    network = OneHidden(base.encoder.layout, 2, more)
    found, batch = attacked(base, hand_over(network), {})
    assert recovered(found, batch, nearly=True) == 4 and certified_wrongly(found, batch) == 0
    rows, seen = base.truth.inputs.double(), []
    view = trace(network, base.encoder.width, 4, base.encoder).view()
    network.double().rest[0].register_forward_pre_hook(lambda layer, args: seen.append(args[0].detach()))
    network(rows)
    torch.testing.assert_close(view.hidden(rows), seen[0])


@pytest.mark.parametrize("distance", [0.0, 1e-6, 1e-4, 1e-2])
def test_categories_of_nearly_equal_vectors_are_not_proven(
    make_batch: Any, certified_wrongly: Any, distance: float
) -> None:
    base = make_batch(8, (4, 4), 2)
    network = embedded(base)
    with torch.no_grad():
        for table in network.tables:
            table.weight[1] = table.weight[0] + distance * torch.randn(4)
    for attack in ("exact", "audit_max"):
        found, batch = attacked(base, hand_over(network), {}, attack)
        assert certified_wrongly(found, batch) == 0
        if distance == 0:
            alike = [i for i, code in enumerate(batch.encoder.project(found.encoded)[0]) if bool((code <= 1).any())]
            assert alike and not any(found.certificate.status[i] == "certified" for i in alike)


@pytest.mark.parametrize("dead", [20, 34, 40])
def test_dead_units_behind_embeddings_prove_nothing_wrong(make_batch: Any, certified_wrongly: Any, dead: int) -> None:
    base = make_batch(8, (4, 4), 2)
    network = embedded(base)
    with torch.no_grad():
        network.rest[2].bias[:dead] = -100
    found, batch = attacked(base, hand_over(network), {})
    assert certified_wrongly(found, batch) == 0
    assert dead < 40 or found.certificate.certified == 0


def test_twins_behind_embeddings_are_counted(make_batch: Any, recovered: Any, certified_wrongly: Any) -> None:
    base = make_batch(8, (4, 4), 2, rows=(3, 3, 7, 9, 12, 12, 12, 20), labels=(0, 1, 0, 1, 1, 1, 1, 0))
    found, batch = attacked(base, hand_over(embedded(base)), {})
    assert recovered(found, batch, nearly=True) == 8 and certified_wrongly(found, batch) == 0


@pytest.mark.parametrize(
    ("activation", "n", "seed"), [("gelu", 12, 0), ("gelu", 14, 1), ("relu", 8, 0), ("relu", 10, 0)]
)
def test_one_hidden_layer_is_inverted_where_its_row_space_alone_leaves_numbers_open(
    make_batch: Any, recovered: Any, certified_wrongly: Any, activation: str, n: int, seed: int
) -> None:
    base = make_batch(n, (4, 4), 2, seed=seed)
    found, batch = attacked(base, "mlp", {"hidden": [60], "activation": activation})
    assert recovered(found, batch, nearly=True) == n and certified_wrongly(found, batch) == 0
    assert found.certificate.residual < 1e-6


class Written(nn.Module):
    """One hidden layer behind anything done with the rows, and with the layer's outputs."""

    def __init__(self, width: int, between: Callable[[Tensor], Tensor], before: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.between, self.out, self.before = nn.Linear(width, 60), between, nn.Linear(60, 2), before

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.between(self.first(self.before(x))))


def first_column_doubled(x: Tensor) -> Tensor:
    x[:, 0] *= 2
    return x


def ignoring_what_it_returns(h: Tensor) -> Tensor:
    functional.relu_(h)
    return h


def unchanged(x: Tensor) -> Tensor:
    return x


@pytest.mark.parametrize(
    ("in_place", "apart", "before"),
    [
        (nn.ReLU(inplace=True), nn.ReLU(), unchanged),
        (nn.LeakyReLU(inplace=True), nn.LeakyReLU(), unchanged),
        (nn.ELU(inplace=True), nn.ELU(), unchanged),
        (functional.relu_, functional.relu, unchanged),
        (partial(functional.silu, inplace=True), functional.silu, unchanged),
        (nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.0)), nn.ReLU(), unchanged),
        (nn.Sequential(nn.ELU(), nn.Dropout(0.0, inplace=True)), nn.ELU(), unchanged),
        (ignoring_what_it_returns, functional.relu, unchanged),
        (lambda h: functional.relu_(h) + h, lambda h: 2 * functional.relu(h), unchanged),
        (nn.ReLU(), nn.ReLU(), lambda x: x.mul_(2)),
        (nn.ReLU(), nn.ReLU(), first_column_doubled),
    ],
)
@pytest.mark.parametrize("attack", ["exact", "audit_max"])
def test_operations_in_place_hide_and_forge_nothing(
    make_batch: Any,
    recovered: Any,
    certified_wrongly: Any,
    in_place: Any,
    apart: Any,
    before: Any,
    attack: str,
) -> None:
    base = make_batch(6, (4, 4), 2)
    kept = base.truth.inputs.clone()
    plain = {unchanged: unchanged, first_column_doubled: lambda x: first_column_doubled(x.clone())}
    updates = []
    for between, first in ((in_place, before), (apart, plain.get(before, lambda x: 2 * x))):
        found, batch = attacked(base, hand_over(Written(base.encoder.width, between, first)), {}, attack)
        assert recovered(found, batch, nearly=True) == found.certificate.certified == 6
        assert certified_wrongly(found, batch) == 0
        updates.append(batch.update.update)
    torch.testing.assert_close(*updates)
    assert torch.equal(base.truth.inputs, kept)
