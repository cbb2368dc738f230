"""Packs that a test's workers import as a user's plugin; read by test_engine.py and test_ray_engine.py."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lightleak.experiments.pack import Pack, Shared
from lightleak.experiments.unit import unit_file


class Table(Shared):
    """What several packs refer to."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


@dataclass(frozen=True)
class Worked(Pack):
    """Writes down its process, the rows of a table and its input; dies if it is told to."""

    name: str
    table: Table | None = None
    deadly: Path | None = None

    @property
    def ids(self) -> Sequence[str]:
        return [self.name]

    @property
    def cost(self) -> float:
        return 1.0

    def inputs(self, folder: Path) -> dict[str, Path]:
        return {"given": folder / "given"} if (folder / "given").exists() else {}

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        report(0.5)
        if self.deadly is not None and not self.deadly.exists():
            if self.deadly.name == "once":
                self.deadly.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        read = (folder / "given" / "file.txt").read_text() if (folder / "given").exists() else None
        (folder / "notes").mkdir(exist_ok=True)
        (folder / "notes" / f"{self.name}.txt").write_text(self.name)
        facts = {
            "pid": os.getpid(),
            "rows": self.table and self.table.rows,
            "read": read,
            "threads": torch.get_num_threads(),
            "told": os.environ.get("TOLD"),
        }
        unit_file(folder, self.name).write_text(json.dumps(facts))


@dataclass(frozen=True)
class Fails(Worked):
    """Fails."""

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        raise ValueError("damaged")
