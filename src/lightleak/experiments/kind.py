"""What a kind of audit supplies. Loading, running, resuming, attacking captures and redacting is done once for all."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from rich.console import Console

from lightleak.experiments.campaign import Pack, PackPlan
from lightleak.experiments.settings import RunConfig

C = TypeVar("C", bound=RunConfig)
W = TypeVar("W")

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Stage:
    """Packs of a run; all of them end before the next stage begins.

    Attributes:
        packs: what is to be done.
        noun: what the units are called where progress is shown.
        plan: makes the same packs in a worker process; needed where the packs themselves cannot be pickled.
        has_rows: whether the units hold rows of results.json.
    """

    packs: Sequence[Pack]
    noun: str
    plan: PackPlan | None = None
    has_rows: bool = True

    @property
    def ids(self) -> list[str]:
        """Ids of all units, in the order of the plan."""
        return [id for pack in self.packs for id in pack.ids]

    @property
    def worker_plan(self) -> PackPlan:
        """The plan as a worker process receives it."""
        return self.plan or partial(_given, self.packs)


def _given(packs: Sequence[Pack], device: torch.device) -> Sequence[Pack]:
    return packs


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
class Captured:
    """Captures that an offline attack can serve.

    Attributes:
        stages: makes the stages that attack them, in a run folder on a device.
        notes: what the user should know of the captures.
        left_out: why attacks do not apply, by name.
    """

    stages: Callable[[Path, torch.device], Iterable[Stage]]
    notes: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


class Kind(ABC, Generic[C, W]):
    """A kind of audit: the plug-in behind ``kind`` in a config.

    Attributes:
        name: as configs name it.
        config: class of its config.
        keys: columns, besides those of `results.GROUP_KEYS`, on which rows of one group of the summary agree.
        per: see `lightleak.metrics.summary.summarize_rows`.
        private: folders of a run that a redacted run does not keep.
    """

    name: ClassVar[str]
    config: ClassVar[type[RunConfig]]
    keys: ClassVar[tuple[str, ...]] = ()
    per: ClassVar[str | None] = None
    private: ClassVar[tuple[str, ...]] = ()

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
    def stages(self, checked: Checked[C, W], folder: Path, device: torch.device, console: Console) -> Iterator[Stage]:
        """The stages of a run; what belongs between two of them is done when the later one is asked for."""

    @abstractmethod
    def captured(self, config: C, root: Path, pass_over: bool = False) -> Captured:
        """Find the captures below ``root`` and check every attack on them; arguments and errors as for `check`."""

    @abstractmethod
    def describe(self, config: C, console: Console) -> None:
        """Print what a run would do and take, without doing it."""

    @abstractmethod
    def print_summary(self, results: Mapping[str, Any], console: Console) -> None:
        """Print the results as a table for a terminal."""

    def rows(self, rows: Rows) -> Rows:
        """Rows of results.json, from the rows of the finished units."""
        return rows

    def leave(self, folder: Path, rows: Rows) -> None:
        """Write the files of a run folder that the report reads besides results.json."""
