"""Numbers of known rows, while other rows are still unknown."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.peel.refit import refit_numbers
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import spaces_of, unit_scale
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.seeds import generator


def spaces_left(batch: Any, residual: Residual, unknown: int | None) -> dict[int, Any]:
    return {layer: spaces_of(residual.left[layer], unit_scale(batch.observed[layer]), unknown) for layer in (0, 1)}


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(("hidden", "n_classes"), [((40, 40), 2), ((40, 40), 5), ((30, 30, 30), 3)])
@pytest.mark.parametrize("unknown", [0, 2, 5])
def test_numbers_come_back_while_rows_are_unknown(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int, encoding: str, unknown: int
) -> None:
    batch = make_batch(10, hidden, n_classes, encoding, seed=9)
    nothing = Residual.of(batch.chain, batch.observed, 10)
    assert spaces_left(batch, nothing, None)[1].rank == 10  # no two rows share all masks
    space = infer_domain(batch.observed[0], batch.encoder, batch.prior, 10)
    known = 10 - unknown
    counts = torch.nn.functional.one_hot(batch.truth.labels[:known], n_classes).double()
    codes, true = batch.cells[0][:known], batch.cells[1][:known]
    noise = 1e-3 * torch.randn(true.shape, generator=generator(0, "noise"), dtype=torch.float64)
    noise[:, [*space.ties, *space.constants]] = 0
    cells = codes, (true + noise * batch.encoder.deviation).clamp(batch.encoder.lower, batch.encoder.upper)
    residual = nothing.with_rows(space.encode(cells), counts)
    for true_mask, mask in zip(batch.chain.forward(batch.x).masks, batch.chain.forward(residual.x).masks, strict=True):
        assert torch.equal(true_mask[:known], mask)  # else the problem is no linear one
    for _ in range(4):
        residual, cells = refit_numbers(residual, cells, space, spaces_left(batch, residual, unknown), turns=1)
    off = (cells[1] - true).abs() / batch.encoder.deviation
    assert float(off.max()) < 1e-5 < 1e-3 < float(noise.abs().max())
    assert torch.equal(cells[0], codes)
    torch.testing.assert_close(residual.x, space.encode(cells), rtol=0, atol=0)
    if not unknown:
        assert residual.relative < 1e-6


def test_true_numbers_stay(make_batch: Any) -> None:
    batch = make_batch(9, n_classes=3, seed=7)
    space = infer_domain(batch.observed[0], batch.encoder, batch.prior, 9)
    counts = torch.nn.functional.one_hot(batch.truth.labels[:6], 3).double()
    cells = batch.cells[0][:6], batch.cells[1][:6]
    residual = Residual.of(batch.chain, batch.observed, 9).with_rows(batch.x[:6], counts)
    _, found = refit_numbers(residual, cells, space, spaces_left(batch, residual, 3), turns=3)
    whole = [0, 1, 4]  # rooms, price, fee
    assert torch.equal(found[1][:, whole], cells[1][:, whole])
    assert float(((found[1] - cells[1]) / batch.encoder.deviation).abs().max()) < 1e-5


def test_nothing_known_is_left_alone(make_batch: Any) -> None:
    batch = make_batch(5)
    space = infer_domain(batch.observed[0], batch.encoder, batch.prior, 5)
    residual = Residual.of(batch.chain, batch.observed, 5)
    cells = batch.cells[0][:0], batch.cells[1][:0]
    same, found = refit_numbers(residual, cells, space, spaces_left(batch, residual, 5), turns=2)
    assert same is residual and found is cells
