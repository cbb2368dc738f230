"""`IntermediateCapture`: records, while a split network trains, what one party of vertical federated learning sees."""

import math
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import lightning
import torch
from torch import Tensor

from lightleak.callbacks.intermediate_records import CHUNK_ROWS, EpochRecords, gather_records
from lightleak.core.errors import UsageError
from lightleak.core.parties import VISIBLE, Adversary, Kind
from lightleak.core.stored import FOLDER_MODE
from lightleak.targets.split import Exchange, SplitClassifier

MIN_WINDOW_ROWS = 4096  # fewer would write a file at every other step


class IntermediateCapture(lightning.Callback):
    """Records AO, AG, VO and VG of every record in chosen epochs (ProVFL Sec. III-B); training stays bit-identical.

    What the adversary cannot see is never copied: a passive adversary (C2) has AO alone. Records are taken from
    `SplitClassifier.exchange` after each step: outputs are those before the step's update, the victim's after a defense
    and the adversary's own before it; gradients carry the 1/batch of the mean loss.

    Records are kept in memory up to a budget and in files beyond it. Under DDP each rank records its own batches, and
    at the end of the epoch every rank gets the records of all. A record that came more than once in an epoch is kept as
    it came first.
    """

    def __init__(
        self,
        adversary_party: int,
        victim_party: int,
        adversary: Adversary,
        epochs: Collection[int],
        memory_bytes: int = 2**30,
        folder: Path | str | None = None,
    ) -> None:
        """Choose what is recorded.

        Args:
            adversary_party: index of the party whose outputs and gradients are AO and AG.
            victim_party: index of the party whose outputs and gradients are VO and VG.
            adversary: ``C1`` (active) or ``C2`` (passive); decides what is recorded.
            epochs: epochs to record, from 0.
            memory_bytes: bound on the vectors kept in memory, apart from a window of 4,096 records for the epoch that
                is being written; ordering an epoch takes one kind more for a moment.
            folder: where epochs beyond it are written, in files readable by their owner only.

        Raises:
            UsageError: a setting outside its domain.
        """
        super().__init__()
        if adversary not in VISIBLE:
            raise UsageError(f"adversary must be one of {', '.join(VISIBLE)}, got {adversary!r}")
        if adversary_party == victim_party:
            raise UsageError(f"adversary_party and victim_party must differ, got {victim_party} for both")
        if min(adversary_party, victim_party) < 0:
            raise UsageError(f"parties are counted from 0, got {min(adversary_party, victim_party)}")
        if not epochs or min(epochs) < 0:
            raise UsageError(f"epochs must name at least one epoch, counted from 0; got {sorted(epochs)}")
        if memory_bytes < 0:
            raise UsageError(f"memory_bytes must be at least 0, got {memory_bytes}")
        self.adversary_party, self.victim_party, self.adversary = adversary_party, victim_party, adversary
        self.epochs = tuple(sorted(set(epochs)))
        self.memory_bytes = memory_bytes
        self.folder = None if folder is None else Path(folder)
        self.kinds: tuple[Kind, ...] = VISIBLE[adversary]
        self._done: dict[int, EpochRecords] = {}
        self._open: EpochRecords | None = None
        self._planned = False
        # One slice of the exchange's parties holds exactly those recorded, lower index first.
        seen = {"A": adversary_party} if adversary == "C2" else {"A": adversary_party, "V": victim_party}
        letters = sorted(seen, key=lambda letter: seen[letter])
        held = sorted(seen.values())
        self._slice = slice(held[0], held[-1] + 1, max(1, held[-1] - held[0]))
        self._own = letters.index("A")
        self._with_gradients = "AG" in self.kinds
        self._parts = [[f"{letter}{what}" for letter in letters] for what in ("OG" if self._with_gradients else "O")]

    def results(self, epoch: int) -> tuple[Tensor, dict[Kind, Tensor]]:
        """Ids ``[n]``, ascending, and by kind the vectors ``[n, width]``, on the CPU.

        Raises:
            UsageError: the epoch was not recorded.
        """
        if epoch not in self._done:
            known = ", ".join(map(str, self._done)) or "none"
            raise UsageError(f"epoch {epoch} was not recorded; recorded: {known}")
        records = self._done[epoch]
        vectors = records.vectors()
        return records.ids, {kind: vectors[kind] for kind in self.kinds}

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Refuse a module or a run that cannot be recorded, and forget an earlier run.

        Raises:
            UsageError: no `SplitClassifier`, no such party, or an epoch that the run does not have.
        """
        if not isinstance(pl_module, SplitClassifier):
            raise UsageError(f"IntermediateCapture records a SplitClassifier, got {type(pl_module).__name__}")
        n_parties = len(pl_module.network.spec.widths)
        for name, party in (("adversary_party", self.adversary_party), ("victim_party", self.victim_party)):
            if party >= n_parties:
                raise UsageError(f"{name} must be below {n_parties}, the number of parties; got {party}")
        last = math.inf if trainer.max_epochs in (None, -1) else trainer.max_epochs
        if missed := [epoch for epoch in self.epochs if not trainer.current_epoch <= epoch < last]:
            raise UsageError(f"epochs {missed} cannot be recorded: the run has {trainer.current_epoch} to {last - 1}")
        self._done, self._open, self._planned = {}, None, False

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Open the epoch's records, and before the first step of all see that they will fit.

        Raises:
            UsageError: they would exceed the budget and there is no folder, or the folder cannot hold them; a chosen
                epoch is entered half-way.
        """
        if self._planned and (self._open is not None or trainer.current_epoch not in self.epochs):
            return
        assert isinstance(pl_module, SplitClassifier)
        n_local = trainer.num_training_batches * len(batch[-1])
        dtype, width = next(pl_module.network.parameters()).dtype, pl_module.network.spec.output_width
        if not self._planned:
            self._plan(n_local * trainer.world_size, width * dtype.itemsize * len(self.kinds))
        if trainer.current_epoch in self.epochs:
            if batch_idx:
                raise UsageError(
                    f"epoch {trainer.current_epoch} cannot be recorded: it was entered at step {batch_idx}"
                )
            self._open = self._new(trainer, n_local, width, dtype, "part" if trainer.world_size > 1 else "all")

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record the step."""
        if self._open is None:
            return
        exchange = cast(Exchange, pl_module.exchange)
        outputs = exchange.outputs[self._slice]
        if exchange.computed is not exchange.outputs:  # with a defense, the adversary knows its own outputs before it
            outputs = outputs.clone()
            outputs[self._own] = exchange.computed[self.adversary_party]
        self._open.add(exchange.ids, outputs, *((exchange.gradients[self._slice],) if self._with_gradients else ()))

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Order the epoch's records; under DDP first bring those of all ranks together."""
        if self._open is None:
            return
        local, self._open = self._open, None
        if trainer.world_size == 1:
            local.finish()
            self._done[trainer.current_epoch] = local
            return

        def gather(tensor: Tensor) -> Tensor:
            return cast(Tensor, pl_module.all_gather(tensor.to(pl_module.device))).cpu()

        n_all = int(gather(torch.tensor(len(local))).sum())
        merged = self._new(trainer, n_all, local.width, local.dtype, "all")
        gather_records(local, merged, gather)
        local.remove()
        self._done[trainer.current_epoch] = merged

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Report chosen epochs that the training did not reach.

        Raises:
            UsageError: a chosen epoch was not reached.
        """
        if missed := [epoch for epoch in self.epochs if epoch not in self._done]:
            raise UsageError(f"epochs {missed} were not recorded: training ended after {trainer.current_epoch} epochs")

    def _plan(self, n_records: float, record_bytes: int) -> None:
        """Refuse, before anything is trained, what memory and folder together cannot hold."""
        self._planned = True
        needed = n_records * record_bytes * len(self.epochs)
        if needed <= self.memory_bytes:
            return
        if self.folder is None:
            raise UsageError(
                f"recording {len(self.epochs)} epochs needs {needed:,} bytes and memory_bytes is "
                f"{self.memory_bytes:,}; give a folder to write the rest to, or fewer epochs"
            )
        try:
            self.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise UsageError(f"capture cannot write to {self.folder}: {error.strerror or error}") from error
        if needed - self.memory_bytes > free and needed < math.inf:
            raise UsageError(
                f"recording needs {needed - self.memory_bytes:,} bytes in {self.folder}, and {free:,} are free"
            )

    def _new(
        self, trainer: lightning.Trainer, n_records: float, width: int, dtype: torch.dtype, name: str
    ) -> EpochRecords:
        """Empty records: in memory where what the budget has left is enough, else with a window and files."""
        record_bytes = width * dtype.itemsize * len(self.kinds)
        held = sum(len(done) for done in self._done.values() if not done.on_disk) * record_bytes
        room = max(0, self.memory_bytes - held) // record_bytes
        fits = n_records <= room
        limit = room if fits else min(max(room, MIN_WINDOW_ROWS), CHUNK_ROWS)
        file = self.folder and self.folder / f"epoch-{trainer.current_epoch:03d}-{name}-r{trainer.global_rank}"
        return EpochRecords(self._parts, width, dtype, int(min(n_records, limit)), limit, file, keep=fits)
