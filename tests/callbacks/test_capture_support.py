"""What cannot be captured is refused before the first batch, with what to do instead."""

from collections.abc import Callable
from typing import Any

import lightning
import pandas as pd
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightleak.callbacks.capture_support import check_trainer, innermost
from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.core.errors import DataError, UsageError
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.targets import NetworkSpec
from lightleak.targets.classifier import TabularClassifier

Train = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")


def capture(encoder: TableEncoder, **settings: Any) -> GradientCapture:
    return GradientCapture(encoder, **({"share_labels": True, "keep": True, "epochs": (0,)} | settings))


class Wrapping(torch.optim.Optimizer):
    def __init__(self, original_optimizer: torch.optim.Optimizer) -> None:
        self.original_optimizer = original_optimizer
        super().__init__(original_optimizer.param_groups, {})


class ByHand(TabularClassifier):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False


class WithLBFGS(TabularClassifier):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(self.parameters())


class WithWrapped(TabularClassifier):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return Wrapping(super().configure_optimizers())


class Frozen(TabularClassifier):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.network.linears[0].bias.requires_grad_(False)


class OtherNetwork(TabularClassifier):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.network.linears[0] = nn.Linear(4, 7)


def bare(*args: Any, **kwargs: Any) -> TabularClassifier:
    return TabularClassifier(nn.Linear(4, 2), n_classes=2)


def scaled() -> dict[str, Any]:
    return {"plugins": MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))}


@pytest.mark.parametrize(
    ("settings", "training", "message"),
    [
        ({}, {"module": bare}, "TabularClassifier lacks them"),
        ({}, {"module": ByHand}, "needs automatic optimization"),
        ({}, {"module": Frozen}, r"frozen: \['linears.0.bias'\]"),
        ({}, {"module": OtherNetwork}, r"specification 'mlp' describes; parameters \['linears.0.bias', 'linears.0.we"),
        ({}, {"module": WithLBFGS}, "LBFGS takes several"),
        ({"at": "clipped"}, {}, "nothing clips here, use at='raw'"),
        ({"at": "noised"}, {}, r"at='noised' needs an optimizer that wraps another .* got Adam"),
        (
            {"at": "clipped"},
            {"module": WithWrapped, "gradient_clip_val": 1.0},
            "Wrapping clips inside its step, use 'noised'",
        ),
        ({"at": "noised"}, {"module": WithWrapped, "scaled": True}, "without a loss scale"),
        (
            {"share_statistics": True},
            {"options": {"norm": "batch"}, "accumulate_grad_batches": 2},
            "share_statistics needs accumulate_grad_batches=1, got 2",
        ),
    ],
)
def test_trainings_that_cannot_be_captured_are_refused(
    encoder: TableEncoder, train: Train, settings: dict[str, Any], training: dict[str, Any], message: str
) -> None:
    training = dict(training)
    more = scaled() if training.pop("scaled", False) else {}
    with pytest.raises(UsageError, match=message):
        train(capture(encoder, **settings), **training, **more)


def test_an_encoder_of_other_columns_is_refused(encoder: TableEncoder, train: Train) -> None:
    schema = TableSchema((Column.integer("age"),), Column.categorical("ill", ["0", "1"]))
    other = TableEncoder(schema).fit(pd.DataFrame({"age": [1, 2]}))
    with pytest.raises(UsageError, match=r"takes 4 encoded features, the encoder makes other columns \(1 features\)"):
        train(capture(other))


def test_statistics_of_a_network_without_batch_norm_may_be_shared_with_accumulation(
    encoder: TableEncoder, train: Train
) -> None:
    callback = capture(encoder, share_statistics=True)
    train(callback, accumulate_grad_batches=2)
    assert not callback.captured[0].update.batch_statistics


def test_clipping_of_the_modules_own_counts_as_clipping(encoder: TableEncoder, train: Train) -> None:
    class OwnClipping(TabularClassifier):
        def configure_gradient_clipping(self, optimizer: Any, **_: Any) -> None:
            for parameter in self.network.parameters():
                parameter.grad.clamp_(-0.001, 0.001)

    callback = capture(encoder, at="clipped")
    train(callback, module=OwnClipping)
    assert max(float(g.abs().max()) for g in callback.captured[0].update.update.values()) == pytest.approx(0.001)


class FakeTrainer:
    """As much of a Trainer of several processes as the check reads."""

    gradient_clip_val = 1.0

    def __init__(self, strategy: object, world_size: int = 1) -> None:
        self.strategy, self.world_size = strategy, world_size


def test_sharded_parameters_are_refused(encoder: TableEncoder) -> None:
    module = bare()
    with pytest.raises(UsageError, match=r"supports one device or DDP, .* got FSDPStrategy"):
        check_trainer(FakeTrainer(FSDPStrategy()), module, "raw")
    check_trainer(FakeTrainer(DDPStrategy(), 4), module, "raw")


@pytest.mark.parametrize("at", ["clipped", "noised"])
def test_points_after_the_all_reduce_are_refused(at: Any) -> None:
    with pytest.raises(UsageError, match=rf"at='{at}' comes after the all-reduce, .* use at='raw' with 4 processes"):
        check_trainer(FakeTrainer(DDPStrategy(), 4), bare(), at)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"at": "cooked"}, "at must be one of raw, clipped, noised, got 'cooked'"),
        ({"keep": False}, "captures would be lost"),
        ({"epochs": ()}, "nothing to capture"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(
    encoder: TableEncoder, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        capture(encoder, **settings)


def test_an_unfitted_encoder_is_refused_at_once(encoder: TableEncoder) -> None:
    with pytest.raises(DataError, match="fit"):
        capture(TableEncoder(encoder.schema))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ((torch.zeros(8, 4),), "needs batches"),
        ((torch.zeros(8, 3), torch.zeros(8, dtype=torch.long)), r"encoded rows \[n, 4\]"),
        ((torch.zeros(8, 4), torch.zeros(8, 2)), r"labels must be int64 \[8\]"),
    ],
)
def test_batches_of_another_kind_are_refused(
    encoder: TableEncoder, train: Train, tensors: tuple[Tensor, ...], message: str
) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=capture(encoder),
    )
    model = TabularClassifier(NetworkSpec("linear", 2, encoder.layout))
    with pytest.raises(UsageError, match=message):
        trainer.fit(model, DataLoader(TensorDataset(*tensors), batch_size=8))


def test_the_innermost_optimizer_is_found() -> None:
    sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
    assert innermost(sgd) is sgd
    assert innermost(Wrapping(Wrapping(sgd))) is sgd
