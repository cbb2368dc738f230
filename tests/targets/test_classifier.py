"""The LightningModule: learns, logs, steps as written down, and comes back from a checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightleak.core.errors import UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.spec import NetworkSpec, build_network

# Lightning's advice about workers, logging intervals and single-class batches is not about this code.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def problem(layout: EncodedLayout, n_classes: int, rows: int = 240) -> TensorDataset:
    """Rows whose class is the largest of a few linear scores."""
    drawn = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, layout.width, generator=drawn)
    scores = inputs @ torch.randn(layout.width, n_classes, generator=drawn)
    return TensorDataset(inputs, scores.argmax(1))


def trainer(folder: Path, **options: object) -> lightning.Trainer:
    """A quiet CPU trainer."""
    settings = {"max_epochs": 5, "accelerator": "cpu", "logger": False, "enable_checkpointing": False} | options
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(default_root_dir=folder, **quiet, **settings)


@pytest.mark.parametrize(
    ("name", "options", "n_classes"),
    [("mlp", {"hidden": [16]}, 2), ("resnet", {"hidden": [16]}, 3), ("mlp", {"hidden": [16], "dropout": 0.1}, 3)],
)
def test_learns_above_chance(layout: EncodedLayout, tmp_path: Path, name: str, options: dict, n_classes: int) -> None:
    data = problem(layout, n_classes)
    spec = NetworkSpec(name, n_classes, layout, options)
    classifier = TabularClassifier(spec, OptimizerConfig("adam", 0.01), seed=0)
    run = trainer(tmp_path)
    loader = DataLoader(data, batch_size=24, shuffle=True)
    run.fit(classifier, loader, DataLoader(data, batch_size=100))
    logged = run.callback_metrics
    assert {f"{stage}/{metric}" for stage in ("train", "val") for metric in ("loss", "accuracy", "auroc")} <= set(
        logged
    )
    majority = torch.bincount(data.tensors[1]).max() / len(data)
    assert logged["val/accuracy"] > majority + 0.1
    (tested,) = run.test(classifier, DataLoader(data, batch_size=100), verbose=False)
    assert tested["test/accuracy"] == pytest.approx(float(logged["val/accuracy"]))
    assert tested["test/auroc"] > 0.8


def test_logged_values_equal_the_whole_set(layout: EncodedLayout, tmp_path: Path) -> None:
    """Uneven batches must not weigh the same."""
    data = problem(layout, 2, rows=50)
    classifier = TabularClassifier(NetworkSpec("linear", 2, layout), seed=0)
    (tested,) = trainer(tmp_path).test(classifier, DataLoader(data, batch_size=32), verbose=False)
    logits = classifier(data.tensors[0])
    scores, positive = (logits[:, 1] - logits[:, 0]), data.tensors[1] == 1
    wins = (scores[positive][:, None] > scores[~positive][None]).float().mean()
    assert tested["test/loss"] == pytest.approx(float(F.cross_entropy(logits, data.tensors[1])))
    assert tested["test/accuracy"] == pytest.approx(float((logits.argmax(1) == data.tensors[1]).float().mean()))
    assert tested["test/auroc"] == pytest.approx(float(wins), abs=1e-6)


def test_every_epoch_logs_its_own_rows_once(layout: EncodedLayout, tmp_path: Path) -> None:
    """Handed a metric at every batch, a Trainer would walk over all that it holds of the batches before."""
    told, losses, seen = [], [], []

    class Watched(TabularClassifier):
        def log(self, name: str, *values: Any, **options: Any) -> None:
            told.append(name)
            super().log(name, *values, **options)

        def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_index)
            losses.append(float(loss) * len(batch[1]))
            return loss

    classifier = Watched(NetworkSpec("linear", 2, layout), OptimizerConfig("sgd", 1.0), seed=0)

    def note_epoch(run: lightning.Trainer, _: lightning.LightningModule) -> None:
        seen.append(float(run.callback_metrics["train/loss"]))

    run = trainer(
        tmp_path, max_epochs=3, logger=CSVLogger(tmp_path), callbacks=[LambdaCallback(on_train_epoch_end=note_epoch)]
    )
    run.fit(classifier, DataLoader(problem(layout, 2, rows=50), batch_size=16))  # four batches, the last of two rows
    assert told.count("train/loss") == 3
    logged = pd.read_csv(next(tmp_path.rglob("metrics.csv")))["train/loss"].tolist()
    assert logged == pytest.approx([sum(losses[4 * epoch : 4 * epoch + 4]) / 50 for epoch in range(3)])
    assert seen == pytest.approx(logged)  # callbacks know an epoch's metrics when it ends


def test_rows_of_an_interrupted_training_are_not_counted(layout: EncodedLayout, tmp_path: Path) -> None:
    spec = NetworkSpec("linear", 2, layout)
    stopped, fresh = TabularClassifier(spec, seed=0), TabularClassifier(spec, seed=0)
    loader = DataLoader(problem(layout, 2, rows=50), batch_size=16)

    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    for work, hook in (("fit", "on_train_batch_end"), ("validate", "on_validation_batch_end")):
        with pytest.raises(Stopped):
            getattr(trainer(tmp_path, callbacks=[LambdaCallback(**{hook: stop})]), work)(stopped, loader)
    assert stopped.train_loss.update_called and stopped.val_loss.update_called
    fresh.network.load_state_dict(stopped.network.state_dict())
    found = []
    for classifier in (stopped, fresh):
        run = trainer(tmp_path, max_epochs=2, num_sanity_val_steps=0)
        run.fit(classifier, loader, loader)
        found.append({name: float(value) for name, value in run.callback_metrics.items()})
    assert found[0] == found[1] and set(found[0]) >= {"train/loss", "train/auroc", "val/loss", "val/auroc"}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_steps_equal_the_manual_ones(layout: EncodedLayout, tmp_path: Path, momentum: float) -> None:
    data = problem(layout, 2, rows=16)
    spec = NetworkSpec("mlp", 2, layout, {"hidden": [6]})
    classifier = TabularClassifier(spec, OptimizerConfig("sgd", 0.1, momentum, weight_decay=0.01), seed=3)
    trainer(tmp_path, max_epochs=2).fit(classifier, DataLoader(data, batch_size=8))

    network = build_network(spec, seed=3)
    velocity = [torch.zeros_like(value) for value in network.parameters()]
    for start in (0, 8, 0, 8):
        inputs, labels = data[start : start + 8]
        gradient = torch.autograd.grad(F.cross_entropy(network(inputs), labels), list(network.parameters()))
        with torch.no_grad():
            for value, speed, slope in zip(network.parameters(), velocity, gradient, strict=True):
                speed.mul_(momentum).add_(slope + 0.01 * value)
                value -= 0.1 * speed
    for name, value in network.state_dict().items():
        torch.testing.assert_close(classifier.network.state_dict()[name], value)


def test_what_wraps_the_optimizer_trains_in_its_place(layout: EncodedLayout, tmp_path: Path) -> None:
    def wrap(optimizer: torch.optim.Optimizer, network: nn.Module) -> torch.optim.Optimizer:
        assert optimizer.param_groups[0]["lr"] == 0.1
        assert optimizer.param_groups[0]["params"] == list(network.parameters())
        return torch.optim.SGD(network.parameters(), 0.05)

    data, spec = problem(layout, 2, rows=16), NetworkSpec("linear", 2, layout)
    wrapped = TabularClassifier(spec, OptimizerConfig("sgd", 0.1), seed=0, wrap_optimizer=wrap)
    plain = TabularClassifier(spec, OptimizerConfig("sgd", 0.05), seed=0)
    for classifier in (wrapped, plain):
        trainer(tmp_path, max_epochs=1).fit(classifier, DataLoader(data, batch_size=8))
    assert torch.equal(wrapped.network.linears[0].weight, plain.network.linears[0].weight)
    assert "wrap_optimizer" not in wrapped.hparams


def test_a_batch_without_rows_moves_and_logs_nothing(layout: EncodedLayout, tmp_path: Path) -> None:
    inputs, labels = problem(layout, 2, rows=8).tensors
    logged, weights = [], []
    for batches in ([(inputs, labels)], [(inputs[:0], labels[:0]), (inputs, labels)]):
        classifier = TabularClassifier(NetworkSpec("mlp", 2, layout, {"hidden": [4]}), seed=0)
        run = trainer(tmp_path, max_epochs=1)
        run.fit(classifier, DataLoader(batches, batch_size=None))
        logged.append({name: float(value) for name, value in run.callback_metrics.items()})
        weights.append(classifier.network.state_dict())
    assert logged[0] == logged[1]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_predicts_probabilities(layout: EncodedLayout, tmp_path: Path) -> None:
    data = problem(layout, 3, rows=20)
    classifier = TabularClassifier(NetworkSpec("linear", 3, layout), seed=0)
    predicted = torch.cat(trainer(tmp_path).predict(classifier, DataLoader(data, batch_size=8)))
    torch.testing.assert_close(predicted, torch.softmax(classifier(data.tensors[0]), 1))


def test_comes_back_from_a_checkpoint_with_weights_only(layout: EncodedLayout, tmp_path: Path) -> None:
    data = problem(layout, 2, rows=32)
    spec = NetworkSpec("resnet", 2, layout, {"hidden": (6, 5)})
    config = OptimizerConfig("adam", 0.02)
    classifier = TabularClassifier(spec, config, seed=0)
    run = trainer(tmp_path, max_epochs=1, enable_checkpointing=True)
    run.fit(classifier, DataLoader(data, batch_size=8))
    (path,) = tmp_path.rglob("*.ckpt")
    torch.load(path, weights_only=True)
    again = TabularClassifier.load_from_checkpoint(path, weights_only=True)
    assert again.spec.to_dict() == spec.to_dict()
    assert again.optimizer_config == config
    inputs = data.tensors[0]
    torch.testing.assert_close(again.eval()(inputs), classifier.eval()(inputs), rtol=0, atol=0)
    trainer(tmp_path, max_epochs=2).fit(again, DataLoader(data, batch_size=8), ckpt_path=path, weights_only=True)


def test_a_bare_module_is_trained_too(layout: EncodedLayout, tmp_path: Path) -> None:
    network = nn.Linear(layout.width, 2)
    classifier = TabularClassifier(network, n_classes=2)
    assert classifier.spec is None
    before = network.weight.detach().clone()
    trainer(tmp_path, max_epochs=1).fit(classifier, DataLoader(problem(layout, 2, rows=16), batch_size=8))
    assert not torch.equal(network.weight, before)
    path = tmp_path / "bare.ckpt"
    classifier.trainer.save_checkpoint(path)
    again = TabularClassifier.load_from_checkpoint(path, network=nn.Linear(layout.width, 2), weights_only=True)
    torch.testing.assert_close(again.network.weight, network.weight)


def test_a_bare_module_must_tell_its_classes() -> None:
    with pytest.raises(UsageError, match="n_classes must be given with a bare module"):
        TabularClassifier(nn.Linear(3, 2))


def test_unknown_loss_is_named(layout: EncodedLayout) -> None:
    with pytest.raises(UsageError, match="unknown criterion 'hinge'"):
        TabularClassifier(NetworkSpec("linear", 2, layout), loss="hinge")


TWO_RANKS = """
import json, sys
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
from lightleak.data.layout import EncodedLayout
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.spec import NetworkSpec

torch.set_num_threads(1)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
loader = DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), batch_size=8)
classifier = TabularClassifier(NetworkSpec("mlp", 2, EncodedLayout.of_numerical(8), {"hidden": [6]}), seed=0)
start = classifier.network.linears[0].weight.detach().clone()

def trainer(**options):
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    return lightning.Trainer(accelerator="cpu", max_epochs=1, default_root_dir=sys.argv[1], **quiet, **options)

both = trainer(devices=2, strategy="ddp_fork")
both.fit(classifier, loader, loader)
ranks = {name: float(value) for name, value in both.callback_metrics.items() if name.startswith("val/")}
(alone,) = trainer(devices=1).validate(classifier, loader, verbose=False)
moved = not torch.equal(classifier.network.linears[0].weight, start)
print(json.dumps({"ranks": ranks, "alone": alone, "moved": moved}))
"""


def test_two_ranks_log_the_metrics_of_the_whole_set(tmp_path: Path, run_forked: Callable[..., str]) -> None:
    """In a process of its own: forking one that has run threads may hang."""
    script = tmp_path / "two_ranks.py"
    script.write_text(TWO_RANKS)
    result = json.loads(run_forked(tmp_path, script=script).splitlines()[-1])
    assert result["moved"]
    assert result["ranks"] == pytest.approx(result["alone"], rel=1e-5)
