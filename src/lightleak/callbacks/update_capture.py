"""`UpdateCapture`: records, while a federation trains, what its server receives."""

import warnings
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning

from lightleak.callbacks.capture_schedule import RoundSchedule
from lightleak.callbacks.capture_store import Capture, destination, require_unused
from lightleak.callbacks.capture_support import is_continued
from lightleak.core.errors import ObservationError, UsageError
from lightleak.data.marginals import Marginals
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.fedavg import Encoding, ShareLabels, Sharing, observe
from lightleak.protocols.federation import FederatedAveraging, Round
from lightleak.protocols.records import RecordedAggregate


class UpdateCapture(lightning.Callback):
    """Records chosen clients of chosen rounds of `FederatedAveraging` as `ClientUpdate` and truth.

    Nothing is recomputed or changed, so training stays bit-identical. With ``aggregate`` a capture is the
    mean over several clients, with their count: over those of one secure aggregate where the federation forms such,
    else over all clients of the round. An update that is not finite is left out with a warning; training continues.

    Attributes:
        captured: the captures in order, where ``keep`` asks for them.
    """

    def __init__(
        self,
        encoder: Encoding,
        *,
        share_labels: ShareLabels,
        share_buffers: bool = True,
        marginals: Marginals | None = None,
        root: Path | str | None = None,
        keep: bool = False,
        rounds: Collection[int],
        per_round: int = 1,
        clients: Collection[int] = (),
        aggregate: bool = False,
        max_captures: int = 100,
        overwrite: bool = False,
    ) -> None:
        """Choose what is recorded and what it shares.

        Args:
            encoder: the fitted encoder of the clients' rows, part of what the server knows.
            share_labels: see `Sharing`.
            share_buffers: updates carry the network's buffers before the round.
            marginals: one-way marginals that the server knows.
            root: captures are written here, one folder each (`Capture.save`).
            keep: keep captures in memory, in ``captured``.
            rounds: see `RoundSchedule`.
            per_round: see `RoundSchedule`.
            clients: see `RoundSchedule`.
            aggregate: record aggregates instead of single clients.
            max_captures: see `RoundSchedule`.
            overwrite: ``root`` may hold captures as a training begins, and keeps those of other rounds. Left out, they
                are refused unless the training resumes from a checkpoint with the state of this capture.

        Raises:
            UsageError: settings that cannot work together, or an encoder that is not fitted.
        """
        super().__init__()
        self.root = destination(root, keep)
        if aggregate and len(clients):
            raise UsageError(f"clients chooses single updates, got clients {list(clients)[:5]} with aggregate=True")
        self.schedule = RoundSchedule(rounds, per_round, clients, max_captures)
        self.sharing = Sharing(encoder, share_labels, share_buffers, marginals)
        encoder.to_state()  # refuses an encoder that is not fitted
        self.keep, self.aggregate, self.overwrite = keep, aggregate, overwrite
        self.captured: list[Capture] = []
        self._taken, self._told_full = 0, False
        self._restored = False  # by a checkpoint of a training that was recorded with the same settings

    @property
    def state_key(self) -> str:
        """Distinguishes several captures in one checkpoint."""
        shares = (self.sharing.labels, self.sharing.buffers, self.aggregate)
        return self._generate_state_key(root=str(self.root), schedule=repr(self.schedule), shares=shares)

    def state_dict(self) -> dict[str, Any]:
        """How much was captured, so that a resumed run keeps to ``max_captures``."""
        return {"taken": self._taken}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._taken, self._restored = state_dict["taken"], True

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Begin anew, and check that this module and these settings are supported.

        Raises:
            UsageError: another module than `FederatedAveraging`, another encoder than the network's, single updates
                where the server receives aggregates, or a client that does not exist.
        """
        if stage != "fit":
            return
        self.captured = []
        self._taken, self._told_full, self._restored = 0, False, False
        module = _federation(pl_module)
        layout = getattr(self.sharing.encoder, "layout", None)
        assert module.spec is not None  # a federation is always built from a specification
        if layout is not None:
            module.spec.require_layout(layout)
        if module.group_size is not None and not self.aggregate:
            raise UsageError(
                f"behind secure aggregation in groups of {module.group_size} the server receives no single update; "
                "use aggregate=True"
            )
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if odd := [client for client in self.schedule.clients if client >= len(data.partition)]:
            raise UsageError(f"clients must be numbers below {len(data.partition)}, got {odd[:5]}")

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Check the folder.

        Raises:
            UsageError: it holds captures of an earlier training.
        """
        if not (self.overwrite or self._restored or is_continued(trainer)):
            require_unused(self.root)

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record what the schedule wants of the round that has just ended."""
        module = _federation(pl_module)
        done = module.round
        if done is None or done.number not in self.schedule.rounds:
            return
        for rank, positions in self._wanted(done):
            if self._taken >= self.schedule.max_captures:
                self._tell_full(done.number)
                return
            try:
                self._take(module, done, rank, positions)
            except ObservationError as error:
                warnings.warn(f"an update of round {done.number} was not captured: {error}", stacklevel=2)

    def _wanted(self, done: Round) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Rank of each capture of a round, and the positions of its clients."""
        if self.aggregate:
            groups = done.groups or (tuple(range(len(done.clients))),)
            yield from list(enumerate(groups))[: self.schedule.per_round]
        else:
            for client in self.schedule.choose(done.clients):
                yield client, (done.clients.index(client),)

    def _take(self, module: FederatedAveraging, done: Round, rank: int, positions: tuple[int, ...]) -> None:
        assert module.spec is not None  # a federation is always built from a specification
        data: Any = module.trainer.datamodule  # type: ignore[attr-defined]
        pairs = []
        for i in positions:
            update, truth = observe(done.runs[i], module.spec, self.sharing, epoch=done.number, step=done.number)
            pairs.append((update, replace(truth, ids=data.rows_of_client(done.clients[i]))))
        if self.aggregate:
            update = aggregate_updates([update for update, _ in pairs])
            capture = Capture(update, RecordedAggregate.of([truth for _, truth in pairs]), rank)
        else:
            capture = Capture(*pairs[0], rank)
        self._taken += 1
        if self.keep:
            self.captured.append(capture)
        if self.root is not None:
            capture.save(self.root)

    def _tell_full(self, number: int) -> None:
        if not self._told_full:
            self._told_full = True
            warnings.warn(f"max_captures={self._taken} reached: no capture from round {number} on", stacklevel=2)


def _federation(module: lightning.LightningModule) -> FederatedAveraging:
    if not isinstance(module, FederatedAveraging):
        raise UsageError(f"update capture needs a FederatedAveraging, got {type(module).__name__}; see GradientCapture")
    return module
