"""`LeakageCallback`: one callback that captures, attacks, logs, and leaves a report, in any Lightning project."""

import math
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import lightning
import pandas as pd
import torch
from rich.console import Console

from lightleak.callbacks.capture_store import Capture
from lightleak.callbacks.module_capture import ModuleCapture, ReadBatch, left_out_words
from lightleak.callbacks.step_recorder import StepRecorder
from lightleak.core.arguments import require_kind, require_path, whole_number
from lightleak.core.errors import DataError, UsageError
from lightleak.core.people import load_people
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.described_inputs import DescribedInputs
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.prepared import PreparedTable
from lightleak.experiments.attack_settings import shares_statistics, with_label_setting
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.kinds.updates.memory import run_updates
from lightleak.experiments.monitor import LeakageMonitor
from lightleak.experiments.results import RESULTS_FILE
from lightleak.experiments.settings import Redact, named_settings, plain

EPOCHS = range(1_000_000)
"""Every epoch of any training: `per_epoch` and ``every`` say how much of it is recorded."""


class LeakageCallback(ModuleCapture):
    """Watches leakage in a training that knows nothing of LightLeak.

    Every ``every`` epochs it records what a client would have sent in the first steps, attacks it, and logs
    ``reconstruction/<attack>/...`` through whatever loggers the Trainer has; at the end it can write a run folder with
    its report. The attacks are `LeakageMonitor`, the record is `ModuleCapture`: training is bit for bit what it is
    without. Under DDP each rank is a client; what is logged and reported is of all ranks. A training that is resumed
    from a checkpoint reports what it captured since.

    Wrong settings are refused before the training begins. Once it has begun, nothing here ends it: every attack is
    checked on the first full batch, before the step is taken, and one that does not apply, or fails later, is left out
    with one warning; the report lists it with the reason.
    """

    def __init__(
        self,
        encoder: TableEncoder | PreparedTable,
        attacks: str | Sequence[str] | Mapping[str, Mapping[str, Any]] = "tableak",
        *,
        network: str | None = None,
        batch: ReadBatch | None = None,
        labels: Literal["true", "restored"] = "true",
        marginals: Marginals | None = None,
        every: int = 1,
        epochs: Collection[int] | None = None,
        per_epoch: int | None = 1,
        max_captures: int = 100,
        output: Path | str | None = None,
        redact: Redact = False,
        seed: int = 0,
        report: Path | str | None = None,
    ) -> None:
        """Choose what is watched.

        Args:
            encoder: describes the network's inputs: what `lightleak.prepare` or `lightleak.describe_inputs` returns.
            attacks: names, or names with settings as in a config.
            network: see `ModuleCapture`.
            batch: see `ModuleCapture`.
            labels: whether attacks are given the labels or restore them.
            marginals: one-way marginals that the server knows. Left out, those of the test rows of a prepared table;
                where there are none, the attack ``random`` guesses by the encoder's statistics.
            every: epochs between two looks.
            epochs: the epochs to look at, 0-based, in place of ``every``.
            per_epoch: updates recorded and attacked in each; None: every one, a smaller last batch too.
            max_captures: no more in the whole training.
            output: run folder for results and report, which must hold no run yet.
            redact: leave true and reconstructed values out of it; ``all`` also keeps no captures in it.
            seed: root seed of the attacks.
            report: old name of ``output``.

        Raises:
            UsageError: an unknown attack or setting, settings that cannot work together, or a folder that holds a run.
        """
        every = whole_number("every", every)
        self._table = encoder if isinstance(encoder, PreparedTable) else None
        if not isinstance(encoder, TableEncoder):
            expected = "a TableEncoder, or the result of lightleak.prepare or lightleak.describe_inputs"
            require_kind("encoder", encoder, PreparedTable, expected)
            marginals = encoder.marginals if marginals is None else marginals
            encoder = encoder.encoder
        elif isinstance(encoder, DescribedInputs) and marginals is None:
            marginals = encoder.marginals
        self.config = _config(attacks, labels, seed, redact)
        super().__init__(
            encoder,
            network=network,
            batch=batch,
            share_labels=labels == "true",
            share_statistics=shares_statistics(self.config),
            marginals=marginals,
            epochs=EPOCHS[::every] if epochs is None else epochs,
            per_epoch=per_epoch,
            max_captures=max_captures,
        )
        self._checked, self._on_trial = False, False
        if report is not None:
            warnings.warn("LeakageCallback(report=...) is now output=...", DeprecationWarning, stacklevel=2)
            output = report if output is None else output
        self.output = None if output is None else require_path("output", output)
        self.monitors = [
            LeakageMonitor(self, name, seed=seed, options=with_label_setting(self.config, name, options))
            for name, options in self.config.attacks.items()
        ]

    @property
    def state_key(self) -> str:
        """Distinguishes several callbacks of one Trainer, by what they attack and where they report it."""
        return f"{super().state_key}{dict(self.config.attacks)}{self.config.seed}{self.output}"

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Refuse what cannot be served; errors as for `GradientCapture`, and for a report folder that is in use."""
        # Accumulated micro-batches have no statistics of their own: what needs them is left out, as any attack.
        self.share_statistics = shares_statistics(self.config) and trainer.accumulate_grad_batches == 1
        super().setup(trainer, pl_module, stage)
        if stage != "fit":
            return
        if self.output is not None and (self.output / RESULTS_FILE).is_file():
            raise UsageError(f"{self.output} holds the report of an earlier training; choose another folder")
        self._checked = False
        for monitor in self.monitors:
            monitor.reset()

    @property
    def people(self) -> pd.DataFrame:
        """One row per attack and person behind the captured updates, as `lightleak.api.Leakage.people`.

        Raises:
            UsageError: there is no ``output``, the training is not over, or the run is redacted.
        """
        if self.output is None:
            raise UsageError("people are written to the run folder: give LeakageCallback an output")
        return load_people(self.output)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Attack what was recorded in this epoch, and log the scores."""
        for monitor in self.monitors:
            monitor.on_train_epoch_end(trainer, pl_module)

    def on_fit_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Write the run folder, of the captures of all ranks; every rank must come here."""
        if self.output is None:
            return
        of_epoch = Counter(taken.update.facts.epoch for taken in self.captured)
        batches = trainer.num_training_batches  # infinite where the loader has no length
        steps = math.ceil(batches / trainer.accumulate_grad_batches) if math.isfinite(batches) else math.inf
        mine = OfRank(
            self.captured,
            bool(of_epoch) and set(of_epoch.values()) == {steps},
            {monitor.attack.name: monitor.found for monitor in self.monitors},
            {monitor.attack.name: monitor.trouble for monitor in self.monitors if monitor.trouble},
            self.left_out,
            self.tried,
        )
        ranks = [mine] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(ranks, mine)
        if trainer.is_global_zero:
            try:
                self._write_report(self.output, ranks)
            except Exception as error:  # what comes after the training, such as saving the network, must not suffer
                warnings.warn(f"no report was written to {self.output}: {error}", stacklevel=2)

    def _begin(self, trainer: lightning.Trainer) -> None:
        """As `ModuleCapture`; until attacks are checked, a step that nobody wants is recorded for that alone."""
        super()._begin(trainer)
        self._on_trial = self._recorder is None and not self._checked and not self.is_over
        if self._on_trial:
            self._recorder = StepRecorder(self._network, self.share_statistics, self._called)

    def _accepts(self, capture: Capture) -> bool:
        if not self._checked:
            self._checked = True
            for monitor in self.monitors:
                monitor.check(capture.update)
        return not self._on_trial and super()._accepts(capture)

    def _write_report(self, folder: Path, ranks: Sequence["OfRank"]) -> None:
        observed = [(taken.update, taken.truth) for one in ranks for taken in one.captured]
        if not observed:
            raise UsageError("no step of the training was captured")
        first = [sum(len(one.captured) for one in ranks[:rank]) for rank in range(len(ranks))]
        known: dict[str, dict[int, Reconstruction]] = {monitor.attack.name: {} for monitor in self.monitors}
        for start, one in zip(first, ranks, strict=True):
            for name, found in one.found.items():
                known[name] |= {start + i: reconstruction for i, reconstruction in found.items()}
        left_out = {name: trouble for one in reversed(ranks) for name, trouble in one.trouble.items()}
        refused, tried = sum(one.refused for one in ranks), sum(one.tried for one in ranks)
        said = f"; {left_out_words(refused, tried)}" if refused else ""
        config = replace(self.config, title=f"{self.config.title}{said}")
        quiet = Console(quiet=True)
        settings: dict[str, Any] = {"known": known, "pass_over": True, "left_out": left_out, "is_replayed": True}
        settings |= {"is_whole": all(one.is_whole for one in ranks)}
        try:
            run_updates(observed, config, folder, (), quiet, table=self._table, **settings)
        except DataError:  # trained on other rows than those of the table: then people are known by their rows alone
            run_updates(observed, config, folder, (), quiet, **settings)


@dataclass(frozen=True)
class OfRank:
    """What one process brings to the report.

    Attributes:
        captured: its captures.
        is_whole: they are all updates of the epochs that they are from.
        found: by attack, what was found, by number of the capture.
        trouble: by attack, why it was left out, where it was.
        refused: steps that were recorded and not captured.
        tried: steps that were recorded.
    """

    captured: Sequence[Capture]
    is_whole: bool
    found: Mapping[str, Mapping[int, Reconstruction]]
    trouble: Mapping[str, str]
    refused: int
    tried: int


def _config(attacks: Any, labels: str, seed: int, redact: Redact) -> AuditConfig:
    chosen = named_settings("attacks", list(attacks) if isinstance(attacks, tuple) else attacks)
    tree = {
        "data": {"name": "training"},
        "attacks": {name: plain(options) for name, options in chosen.items()},
        "labels": labels,
        "seed": seed,
        "redact": redact,
        "workers": 1,
        "device": "cpu",
        "title": "Leakage of a training",
    }
    return AuditConfig.parse(tree)
