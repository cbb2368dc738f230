"""What a kind of audit supplies. Loading, running, resuming, attacking captures and redacting is done once for all."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from rich.console import Console

from lightleak.experiments.engine import Engine
from lightleak.experiments.pack import Pack
from lightleak.experiments.probe import RunPlan
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.terminal import Lines

C = TypeVar("C", bound=RunConfig)
W = TypeVar("W")

Rows = list[dict[str, Any]]

KINDS: "dict[str, Kind[Any, Any]]" = {}
"""Kinds by name, in the order of their definition."""


@dataclass(frozen=True)
class Stage:
    """Packs of a run; all of them end before the next stage begins.

    Attributes:
        packs: the work.
        noun: what the units are called where progress is shown.
        has_rows: whether the units hold rows of results.json.
    """

    packs: Sequence[Pack]
    noun: str
    has_rows: bool = True


@dataclass(frozen=True)
class Checked(Generic[C, W]):
    """A config that can be served.

    Attributes:
        config: without the attacks that are left out.
        world: what was made for the check and is used again, such as the table.
        left_out: why attacks do not apply, by name.
    """

    config: C
    world: W
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """A run that has been checked.

    Attributes:
        stages: makes its stages, in a run folder for an engine.
        notes: what the user should know before it begins.
        left_out: why attacks do not apply, by name.
    """

    stages: Callable[[Path, Engine], Iterable[Stage]]
    notes: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


class Kind(ABC, Generic[C, W]):
    """A kind of audit: the plug-in behind ``kind`` in a config.

    Attributes:
        name: as configs name it.
        config: class of its config.
        keys: columns that identify a group of the summary, in addition to `results.GROUP_KEYS`.
        per: see `lightleak.core.summary.summarize_rows`.
        private: folders of a run that a redacted run does not keep.
    """

    name: ClassVar[str]
    config: ClassVar[type[RunConfig]]
    keys: ClassVar[tuple[str, ...]] = ()
    per: ClassVar[str | None] = None
    private: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Register the kind."""
        KINDS[cls.name] = cls()

    @abstractmethod
    def check(self, config: C, pass_over: bool = False) -> Checked[C, W]:
        """Try everything that could fail in the middle of a run.

        Args:
            config: the experiment.
            pass_over: leave attacks out that do not apply instead of refusing the config, unless none applies.

        Raises:
            UsageError: what cannot be served, and why.
        """

    @abstractmethod
    def stages(self, checked: Checked[C, W], folder: Path, engine: Engine, console: Console) -> Iterator[Stage]:
        """Yield the stages of a run; what belongs between two of them is done when the later one is asked for."""

    @abstractmethod
    def captured(self, config: C, root: Path) -> Ready:
        """Find the captures below ``root`` and check every attack on them; errors as for `check`."""

    @abstractmethod
    def plan(self, checked: Checked[C, W], device: torch.device) -> RunPlan:
        """What a run would do and take, without doing it."""

    @abstractmethod
    def tables(self, results: Mapping[str, Any]) -> Iterable[Lines]:
        """The results as tables for a terminal; none where nothing is finished."""

    def take_part(self, checked: Checked[C, W], folder: Path) -> None:
        """Join a training on several devices as a process that a launcher started in addition to the first."""

    def rows(self, rows: Rows) -> Rows:
        """Rows of results.json, from the rows of the finished units."""
        return rows

    def findings(self, folder: Path) -> Mapping[str, Any]:
        """Return further keys of results.json, from the files of the run folder."""
        return {}

    def leave(self, folder: Path, rows: Rows) -> None:
        """Write the files of a run folder that the report reads in addition to results.json."""
