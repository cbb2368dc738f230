"""Is what the project asks for installed, in versions that go together, and can it be imported?"""

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, metadata, requires

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from lightleak.doctor.finding import Facts, Finding, State
from lightleak.experiments.installed import (
    PROJECT,
    VersionOf,
    checkout,
    declared_requirements,
    installed_version,
    is_met,
    metadata_requirements,
    user_extras,
)

TOPIC = "install"

MODULES = {
    "pillow": "PIL",
    "pytorch-tabular": "pytorch_tabular",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "xgboost-cpu": "xgboost",
}
"""Modules that are not called as their package."""

GANDALF_PINS = {"pandas": SpecifierSet("<3"), "torchmetrics": SpecifierSet("<1.9")}
"""What pytorch-tabular 1.2 holds back, and with it everything else in its environment."""

IMPORT_SECONDS = 300.0
"""The first import after an install compiles thousands of files, on a shared folder one request each."""

_IMPORT_EACH = """
import importlib, json, sys
for name in sys.argv[1:]:
    print(json.dumps([name, None]), flush=True)
    try:
        importlib.import_module(name)
    except BaseException as error:
        print(json.dumps([name, f"{type(error).__name__}: {error}"]), flush=True)
    else:
        print(json.dumps([name, ""]), flush=True)
"""

Groups = Mapping[str, Sequence[Requirement]]
"""Requirements by extra; ``""`` is asked for always."""

RequirementsOf = Callable[[str], Sequence[Requirement]]


def check(facts: Facts) -> list[Finding]:
    """All findings about the install of this process; imports are tried in a process of their own."""
    groups = declared_requirements()
    names = [need.name for extra in ("", *user_extras(groups)) for need in groups[extra]]
    here = sorted({name for name in names if installed_version(name)})
    modules = [MODULES.get(name, name.replace("-", "_")) for name in here]
    return [
        python_version(platform.python_version(), _wanted_python()),
        *metadata_lag(groups, metadata_requirements()),
        *dependencies(groups[""], installed_version),
        *extras(groups, installed_version),
        *conflicts(here, requirements_of, installed_version),
        *imports(modules, import_errors(modules)),
    ]


def python_version(version: str, wanted: str) -> Finding:
    """Whether this Python is one that the project supports.

    >>> python_version("3.10.2", ">=3.11").state
    <State.PROBLEM: 'problem'>
    """
    if SpecifierSet(wanted).contains(version, prereleases=True):
        return Finding(TOPIC, "python", State.OK, version)
    return Finding(
        TOPIC,
        "python",
        State.PROBLEM,
        f"{version}, but {wanted} is needed",
        f"make a new environment with Python {wanted}",
    )


def metadata_lag(declared: Groups, installed: Groups) -> list[Finding]:
    """A checkout that was changed after it was installed; pip then knows nothing of the newer extras."""

    def lines(groups: Groups) -> dict[str, set[tuple[str, str]]]:
        return {extra: {(need.name.lower(), str(need.specifier)) for need in groups[extra]} for extra in groups}

    if not installed.get(""):
        found = f"{PROJECT} runs from its source without being installed"
    elif lines(declared) != lines(installed):
        found = "pyproject.toml was changed since the last install"
    else:
        return []
    return [Finding(TOPIC, "checkout", State.NOTE, found, install_line())]


def dependencies(needs: Sequence[Requirement], version_of: VersionOf) -> list[Finding]:
    """What the project cannot do without: one line for all that fits, one for each that does not."""
    bad = [need for need in needs if not is_met(need, version_of)]
    good = [f"{need.name} {version_of(need.name)}" for need in needs if need not in bad]
    findings = [Finding(TOPIC, "dependencies", State.OK, ", ".join(good))] if good else []
    for need in bad:
        line = f"pip install '{need.name}{need.specifier}'"
        findings.append(Finding(TOPIC, need.name, State.PROBLEM, _what_is_wrong(need, version_of), line))
    return findings


def extras(groups: Groups, version_of: VersionOf) -> list[Finding]:
    """Every extra: there, missing (which is no problem), or there in a version that does not fit."""
    findings = []
    for extra in user_extras(groups):
        needs = groups[extra]
        absent = [need for need in needs if version_of(need.name) is None]
        wrong = [need for need in needs if need not in absent and not is_met(need, version_of)]
        check, line = f"extra {extra}", install_line(extra)
        if wrong:
            text = "; ".join(_what_is_wrong(need, version_of) for need in wrong)
            findings.append(Finding(TOPIC, check, State.PROBLEM, text, line))
        elif absent:
            text = f"not installed: {', '.join(need.name for need in absent)}{_pins_of(extra, version_of)}"
            findings.append(Finding(TOPIC, check, State.NOTE, text, line))
        else:
            text = ", ".join(f"{need.name} {version_of(need.name)}" for need in needs)
            findings.append(Finding(TOPIC, check, State.OK, text))
    return findings


def conflicts(names: Iterable[str], requirements_of: RequirementsOf, version_of: VersionOf) -> list[Finding]:
    """Packages that cannot stand a version of another that is installed, such as pytorch-tabular and pandas 3."""
    findings = []
    for name in names:
        for need in requirements_of(name):
            if version_of(need.name) is not None and not is_met(need, version_of):
                text = f"{name} {version_of(name)} needs {need.name}{need.specifier}, got {version_of(need.name)}"
                line = f"pip install '{need.name}{need.specifier}'"
                findings.append(Finding(TOPIC, f"{name} and {need.name}", State.PROBLEM, text, line))
    if findings:
        return findings
    return [Finding(TOPIC, "versions", State.OK, "no installed package contradicts another")]


def imports(modules: Sequence[str], errors: Mapping[str, str]) -> list[Finding]:
    """Modules that are installed but cannot be imported."""
    findings = [
        Finding(
            TOPIC,
            f"import {module}",
            State.PROBLEM,
            error,
            f"install its package again: pip install --force-reinstall --no-deps {_package_of(module)}",
        )
        for module, error in errors.items()
    ]
    if len(errors) < len(modules):
        text = f"{len(modules) - len(errors)} of {len(modules)} installed packages can be imported"
        findings.insert(0, Finding(TOPIC, "imports", State.OK, text))
    return findings


def import_errors(modules: Sequence[str], timeout: float = IMPORT_SECONDS) -> dict[str, str]:
    """What importing each module, in a process of its own, ended with; those that could be imported are left out.

    A module that ends the process is named, and those after it are tried in another one.
    """
    errors: dict[str, str] = {}
    left = list(modules)
    while left:
        try:
            done = subprocess.run(
                [sys.executable, "-c", _IMPORT_EACH, *left], capture_output=True, text=True, timeout=timeout
            )
            said, ended = done.stdout, f"ended the process with code {done.returncode}"
        except subprocess.TimeoutExpired as error:
            said, ended = _decoded(error.stdout), f"took more than {timeout:g} seconds"
        results = dict(_reports(said))
        errors |= {name: text for name, text in results.items() if text}
        stuck = [name for name, text in results.items() if text is None]
        errors |= dict.fromkeys(stuck, ended)
        if not results:
            return errors | dict.fromkeys(left, ended)
        left = [name for name in left if name not in results]
    return errors


def requirements_of(name: str) -> list[Requirement]:
    """What an installed distribution asks for on this machine, without its extras."""
    try:
        needs = [Requirement(line) for line in requires(name) or []]
    except PackageNotFoundError:
        return []
    return [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]


def install_line(extra: str = "") -> str:
    """The line that installs the project, or an extra of it, as this copy was installed."""
    if checkout() is None:
        return f"pip install '{PROJECT}[{extra}]'" if extra else f"pip install --force-reinstall {PROJECT}"
    return f'pip install -c constraints.txt -e ".[{extra}]"' if extra else "pip install -c constraints.txt -e ."


def _pins_of(extra: str, version_of: VersionOf) -> str:
    if extra != "gandalf":
        return ""
    above = [
        f"{name}{pin} (here {version})"
        for name, pin in GANDALF_PINS.items()
        if (version := version_of(name)) and not pin.contains(version, prereleases=True)
    ]
    return f"; it would bring {' and '.join(above)}" if above else ""


def _what_is_wrong(need: Requirement, version_of: VersionOf) -> str:
    found = version_of(need.name)
    return f"{need.name}{need.specifier} is needed, " + ("got none" if found is None else f"got {found}")


def _package_of(module: str) -> str:
    return next((package for package, name in MODULES.items() if name == module), module)


def _wanted_python() -> str:
    try:
        return metadata(PROJECT)["Requires-Python"] or ">=3.11"
    except PackageNotFoundError:
        return ">=3.11"


def _reports(said: str) -> Iterable[tuple[str, str | None]]:
    for line in said.splitlines():
        try:
            name, text = json.loads(line)
        except (ValueError, TypeError):  # a module that prints while it is imported
            continue
        yield name, text


def _decoded(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
