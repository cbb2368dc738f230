"""Every benchmark can be run: what it imports from the package is there."""

import ast
import importlib
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_a_benchmark_imports_is_there(file: Path) -> None:
    found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    for node in found:
        if (module := node.module or "").startswith("lightleak"):
            for alias in node.names:
                assert hasattr(importlib.import_module(module), alias.name), f"{module} has no {alias.name}"


def test_there_are_benchmarks() -> None:
    assert len(FILES) > 20
