"""User files that register attacks, tables, networks or defenses; every process loads them first."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from lightleak.core.errors import UsageError

PLUGINS = "LIGHTLEAK_PLUGINS"
"""Variable that names the files or modules, separated as in PATH; worker processes and other ranks inherit it."""


def load_plugins() -> None:
    """Run the files (``my_attack.py``) and import the modules (``package.attacks``) that `PLUGINS` names, each once.

    The variable then names files by absolute paths, for processes that start in another folder.

    Raises:
        UsageError: one that does not exist or fails; the message names it, the reason and a fix.
    """
    entries = [named for named in os.environ.get(PLUGINS, "").split(os.pathsep) if named]
    for named in entries:
        try:
            if named.endswith(".py"):
                _run(Path(named).resolve())
            else:
                importlib.import_module(named)
        except Exception as error:  # it is the user's code that is run
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"{PLUGINS}: {named!r} cannot be loaded ({reason}); {_fix(named, error)}") from error
    if entries:
        found = (str(Path(named).resolve()) if named.endswith(".py") else named for named in entries)
        os.environ[PLUGINS] = os.pathsep.join(found)


def _fix(named: str, error: Exception) -> str:
    """What to do about an entry that cannot be loaded."""
    if named.endswith(".py") and not Path(named).is_file():
        return f"name the file by a path that exists from here, {Path.cwd()}, several separated by {os.pathsep!r}"
    if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{named}.".startswith(f"{error.name}."):
        return "install it or put its folder on PYTHONPATH, or name a file of it by its path, which ends in .py"
    return f"fix it, or remove it from {PLUGINS}"


def _run(file: Path) -> None:
    """Execute a file as the module of its name without folder and suffix, so that what it defines can be pickled."""
    found = sys.modules.get(file.stem)
    if found is not None and getattr(found, "__file__", None) == str(file):
        return
    if found is not None:
        raise ImportError(f"a module {file.stem!r} is loaded already; give the file another name")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[file.stem]
        raise
