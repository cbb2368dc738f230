"""Proofs of batches whose gradients have an error of known size: claims that are right, and claims that are not."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.inexact_proof import Fitted, fit_under_error
from lightleak.attacks.gradient_inversion.joint.noise import error_variances
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.rounding import Transport

SIGMA = 1e-4


def with_noise(gradient: tuple[Tensor, ...], sigma: float) -> tuple[Tensor, ...]:
    draws = generator(1, "noise")
    return tuple(g + sigma * torch.randn(g.shape, generator=draws, dtype=g.dtype) for g in gradient)


def judged(
    batch: Any, observed: tuple[Tensor, ...], noise: float, x: Tensor | None = None, labels: Tensor | None = None
) -> Fitted | None:
    """What is said of a claim; by default of the truth."""
    x = batch.truth.inputs.double() if x is None else x
    labels = batch.truth.labels if labels is None else labels
    space = RowDomain.whole(batch.encoder, RowPrior.of(batch.update, batch.encoder))
    chain = ReLUChain.of(batch.update)
    return fit_under_error([chain], [observed], space, x, labels, [error_variances(observed, noise)])


def moved(batch: Any, by: float) -> Tensor:
    """The true rows, their numbers off by some deviations."""
    x, at = batch.truth.inputs.double().clone(), list(batch.encoder.numerical_positions)
    draws = torch.randn(len(x), len(at), generator=generator(2, "numbers"), dtype=x.dtype)
    x[:, at] += by * draws * batch.encoder.deviation / batch.encoder.scale[at]
    return x


def test_numbers_and_masks_are_fitted_and_every_row_is_proven(make_batch: Any) -> None:
    batch = make_batch(6, (40, 40))
    found = judged(batch, with_noise(batch.observed, SIGMA), SIGMA, moved(batch, 0.05))
    assert found is not None and bool(found.proof.cells.all())
    torch.testing.assert_close(found.x, batch.truth.inputs.double(), atol=0.05, rtol=0)


@pytest.mark.parametrize("format", ["float16", "bfloat16", "int8"])
def test_a_shorter_type_shows_in_the_values_and_leaves_the_proof(make_batch: Any, format: str) -> None:
    batch = make_batch(6, (40, 40))
    update = Transport(format).apply(batch.update.update, generator(0, "transport"))
    names = list(update)
    pairs = zip(names[::2], names[1::2], strict=True)
    observed = tuple(torch.cat([update[w], update[b].unsqueeze(-1)], 1).double() for w, b in pairs)
    found = judged(batch, observed, 1.0, moved(batch, 0.02))  # the spacing of values counts, not the noise
    assert found is not None and bool(found.proof.cells.all())


def test_noise_that_is_understated_proves_nothing(make_batch: Any) -> None:
    batch = make_batch(6, (40, 40))
    observed = with_noise(batch.observed, SIGMA)
    assert judged(batch, observed, SIGMA) is not None
    assert judged(batch, observed, SIGMA / 2) is None


def test_noise_that_only_one_layer_shows_proves_nothing_however_badly_it_is_known(make_batch: Any) -> None:
    """Wrong rows leave more of some layers than of others; noise does not."""
    batch = make_batch(6, (40, 40))
    observed = with_noise(batch.observed, SIGMA)
    space = RowDomain.whole(batch.encoder, RowPrior.of(batch.update, batch.encoder))
    variances = error_variances(observed, SIGMA)

    def claimed(variances: tuple[Tensor, ...]) -> Fitted | None:
        x, labels = batch.truth.inputs.double(), batch.truth.labels
        return fit_under_error([ReLUChain.of(batch.update)], [observed], space, x, labels, [variances], 0.5)

    assert claimed(variances) is not None
    assert claimed((variances[0] / 4, *variances[1:])) is None


def test_noise_that_hides_rows_proves_none_of_them(make_batch: Any) -> None:
    batch = make_batch(6, (40, 40))
    found = judged(batch, with_noise(batch.observed, 0.3), 0.3)
    assert found is None or not bool(found.proof.cells.any())


@pytest.mark.parametrize("sigma", [1e-4, 1e-3, 5e-3])
def test_a_claim_with_another_category_is_not_proven(make_batch: Any, sigma: float) -> None:
    batch = make_batch(6, (40, 40))
    encoder, observed = batch.encoder, with_noise(batch.observed, sigma)
    codes, values = encoder.project(batch.truth.inputs)
    for column, block in enumerate(encoder.layout.categorical):
        other = codes.clone()
        other[column, column] = (codes[column, column] + 1) % block.width
        found = judged(batch, observed, sigma, encoder.assemble(other, values).double())
        assert found is None or not bool(found.proof.cells[column])


@pytest.mark.parametrize("sigma", [1e-4, 1e-3, 5e-3])
def test_a_claim_with_another_label_is_not_proven(make_batch: Any, sigma: float) -> None:
    batch = make_batch(6, (40, 40))
    for row in (0, 3):
        labels = batch.truth.labels.clone()
        labels[row] = 1 - labels[row]
        found = judged(batch, with_noise(batch.observed, sigma), sigma, labels=labels)
        assert found is None or not bool(found.proof.cells[row])


def test_equal_rows_have_no_direction_of_their_own(make_batch: Any) -> None:
    batch = make_batch(4, (40, 40), rows=(3, 3, 7, 9), labels=(0, 0, 1, 1))
    found = judged(batch, with_noise(batch.observed, SIGMA), SIGMA)
    assert found is not None and found.proof.cells.tolist() == [False, False, True, True]
    x = batch.truth.inputs.double()
    torch.testing.assert_close(found.x[:2], x[:2])  # nothing is known of each of them, so no number is fitted
    assert not torch.equal(found.x[2:], x[2:])


def releases_of(batch: Any, sigma: float, count: int, rate: float) -> list[tuple[ReLUChain, tuple[Tensor, ...]]]:
    """Networks and noised gradients of a batch in several rounds; after each the weights move along its gradient."""
    chain, draws, found = ReLUChain.of(batch.update), generator(3, "releases"), []
    x, hot = batch.truth.inputs.double(), torch.eye(2).double()[batch.truth.labels]
    for _ in range(count):
        gradient = chain.gradient(x, hot, len(x))
        sent = tuple(g + sigma * torch.randn(g.shape, generator=draws, dtype=g.dtype) for g in gradient)
        found.append((chain, sent))
        weights = tuple(w - rate * g[:, :-1] for w, g in zip(chain.weights, sent, strict=True))
        chain = ReLUChain(weights, tuple(b - rate * g[:, -1] for b, g in zip(chain.biases, sent, strict=True)))
    return found


def judged_together(batch: Any, releases: list[Any], sigma: float, x: Tensor, labels: Tensor) -> Fitted | None:
    space = RowDomain.whole(batch.encoder, RowPrior.of(batch.update, batch.encoder))
    chains, observed = zip(*releases, strict=True)
    return fit_under_error(chains, observed, space, x, labels, [error_variances(o, sigma) for o in observed])


def test_releases_under_unchanged_weights_prove_what_their_mean_does(make_batch: Any) -> None:
    batch, sigma, claimed = make_batch(6, (40, 40)), 4e-3, 0.02
    releases, x = releases_of(batch, sigma, 9, 0.0), moved(batch, claimed)
    mean = tuple(torch.stack(layers).mean(0) for layers in zip(*(sent for _, sent in releases), strict=True))
    each = judged_together(batch, releases, sigma, x, batch.truth.labels)
    of_mean = judged(batch, mean, sigma / 3, x)
    assert each is not None and of_mean is not None and int(each.proof.cells.sum()) > 0
    assert torch.equal(each.proof.cells, of_mean.proof.cells) and torch.equal(each.proof.digits, of_mean.proof.digits)
    torch.testing.assert_close(each.x, of_mean.x, atol=0.02, rtol=0)
    one = judged(batch, releases[0][1], sigma, x)
    assert one is not None and int(one.proof.cells.sum()) < int(each.proof.cells.sum())


@pytest.mark.parametrize("sigma", [1e-3, 5e-3])
def test_no_wrong_claim_is_proven_by_many_releases(make_batch: Any, sigma: float) -> None:
    batch = make_batch(6, (40, 40))
    encoder, releases = batch.encoder, releases_of(batch, sigma, 4, 0.1)
    codes, values = encoder.project(batch.truth.inputs)
    for column, block in enumerate(encoder.layout.categorical[:2]):
        other, labels = codes.clone(), batch.truth.labels.clone()
        other[column, column] = (codes[column, column] + 1) % block.width
        x = encoder.assemble(other, values).double()
        found = judged_together(batch, releases, sigma, x, labels)
        assert found is None or not bool(found.proof.cells[column])
    labels = batch.truth.labels.clone()
    labels[0] = 1 - labels[0]
    found = judged_together(batch, releases, sigma, batch.truth.inputs.double(), labels)
    assert found is None or not bool(found.proof.cells[0])


def test_numbers_that_noise_hides_stay_as_they_were_claimed(make_batch: Any) -> None:
    """A search knows what is usual of rows; the fit does not, and would take noise for numbers."""
    batch, sigma = make_batch(6, (40, 40)), 0.02
    x = batch.truth.inputs.double()
    found = judged(batch, with_noise(batch.observed, sigma), sigma)
    assert found is not None
    torch.testing.assert_close(found.x, batch.encoder.assemble(*batch.encoder.project(x)).double(), atol=0.1, rtol=0)
