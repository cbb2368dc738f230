"""DP-SGD in a Lightning training: noise enters, privacy is counted, names stay, wrong trainings are refused."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal import DPSGD, DefendedTraining, defend_training
from lightleak.defenses.horizontal.private_training import PrivateTraining
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig

pytest.importorskip("opacus", reason="the extra dp brings it")
pytestmark = pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")

SGD = OptimizerConfig("sgd", 0.5)
Prepare = Callable[..., tuple[TabularClassifier, DefendedTraining]]
MakeTrainer = Callable[..., lightning.Trainer]
CLIPS_ONLY = DPSGD(noise_multiplier=0.0, max_grad_norm=1e6)


@pytest.fixture
def prepare(make_model: Callable[..., TabularClassifier], make_data: Callable[..., TableDataModule]) -> Prepare:
    def prepare(
        defense: DPSGD, seed: int = 0, batch_size: int = 32, **options: Any
    ) -> tuple[TabularClassifier, DefendedTraining]:
        model = make_model(optimizer=SGD, **options)
        return model, defend_training(defense, model, make_data(batch_size), seed)

    return prepare


def weights(model: TabularClassifier) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.network.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def trained(
    prepare: Prepare, make_trainer: MakeTrainer, defense: DPSGD, seed: int = 0, **settings: Any
) -> dict[str, Tensor]:
    model, training = prepare(defense, seed)
    make_trainer(*training.callbacks, **{"max_epochs": 2} | settings).fit(model, datamodule=training.data)
    return weights(model)


def test_noise_enters_training_and_follows_the_seed(prepare: Prepare, make_trainer: MakeTrainer) -> None:
    noisy = DPSGD(noise_multiplier=1.0)
    first = trained(prepare, make_trainer, noisy)
    torch.manual_seed(99)  # no global generator is asked
    assert same(trained(prepare, make_trainer, noisy), first)
    assert not same(trained(prepare, make_trainer, noisy, seed=1), first)
    # Same batches with and without noise: 12 steps, each of deviation 0.5 * 1 * 1 / 32 in every weight.
    quiet = trained(prepare, make_trainer, DPSGD(noise_multiplier=0.0))
    moved = torch.cat([(first[name] - quiet[name]).flatten() for name in first])
    assert float(moved.std()) == pytest.approx(math.sqrt(12) * 0.5 / 32, rel=0.35)


def test_without_noise_and_clipping_training_is_plain_sgd_on_the_same_batches(
    prepare: Prepare, make_trainer: MakeTrainer, make_model: Callable[..., TabularClassifier]
) -> None:
    private = trained(prepare, make_trainer, CLIPS_ONLY)
    reference = make_model(optimizer=SGD)
    _, training = prepare(CLIPS_ONLY)
    training.data.setup()
    for _ in range(2):
        for inputs, labels in training.data.train_dataloader():
            loss = torch.nn.functional.cross_entropy(reference.network(inputs), labels, reduction="sum") / 32
            values = dict(reference.network.named_parameters())
            found = torch.autograd.grad(loss, list(values.values()))
            with torch.no_grad():
                for value, gradient in zip(values.values(), found, strict=True):
                    value -= 0.5 * gradient
    for name, value in weights(reference).items():
        torch.testing.assert_close(private[name], value, rtol=1e-4, atol=1e-5)


def test_privacy_is_counted_and_logged(prepare: Prepare, make_trainer: MakeTrainer) -> None:
    defense = DPSGD(noise_multiplier=1.5, delta=1e-4)
    model, training = prepare(defense)
    assert training.facts()["epsilon"] == 0.0
    trainer = make_trainer(*training.callbacks, max_epochs=3)
    trainer.fit(model, datamodule=training.data)
    facts = training.facts()
    expected = defense.epsilon(32 / 192, 18)
    assert facts == {
        "epsilon": expected,
        "release_epsilon": defense.release_epsilon(),
        "delta": 1e-4,
        "noise_multiplier": 1.5,
        "max_grad_norm": 1.0,
        "sample_rate": 32 / 192,
        "sampling": "poisson",
        "steps": 18,
        "accountant": "rdp",
    }
    assert float(trainer.callback_metrics["dp/epsilon"]) == pytest.approx(expected)
    (tested,) = trainer.test(model, datamodule=training.data, verbose=False)
    assert tested["test/accuracy"] > 0.3
    assert training.facts() == facts


def test_a_target_epsilon_holds_at_the_end_of_training(prepare: Prepare, make_trainer: MakeTrainer) -> None:
    model, training = prepare(DPSGD(target_epsilon=1.0))
    make_trainer(*training.callbacks, max_epochs=2).fit(model, datamodule=training.data)
    facts = training.facts()
    assert facts["steps"] == 12
    assert 0.98 < facts["epsilon"] <= 1.0
    model, shorter = prepare(DPSGD(target_epsilon=1.0))
    make_trainer(*shorter.callbacks, max_epochs=2, max_steps=6).fit(model, datamodule=shorter.data)
    assert shorter.facts()["steps"] == 6
    assert shorter.facts()["noise_multiplier"] < facts["noise_multiplier"]
    assert 0.98 < shorter.facts()["epsilon"] <= 1.0


def test_epsilon_without_noise_is_infinite_and_so_none(prepare: Prepare, make_trainer: MakeTrainer) -> None:
    model, training = prepare(CLIPS_ONLY)
    trainer = make_trainer(*training.callbacks)
    trainer.fit(model, datamodule=training.data)
    assert training.facts()["epsilon"] is None
    assert float(trainer.callback_metrics["dp/epsilon"]) == math.inf


def test_a_checkpoint_keeps_the_networks_names_and_resumes_to_the_same_bits(
    prepare: Prepare, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    defense = DPSGD(noise_multiplier=1.0)
    settings = {"enable_checkpointing": True, "default_root_dir": tmp_path}
    whole = trained(prepare, make_trainer, defense, max_epochs=3)
    model, training = prepare(defense)
    make_trainer(*training.callbacks, max_epochs=1, **settings).fit(model, datamodule=training.data)
    (path,) = tmp_path.rglob("*.ckpt")
    assert same(weights(TabularClassifier.load_from_checkpoint(path, weights_only=True)), weights(model))
    names = {name.removeprefix("network.") for name in torch.load(path, weights_only=True)["state_dict"]}
    assert {name for name in whole} <= names and not any("_module" in name for name in names)

    model, resumed = prepare(defense)
    trainer = make_trainer(*resumed.callbacks, max_epochs=3)
    trainer.fit(model, datamodule=resumed.data, ckpt_path=path, weights_only=True)
    assert same(weights(model), whole)
    assert resumed.facts()["steps"] == 18

    model, other = prepare(DPSGD(noise_multiplier=2.0))
    with pytest.raises(UsageError, match=r"so far had noise multiplier 1.0, further ones would have 2.0"):
        make_trainer(*other.callbacks, max_epochs=3).fit(
            model, datamodule=other.data, ckpt_path=path, weights_only=True
        )


def test_a_checkpoint_without_privacy_is_not_resumed_with_it(
    prepare: Prepare,
    make_trainer: MakeTrainer,
    make_model: Callable[..., TabularClassifier],
    make_data: Callable[..., TableDataModule],
    tmp_path: Path,
) -> None:
    plain = make_trainer(enable_checkpointing=True, default_root_dir=tmp_path)
    plain.fit(make_model(optimizer=SGD), datamodule=make_data())
    (path,) = tmp_path.rglob("*.ckpt")
    model, training = prepare(DPSGD(noise_multiplier=1.0))
    with pytest.raises(UsageError, match="0 steps are accounted for, but the Trainer resumes from 6"):
        make_trainer(*training.callbacks, max_epochs=2).fit(
            model, datamodule=training.data, ckpt_path=path, weights_only=True
        )


def test_a_checkpoint_from_within_an_epoch_is_refused(
    prepare: Prepare, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    """Its Poisson batches would be drawn again, which the accountant does not reckon with."""
    model, training = prepare(DPSGD(noise_multiplier=1.0))
    often = ModelCheckpoint(tmp_path, every_n_train_steps=4)
    make_trainer(*training.callbacks, often, enable_checkpointing=True).fit(model, datamodule=training.data)
    model, resumed = prepare(DPSGD(noise_multiplier=1.0))
    with pytest.raises(UsageError, match="from the middle of an epoch"):
        make_trainer(*resumed.callbacks, max_epochs=2).fit(
            model, datamodule=resumed.data, ckpt_path=tmp_path / "epoch=0-step=4.ckpt", weights_only=True
        )


def test_training_on_is_accounted_for_and_a_second_start_refused(prepare: Prepare, make_trainer: MakeTrainer) -> None:
    model, training = prepare(DPSGD(noise_multiplier=1.0))
    trainer = make_trainer(*training.callbacks, max_epochs=1)
    trainer.fit(model, datamodule=training.data)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, datamodule=training.data)
    assert training.facts()["steps"] == 12
    with pytest.raises(UsageError, match="12 steps are accounted for, but the Trainer resumes from 0"):
        make_trainer(*training.callbacks).fit(model, datamodule=training.data)


def test_hooks_are_gone_after_training_and_after_a_failure(prepare: Prepare, make_trainer: MakeTrainer) -> None:
    class Fails(lightning.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            raise RuntimeError("on purpose")

    for more in ((), (Fails(),)):
        model, training = prepare(DPSGD(noise_multiplier=1.0))
        trainer = make_trainer(*training.callbacks, *more)
        if more:
            with pytest.raises(RuntimeError, match="on purpose"):
                trainer.fit(model, datamodule=training.data)
        else:
            trainer.fit(model, datamodule=training.data)
        assert not any(module._forward_hooks or module._backward_hooks for module in model.network.modules())
        assert not any(hasattr(value, "grad_sample") for value in model.parameters())


def test_an_empty_batch_is_a_step_of_noise(prepare: Prepare, make_trainer: MakeTrainer) -> None:
    """With 192 rows and one expected, a third of the batches are empty (e^-1)."""
    model, training = prepare(DPSGD(noise_multiplier=1.0), batch_size=1)
    training.data.setup()
    sizes = [len(labels) for _, labels in training.data.train_dataloader()]
    assert sizes.count(0) > 40
    trainer = make_trainer(*training.callbacks)
    trainer.fit(model, datamodule=training.data)
    assert training.facts()["steps"] == 192
    assert all(torch.isfinite(value).all() for value in weights(model).values())
    assert torch.isfinite(trainer.callback_metrics["train/loss"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accumulate_grad_batches": 2}, "dp_sgd needs accumulate_grad_batches=1, .* got 2"),
        ({"gradient_clip_val": 1.0}, r"Trainer\(gradient_clip_val=1.0\) would have no effect"),
        ({"precision": "bf16-mixed"}, "dp_sgd needs precision 32-true or 64-true, got bf16-mixed"),
        ({"strategy": "ddp"}, "dp_sgd trains on one device, got DDPStrategy"),
        ({"max_epochs": -1}, r"target_epsilon needs Trainer\(max_epochs=...\)"),
    ],
)
def test_trainers_that_would_break_the_guarantee_are_refused(
    prepare: Prepare, make_trainer: MakeTrainer, settings: dict[str, Any], message: str
) -> None:
    model, training = prepare(DPSGD(target_epsilon=3.0))
    trainer = make_trainer(*training.callbacks, **settings)
    with pytest.raises(UsageError, match=message):
        training.callbacks[0].setup(trainer, model, "fit")


def test_models_data_and_wiring_that_cannot_be_are_refused(
    prepare: Prepare,
    make_trainer: MakeTrainer,
    make_model: Callable[..., TabularClassifier],
    make_data: Callable[..., TableDataModule],
) -> None:
    with pytest.raises(UnsupportedError, match=r"dp_sgd cannot protect these layers: norms.0 \(BatchNorm1d"):
        prepare(DPSGD(noise_multiplier=1.0), norm="batch")
    with pytest.raises(UsageError, match=r"delta must be below 1/192 \(one over the training rows\), got 0.01"):
        prepare(DPSGD(noise_multiplier=1.0, delta=0.01))
    model, training = prepare(DPSGD(noise_multiplier=1.0))
    with pytest.raises(UsageError, match="give the callbacks of the DefendedTraining to the Trainer"):
        make_trainer().fit(model, datamodule=training.data)
    with pytest.raises(UsageError, match="train on the data of the DefendedTraining"):
        make_trainer(*training.callbacks).fit(model, datamodule=make_data())
    evaluating, training = prepare(DPSGD(noise_multiplier=1.0))
    evaluating.network.eval()
    with pytest.raises(UsageError, match="needs the network in train mode"):
        make_trainer(*training.callbacks).fit(evaluating, datamodule=training.data)
    assert isinstance(training.callbacks[0], PrivateTraining)
