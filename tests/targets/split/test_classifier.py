"""Split training through a Trainer."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightleak.core.errors import DataError, UnsupportedError, UsageError
from lightleak.data.vertical import VerticalDataModule
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split import Exchange, SplitClassifier, SplitSpec, Transform, classifier
from lightleak.targets.split.step import Step

MakeData = Callable[..., VerticalDataModule]
MakeTrainer = Callable[..., lightning.Trainer]
MOMENTUM = OptimizerConfig("sgd", 0.1, momentum=0.9, weight_decay=0.01)


class Noisy(Transform):
    """Noise of its own on what is sent and on what comes back."""

    def __init__(self) -> None:
        self.draw = torch.Generator().manual_seed(4)

    def outputs(self, outputs: Tensor, training: bool) -> Tensor:
        return outputs * (1 + 0.1 * torch.rand(outputs.shape, generator=self.draw)) if training else outputs

    def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
        return gradients + 0.01 * torch.randn(gradients.shape, generator=self.draw)


class Exchanges(lightning.Callback):
    """Keeps what traveled in every step."""

    def __init__(self) -> None:
        self.seen: list[Exchange] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.seen.append(pl_module.exchange)


def flip_even(ids: Tensor, labels: Tensor) -> Tensor:
    return torch.where(ids % 2 == 0, 1 - labels.clamp(max=1), labels)


def weights(module: SplitClassifier) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.network.state_dict().items()}


@pytest.mark.parametrize("optimizer", [MOMENTUM, OptimizerConfig("adam", 0.01, weight_decay=0.01)], ids=["sgd", "adam"])
@pytest.mark.parametrize(("widths", "n_classes"), [((5, 3), 2), ((2, 6, 1, 4, 3), 2), ((4, 1, 7), 6)])
@pytest.mark.parametrize("changed", ["plain", "transform", "relabel", "relabel and query"])
def test_in_one_go_and_party_by_party_train_the_same(
    make_data: MakeData,
    make_trainer: MakeTrainer,
    step_by_party: Any,
    monkeypatch: pytest.MonkeyPatch,
    optimizer: OptimizerConfig,
    widths: tuple[int, ...],
    n_classes: int,
    changed: str,
) -> None:
    ends, seen = [], []
    for way in (Step, step_by_party):
        monkeypatch.setattr(classifier, "Step", way)
        spec = SplitSpec(widths, n_classes)
        module = SplitClassifier(spec, optimizer, seed=0)
        module.transform = Noisy() if changed == "transform" else module.transform
        module.relabel = flip_even if "relabel" in changed else None
        module.query_relabeled = changed == "relabel and query"
        listener = Exchanges()
        make_trainer(callbacks=[listener]).fit(module, make_data(n_classes=n_classes, widths=widths))
        ends.append(weights(module))
        seen.append(listener.seen)
    assert len(seen[0]) == len(seen[1]) == 14  # 50 rows in batches of 8, twice
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-6, atol=1e-6)
    for fast, slow in zip(*seen, strict=True):
        assert torch.equal(fast.ids, slow.ids)
        torch.testing.assert_close(fast.outputs, slow.outputs, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(fast.gradients, slow.gradients, rtol=1e-6, atol=1e-6)


def test_the_exchange_is_that_of_the_weights_before_the_step(make_data: MakeData, make_trainer: MakeTrainer) -> None:
    data, module, listener = make_data(), SplitClassifier(SplitSpec((5, 3)), seed=0), Exchanges()
    before = SplitClassifier(SplitSpec((5, 3)), seed=0).network
    make_trainer(callbacks=[listener], max_steps=1).fit(module, data)
    first = listener.seen[0]
    assert first.ids.tolist() == data.train.ids[:8].tolist()
    torch.testing.assert_close(first.outputs, before.outputs(data.train.inputs[:8]))


@pytest.mark.parametrize("query_relabeled", [False, True])
def test_the_recorded_gradient_is_that_of_the_queried_loss(
    make_data: MakeData, make_trainer: MakeTrainer, query_relabeled: bool
) -> None:
    data, module, listener = make_data(), SplitClassifier(SplitSpec((5, 3)), seed=0), Exchanges()
    module.relabel, module.query_relabeled = flip_even, query_relabeled
    before = SplitClassifier(SplitSpec((5, 3)), seed=0).network
    make_trainer(callbacks=[listener], max_steps=1).fit(module, data)
    ids, labels = data.train.ids[:8], data.train.labels[:8]
    asked = flip_even(ids, labels) if query_relabeled else labels
    outputs = before.outputs(data.train.inputs[:8])
    loss = torch.nn.functional.binary_cross_entropy_with_logits(before.logits(outputs), asked.float())
    torch.testing.assert_close(listener.seen[0].gradients, *torch.autograd.grad(loss, outputs))


@pytest.mark.parametrize("decay_top", [False, True])
def test_learning_rates_decay_by_epoch(make_data: MakeData, make_trainer: MakeTrainer, decay_top: bool) -> None:
    rates: list[tuple[float, float]] = []

    class Rates(lightning.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            rates.append(tuple(group["lr"] for group in trainer.optimizers[0].param_groups))

    module = SplitClassifier(SplitSpec((5, 3)), OptimizerConfig("sgd", 0.5), decay=0.9, decay_top=decay_top)
    make_trainer(max_epochs=3, callbacks=[Rates()]).fit(module, make_data())
    assert [bottom for bottom, _ in rates] == pytest.approx([0.5, 0.45, 0.405])
    assert [top for _, top in rates] == pytest.approx([0.5, 0.45, 0.405] if decay_top else [0.5] * 3)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_trains_and_evaluates(make_data: MakeData, make_trainer: MakeTrainer, n_classes: int) -> None:
    data = make_data(n=400, n_classes=n_classes)
    data.validation = data.test
    module = SplitClassifier(SplitSpec((5, 3), n_classes), OptimizerConfig("adam", 0.01), seed=0)
    trainer = make_trainer(max_epochs=12)
    trainer.fit(module, data)
    validated = {name: float(value) for name, value in trainer.callback_metrics.items()}
    (tested,) = trainer.test(module, data, verbose=False)
    assert validated["val/auroc"] == pytest.approx(tested["test/auroc"])
    assert validated["val/loss"] == pytest.approx(tested["test/loss"])
    # The labels are a function of the columns: twelve epochs learn most of it.
    assert tested["test/auroc"] > 0.9
    assert tested["test/accuracy"] > 0.65
    (probabilities,) = trainer.predict(module, data.test_dataloader())
    torch.testing.assert_close(probabilities.sum(1), torch.ones(60))
    accuracy = (probabilities.argmax(1) == data.test.labels).float().mean()
    assert tested["test/accuracy"] == pytest.approx(float(accuracy))


def test_a_batch_whose_loss_is_nan_is_not_left_out(
    make_data: MakeData, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightleak.data.vertical.EVALUATION_BATCH_SIZE", 20)
    data = make_data()
    data.test.inputs[0] = torch.nan
    with pytest.warns(UserWarning, match="AUROC is undefined"):
        (tested,) = make_trainer().test(SplitClassifier(SplitSpec((5, 3)), seed=0), data, verbose=False)
    assert math.isnan(tested["test/loss"]) and math.isnan(tested["test/auroc"])


@pytest.mark.parametrize("work", ["validate", "test"])
def test_rows_of_an_interrupted_evaluation_are_not_counted(
    make_data: MakeData, make_trainer: MakeTrainer, work: str
) -> None:
    data, module = make_data(), SplitClassifier(SplitSpec((5, 3), 2), seed=0)
    data.validation = data.test
    (whole,) = getattr(make_trainer(), work)(module, data, verbose=False)
    evaluate, loss = module._evaluate, {"validate": module.val_loss, "test": module.test_loss}[work]

    def stop(*arguments: Any) -> None:
        evaluate(*arguments)
        raise InterruptedError

    module._evaluate = stop  # type: ignore[method-assign]
    with pytest.raises(InterruptedError):
        getattr(make_trainer(), work)(module, data)
    assert loss.update_called
    module._evaluate = evaluate  # type: ignore[method-assign]
    assert getattr(make_trainer(), work)(module, data, verbose=False) == [whole]


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_logged_training_loss_is_the_mean_over_the_epochs_rows(
    make_data: MakeData, make_trainer: MakeTrainer, n_classes: int
) -> None:
    losses: list[float] = []

    class Losses(lightning.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            logits = pl_module(batch[0])
            loss = torch.nn.functional.binary_cross_entropy_with_logits
            each = (
                loss(logits, batch[1].float(), reduction="none")
                if n_classes == 2
                else torch.nn.functional.cross_entropy(logits, batch[1], reduction="none")
            )
            losses.extend(each.tolist())

    module = SplitClassifier(SplitSpec((5, 3), n_classes), seed=0)
    trainer = make_trainer(max_epochs=1, callbacks=[Losses()])
    trainer.fit(module, make_data(n_classes=n_classes))
    assert len(losses) == 50
    assert float(trainer.callback_metrics["train/loss"]) == pytest.approx(sum(losses) / 50, rel=1e-5)


def test_a_checkpoint_rebuilds_the_module(make_data: MakeData, make_trainer: MakeTrainer, tmp_path: Path) -> None:
    module = SplitClassifier(SplitSpec((5, 3), 4, (7, 6), 5, ()), MOMENTUM, decay=0.5, decay_top=True, seed=3)
    trainer = make_trainer(enable_checkpointing=True, default_root_dir=tmp_path)
    trainer.fit(module, make_data(n_classes=4))
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    again = SplitClassifier.load_from_checkpoint(tmp_path / "end.ckpt", weights_only=True)
    assert again.network.spec == module.network.spec
    assert again.optimizer_config == MOMENTUM
    assert (again.decay, again.decay_top) == (0.5, True)
    torch.testing.assert_close(weights(again), weights(module), rtol=0, atol=0)


@pytest.mark.parametrize("at", [5, 7, 10, 14, 16])
@pytest.mark.parametrize("optimizer", [MOMENTUM, OptimizerConfig("adam", 0.01)], ids=["sgd", "adam"])
def test_a_resumed_training_ends_with_the_same_weights(
    make_data: MakeData, make_trainer: MakeTrainer, tmp_path: Path, at: int, optimizer: OptimizerConfig
) -> None:
    # Epochs have 7 steps: saved within an epoch, after its last step, and later.
    keep = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    whole = SplitClassifier(SplitSpec((5, 3)), optimizer, decay=0.5, seed=0)
    trainer = make_trainer(max_epochs=3, callbacks=[keep], enable_checkpointing=True)
    trainer.fit(whole, make_data(shuffle=True))
    assert trainer.global_step == 21

    resumed, listener = SplitClassifier(SplitSpec((5, 3)), optimizer, decay=0.5, seed=9), Exchanges()
    trainer = make_trainer(max_epochs=3, callbacks=[listener])
    trainer.fit(resumed, make_data(shuffle=True), ckpt_path=tmp_path / f"step={at}.ckpt", weights_only=True)
    assert len(listener.seen) == 21 - at
    torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", [MOMENTUM, OptimizerConfig("adamw", 0.01, weight_decay=0.1)], ids=["sgd", "adam"])
def test_a_party_updates_its_own_network_alone(
    make_data: MakeData, make_trainer: MakeTrainer, optimizer: OptimizerConfig
) -> None:
    found: dict[str, Any] = {}

    class OwnLoss(lightning.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            before = weights(pl_module)
            state = {name: _state(trainer, value) for name, value in pl_module.network.named_parameters()}
            rows = make_data().train
            own = rows.party_inputs(1, slice(0, 6))
            gradient = torch.randn(6, 16)
            # What an optimizer of its own, with the same history, would do.
            parameters = list(pl_module.network.bottoms[1].parameters())
            output = pl_module.network.party_output(1, own)
            expected = torch.autograd.grad(output, parameters, gradient)
            steps = trainer.global_step
            pl_module.step_party(1, gradient, own)
            assert trainer.global_step == steps
            after = weights(pl_module)
            found["changed"] = {name for name in after if not torch.equal(after[name], before[name])}
            found["state"] = {
                name for name, value in pl_module.network.named_parameters() if _state(trainer, value) != state[name]
            }
            if optimizer.name == "sgd":
                rate = trainer.optimizers[0].param_groups[0]["lr"]
                for parameter, gradient in zip(parameters, expected, strict=True):
                    name = next(n for n, p in pl_module.network.named_parameters() if p is parameter)
                    momentum = torch.tensor(state[name]["momentum_buffer"]).view_as(parameter)
                    step = 0.9 * momentum + gradient + 0.01 * before[name]
                    torch.testing.assert_close(after[name], before[name] - rate * step)

    module = SplitClassifier(SplitSpec((5, 3)), optimizer, seed=0)
    make_trainer(max_epochs=1, callbacks=[OwnLoss()]).fit(module, make_data())
    own = {f"bottoms.1.linears.{layer}.{part}" for layer in (0, 1) for part in ("weight", "bias")}
    assert found["changed"] == own
    assert found["state"] == own


def _state(trainer: lightning.Trainer, parameter: Tensor) -> dict[str, Any]:
    return {name: value.flatten().tolist() for name, value in trainer.optimizers[0].state[parameter].items()}


def test_a_party_that_gets_the_protocols_gradient_trains_as_the_protocol(
    make_data: MakeData, make_trainer: MakeTrainer
) -> None:
    """`step_party` with the gradient that came back, on top of a step with none, is the protocol's own step."""
    data, spec = make_data(), SplitSpec((5, 3))
    inputs = data.train.inputs[:8]

    class NothingComesBack(Transform):
        def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
            return torch.zeros_like(gradients)

    class StepBoth(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            for party, own in enumerate(pl_module.network.party_inputs(inputs)):
                pl_module.step_party(party, pl_module.exchange.gradients[party], own)

    plain, stepped = (SplitClassifier(spec, OptimizerConfig("sgd", 0.1), seed=0) for _ in range(2))
    stepped.transform = NothingComesBack()
    make_trainer(max_steps=1).fit(plain, data)
    make_trainer(max_steps=1, callbacks=[StepBoth()]).fit(stepped, data)
    torch.testing.assert_close(weights(plain), weights(stepped))


def test_step_party_refuses_what_does_not_fit() -> None:
    module = SplitClassifier(SplitSpec((5, 3)))
    with pytest.raises(UsageError, match="party must be from 0 to 1, got 2"):
        module.step_party(2, torch.zeros(4, 16), torch.zeros(4, 3))
    with pytest.raises(UsageError, match=r"inputs of party 1 must have shape \[n, 3\], got \(4, 5\)"):
        module.step_party(1, torch.zeros(4, 16), torch.zeros(4, 5))
    with pytest.raises(UsageError, match=r"gradient of party 1 must have shape \[4, 16\], got \[3, 16\]"):
        module.step_party(1, torch.zeros(3, 16), torch.zeros(4, 3))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"precision": "bf16-mixed"}, UnsupportedError, "precision must be one of 32-true, 64-true, got 'bf16-mixed'"),
        ({"precision": "16-true"}, UnsupportedError, "precision must be one of"),
        ({"gradient_clip_val": 1.0}, MisconfigurationException, "gradient clipping is not supported for manual"),
        ({"accumulate_grad_batches": 2}, MisconfigurationException, "accumulation is not supported for manual"),
    ],
)
def test_a_trainer_that_cannot_serve_is_refused_before_the_first_step(
    make_data: MakeData, make_trainer: MakeTrainer, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_trainer(**settings).fit(SplitClassifier(SplitSpec((5, 3))), make_data())


def test_double_precision_trains(make_data: MakeData, make_trainer: MakeTrainer) -> None:
    module, listener = SplitClassifier(SplitSpec((5, 3)), seed=0), Exchanges()
    make_trainer(precision="64-true", callbacks=[listener]).fit(module, make_data())
    assert listener.seen[0].outputs.dtype == torch.float64


def test_rows_of_another_split_are_refused(make_data: MakeData, make_trainer: MakeTrainer) -> None:
    with pytest.raises(DataError, match=r"widths must be \(3, 5\) as in the network, got \(5, 3\)"):
        make_trainer().fit(SplitClassifier(SplitSpec((3, 5))), make_data())
    with pytest.raises(DataError, match="labels must be below 2, the network's classes; got 4"):
        make_trainer().fit(SplitClassifier(SplitSpec((5, 3))), make_data(n_classes=5))
    with pytest.raises(DataError, match="labels must be below 2"):
        make_trainer().test(SplitClassifier(SplitSpec((5, 3))), make_data(n_classes=5), verbose=False)


@pytest.mark.parametrize("decay", [0, -1, 1.1])
def test_decay_is_checked(decay: float) -> None:
    with pytest.raises(UsageError, match="decay must be above 0 and at most 1"):
        SplitClassifier(SplitSpec((5, 3)), decay=decay)


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", [MOMENTUM, OptimizerConfig("adam", 0.01)], ids=["sgd", "adam"])
def test_a_gpu_trains_the_same(make_data: MakeData, make_trainer: MakeTrainer, optimizer: OptimizerConfig) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    ends, losses = [], []
    for accelerator in ("cpu", "gpu"):
        module = SplitClassifier(SplitSpec((5, 3), 4), optimizer, seed=0)
        module.relabel = flip_even
        trainer = make_trainer(accelerator=accelerator, devices=1, max_epochs=1)
        trainer.fit(module, make_data(n_classes=4))
        ends.append({name: value.cpu() for name, value in weights(module).items()})
        losses.append(float(trainer.callback_metrics["train/loss"]))
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-3, atol=1e-4)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
