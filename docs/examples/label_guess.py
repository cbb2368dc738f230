"""A kind of audit: how often the commonest label is right, which no attack on labels should fall below."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

import torch
from rich.console import Console

from lightleak.core.bounds import bounded
from lightleak.core.errors import UsageError
from lightleak.core.results import SHARE, Row, Share
from lightleak.data.table import Table
from lightleak.experiments.config import TableSource
from lightleak.experiments.engine import Engine
from lightleak.experiments.experiment import load_source
from lightleak.experiments.kind import Checked, Kind, Stage
from lightleak.experiments.pack import Pack
from lightleak.experiments.probe import Probed, RunPlan
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.terminal import Column, Lines, percent
from lightleak.experiments.unit import unit_file, write_whole
from lightleak.report.blocks import Page, Section
from lightleak.report.format import percent as share
from lightleak.report.read import Run


@dataclass(frozen=True, kw_only=True)
class LabelConfig(RunConfig):
    """A whole audit: what is read from the config and checked.

    Attributes:
        data: the table.
        rows: training rows that are counted; all by default.
        kind: what is audited.
        title: heading of the report.
        seed: of the split, where the table has none of its own.
        device: not used.
    """

    data: TableSource
    rows: int | None = bounded(None, ge=1)
    kind: Literal["label-guess"] = "label-guess"
    title: str = "Guessing labels"
    seed: int = 0
    device: str = "cpu"
    workers: int = bounded(1, ge=0)
    gpus_per_pack: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LabelRow(Row):
    """One guess.

    Attributes:
        label: the commonest label.
    """

    KIND: ClassVar[str] = "label-guess"
    METRICS: ClassVar[Mapping[str, Share]] = {"accuracy": SHARE}

    label: str | None = None


@dataclass(frozen=True)
class LabelPack(Pack):
    """The work: one unit, which leaves one row."""

    config: LabelConfig
    table: Table
    ids: Sequence[str] = ("commonest",)
    cost: float = 1.0

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Count, and write the row."""
        labels = self.table.train[self.table.schema.label.name].astype(str)[: self.config.rows]
        counts = labels.value_counts(normalize=True)
        row = LabelRow(
            unit=self.ids[0],
            attack="commonest_label",
            dataset=self.table.card.name,
            seconds=0.0,
            label=counts.index[0],
            metrics={"accuracy": float(counts.iloc[0])},
        )
        write_whole(unit_file(folder, self.ids[0]), json.dumps(row.to_dict()))
        report(self.cost)


class LabelKind(Kind[LabelConfig, Table]):
    """What the spine asks of a kind; running, resuming and reporting is done for it."""

    name = "label-guess"
    config = LabelConfig

    def check(self, config: LabelConfig, pass_over: bool = False) -> Checked[LabelConfig, Table]:
        """Read the table, and refuse what would fail later."""
        table = load_source(config.data, config.seed)
        if config.rows is not None and config.rows > len(table.train):
            raise UsageError(f"rows must be at most {len(table.train)} (training rows), got {config.rows}")
        return Checked(config, table)

    def stages(
        self, checked: Checked[LabelConfig, Table], folder: Path, engine: Engine, console: Console
    ) -> Iterator[Stage]:
        """One stage of one pack."""
        yield Stage([LabelPack(checked.config, checked.world)], "guesses")

    def captured(self, config: LabelConfig, root: Path) -> NoReturn:
        """Refuse: there is nothing to capture."""
        raise UsageError("an audit of label-guess attacks no captures")

    def plan(self, checked: Checked[LabelConfig, Table], device: torch.device) -> RunPlan:
        """What `--plan` prints."""
        return RunPlan([("table", checked.world.card.name)], lambda seconds: Probed([]))

    def tables(self, results: Mapping[str, Any]) -> Iterator[Lines]:
        """The table on the terminal."""
        cells = [[row["label"], percent(row["accuracy"], "%")] for row in results["rows"]]
        yield Lines(["the commonest label"], [Column("label", is_number=False), Column("right")], cells)


def page(runs: Sequence[Run], redact: bool) -> Page:
    """The report; of a kind that ships with LightLeak it would be a module of `lightleak.report.kinds`."""
    rows = [row for run in runs for row in run.of(LabelRow)]
    found = [f"{row.label} is right for {share(row.number('accuracy'))} of {row.dataset}'s rows." for row in rows]
    subject = ", ".join(str(row.dataset) for row in rows)
    return Page("Guessing labels", subject, [Section("summary", "Summary", found)])
