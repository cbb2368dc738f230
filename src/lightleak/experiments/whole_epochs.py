"""A training that is interrupted and resumed as if it had not been: seeds by epoch, and epochs kept whole."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import lightning
import pandas as pd
import torch

from lightleak.core.seeds import derive_seed
from lightleak.core.stored import write_whole


class WholeEpochs(lightning.Callback):
    """Ctrl-C between an epoch's checkpoint and the logging of its metrics would lose the latter: it waits that long."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._asked = False

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Keep Ctrl-C waiting."""
        # The checkpoint follows: Lightning calls it after all other callbacks. Only the main thread may set handlers.
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _release(self, *_: object, **__: object) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C has been waiting, and let later ones through."""
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    on_train_epoch_start = on_train_end = _release
    teardown = _release  # also after an error


class SeedEveryEpoch(lightning.Callback):
    """Dropout of an epoch depends on the root seed and the epoch alone: a resumed run repeats it bit for bit."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Seed the global generator."""
        torch.manual_seed(derive_seed(self.seed, "epoch", trainer.current_epoch, trainer.global_rank))


@contextmanager
def metrics_of_all_epochs(folder: Path) -> Iterator[None]:
    """Lightning begins ``metrics.csv`` anew when it resumes; keep the epochs that are not repeated."""
    file, kept = folder / "metrics.csv", folder / "checkpoints" / "metrics.csv"
    _join(kept, file, into=kept)
    try:
        yield
    finally:
        _join(kept, file, into=file)


def _join(earlier: Path, later: Path, into: Path) -> None:
    """Write the rows of both; where both hold an epoch, those of the later."""
    first, second = _read(earlier), _read(later)
    found = [first if second is None or first is None else first[~first["epoch"].isin(second["epoch"])], second]
    frames = [frame for frame in found if frame is not None]
    if frames:
        write_whole(into, pd.concat(frames).fillna("").to_csv(index=False))


def _read(path: Path) -> pd.DataFrame | None:
    """Metrics by epoch, as they were written, so that NaN is no empty cell; ``None`` where there are none.

    A last line that a kill or a full disk cut off is left out.
    """
    if not path.is_file():
        return None
    whole, _, _ = path.read_text(encoding="utf-8", errors="replace").rpartition("\n")
    try:
        found = pd.read_csv(StringIO(whole), dtype=str, keep_default_na=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError):
        return None
    return found if "epoch" in found else None
