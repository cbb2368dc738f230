"""Check before the first batch that gradient capture supports a training; errors suggest an alternative."""

from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import Strategy
from torch import nn

from lightleak.core.errors import UsageError
from lightleak.core.observations import GradientState
from lightleak.data.encoder import TableEncoder
from lightleak.defenses.horizontal import HorizontalDefense
from lightleak.protocols.local_pass import Autocast
from lightleak.targets.normalization import batch_norms
from lightleak.targets.own_check import require_trained
from lightleak.targets.spec import NetworkSpec, build_network

LIBRARIES = ("lightning.", "pytorch_lightning.")
"""Two packages of the same classes; a training may use either, whose classes do not inherit from the other's."""


def is_a(thing: object, *names: str) -> bool:
    """Whether a class of one of these names, of either of Lightning's packages, is among the bases of a thing's class.

    >>> is_a(lightning.LightningModule(), "LightningModule"), is_a(nn.Linear(1, 1), "LightningModule")
    (True, False)
    """
    return any(base.__name__ in names and base.__module__.startswith(LIBRARIES) for base in type(thing).__mro__)


def described_network(module: lightning.LightningModule, encoder: TableEncoder) -> tuple[nn.Module, NetworkSpec]:
    """The module's network and specification, which fit each other and the encoder.

    Raises:
        UsageError: the module has none, they differ, or a parameter is frozen.
    """
    network, spec = getattr(module, "network", None), getattr(module, "spec", None)
    if not isinstance(network, nn.Module) or not isinstance(spec, NetworkSpec):
        raise UsageError(
            "gradient capture needs a module with 'network' (nn.Module) and 'spec' (NetworkSpec), such as a "
            f"TabularClassifier built from a NetworkSpec; {type(module).__name__} lacks them"
        )
    spec.require_layout(encoder.layout)
    expected = {name: parameter.shape for name, parameter in build_network(spec, seed=0).named_parameters()}
    got = {name: parameter.shape for name, parameter in network.named_parameters()}
    if odd := sorted({name for name, _ in expected.items() ^ got.items()}):
        raise UsageError(
            f"the network is not what its specification {spec.name!r} describes; parameters {odd[:3]} differ"
        )
    require_trained(network)
    return network, spec


def check_trainer(trainer: lightning.Trainer, module: lightning.LightningModule, at: GradientState) -> None:
    """Refuse a trainer whose gradients cannot be recorded at this point.

    Raises:
        UsageError: manual optimization, a strategy that shards parameters, no clipping to record, or a point after the
            ranks' gradients are reduced.
    """
    if not module.automatic_optimization:
        raise UsageError(f"gradient capture needs automatic optimization; {type(module).__name__} optimizes by hand")
    check_strategy(trainer.strategy, trainer.world_size, at)
    own_clipping = not type(module).configure_gradient_clipping.__module__.startswith(LIBRARIES)
    if at == "clipped" and not trainer.gradient_clip_val and not own_clipping:
        raise UsageError("at='clipped' needs Trainer(gradient_clip_val=...); nothing clips here, use at='raw'")


def check_strategy(strategy: Strategy, processes: int, at: GradientState) -> None:
    """Refuse processes that have no whole gradient of their own at this point.

    Raises:
        UsageError: a strategy that shards parameters, or a point after the ranks' gradients are reduced.
    """
    if not is_a(strategy, "SingleDeviceStrategy", "DDPStrategy"):
        got = type(strategy).__name__
        raise UsageError(f"gradient capture supports one device or DDP, where a rank holds every parameter; got {got}")
    if at != "raw" and processes > 1:
        raise UsageError(
            f"at={at!r} comes after the all-reduce, where no client's own gradient is left; use at='raw' with "
            f"{processes} processes"
        )


def is_continued(trainer: lightning.Trainer) -> bool:
    """Whether a further ``fit`` of the same Trainer continues where its last one ended, in this process."""
    return trainer.global_step > 0 and trainer.ckpt_path is None


def check_statistics(trainer: lightning.Trainer, network: nn.Module, share_statistics: bool) -> None:
    """Refuse to share BatchNorm statistics of a batch that was never normalized as one.

    Raises:
        UsageError: with accumulation each micro-batch has its own.
    """
    normalized = bool(batch_norms(network))
    if share_statistics and normalized and trainer.accumulate_grad_batches > 1:
        raise UsageError(
            f"share_statistics needs accumulate_grad_batches=1, got {trainer.accumulate_grad_batches}: accumulated "
            "micro-batches are normalized one by one"
        )


def innermost(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that moves the weights. One that wraps another names it ``original_optimizer``, as opacus does."""
    while isinstance(inner := getattr(optimizer, "original_optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    return optimizer


def described_defense(optimizer: torch.optim.Optimizer) -> str:
    """Describe what a wrapping optimizer does to the gradient; other libraries' optimizers by their class name."""
    defense = getattr(optimizer, "defense", None)
    return defense.describe() if isinstance(defense, HorizontalDefense) else type(optimizer).__name__


def check_optimizer(optimizer: torch.optim.Optimizer, at: GradientState, loss_scaled: bool) -> None:
    """Refuse an optimizer that has no gradient of this kind.

    Raises:
        UsageError: see the messages.
    """
    inner = innermost(optimizer)
    if isinstance(inner, torch.optim.LBFGS):
        raise UsageError("gradient capture needs one backward per step; LBFGS takes several")
    if at == "noised" and inner is optimizer:
        raise UsageError(
            "at='noised' needs an optimizer that wraps another as 'original_optimizer' (opacus' DPOptimizer does), "
            f"got {type(optimizer).__name__}"
        )
    if at == "clipped" and inner is not optimizer:
        raise UsageError(
            f"at='clipped' records Lightning's clipping; {type(optimizer).__name__} clips inside its step, use 'noised'"
        )
    if at == "noised" and loss_scaled:
        raise UsageError("at='noised' needs gradients without a loss scale; use bf16-mixed or 32-true, got 16-mixed")


def mixed_precision(trainer: lightning.Trainer) -> tuple[Autocast, float]:
    """Data type of the forward's autocast and the present factor of the loss (1 without a gradient scaler)."""
    plugin: Any = trainer.precision_plugin
    if not is_a(plugin, "MixedPrecision"):
        return "none", 1.0
    scale = 1.0 if plugin.scaler is None else plugin.scaler.get_scale()
    return ("bfloat16" if plugin.precision == "bf16-mixed" else "float16"), scale
