"""Findings of the doctor's checks, and the facts that the checks start from."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class State(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table.

    Attributes:
        topic: install, devices, memory, data, storage, cluster or attack.
        check: which part of the topic.
        state: a note needs no action, a problem does.
        found: what was found.
        fix: what to do about it; empty where there is nothing to do.
    """

    topic: str
    check: str
    state: State
    found: str
    fix: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """A named check of a topic, which makes its findings.

    >>> Check("data", "adult").note("not here", "lightleak data prepare adult").state
    <State.NOTE: 'note'>
    """

    topic: str
    name: str

    def ok(self, found: str) -> Finding:
        """A finding that all is well."""
        return Finding(self.topic, self.name, State.OK, found)

    def note(self, found: str, fix: str = "") -> Finding:
        """A finding that needs no action."""
        return Finding(self.topic, self.name, State.NOTE, found, fix)

    def problem(self, found: str, fix: str) -> Finding:
        """A finding that needs action."""
        return Finding(self.topic, self.name, State.PROBLEM, found, fix)


@dataclass(frozen=True)
class Facts:
    """The input of all checks.

    Attributes:
        data: folder with one subfolder per dataset; ``None``: where every command looks.
        output: folder that runs would be written to; it need not exist.
        variables: the environment.
        engine: ``ray`` examines a Ray cluster as well.
        ray_address: of the cluster; None takes ``RAY_ADDRESS``, or starts Ray on this machine.
    """

    data: Path | None = None
    output: Path = Path("runs")
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    engine: str = "local"
    ray_address: str | None = None


def has_problem(findings: Iterable[Finding]) -> bool:
    """Whether something needs to be fixed.

    >>> has_problem([Finding("data", "adult", State.NOTE, "not here")])
    False
    """
    return any(finding.state is State.PROBLEM for finding in findings)
