"""Model refinement: the adversary trains its own bottom network towards the property (ProVFL Sec. V-C.2, Eq. 11-13).

Eq. 12 cannot be used as printed. Its weights (-1 without the property, 0 with it) contradict its text, by which the
norms of rows with the property grow and those of the others shrink: that takes +1 and -1. With these it has no minimum,
as norms may grow for ever. Here a row with the property is rewarded up to a norm of ``cap`` and no further; rows
without it are bounded by themselves, as no norm is below zero. The cut is sharp, and on one side only: a saturating
curve would also stop pulling down the large norms of rows without the property.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.attacks.property_inference.label_replacement import batch_rows
from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed, fresh_generator, generator
from lightleak.targets.split import SplitClassifier

Objective = Literal["corrected", "as_coded"]


@dataclass(frozen=True)
class ModelRefinementConfig(AttackSettings):
    """How the bottom network is refined.

    Attributes:
        strength: lambda of Eq. 13, at least 0.
        objective: ``corrected``: Eq. 12 on the bottom network's outputs, see `output_loss`. ``as_coded``: on the head's
            logits and without a bound, as the published code has it (`output_loss_as_coded`).
        cap: L1 norm per unit of the output up to which ``corrected`` rewards rows with the property; a few times what
            training by itself makes of it (0.1 to 0.2 on Adult).
        hidden: hidden widths of the head.
        dropout: share of units dropped after every hidden layer of the head but the last.
        learning_rate: of the head's Adam.

    Raises:
        UsageError: a value out of range.
    """

    owner: ClassVar[str] = "model refinement"

    strength: float = bounded(1.0, ge=0)
    objective: Objective = "corrected"
    cap: float = bounded(0.5, gt=0)
    hidden: tuple[int, ...] = (256, 128, 64)
    dropout: float = bounded(0.1, ge=0, lt=1)
    learning_rate: float = bounded(1e-3, gt=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.widths("hidden")

    @classmethod
    def as_published(cls, strength: float = 1.0) -> "ModelRefinementConfig":
        """What the published code does."""
        return cls(strength, "as_coded")


def output_loss(outputs: Tensor, has_property: Tensor, cap: float) -> Tensor:
    """L_o of Eq. 12, corrected: ``-mean(p' * norm)``.

    p' is 1 with the property and -1 without; norms that are rewarded are cut at ``cap``.

    >>> output_loss(torch.tensor([[3.0, -1.0], [0.5, 0.5]]), torch.tensor([True, False]), cap=1.5)
    tensor(-1.)

    Args:
        outputs: ``[n, width]`` what the adversary's bottom network sends.
        has_property: BoolTensor ``[n]``.
        cap: rewarded L1 norm per unit, above 0; hence the loss is never below ``-cap * width``.
    """
    norms = outputs.abs().sum(1)
    return torch.where(has_property, -norms.clamp(max=cap * outputs.shape[1]), norms).mean()


def output_loss_as_coded(logits: Tensor, has_property: Tensor) -> Tensor:
    """What ProVFL's code has for Eq. 12: ``-mean(p' * |logit|)`` over the head's logits ``[n, 2]``; no bound."""
    return torch.where(has_property[:, None], -logits.abs(), logits.abs()).mean()


class RefinementHead(nn.Module):
    """f_T: ``[n, width] -> [n, 2]``, tanh; its dropout draws from the generator it is given.

    Args:
        width: of what the bottom network sends.
        config: widths and dropout.
        seed: of the initial weights.
    """

    def __init__(self, width: int, config: ModelRefinementConfig, seed: int) -> None:
        super().__init__()
        self.dropout = config.dropout
        with fresh_generator(seed):
            self.linears = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise((width, *config.hidden, 2)))

    def forward(self, x: Tensor, draw: torch.Generator | None = None) -> Tensor:
        """Logits; without a generator nothing is dropped."""
        last = len(self.linears) - 1
        for index, linear in enumerate(self.linears):
            x = linear(x)
            if index < last:
                x = torch.tanh(x)
            if index < last - 1 and draw is not None and self.dropout:
                kept = torch.rand(x.shape, generator=draw) >= self.dropout
                x = x * (kept.to(x) / (1 - self.dropout))
        return x


class ModelRefinement(lightning.Callback):
    """After every epoch, trains the adversary's bottom network and an auxiliary head on the auxiliary rows.

    Each step lowers ``cross-entropy + strength * L_o`` (Eq. 13) on a batch as large as the training's: the head by its
    own Adam, the bottom network by its party's own optimizer (`SplitClassifier.step_party`). Nothing else is touched,
    and all randomness comes from ``seed``. A passive adversary can do it.
    """

    def __init__(
        self, config: ModelRefinementConfig, party: int, inputs: Tensor, has_property: Tensor, seed: int
    ) -> None:
        """Choose what is refined.

        Args:
            config: how.
            party: index of the adversary.
            inputs: ``[m, d_k]`` the adversary's own encoded columns of the auxiliary rows.
            has_property: BoolTensor ``[m]``.
            seed: of head, order and dropout.

        Raises:
            UsageError: inputs and property do not have m rows.
        """
        super().__init__()
        if inputs.ndim != 2 or has_property.shape != inputs.shape[:1] or not len(inputs):
            raise UsageError(
                f"inputs and has_property must have shapes [m, d_k] and [m], got {tuple(inputs.shape)} and "
                f"{tuple(has_property.shape)}"
            )
        self.config, self.party, self.seed = config, party, seed
        self._inputs, self._has_property = inputs, has_property
        self._batch_size = 0
        self._head: RefinementHead | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._restored: dict[str, Any] | None = None

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Build the head.

        Raises:
            UsageError: no `SplitClassifier`, no such party, or other columns than the party's.
        """
        if not isinstance(pl_module, SplitClassifier):
            raise UsageError(f"model refinement needs a SplitClassifier, got {type(pl_module).__name__}")
        pl_module.network.check_party(self.party, self._inputs)
        parameter = next(pl_module.network.parameters())
        self._inputs = self._inputs.to(parameter)
        self._has_property = self._has_property.to(parameter.device)
        width = pl_module.network.spec.output_width
        self._head = RefinementHead(width, self.config, derive_seed(self.seed, "head")).to(parameter)
        fused = parameter.device.type in ("cpu", "cuda")
        self._optimizer = torch.optim.Adam(self._head.parameters(), self.config.learning_rate, fused=fused)
        if self._restored is not None:
            self._head.load_state_dict(self._restored["head"])
            self._optimizer.load_state_dict(self._restored["optimizer"])
            self._restored = None

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note the training's batch size."""
        if not self._batch_size:
            self._batch_size = batch_rows(trainer, batch)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Refine on all auxiliary rows once, in a new order."""
        assert isinstance(pl_module, SplitClassifier)
        if not self._batch_size:
            return  # the epoch had no step
        draw = generator(self.seed, "epoch", trainer.current_epoch)
        order = torch.randperm(len(self._inputs), generator=draw).to(self._inputs.device)
        for rows in order.split(self._batch_size):
            self._step(pl_module, self._inputs[rows], self._has_property[rows], draw)

    def state_dict(self) -> dict[str, Any]:
        """Head and its optimizer, so that a resumed training continues identically."""
        if self._head is None or self._optimizer is None:
            return {}
        return {"head": self._head.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Inverse of `state_dict`, in force from the start of training."""
        self._restored = state_dict or None

    def _step(self, module: SplitClassifier, inputs: Tensor, has_property: Tensor, draw: torch.Generator) -> None:
        assert self._head is not None and self._optimizer is not None  # built before the first step
        config = self.config
        with torch.no_grad():
            outputs = module.network.party_output(self.party, inputs)
        with torch.enable_grad():
            outputs.requires_grad_()
            logits = self._head(outputs, draw)
            loss = F.cross_entropy(logits, has_property.long())
            if config.objective == "corrected":
                loss = loss + config.strength * output_loss(outputs, has_property, config.cap)
            else:
                loss = loss + config.strength * output_loss_as_coded(logits, has_property)
        self._optimizer.zero_grad()
        loss.backward()
        assert outputs.grad is not None  # a leaf of the loss
        self._optimizer.step()
        module.step_party(self.party, outputs.grad, inputs)
