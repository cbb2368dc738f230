"""`GradientCapture`: records, while a target trains, what a federated client would have sent."""

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, get_args

import lightning
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lightleak.callbacks.capture_schedule import CaptureSchedule
from lightleak.callbacks.capture_store import Capture, destination, require_unused
from lightleak.callbacks.capture_support import (
    check_optimizer,
    check_statistics,
    check_trainer,
    described_defense,
    described_network,
    innermost,
    is_continued,
    mixed_precision,
)
from lightleak.callbacks.step_recorder import StepRecorder
from lightleak.core.arguments import require_kind
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate, GradientState, ProtocolFacts
from lightleak.data.datamodule import BatchSampler, RankSampler
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.protocols.local_pass import check_batch
from lightleak.targets.spec import NetworkSpec

NamedTensors = Mapping[str, Tensor]


BYPASSED = (
    "its training step did not run the network as a module: call self(x) or self.network(x), not forward or layers of "
    "it, or give LeakageCallback the module that is called, as network=..."
)


class GradientCapture(lightning.Callback):
    """Records chosen optimizer steps as `ClientUpdate` and truth; training stays bit-identical.

    The gradient is recorded at one of three points, which the update names as its state:

    * ``raw``: this rank's own gradient, before the all-reduce of DDP and before any clipping;
    * ``clipped``: after the Trainer's gradient clipping, as the optimizer uses it;
    * ``noised``: after a wrapping optimizer (opacus' ``DPOptimizer``) has clipped and noised inside its step.

    With accumulated gradients an update is the whole step's: its batch is the union of the micro-batches, its gradient
    the mean of theirs. Mixed precision's loss scale is divided out. Under DDP each rank is a client.

    Only full steps are recorded: every micro-batch there, of the batch size of the data loader or of its sampler. Where
    whole epochs are captured, and where a step is chosen by number, it is recorded with a smaller last micro-batch too,
    or left out with a warning. A step that did not call the network is warned about once, and a training without any
    capture at its end. So is what cannot be recorded (a gradient that overflowed, a step that the gradient
    scaler skipped); training continues.

    Attributes:
        captured: the captures of this process in the present or last training, in order, where ``keep`` asks for them.
    """

    def __init__(
        self,
        encoder: TableEncoder,
        *,
        share_labels: bool,
        share_statistics: bool = False,
        share_buffers: bool = True,
        marginals: Marginals | None = None,
        root: Path | str | None = None,
        keep: bool = False,
        epochs: Collection[int] = (),
        per_epoch: int | None = 1,
        steps: Collection[int] = (),
        at: GradientState = "raw",
        max_captures: int = 100,
        overwrite: bool = False,
    ) -> None:
        """Choose what is recorded and what it shares.

        Args:
            encoder: the fitted encoder of the target's inputs, part of what the server knows.
            share_labels: updates carry their labels.
            share_statistics: updates carry mean and variance of every BatchNorm layer on their batch.
            share_buffers: updates carry the network's buffers.
            marginals: one-way marginals that the server knows.
            root: captures are written here, one folder each (`Capture.save`).
            keep: keep captures in memory, in ``captured``.
            epochs: see `CaptureSchedule`.
            per_epoch: see `CaptureSchedule`.
            steps: see `CaptureSchedule`.
            at: the point of the gradient.
            max_captures: see `CaptureSchedule`; bounds memory and disk.
            overwrite: ``root`` may hold captures as a training begins, and keeps those of other steps. Left out, they
                are refused unless the training resumes from a checkpoint with the state of this capture.

        Raises:
            UsageError: settings that cannot work together, or an encoder that is not fitted.
        """
        super().__init__()
        require_kind("encoder", encoder, TableEncoder, "a TableEncoder, such as .encoder of lightleak.prepare(...)")
        if at not in get_args(GradientState):
            raise UsageError(f"at must be one of {', '.join(get_args(GradientState))}, got {at!r}")
        self.root = destination(root, keep)
        self.schedule = CaptureSchedule(epochs, per_epoch, steps, max_captures)
        self.encoder = encoder
        self.share_labels, self.share_statistics, self.share_buffers = share_labels, share_statistics, share_buffers
        self.marginals = marginals
        self.keep, self.at, self.overwrite = keep, at, overwrite
        self.captured: list[Capture] = []
        facts, tensors = encoder.to_state()
        self._encoder_state = facts, {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        self._taken, self._epoch, self._taken_in_epoch = 0, -1, 0
        self._epoch_in_order = -1  # the last that was entered at its first batch
        self._restored = False  # by a checkpoint of a training that was recorded with the same settings
        self._network: nn.Module
        self._called: nn.Module | None = None
        self._spec: NetworkSpec
        self._recorder: StepRecorder | None = None
        self._stepping, self._told_full, self._told_bypassed, self._step = False, False, False, 0
        self._passed_over: str | None = None  # why the last step was that was dropped without a warning
        self._handles: list[Any] = []

    @property
    def state_key(self) -> str:
        """Distinguishes several captures in one checkpoint."""
        shares = (self.share_labels, self.share_statistics, self.share_buffers)
        return self._generate_state_key(at=self.at, root=str(self.root), schedule=repr(self.schedule), shares=shares)

    def state_dict(self) -> dict[str, Any]:
        """How much was captured, so that a resumed run captures no step twice."""
        return {"taken": self._taken, "epoch": self._epoch, "taken_in_epoch": self._taken_in_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._taken, self._epoch = state_dict["taken"], state_dict["epoch"]
        self._taken_in_epoch = state_dict["taken_in_epoch"]
        self._restored = True

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Begin anew, and check that this module and Trainer are supported; a checkpoint's count comes afterwards.

        Raises:
            UsageError: see `lightleak.callbacks.capture_support`.
        """
        if stage == "fit":
            self.captured = []
            self._taken, self._told_full, self._told_bypassed, self._passed_over = 0, False, False, None
            self._epoch, self._taken_in_epoch, self._epoch_in_order, self._restored = -1, 0, -1, False
            self._network, self._spec = self._describe(pl_module)
            check_trainer(trainer, pl_module, self.at)
            check_statistics(trainer, self._network, self.share_statistics)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Check optimizer and folder, and set the hook at the point where the gradient is final.

        Raises:
            UsageError: an optimizer without such a gradient, or a folder with captures of an earlier training.
        """
        if not (self.overwrite or self._restored or is_continued(trainer)):
            require_unused(self.root)
        optimizer = trainer.optimizers[0]
        check_optimizer(optimizer, self.at, loss_scaled=getattr(trainer.precision_plugin, "scaler", None) is not None)

        def take(*_: Any) -> None:
            self._take_from_grad(trainer, pl_module)

        def take_after_closure(_: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            closure = kwargs.get("closure")
            if closure is None:
                return take()

            def closed() -> Any:
                loss = closure()
                take()
                return loss

            return args, {**kwargs, "closure": closed}

        # Without a gradient scaler Lightning clips in the closure of optimizer.step, with one before the step. After it
        # .grad may hold something else, such as Nesterov's direction. A wrapping optimizer has done its part when it
        # calls the one it wraps.
        if self.at == "clipped":
            self._handles.append(optimizer.register_step_pre_hook(take_after_closure))
        elif self.at == "noised":
            self._handles.append(innermost(optimizer).register_step_pre_hook(take))

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin a step that the schedule wants, and watch each of its micro-batches."""
        if batch_idx == 0:
            self._epoch_in_order = trainer.current_epoch
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._begin(trainer)
        if self._recorder is not None:
            inputs, labels = self._read(batch)
            if not len(inputs):  # Poisson sampling draws such batches
                self._drop("its batch has no rows" if self._step in self.schedule.steps else None)
                return
            check_batch(self._spec, inputs, labels)
            data = getattr(trainer, "datamodule", None)
            rows_of = getattr(data, "rows_of", None)  # of a table's data module, or of one's own that knows it
            # A training that is resumed within an epoch counts batches on, and its loader starts again.
            is_in_order = trainer.current_epoch == self._epoch_in_order
            ids = rows_of(trainer.current_epoch, batch_idx) if rows_of and is_in_order else None
            self._recorder.arm(inputs, labels, ids)

    def on_before_backward(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, loss: Tensor
    ) -> None:
        """Note the loss."""
        if self._recorder is not None:
            self._recorder.note_loss(loss)

    def on_after_backward(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Stop watching until the next micro-batch."""
        if self._recorder is not None:
            self._recorder.disarm()

    def on_before_optimizer_step(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, optimizer: Optimizer
    ) -> None:
        """The step's batch is complete; ``raw`` is recorded here, the others once their gradient is final."""
        if self._recorder is None:
            return
        trouble = self._trouble(trainer, self._recorder)
        if trouble is not None:
            is_first = trouble == BYPASSED and not self._told_bypassed
            self._told_bypassed |= is_first
            is_told = is_first or self.schedule.takes_partial(self._step)
            self._passed_over = self._passed_over if is_told else trouble
            self._drop(trouble if is_told else None)
        elif self.at == "raw":
            self._take(trainer, pl_module, self._recorder.gradient(mixed_precision(trainer)[1]))
        else:
            self._stepping = True

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Drop a step whose gradient was never final."""
        if self._recorder is not None and (self._stepping or self._recorder.armed):
            self._drop("the optimizer made no step (an overflowed gradient, or a training step without loss)")

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Remove every hook; warn where nothing was captured and no other warning says why."""
        self._release()
        if not self._taken and self._passed_over is not None:
            reason = f"reason for the last one: {self._passed_over}"
            warnings.warn(f"no step of this training was captured; {reason}", stacklevel=2)

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        """Remove every hook."""
        self._release()

    def _describe(self, module: lightning.LightningModule) -> tuple[nn.Module, NetworkSpec]:
        """The network that is watched, and what describes it."""
        return described_network(module, self.encoder)

    def _read(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Inputs ``[n, d]`` and labels ``[n]`` of a batch."""
        return _inputs_and_labels(batch)

    def _sent(self, weights: NamedTensors, gradient: NamedTensors) -> tuple[NamedTensors, NamedTensors]:
        """Weights and gradient of the described network, from those of the watched one."""
        return weights, gradient

    def _accepts(self, capture: Capture) -> bool:
        """Whether a capture is kept; an override that rejects one warns about it."""
        return True

    def _begin(self, trainer: lightning.Trainer) -> None:
        if trainer.current_epoch != self._epoch:
            self._epoch, self._taken_in_epoch = trainer.current_epoch, 0
        self._drop()
        self._step = trainer.global_step
        if not self.schedule.wants(self._epoch, self._step, self._taken_in_epoch):
            return
        if self._taken < self.schedule.max_captures:
            self._recorder = StepRecorder(self._network, self.share_statistics, self._called)
        elif not self._told_full:
            self._told_full = True
            warnings.warn(f"max_captures={self._taken} reached: no capture from step {self._step} on", stacklevel=2)

    def _trouble(self, trainer: lightning.Trainer, recorder: StepRecorder) -> str | None:
        """Why this step is not recorded, or ``None``."""
        sizes, expected = recorder.sizes, trainer.accumulate_grad_batches
        if len(sizes) != expected:
            return f"it has {len(sizes)} of {expected} micro-batches"
        if recorder.armed:
            return "its training step returned no loss"
        if not recorder.complete:
            return BYPASSED
        if len({*sizes[:-1]}) > 1 or sizes[-1] > sizes[0]:
            return f"its micro-batches have unequal sizes {sizes}"
        full = sizes[-1] == (_batch_size(trainer.train_dataloader) or sizes[0])
        if full or self.schedule.takes_partial(self._step):
            return None
        return f"its batch is not full: {sizes}; per_epoch=None takes it too"

    def _take_from_grad(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Record what lies in ``.grad``, if a wanted step is under way."""
        if self._stepping and self._recorder is not None:
            named = self._network.named_parameters()
            grads = {name: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for name, p in named}
            self._take(trainer, pl_module, {name: gradient.cpu() for name, gradient in grads.items()})

    def _take(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, gradient: NamedTensors) -> None:
        recorder = self._recorder
        assert recorder is not None  # callers hold one
        autocast, loss_scale = mixed_precision(trainer)
        optimizer = innermost(trainer.optimizers[0])
        labels = recorder.labels()
        facts = ProtocolFacts(
            n_rows=len(labels),
            batch_size=recorder.sizes[0],
            learning_rate=float(optimizer.param_groups[0]["lr"]),
            optimizer=type(optimizer).__name__.lower(),
            loss=getattr(pl_module, "loss_name", "cross_entropy"),
            step=self._step,
            epoch=self._epoch,
            defense=described_defense(trainer.optimizers[0]) if self.at == "noised" else "none",
        )
        weights, gradient = self._sent(recorder.parameters, gradient)
        try:
            update = ClientUpdate(
                network=self._spec.to_dict(),
                parameters=weights,
                update=gradient,
                encoder=self._encoder_state[0],
                encoder_tensors=self._encoder_state[1],
                facts=facts,
                state=self.at,
                training_mode=recorder.training_mode,
                buffers=recorder.buffers if self.share_buffers else {},
                labels=labels if self.share_labels else None,
                marginals=None if self.marginals is None else self.marginals.to_dict(),
                # Those of accumulated micro-batches are not of the step's whole batch.
                batch_statistics=recorder.statistics if len(recorder.sizes) == 1 else {},
            )
        except ObservationError as error:
            self._drop(str(error))
            return
        capture = Capture(update, recorder.truth(autocast, loss_scale), trainer.global_rank)
        if not self._accepts(capture):
            self._drop()
            return
        self._recorder, self._stepping = None, False
        self._taken += 1
        self._taken_in_epoch += 1
        if self.keep:
            self.captured.append(capture)
        if self.root is not None:
            capture.save(self.root)

    def _drop(self, reason: str | None = None) -> None:
        """Drop the current step; a reason becomes a warning."""
        if self._recorder is not None:
            self._recorder.disarm()
        if reason is not None:
            warnings.warn(f"optimizer step {self._step} was not captured: {reason}", stacklevel=3)
        self._recorder, self._stepping = None, False

    def _release(self) -> None:
        self._drop()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _batch_size(loader: Any) -> int | None:
    """Rows of a full batch of a loader, or of its sampler where that makes whole batches; None where batches vary."""
    sampler = getattr(loader, "sampler", None)
    found = getattr(sampler if isinstance(sampler, BatchSampler | RankSampler) else loader, "batch_size", None)
    return found if isinstance(found, int) else None


def _inputs_and_labels(batch: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(batch, list | tuple) or len(batch) != 2 or not all(isinstance(part, Tensor) for part in batch):
        raise UsageError(f"gradient capture needs batches (inputs [n, d], labels [n]), got {type(batch).__name__}")
    inputs, labels = batch
    return inputs, labels
