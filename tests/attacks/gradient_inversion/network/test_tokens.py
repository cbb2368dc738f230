"""Networks that mix vectors of cells before any layer sees one vector per row."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.exact.certify.proof import explains_all_parameters
from lightleak.attacks.gradient_inversion.exact.spaces.residual import EXPLAINED, Residual
from lightleak.attacks.gradient_inversion.network.of_update import layer_gradients, row_network
from lightleak.attacks.gradient_inversion.network.tokens import TokenNetwork, trace_any
from lightleak.attacks.gradient_inversion.network.traced import layer_gradient
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.errors import UnsupportedError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.seeds import generator
from lightleak.data.layout import EncodedLayout
from lightleak.metrics.certificate import wrong_certificates
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.own import hand_over
from lightleak.targets.spec import NetworkSpec


class Attention(nn.Module):
    """A user's own module: a vector per cell, a CLS token, one block of PyTorch's encoder."""

    def __init__(
        self,
        layout: EncodedLayout,
        batch_first: bool = True,
        dropout: float = 0.0,
        bend: Callable[[Tensor], Tensor] = lambda numbers: numbers,
    ) -> None:
        super().__init__()
        self.bend = bend
        self.layout, self.batch_first = layout, batch_first
        self.numbers = [block.start for block in layout.numerical]
        self.tables = nn.ModuleList(nn.Embedding(block.width, 16) for block in layout.categorical)
        self.weight, self.bias = (nn.Parameter(torch.randn(len(self.numbers), 16)) for _ in range(2))
        self.cls = nn.Parameter(torch.randn(16))
        self.block = nn.TransformerEncoderLayer(16, 2, 20, dropout=dropout, batch_first=batch_first)
        self.out = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        cells = [table(x[:, b.slice].argmax(-1)) for table, b in zip(self.tables, self.layout.categorical, strict=True)]
        numbers = self.bend(x[:, self.numbers]).unsqueeze(-1) * self.weight + self.bias
        tokens = torch.cat([self.cls.expand(len(x), 1, -1), numbers, torch.stack(cells, 1)], 1)
        if self.batch_first:
            return self.out(self.block(tokens)[:, 0])
        return self.out(self.block(tokens.transpose(0, 1))[0])


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_feed_forward_behind_attention_tests_rows(make_batch: Any, batch_first: bool) -> None:
    batch = make_batch(8)
    torch.manual_seed(3)
    module = Attention(batch.encoder.layout, batch_first).double()
    cross_entropy(module(batch.x.double()), batch.truth.labels).backward()
    observed = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    network = trace_any(module, batch.encoder.width, 8, batch.encoder, observed)
    assert isinstance(network, TokenNetwork) and network.names == ("block.linear1", "block.linear2", "out")
    labels = one_hot(batch.truth.labels, 2).double()
    for name, found in zip(network.names, network.gradient(batch.x.double(), labels, 8), strict=True):
        torch.testing.assert_close(found, layer_gradient(observed, name))
    hidden = network.forward(batch.x.double()).hidden[network.searched]
    torch.testing.assert_close(network.view().hidden(batch.x.double()), hidden)


def test_vectors_say_which_categories_and_constants_a_batch_has(make_batch: Any) -> None:
    batch = make_batch(8)
    torch.manual_seed(3)
    module, x = Attention(batch.encoder.layout).double(), batch.x.double().clone()
    at = batch.encoder.numerical_positions[0]
    x[:, at] = x[0, at]
    cross_entropy(module(x), batch.truth.labels).backward()
    observed = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    network = trace_any(module, batch.encoder.width, 8, batch.encoder, observed)
    none = x.new_zeros(0, 2)
    made = network.columns(network.state_map[0], x[:0], none, 8)
    space = infer_domain(made, batch.encoder, batch.prior, 8, ties={})
    codes, values = batch.encoder.project(x)
    for k, present in enumerate(space.present):
        assert present.tolist() == codes[:, k].unique().tolist()
    assert space.constants[0] == pytest.approx(float(values[0, 0]), abs=1e-4)


def test_dropout_is_refused(make_batch: Any) -> None:
    batch = make_batch(8)
    with pytest.raises(UnsupportedError, match="something else every time"):
        trace_any(Attention(batch.encoder.layout, dropout=0.1), batch.encoder.width, 8, batch.encoder)


def attention(batch: Any, **options: Any) -> Attention:
    torch.manual_seed(3)
    return Attention(batch.encoder.layout, **options)


def observed(batch: Any, module: Attention) -> Any:
    """The batch's rows behind an attention network."""
    encoder, truth = batch.encoder, batch.truth
    spec = NetworkSpec(hand_over(module), 2, encoder.layout, {})
    update, _ = client_update(module, spec, encoder, truth.inputs, truth.labels, share_labels=False)
    return type(batch)(update, GroundTruth(truth.inputs, truth.labels), encoder)


def test_rows_behind_attention_are_found_and_certified(make_batch: Any, recovered: Any, certified_wrongly: Any) -> None:
    batch = observed(base := make_batch(4, (4, 4)), attention(base))
    found = ATTACKS.get("exact")().run(batch.update, seed=1)
    assert recovered(found, batch, nearly=True) == 4 == found.certificate.certified
    assert certified_wrongly(found, batch) == 0


def test_audit_max_certifies_rows_behind_attention(make_batch: Any, recovered: Any) -> None:
    batch = observed(base := make_batch(4, (4, 4)), attention(base))
    found = ATTACKS.get("audit_max")(labels="restored").run(batch.update, seed=1)
    assert recovered(found, batch, nearly=True) == 4 == found.certificate.certified


def test_a_batch_that_explains_the_tested_layers_alone_is_not_certified(make_batch: Any, recovered: Any) -> None:
    """The other parameters' gradients come from the same rows: where they do not fit, a claim is wrong."""
    batch = observed(base := make_batch(4, (4, 4)), attention(base))
    gradient = batch.update.update["block.self_attn.in_proj_weight"]
    changed = gradient + 1e-3 * gradient.norm() * torch.ones_like(gradient) / gradient.numel() ** 0.5
    update = replace(batch.update, update={**batch.update.update, "block.self_attn.in_proj_weight": changed})
    found = ATTACKS.get("exact")().run(update, seed=1)
    assert recovered(found, batch, nearly=True) == 4 and found.certificate.certified == 0


def test_equal_rows_behind_attention_prove_nothing_wrong(make_batch: Any, certified_wrongly: Any) -> None:
    base = make_batch(4, (4, 4), 2, rows=(3, 3, 7, 9), labels=(0, 1, 1, 1))
    batch = observed(base, attention(base))
    assert certified_wrongly(ATTACKS.get("exact")().run(batch.update, seed=1), batch) == 0


@pytest.mark.parametrize("distance", [0.0, 1e-6, 1e-4])
def test_categories_of_nearly_equal_vectors_behind_attention_are_not_proven(
    make_batch: Any, certified_wrongly: Any, distance: float
) -> None:
    base = make_batch(4, (4, 4))
    module, draws = attention(base), generator(0, "vectors")
    with torch.no_grad():
        for table in module.tables:
            table.weight[1] = table.weight[0] + distance * torch.randn(16, generator=draws)
    batch = observed(base, module)
    found = ATTACKS.get("exact")().run(batch.update, seed=1)
    assert certified_wrongly(found, batch) == 0


def test_a_loud_layer_does_not_hide_that_two_rows_exchanged_a_category(make_batch: Any) -> None:
    """The logits' gradient is 1e8 times that of the embeddings, which alone show the exchange."""
    base = make_batch(4, (4, 4))
    module, block = attention(base), base.encoder.layout.categorical[0]
    with torch.no_grad():
        module.block.norm2.weight *= 1e4
        module.out.weight /= 1e4
        module.tables[0].weight[:] = module.tables[0].weight[0] + 1e-5 * module.tables[0].weight
    batch = observed(base, module)
    network = row_network(batch.update)
    residual = Residual.of(network, layer_gradients(batch.update, network), 4)
    labels = one_hot(batch.truth.labels, 2).double()
    assert explains_all_parameters(residual.explaining(batch.x, labels))
    one, other = 0, int((batch.x[:, block.slice] != batch.x[0, block.slice]).any(1).nonzero()[0])
    exchanged = batch.x.clone()
    exchanged[[one, other], block.slice] = batch.x[[other, one], block.slice]
    wrong = residual.explaining(exchanged, labels)
    assert wrong.relative < EXPLAINED and not explains_all_parameters(wrong)


@pytest.mark.parametrize("rows", [(3, 7, 3, 7), (3, 3, 3, 3)])
def test_rows_that_occur_several_times_behind_attention_prove_nothing_wrong(
    make_batch: Any, certified_wrongly: Any, rows: tuple[int, ...]
) -> None:
    base = make_batch(4, (4, 4), 2, rows=rows, labels=(0, 1, 0, 1) if rows[0] != rows[1] else (1, 1, 1, 1))
    batch = observed(base, attention(base))
    assert certified_wrongly(ATTACKS.get("exact")().run(batch.update, seed=1), batch) == 0


def test_the_layer_whose_gradient_shows_rows_most_clearly_is_searched(make_batch: Any) -> None:
    batch = make_batch(8)
    module, rows = attention(batch).double(), batch.x.double()
    names = ("block.linear1", "block.linear2", "out")
    cross_entropy(module(rows), batch.truth.labels).backward()
    observed = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    for searched in (0, 1):
        left, values, right = torch.linalg.svd(observed[f"{names[1 - searched]}.weight"], full_matrices=False)
        values[1:8] *= 1e-5
        blurred = left @ values.diag() @ right
        update = {**observed, f"{names[1 - searched]}.weight": blurred}
        network = trace_any(module, batch.encoder.width, 8, batch.encoder, update)
        assert network.names == names and network.searched == searched


BENDS = {
    "abs": torch.abs,
    "sin": lambda numbers: torch.sin(3 * numbers),
    "clip": lambda numbers: numbers.clamp(-3.5, 3.5),
    "clip of one side": lambda numbers: numbers.clamp(max=5.0),
}


@pytest.mark.parametrize("bend", BENDS)
def test_numbers_that_enter_attention_by_another_function_are_not_proven(make_batch: Any, bend: str) -> None:
    """Several numbers look alike to such a network, also where each is determined among its neighbors."""
    batch = observed(base := make_batch(4, (4, 4)), attention(base, bend=BENDS[bend]))
    found = ATTACKS.get("exact")().run(batch.update, seed=1)
    assert not any(found.certificate.digits)
    assert wrong_certificates(found, batch.truth, batch.encoder) == (0, 0)
    assert not row_network(batch.update).cells.numbers


@pytest.mark.parametrize("batch_first", [True, False])
def test_numbers_that_enter_attention_affinely_are_seen_to(make_batch: Any, batch_first: bool) -> None:
    base = make_batch(4, (4, 4))
    module = attention(base, batch_first=batch_first, bend=lambda numbers: 2 * numbers - 1)
    assert trace_any(module, base.encoder.width, 4, base.encoder).numbers_enter_affinely


def test_a_decoder_beside_the_logits_takes_no_part(make_batch: Any) -> None:
    class Decoding(Attention):
        def __init__(self, layout: EncodedLayout) -> None:
            super().__init__(layout)
            self.decoder = nn.Linear(2, layout.width)

        def forward(self, x: Tensor) -> Tensor:
            logits = super().forward(x)
            self.rebuilt = self.decoder(logits)
            return logits

    batch = make_batch(4, (4, 4))
    found = ATTACKS.get("exact")().run(observed(batch, Decoding(batch.encoder.layout)).update, seed=1)
    assert found.certificate.certified == 4
