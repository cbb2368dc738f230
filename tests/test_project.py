"""The installed package as a whole."""

import importlib.metadata
import runpy
import subprocess
import sys
from types import ModuleType

import pytest

import lightleak


def test_version_is_that_of_the_metadata() -> None:
    assert lightleak.__version__ == importlib.metadata.version("lightleak")


@pytest.mark.parametrize("heavy", ["torch", "lightning", "pandas", "matplotlib"])
def test_importing_the_package_loads_nothing_heavy(heavy: str) -> None:
    program = f"import lightleak, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_module_exits_with_the_code_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    cli = ModuleType("lightleak.cli")
    monkeypatch.setattr(cli, "main", lambda: 2, raising=False)
    monkeypatch.setitem(sys.modules, "lightleak.cli", cli)
    with pytest.raises(SystemExit) as exit_info:
        runpy.run_module("lightleak", run_name="__main__")
    assert exit_info.value.code == 2


def test_console_script_and_module_share_one_entry_point() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="lightleak")
    assert script.value == "lightleak.cli:main"
