"""What --plan prints of a vertical audit."""

import io
from typing import Any

from rich.console import Console

from lightleak.experiments.plan_text import describe_plan


def test_a_plan_estimates_time_and_memory_of_split_trainings(small: Any) -> None:
    console = Console(file=io.StringIO(), width=200)
    describe_plan(small(), console, seconds=0.1)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    (line,) = (line for line in said.splitlines() if line.startswith("training, passive"))
    assert "MiB" in line or "–" in line
    assert " of this run, without its start" in said
