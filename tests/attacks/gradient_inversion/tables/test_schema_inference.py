"""What the first layer's gradient says of columns, against what the client's rows say."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.schema_inference import SPARE_ROWS, infer_domain, raw_basis


def check(space: RowDomain, cells: tuple[torch.Tensor, torch.Tensor], n_rows: int) -> None:
    """Present categories, constants and ties of these rows, and nothing else."""
    codes, values = cells
    for present, of_column in zip(space.present, codes.unbind(-1), strict=True):
        assert present.tolist() == of_column.unique().tolist()
    constants = {j: float(v[0]) for j, v in enumerate(values.unbind(-1)) if bool((v == v[0]).all())}
    assert space.constants == pytest.approx(constants, rel=1e-4)
    for j, of_number in enumerate(values.unbind(-1)):
        functions = []
        for k, of_column in enumerate(codes.unbind(-1)):
            groups = [of_number[of_column == code] for code in of_column.unique()]
            if len(groups) < n_rows - SPARE_ROWS and all(bool((g == g[0]).all()) for g in groups):
                functions.append(k)
        assert (j in space.ties) == bool(functions and j not in constants)
        if j in space.ties:
            tie = space.ties[j]
            assert tie.column in functions
            assert torch.equal(tie.values[codes[:, tie.column]], of_number)


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(("n", "hidden", "n_classes"), [(8, (40, 40), 2), (14, (30, 30, 30), 3), (20, (40, 40), 5)])
def test_it_finds_what_the_rows_show_and_nothing_else(
    make_batch: Any, n: int, hidden: tuple[int, ...], n_classes: int, encoding: str
) -> None:
    for seed in range(5):
        batch = make_batch(n, hidden, n_classes, encoding, seed)
        space = infer_domain(batch.observed[0], batch.encoder, batch.prior, n)
        check(space, batch.cells, n)
        assert {3, 5} <= set(space.ties) | set(space.constants)  # points of the grade, the edition


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
def test_rows_that_are_explained_take_their_categories_along(make_batch: Any, encoding: str) -> None:
    for seed in range(5):
        batch = make_batch(12, (40, 40), 2, encoding, seed)
        residual = Residual.of(batch.chain, batch.observed, 12)
        whole = infer_domain(batch.observed[0], batch.encoder, batch.prior, 12)
        for known in (3, 8, 11):
            counts = torch.nn.functional.one_hot(batch.truth.labels[:known], 2).double()
            left = residual.with_rows(batch.x[:known], counts).left[0]
            rest = batch.cells[0][known:], batch.cells[1][known:]
            space = infer_domain(left, batch.encoder, batch.prior, 12 - known, whole=batch.observed[0], ties=whole.ties)
            for present, of_column in zip(space.present, rest[0].unbind(-1), strict=True):
                assert present.tolist() == of_column.unique().tolist()
            for j, of_number in enumerate(rest[1].unbind(-1)):
                assert (j in space.constants) == bool((of_number == of_number[0]).all())
                if j in space.constants:
                    assert space.constants[j] == pytest.approx(float(of_number[0]), rel=1e-3)
            assert set(space.ties) == set(whole.ties) - set(space.constants)


def test_a_category_has_the_sum_of_its_rows_errors(make_batch: Any) -> None:
    for encoding in ("standardized", "onehot", "minmax"):
        batch = make_batch(7, (9, 8), 3, encoding, precise=True)
        activations = batch.chain.forward(batch.x)
        output = activations.probabilities - torch.nn.functional.one_hot(batch.truth.labels, 3)
        errors = batch.chain.errors(activations, output / 7)[0]
        raw, encoder = raw_basis(batch.observed[0], batch.encoder), batch.encoder
        codes, values = batch.cells
        for k, block in enumerate(encoder.layout.categorical):
            expected = torch.stack([errors[codes[:, k] == c].sum(0) for c in range(block.width)], 1)
            torch.testing.assert_close(raw[:, block.slice], expected, rtol=1e-6, atol=1e-8)
        expected = errors.T @ values / encoder.deviation
        torch.testing.assert_close(raw[:, encoder.numerical_positions], expected, rtol=1e-5, atol=1e-7)


def test_one_row_alone_is_read_off(make_batch: Any) -> None:
    batch = make_batch(1)
    space = infer_domain(batch.observed[0], batch.encoder, batch.prior, 1)
    codes, values = batch.cells
    assert [p.tolist() for p in space.present] == [[c] for c in codes[0].tolist()] and space.free == ()
    assert space.constants == pytest.approx(dict(enumerate(values[0].tolist())), rel=1e-4)


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize("part", [1.0, 1e-2, 1e-3])
def test_rows_that_add_little_to_the_gradient_are_seen(make_batch: Any, encoding: str, part: float) -> None:
    """A trained network fits most rows well, so that their errors are small."""
    for seed in range(5):
        batch = make_batch(12, (40, 40), 2, encoding, seed)
        counts = torch.nn.functional.one_hot(batch.truth.labels, 2).double()
        counts[::2] *= part  # as much as an error that much smaller
        gradient = batch.chain.gradient(batch.x, counts, 12)[0].float().double()
        check(infer_domain(gradient, batch.encoder, batch.prior, 12), batch.cells, 12)
