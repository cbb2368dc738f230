"""A transform at work in a Lightning training: its noise enters, its checkpoints resume, its Trainer is checked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal import UpdateDefense, defend_training
from lightleak.defenses.horizontal.defense import NoDefense
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.defenses.horizontal.rounding import Sign
from lightleak.defenses.horizontal.training import UpdateDefenseChecks
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Fit = Callable[..., dict[str, Tensor]]


@pytest.fixture
def fit(
    make_model: Callable[..., TabularClassifier],
    make_data: Callable[..., TableDataModule],
    make_trainer: Callable[..., lightning.Trainer],
) -> Fit:
    """Train for two epochs of six steps; returns the weights."""

    def fit(
        defense: UpdateDefense | None, seed: int = 0, ckpt_path: Path | None = None, **settings: Any
    ) -> dict[str, Tensor]:
        model, data = make_model(optimizer=OptimizerConfig("sgd", 0.1, momentum=0.9)), make_data()
        callbacks: list[lightning.Callback] = []
        if defense is not None:
            callbacks = defend_training(defense, model, data, seed).callbacks
        trainer = make_trainer(*callbacks, **{"max_epochs": 2} | settings)
        trainer.fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
        return {name: value.clone() for name, value in model.state_dict().items()}

    return fit


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_defense_enters_training_and_none_of_strength_zero_does(fit: Fit) -> None:
    undefended = fit(None)
    assert same(fit(NoDefense()), undefended)
    assert same(fit(GaussianNoise(0.0)), undefended)
    noised = fit(GaussianNoise(0.05))
    assert not same(noised, undefended)
    assert not same(fit(Sign()), undefended)
    assert same(fit(GaussianNoise(0.05)), noised)
    assert not same(fit(GaussianNoise(0.05), seed=1), noised)
    # Twelve steps of momentum 0.9 and rate 0.1 leave noise of a few times 0.1 * 0.05 in every weight, no more.
    moved = torch.cat([(noised[name] - undefended[name]).flatten() for name in noised if name.startswith("network.")])
    assert 0.01 < float(moved.std()) < 0.3


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_checkpoint_resumes_to_the_same_bits(fit: Fit, tmp_path: Path, accumulate: int) -> None:
    settings = {"enable_checkpointing": True, "default_root_dir": tmp_path, "accumulate_grad_batches": accumulate}
    whole = fit(GaussianNoise(0.1), **settings, max_epochs=3)
    for file in tmp_path.rglob("*.ckpt"):
        file.unlink()
    fit(GaussianNoise(0.1), **settings, max_epochs=1)
    (path,) = tmp_path.rglob("*.ckpt")
    assert same(fit(GaussianNoise(0.1), ckpt_path=path, max_epochs=3), whole) == (accumulate == 1)
    assert same(fit(GaussianNoise(0.1), ckpt_path=path, **settings, max_epochs=3), whole)


def test_an_undefended_checkpoint_is_not_resumed_defended(fit: Fit, tmp_path: Path) -> None:
    fit(None, enable_checkpointing=True, default_root_dir=tmp_path, max_epochs=1)
    (path,) = tmp_path.rglob("*.ckpt")
    with pytest.raises(UsageError, match="cannot be resumed defended"):
        fit(GaussianNoise(0.1), ckpt_path=path)


def test_the_wrapper_is_no_part_of_the_hyperparameters(
    make_model: Callable[..., TabularClassifier], make_data: Callable[..., TableDataModule]
) -> None:
    plain, defended = make_model(), make_model()
    training = defend_training(Sign(), defended, make_data(), 0)
    assert plain.hparams == defended.hparams
    assert training.facts() == {}
    assert training.defense == Sign()


class FakeTrainer:
    """As much of a Trainer as the check reads."""

    gradient_clip_val = None

    def __init__(self, strategy: object, world_size: int = 1, **settings: object) -> None:
        self.strategy, self.world_size, self.precision_plugin = strategy, world_size, None
        self.__dict__.update(settings)


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        (FakeTrainer(FSDPStrategy()), "sign needs one device or DDP, .* got FSDPStrategy"),
        (FakeTrainer(DDPStrategy(), 2, gradient_clip_val=1.0), "gradient_clip_val would have no effect"),
        (
            FakeTrainer(
                DDPStrategy(), 2, precision_plugin=MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
            ),
            "needs gradients without a loss scale, got fp16",
        ),
    ],
)
def test_trainers_that_a_client_cannot_be_defended_in_are_refused(trainer: Any, message: str) -> None:
    checks = UpdateDefenseChecks(Sign())
    with pytest.raises(UsageError, match=message):
        checks.setup(trainer, None, "fit")  # type: ignore[arg-type]
    checks.setup(trainer, None, "test")  # type: ignore[arg-type]
    checks.setup(FakeTrainer(DDPStrategy(), 2), None, "fit")  # type: ignore[arg-type]
