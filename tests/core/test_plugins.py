"""Files and modules of one's own are loaded once, and what fails is named."""

import os
import sys
from pathlib import Path

import pytest

from lightleak.core.errors import UsageError
from lightleak.core.plugins import PLUGINS, load_plugins


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a file that counts how often it is run, and names it in the variable."""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.syspath_prepend(str(tmp_path))
    named: list[str] = []

    def make(name: str, content: str = "", module: bool = False) -> Path:
        file = tmp_path / f"{name}.py"
        file.write_text(f"open({str(tmp_path / name)!r}, 'a').write('.')\n{content}")
        named.append(name if module else str(file))
        monkeypatch.setenv(PLUGINS, os.pathsep.join(named))
        return tmp_path / name

    return make


def test_each_is_run_once(write, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = write("of_a_file"), write("of_a_module", module=True)
    load_plugins()
    load_plugins()
    assert first.read_text() == second.read_text() == "."
    monkeypatch.delenv(PLUGINS)
    load_plugins()


def test_what_fails_is_named_and_leaves_nothing(write) -> None:
    write("broken", "1 / 0")
    with pytest.raises(
        UsageError, match=r"LIGHTLEAK_PLUGINS: .*broken.py' cannot be loaded \(ZeroDivisionError"
    ) as told:
        load_plugins()
    assert str(told.value).endswith("; fix it, or remove it from LIGHTLEAK_PLUGINS")
    assert "broken" not in sys.modules


@pytest.mark.parametrize(
    ("named", "fix"),
    [
        ("nosuch.py", "; name the file by a path that exists from here"),
        ("no.such.module", "; install it or put its folder on PYTHONPATH"),
        ("lightleak.nosuch", "; install it or put its folder on PYTHONPATH"),
    ],
)
def test_what_is_not_there_is_named_with_its_fix(named: str, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLUGINS, named)
    with pytest.raises(UsageError, match=f"'{named}' cannot be loaded.*{fix}"):
        load_plugins()


def test_a_module_that_lacks_another_is_to_be_fixed(write) -> None:
    write("needs", "import no_such_package", module=True)
    with pytest.raises(UsageError, match=r"No module named 'no_such_package'.*; fix it"):
        load_plugins()


def test_a_file_that_hides_a_module_is_refused(write) -> None:
    write("json")
    with pytest.raises(UsageError, match="a module 'json' is loaded already"):
        load_plugins()


def test_files_are_found_from_other_folders_afterwards(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes start in another folder than the one that relative paths are about."""
    write("of_a_file"), write("of_a_module", module=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PLUGINS, os.pathsep.join(["of_a_file.py", "of_a_module"]))
    load_plugins()
    assert os.environ[PLUGINS].split(os.pathsep) == [str(tmp_path / "of_a_file.py"), "of_a_module"]
