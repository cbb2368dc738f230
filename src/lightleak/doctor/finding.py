"""What a check of the doctor says."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class State(StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table.

    Attributes:
        topic: what is examined: install, devices, memory, data, storage, launcher, attack.
        check: which part of it.
        state: whether it is as it should be; a note needs no action, a problem does.
        found: what is there.
        mend: what to do about it; empty where nothing is to be done.
    """

    topic: str
    check: str
    state: State
    found: str
    mend: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True)
class Facts:
    """What the checks of all topics start from.

    Attributes:
        data: folder with one subfolder per dataset; ``None``: where every command looks.
        output: folder that runs would be written to; it need not exist.
        variables: the environment.
    """

    data: Path | None
    output: Path
    variables: Mapping[str, str]


def has_problem(findings: Iterable[Finding]) -> bool:
    """Whether something needs to be mended.

    >>> has_problem([Finding("data", "adult", State.NOTE, "not here")])
    False
    """
    return any(finding.state is State.PROBLEM for finding in findings)
