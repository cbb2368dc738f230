"""The TPE search on a generator that hands z through, so that every trial is seen."""

import warnings
from typing import Any

import optuna
import pytest
import torch
from torch import Tensor

from lightleak.attacks.model_inversion.generator import ConditionalGenerator
from lightleak.attacks.model_inversion.latent_search import LatentProblem, random_search
from lightleak.attacks.model_inversion.tpe_search import PUBLISHED_BOUND, TPESearchConfig, tpe_search
from lightleak.core.errors import UsageError
from lightleak.core.seeds import generator as seeded

CLASSES = 3


class Through(ConditionalGenerator):
    """The sample is z itself."""

    n_classes = CLASSES

    def __init__(self, latent_dim: int) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.register_buffer("dtype", torch.zeros((), dtype=torch.float64))

    def raw(self, z: Tensor, labels: Tensor) -> Tensor:
        return z

    def activate(self, raw: Tensor, noise: Tensor | None = None) -> Tensor:
        return raw


class BlackBox:
    """Logits without gradient: a class is the surer, the closer z is to its own number; it remembers its queries."""

    def __init__(self) -> None:
        self.asked: list[Tensor] = []

    def __call__(self, z: Tensor) -> Tensor:
        self.asked.append(z)
        center = torch.arange(CLASSES, dtype=z.dtype) - 1
        return torch.from_numpy(-(z.unsqueeze(1) - center.view(1, -1, 1)).square().sum(2).numpy())


@pytest.fixture
def target() -> BlackBox:
    return BlackBox()


def problem(target: Any, latent_dim: int = 4) -> LatentProblem:
    return LatentProblem(Through(latent_dim), lambda h: h, target)


def test_returns_the_best_of_what_was_tried(target: BlackBox) -> None:
    labels = torch.tensor([0, 1, 2, 0])
    found = tpe_search(problem(target), labels, seeded(0), TPESearchConfig(trials=15))
    tried = torch.stack(target.asked)  # every round is one batch of all samples
    assert tried.shape == (15, 4, 4)
    losses = torch.stack([problem(target).losses(z, labels) for z in tried])
    torch.testing.assert_close(found.after, losses.amin(0))
    assert torch.equal(found.z, tried[losses.argmin(0), torch.arange(4)])
    torch.testing.assert_close(found.before, losses[0])
    assert found.evaluations == 15


@pytest.mark.parametrize("space", ["normal", "uniform"])
@pytest.mark.parametrize("multivariate", [True, False])
def test_equals_one_study_after_the_other(target: BlackBox, space: Any, multivariate: bool) -> None:
    config = TPESearchConfig(trials=14, space=space, multivariate=multivariate, candidates=6, startup=5)
    labels = torch.tensor([2, 0])
    found = tpe_search(problem(target), labels, seeded(3), config)
    draw = seeded(3)
    start = problem(target).draw(2, draw)
    normal = torch.distributions.Normal(0.0, 1.0)
    for i, seed in enumerate(torch.randint(2**31 - 1, (2,), generator=draw).tolist()):
        low, high = (1e-6, 1 - 1e-6) if space == "normal" else (-3.0, 3.0)

        def objective(trial: Any, i: int = i, low: float = low, high: float = high) -> float:
            values = torch.tensor([trial.suggest_float(f"z{k}", low, high) for k in range(4)], dtype=torch.float64)
            z = normal.icdf(values) if space == "normal" else values
            return float(problem(target).losses(z.unsqueeze(0), labels[i : i + 1]))

        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=multivariate, n_ei_candidates=6, n_startup_trials=5
        )
        study = optuna.create_study(sampler=sampler)
        if space == "normal":
            study.enqueue_trial({f"z{k}": float(value) for k, value in enumerate(normal.cdf(start[i]))})
        study.optimize(objective, n_trials=14)
        assert float(found.after[i]) == pytest.approx(study.best_value, rel=1e-6)


def test_a_sample_depends_on_no_neighbor_and_the_seed_repeats_it(target: BlackBox) -> None:
    config = TPESearchConfig(trials=14)
    one = tpe_search(problem(target), torch.tensor([0, 1, 2]), seeded(5), config)
    other = tpe_search(problem(target), torch.tensor([0, 2, 1]), seeded(5), config, chunk=2)
    assert torch.equal(one.z[0], other.z[0])
    assert not torch.equal(one.z[1], other.z[1])
    assert not torch.equal(tpe_search(problem(target), torch.tensor([0, 1, 2]), seeded(6), config).z, one.z)


def test_starts_where_the_other_searches_start(target: BlackBox) -> None:
    labels = torch.arange(30) % CLASSES
    start = random_search(problem(target, 12), labels, seeded(7))
    found = tpe_search(problem(target, 12), labels, seeded(7), TPESearchConfig(trials=1))
    torch.testing.assert_close(found.z, start.z)
    torch.testing.assert_close(found.before, start.after)


def test_vectors_it_knows_nothing_about_are_drawn_as_the_space_says(target: BlackBox) -> None:
    """Deviations of a standard normal and of a uniform on [-3, 3]: 1 and sqrt(3); 4,000 values, 5 standard errors."""
    labels = torch.zeros(20, dtype=torch.int64)
    for space, deviation, error in (("normal", 1.0, 0.06), ("uniform", 3**0.5, 0.07)):
        target.asked.clear()
        tpe_search(problem(target, 20), labels, seeded(8), TPESearchConfig(trials=11, space=space, startup=11))  # type: ignore[arg-type]
        drawn = torch.stack(target.asked[1:])
        assert drawn.std() == pytest.approx(deviation, abs=error)
        assert drawn.mean() == pytest.approx(0, abs=5 * deviation / 4000**0.5)
        assert space == "normal" or drawn.abs().max() <= PUBLISHED_BOUND


def test_beats_random_vectors_at_equal_budget_where_there_is_little_to_search(target: BlackBox) -> None:
    labels = torch.zeros(6, dtype=torch.int64)
    tpe = tpe_search(problem(target, 2), labels, seeded(9), TPESearchConfig(trials=40))
    control = random_search(problem(target, 2), labels, seeded(9), 40)
    assert tpe.evaluations == control.evaluations
    assert tpe.after.mean() < control.after.mean()


def test_a_loss_that_is_no_number_ends_nothing(target: BlackBox) -> None:
    def damaged(z: Tensor) -> Tensor:
        return torch.where(z[:, :1] > 0, torch.nan, target(z))

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Optuna warns of a NaN
        found = tpe_search(problem(damaged), torch.zeros(8, dtype=torch.int64), seeded(1), TPESearchConfig(trials=14))
    assert torch.isfinite(found.after).all()
    assert (found.z[:, 0] <= 0).all()


def test_is_silent_and_leaves_optunas_log_level(target: BlackBox, capfd: pytest.CaptureFixture[str]) -> None:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        tpe_search(problem(target), torch.tensor([0]), seeded(0), TPESearchConfig(trials=2))
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(level)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"candidates": 0}, "candidates must be"),
        ({"startup": 0}, "startup must be"),
        ({"space": "cube"}, "space must be one of normal, uniform, got 'cube'"),
    ],
)
def test_settings_are_checked(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TPESearchConfig(**setting)
