"""What counts as a proof of a row, of its digits, and what does not."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.lone_proof import lone_proof
from lightleak.attacks.gradient_inversion.exact.certify.proof import proven_rows, proven_together
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.certify.row_evidence import number_tolerances
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.certificate import NUMBERS_WITHIN
from lightleak.data.schema import ColumnKind

SETTINGS = [((40, 40), 2), ((40, 40), 5), ((30, 30, 30), 3)]


def space_of(batch: Any) -> RowDomain:
    return infer_domain(batch.observed[0], batch.encoder, batch.prior, len(batch.x))


def explained(batch: Any, cells: tuple[Tensor, Tensor], labels: Tensor, n_rows: int | None = None) -> Residual:
    """These rows as an explanation of the batch."""
    counts = torch.nn.functional.one_hot(labels, batch.chain.n_classes).double()
    x = batch.encoder.assemble(*cells).double()
    return Residual.of(batch.chain, batch.observed, n_rows or len(batch.x)).with_rows(x, counts)


def proven(batch: Any, cells: tuple[Tensor, Tensor], labels: Tensor, n_rows: int | None = None) -> Proof:
    return proven_rows(explained(batch, cells, labels, n_rows), space_of(batch))


def both(proof: Proof) -> tuple[list[bool], list[bool]]:
    return proof.cells.tolist(), proof.digits.tolist()


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
@pytest.mark.parametrize("known", [10, 7, 1])
def test_true_rows_are_proven_together_and_alone(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int, encoding: str, known: int
) -> None:
    batch = make_batch(10, hidden, n_classes, encoding, seed=9)
    cells = batch.cells[0][:known], batch.cells[1][:known]
    assert both(proven(batch, cells, batch.truth.labels[:known])) == ([True] * known, [True] * known)


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
def test_a_row_with_one_wrong_cell_or_label_is_not(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int, encoding: str
) -> None:
    batch = make_batch(10, hidden, n_classes, encoding, seed=9)
    for known in (10, 7):
        codes, values, labels = batch.cells[0][:known], batch.cells[1][:known], batch.truth.labels[:known]
        wrong = [[False, *[True] * (known - 1)]] * 2  # a wrong row does not take the proof of the others away
        for k, column in enumerate(batch.encoder.schema.categorical):
            other = codes.clone()
            other[0, k] = (other[0, k] + 1) % column.width
            assert both(proven(batch, (other, values), labels)) == (*wrong,)
        other_label = labels.clone()
        other_label[0] = (other_label[0] + 1) % n_classes
        assert both(proven(batch, (codes, values), other_label)) == (*wrong,)


@pytest.mark.parametrize("known", [10, 7])
def test_digits_are_not_proven_of_a_number_that_is_off(make_batch: Any, known: int) -> None:
    batch = make_batch(10, seed=9)
    codes, values, labels = batch.cells[0][:known], batch.cells[1][:known], batch.truth.labels[:known]
    for j, column in enumerate(batch.encoder.schema.numerical):
        moved = values.clone()
        step = 1.5 * NUMBERS_WITHIN * float(batch.encoder.deviation[j])
        moved[0, j] += max(1.0, round(step)) if column.kind is ColumnKind.INTEGER else step
        proof = proven(batch, (codes, moved), labels)
        assert not proof.digits[0] and bool(proof.cells[1:].all()) and bool(proof.digits[1:].all())


def test_tolerances_are_the_one_of_certificates(make_batch: Any) -> None:
    encoder = make_batch(4).encoder
    for column, tolerance, deviation in zip(
        encoder.schema.numerical, number_tolerances(encoder).tolist(), encoder.deviation.tolist(), strict=True
    ):
        whole = column.kind is ColumnKind.INTEGER
        assert tolerance == pytest.approx(max(0.5, NUMBERS_WITHIN * deviation) if whole else NUMBERS_WITHIN * deviation)


def bent(batch: Any, row: int, size: float) -> tuple[Tensor, Tensor]:
    """The batch's cells with one row's numbers moved along what the second layer's row space does not see."""
    chain, encoder = batch.chain, batch.encoder
    at = encoder.numerical_positions
    null = torch.linalg.svd(batch.observed[1])[2][len(batch.x) :].T
    mask = chain.forward(batch.x).masks[0][row]
    seen = ((chain.weights[0][:, at].T * mask) @ null[:-1] / encoder.scale[at].unsqueeze(1)).T  # [q, m]
    seen = seen * encoder.deviation
    direction = torch.linalg.svd(seen)[2][-1]
    values = batch.cells[1].clone()
    values[row] += size * direction / direction.abs().max() * encoder.deviation
    return batch.cells[0], values


def test_numbers_that_their_equations_leave_open_are_not_proven_alone(make_numeric_batch: Any) -> None:
    """Eight numbers against six equations of the row space: a whole manifold of wrong rows passes every test."""
    batch = make_numeric_batch(numbers=8, n=15, hidden=(20, 40))
    cells = bent(batch, 0, 0.2)
    known = (cells[0][:14], cells[1][:14])
    residual = explained(batch, known, batch.truth.labels[:14])
    cells_proven, digits = lone_proof(residual, space_of(batch))
    assert not cells_proven.any() and not digits.any()
    # All rows claimed, one of them wrong: nothing is proven; all of them true: everything is.
    assert not proven(batch, cells, batch.truth.labels).cells.any()
    assert bool(proven(batch, batch.cells, batch.truth.labels).digits.all())


def test_rows_given_twice_prove_their_cells_and_not_their_digits(make_batch: Any) -> None:
    batch = make_batch(rows=(3, 50, 90, 3, 7), labels=(0, 1, 1, 0, 0), seed=3)
    x, counts = batch.distinct()
    residual = Residual.of(batch.chain, batch.observed, 5).with_rows(x, counts)
    proof = proven_rows(residual, space_of(batch))
    assert bool(proof.cells.all()) and torch.equal(proof.digits, counts.sum(1) == 1)
    once = residual.explaining(x, counts.clamp_max(1))
    assert torch.equal(proven_rows(once, space_of(batch)).cells, counts.sum(1) == 1)


def test_one_row_claimed_twice_is_not_proven(make_batch: Any) -> None:
    batch = make_batch(10, seed=9)
    at = torch.tensor([0, 1, 2, 2])
    area = [column.name for column in batch.encoder.schema.numerical].index("area")
    for moved in (0.0, 1e-6, 1e-5):
        values = batch.cells[1][at]
        values[3, area] += moved * batch.encoder.deviation[area]
        proof = proven(batch, (batch.cells[0][at], values), batch.truth.labels[at])
        assert both(proof) == ([True, True, False, False],) * 2


def test_cells_that_bent_numbers_could_pay_for_are_not_proven_by_the_whole(make_numeric_batch: Any) -> None:
    """Rows that share all masks show as sums: other categories with other numbers explain the gradient as well."""
    batch = make_numeric_batch(numbers=4, n=6, hidden=(30, 30))
    awake = ReLUChain(batch.chain.weights, (*[b + 4 for b in batch.chain.biases[:-1]], batch.chain.biases[-1]))
    counts = torch.nn.functional.one_hot(batch.truth.labels, 2).double()
    for chain, expected in ((batch.chain, True), (awake, False)):
        observed = tuple(g.float().double() for g in chain.gradient(batch.x, counts, 6))
        residual = Residual.of(chain, observed, 6).explaining(batch.x, counts)
        assert residual.relative < 1e-6
        proof = proven_together(residual, RowDomain.whole(batch.encoder, batch.prior))
        assert bool(proof.cells.all()) is expected and bool(proof.cells.any()) is expected


def test_more_rows_than_the_batch_has_prove_nothing(make_batch: Any) -> None:
    batch = make_batch(6, seed=9)
    twice = batch.cells[0].repeat(2, 1), batch.cells[1].repeat(2, 1)
    assert not proven(batch, twice, batch.truth.labels.repeat(2)).cells.any()
    # Nor does a gradient that shows more rows than there were.
    fewer = batch.cells[0][:3], batch.cells[1][:3]
    assert not proven(batch, fewer, batch.truth.labels[:3], n_rows=5).cells.any()
    assert both(proven(batch, (batch.cells[0][:0], batch.cells[1][:0]), batch.truth.labels[:0])) == ([], [])


def test_without_tests_to_spare_a_row_is_proven_by_the_whole_alone(make_batch: Any) -> None:
    batch = make_batch(14, (17, 30), 3, seed=2)  # four equations of the row space and the coefficient, six numbers
    assert not proven(batch, (batch.cells[0][:5], batch.cells[1][:5]), batch.truth.labels[:5]).cells.any()
    assert bool(proven(batch, batch.cells, batch.truth.labels).cells.all())


def test_a_changed_gradient_explained_almost_is_not_explained(make_batch: Any) -> None:
    batch = make_batch(14, (14, 14), 3, seed=2)  # full: no row can be proven alone
    counts = torch.nn.functional.one_hot(batch.truth.labels, 3).double()
    for size, expected in ((0.0, True), (1e-5, False), (1e-3, False)):
        changed = tuple(layer + size * layer.abs().mean() for layer in batch.observed)
        residual = Residual.of(batch.chain, changed, 14).with_rows(batch.x, counts)
        assert residual.relative < 2e-3
        assert bool(proven_rows(residual, space_of(batch)).cells.any()) is expected
        assert bool(proven_together(residual, space_of(batch)).cells.any()) is expected


def test_of_a_scaled_gradient_only_distinct_rows_are_proven_alone(make_batch: Any) -> None:
    """Rows that all occur twice, in a gradient scaled down, look like rows that occur once."""
    batch = make_batch(rows=(3, 50, 90, 120, 3, 50, 90, 120), labels=(0, 1, 1, 0) * 2, seed=3)
    x, counts = batch.distinct()
    halved = tuple(layer / 2 for layer in batch.observed)
    residual = Residual.of(batch.chain, halved, 8).with_rows(x[:3], counts[:3] / 2)
    assert bool(proven_rows(residual, space_of(batch)).cells.any())
    assert not proven_rows(residual, space_of(batch), scaled=True).cells.any()


def sure_of_the_first_row(batch: Any) -> ReLUChain:
    """A well-trained network: it is all but certain of row 0, so that the gradient hardly shows it."""
    base = batch.chain
    sure = base.forward(batch.x[:1]).hidden[-1]
    weight = torch.cat(
        [w + side * 30 * sure / sure.square().sum() for w, side in zip(base.weights[-1], (1, -1), strict=True)]
    )
    return ReLUChain((*base.weights[:-1], weight.view(2, -1)), base.biases)


def dead_to_the_first_row(batch: Any) -> ReLUChain:
    """No unit of the second layer is active for row 0: of it only the last bias tells."""
    base = batch.chain
    h = base.forward(batch.x).hidden[1]
    away = h[0] - h[1:].T @ torch.linalg.lstsq(h[1:].T, h[0].unsqueeze(1)).solution.squeeze()  # no other row has it
    weight = base.weights[1] - 1e3 * away / away.square().sum()
    return ReLUChain((base.weights[0], weight, *base.weights[2:]), base.biases)


@pytest.mark.parametrize(("changed", "others"), [(sure_of_the_first_row, False), (dead_to_the_first_row, True)])
def test_a_row_that_adds_nothing_is_not_proven_by_the_whole(make_batch: Any, changed: Any, others: bool) -> None:
    """Nor are others that would add nothing under their other label: any of them may occur once more in its place."""
    batch = make_batch(8, (24, 24), 2, seed=4)
    chain = changed(batch)
    labels = chain.forward(batch.x).probabilities.argmin(-1)
    labels[0] = chain.forward(batch.x).probabilities[0].argmax()
    counts = torch.nn.functional.one_hot(labels, 2).double()
    observed = tuple(g.float().double() for g in chain.gradient(batch.x, counts, 8))
    residual = Residual.of(chain, observed, 8).explaining(batch.x, counts)
    assert residual.relative < 1e-6
    proof = proven_rows(residual, RowDomain.whole(batch.encoder, batch.prior))
    assert not proof.cells[0] and bool(proof.cells[1:].all()) is bool(proof.cells[1:].any()) is others


def test_rows_of_a_class_that_the_network_is_sure_of_are_not_proven_beside_those_of_another(make_batch: Any) -> None:
    """Nor are these proven, as one of them may occur once more, with the sure label, in place of the first."""
    batch = make_batch(rows=(3, 3, 50, 7), labels=(0, 1, 1, 1), seed=3)
    biases = (*batch.chain.biases[:-1], batch.chain.biases[-1] + torch.tensor([40.0, 0.0]))
    chain = ReLUChain(batch.chain.weights, biases)  # rows of class 0 add nothing to its gradient
    x, counts = batch.distinct()
    seen = counts * torch.tensor([0, 1])
    for there, n, expected in ((counts, 4, False), (seen, 3, True)):
        observed = tuple(g.float().double() for g in chain.gradient(x, there, n))
        residual = Residual.of(chain, observed, n).explaining(x, there)
        assert residual.relative < 1e-6
        assert proven_rows(residual, space_of(batch)).cells.tolist() == [expected] * 3


def blind(batch: Any, *columns: int) -> ReLUChain:
    """The batch's network without the weights of some categorical columns."""
    first = batch.chain.weights[0].clone()
    for k in columns:
        first[:, batch.encoder.layout.categorical[k].slice] = 0
    return ReLUChain((first, *batch.chain.weights[1:]), batch.chain.biases)


def claimed(batch: Any, chain: ReLUChain, true: Tensor, codes: Tensor, labels: Tensor) -> tuple[Residual, Tensor]:
    """Rows of other categories as an explanation of a batch of the ``true`` ones, and which of its rows each is."""
    x, other = (batch.encoder.assemble(each, batch.cells[1]).double() for each in (true, codes))
    one_each = torch.nn.functional.one_hot(labels, chain.n_classes).double()
    observed = tuple(g.float().double() for g in chain.gradient(x, one_each, len(x)))
    rows, which = other.unique(dim=0, return_inverse=True)
    counts = torch.zeros(len(rows), chain.n_classes, dtype=torch.float64).index_add(0, which, one_each)
    residual = Residual.of(chain, observed, len(x)).explaining(rows, counts)
    assert residual.relative < 1e-6
    return residual, which


def test_one_copy_of_a_row_that_could_be_exchanged_with_another_is_not_proven(make_numeric_batch: Any) -> None:
    """{(a, u), (a, v), (b, u)} and {(a, u) twice, (b, v)} have one sum where the network ignores both columns."""
    batch = make_numeric_batch(numbers=0, n=3, hidden=(40, 40))
    true = torch.tensor([[0, 0, 1], [0, 1, 1], [1, 0, 1]])
    wrong = torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 1]])
    labels = torch.zeros(3, dtype=torch.long)
    for codes in (true, wrong):
        residual, _ = claimed(batch, blind(batch, 0, 1), true, codes, labels)
        assert not proven_rows(residual, RowDomain.whole(batch.encoder, batch.prior)).cells.any()


def test_rows_of_opposite_errors_that_could_change_alike_are_not_proven(make_numeric_batch: Any) -> None:
    """What one adds to the column of a category, the other takes away: the gradient shows no row of it."""
    batch = make_numeric_batch(numbers=0, n=2, hidden=(40,))
    blinded = blind(batch, 0)
    awake = ReLUChain(blinded.weights, (blinded.biases[0] + 10, blinded.biases[1]))
    x = batch.encoder.assemble(torch.tensor([[0, 0, 1], [0, 1, 0]]), batch.cells[1]).double()
    logits = awake.forward(x).hidden[-1] @ awake.weights[-1].T
    middle = (logits[:, 0] - logits[:, 1]).mean()
    sure = ReLUChain(
        (awake.weights[0], 1e4 * awake.weights[1]), (awake.biases[0], torch.tensor([-1e4, 0.0]).double() * middle)
    )
    labels = sure.forward(x).probabilities.argmin(1)
    assert labels.unique().numel() == 2  # one row is sure of either class, and of the wrong one
    true, wrong = torch.tensor([[0, 0, 1], [0, 1, 0]]), torch.tensor([[1, 0, 1], [1, 1, 0]])
    for codes in (true, wrong):
        residual, _ = claimed(batch, sure, true, codes, labels)
        assert not proven_rows(residual, RowDomain.whole(batch.encoder, batch.prior)).cells.any()


def test_dependent_rows_are_not_proven_where_the_network_ignores_a_column(make_batch: Any) -> None:
    batch = make_batch(14, (12, 30), 3, seed=2)  # more rows than units of the first layer
    counts = torch.nn.functional.one_hot(batch.truth.labels, 3).double()
    for chain, expected in ((batch.chain, True), (blind(batch, 0), False)):
        observed = tuple(g.float().double() for g in chain.gradient(batch.x, counts, 14))
        residual = Residual.of(chain, observed, 14).explaining(batch.x, counts)
        proof = proven_rows(residual, RowDomain.whole(batch.encoder, batch.prior))
        assert bool(proof.cells.all()) is bool(proof.cells.any()) is expected


def test_a_row_found_once_for_each_of_its_labels_is_one_row(make_batch: Any) -> None:
    batch = make_batch(rows=(3, 3, 50, 7), labels=(0, 1, 1, 0), seed=3)
    residual = explained(batch, batch.cells, batch.truth.labels)
    proof = proven_rows(residual, space_of(batch))
    assert bool(proof.cells.all()) and proof.digits.tolist() == [False, False, True, True]
