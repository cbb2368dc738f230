"""The whitened difference: its definition, its scale, and what it does not depend on."""

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.optimize.whitening import Whitening, maps_of

RIDGE = 1e-2


def rows(width: int, k: int = 300, seed: int = 0) -> Tensor:
    """Correlated rows about a mean."""
    draws = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=draws, dtype=torch.float64)
    return torch.randn(k, width, generator=draws, dtype=torch.float64) @ mixing + 2


def test_the_maps_invert_the_second_moments_with_a_ridge() -> None:
    errors, inputs = rows(4), rows(6, seed=1)
    of_error, of_input = maps_of(errors, inputs, RIDGE)
    moments = inputs.T @ inputs / len(inputs)
    ridged = moments + RIDGE * torch.linalg.eigvalsh(moments)[-1] * torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(of_input @ ridged, torch.eye(6, dtype=torch.float64))
    typical = [e @ of_error @ e * (h @ of_input @ h) for e, h in zip(errors, inputs, strict=True)]
    torch.testing.assert_close(torch.stack(typical).mean(), torch.tensor(1.0, dtype=torch.float64))


def test_units_of_the_errors_do_not_count_where_they_are_given() -> None:
    errors, inputs, units = rows(4), rows(6, seed=1), torch.tensor([1e-3, 1.0, 20.0, 5.0], dtype=torch.float64)
    plain, scaled = maps_of(errors, inputs, RIDGE), maps_of(errors * units, inputs, RIDGE, units)
    torch.testing.assert_close(scaled[0] * units * units[:, None], plain[0])
    assert not torch.allclose(maps_of(errors * units, inputs, RIDGE)[0] * units * units[:, None], plain[0])


@pytest.mark.parametrize("restarts", [1, 3])
def test_value_and_derivatives_equal_the_definition(restarts: int) -> None:
    updates, shapes = 2, [(4, 6), (3, 5)]
    moments = [[maps_of(rows(o, seed=u), rows(i, seed=u + 5), RIDGE) for o, i in shapes] for u in range(updates)]
    targets = [torch.randn(updates, *shape, dtype=torch.float64) for shape in shapes]
    whitening = Whitening.of(moments, targets)
    gradients = [torch.randn(updates, restarts, *shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    kept = [g.detach().clone() for g in gradients]

    def squared(update: int, layers: list[Tensor]) -> Tensor:
        maps = zip(layers, moments[update], strict=True)
        return torch.stack([(k_e @ d @ k_h * d).sum() for d, (k_e, k_h) in maps]).sum()

    expected = [
        squared(u, [g[u, r] - t[u] for g, t in zip(gradients, targets, strict=True)])
        / squared(u, [t[u] for t in targets])
        for u in range(updates)
        for r in range(restarts)
    ]
    value, derivatives = whitening([g.detach() for g in gradients])
    torch.testing.assert_close(value.flatten(), torch.stack(expected).detach())
    for got, reference in zip(derivatives, torch.autograd.grad(torch.stack(expected).sum(), gradients), strict=True):
        torch.testing.assert_close(got, reference)
    assert all(torch.equal(g, k) for g, k in zip(gradients, kept, strict=True))


def test_the_clients_own_gradient_has_no_difference_and_none_at_all_has_one() -> None:
    targets = [torch.randn(2, 4, 6, dtype=torch.float64)]
    whitening = Whitening.of([[maps_of(rows(4), rows(6), RIDGE)]] * 2, targets)
    same, _ = whitening([targets[0].unsqueeze(1)])
    nothing, _ = whitening([torch.zeros(2, 1, 4, 6, dtype=torch.float64)])
    assert not same.any()
    torch.testing.assert_close(nothing, torch.ones_like(nothing))


def test_a_small_difference_keeps_its_digits_in_single_precision() -> None:
    target = torch.randn(1, 4, 6)
    whitening = Whitening.of([[maps_of(rows(4), rows(6), RIDGE)]], [target])
    exact = Whitening.of([[maps_of(rows(4), rows(6), RIDGE)]], [target.double()])
    near = (target + 1e-5 * torch.randn(1, 4, 6)).unsqueeze(1)
    torch.testing.assert_close(whitening([near])[0].double(), exact([near.double()])[0], rtol=1e-3, atol=0)


def test_a_layer_that_random_rows_leave_silent_is_not_whitened() -> None:
    of_error, of_input = maps_of(torch.zeros(300, 3, dtype=torch.float64), rows(4), RIDGE)
    assert torch.equal(of_error, torch.eye(3, dtype=torch.float64)) and bool(of_input.isfinite().all())
