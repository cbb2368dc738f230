"""D1 adds Laplace noise of the given scale to gradients and to nothing else."""

import torch
from scipy import stats

from lightleak.defenses.vertical.laplace import LaplaceDefense


def test_noise_is_laplace_of_the_scale() -> None:
    gradients = torch.full((2, 100, 50), 3.0)
    noise = LaplaceDefense(0.2).transform(0).gradients(gradients, gradients) - 3
    assert stats.kstest(noise.flatten().double().numpy(), stats.laplace(scale=0.2).cdf).pvalue > 0.01
    assert abs(float(noise.abs().mean()) - 0.2) < 0.01  # mean |Laplace(b)| is b; standard error 0.002 here


def test_every_step_and_element_draws_anew() -> None:
    zeros = torch.zeros(2, 3, 4, dtype=torch.float64)
    transform = LaplaceDefense(1.0).transform(0)
    first, second = transform.gradients(zeros, zeros), transform.gradients(zeros, zeros)
    assert len(torch.cat([first, second]).unique()) == 48
    assert first.dtype == torch.float64
    assert torch.equal(LaplaceDefense(1.0).transform(0).gradients(zeros, zeros), first)


def test_outputs_and_given_gradients_stay() -> None:
    values = torch.ones(2, 3, 4)
    transform = LaplaceDefense(1.0).transform(0)
    transform.gradients(values, values)
    assert torch.equal(values, torch.ones(2, 3, 4))
    assert transform.outputs(values, training=True) is values
