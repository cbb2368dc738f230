"""Check that the dependencies are installed, in compatible versions, and can be imported."""

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from lightleak.core.optional import PROJECT, install_line
from lightleak.doctor.finding import Check, Facts, Finding
from lightleak.experiments.installed import (
    VersionOf,
    declared_requirements,
    installed_version,
    is_met,
    metadata_requirements,
    requirements_of,
    user_extras,
)

TOPIC = "install"

MODULES = {
    "mkdocs-material": "material",
    "mlflow-skinny": "mlflow",
    "pillow": "PIL",
    "pytorch-frame": "torch_frame",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "xgboost-cpu": "xgboost",
}
"""Modules whose names differ from their packages in more than a hyphen."""

IMPORT_SECONDS = 300.0
"""Timeout: the first import after an installation compiles thousands of files, on a shared folder one request each."""

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
"""Requirements by extra; those of ``""`` are always needed."""

RequirementsOf = Callable[[str], Sequence[Requirement]]


def check(facts: Facts) -> list[Finding]:
    """Check the installation; imports are tried in a separate process."""
    groups = declared_requirements()
    names = [need.name for extra in ("", *user_extras(groups)) for need in groups[extra]]
    here = sorted({name for name in names if installed_version(name)})
    modules = [module_of(name) for name in here]
    return [
        python_version(platform.python_version(), _wanted_python()),
        *metadata_lag(groups, metadata_requirements()),
        *dependencies(groups[""], installed_version),
        *extras(groups, installed_version),
        *conflicts(here, requirements_of, installed_version),
        *imports(modules, import_errors(modules)),
    ]


def python_version(version: str, wanted: str) -> Finding:
    """Check that the project supports this Python.

    >>> python_version("3.10.2", ">=3.11").state
    <State.PROBLEM: 'problem'>
    """
    check = Check(TOPIC, "python")
    if SpecifierSet(wanted).contains(version, prereleases=True):
        return check.ok(version)
    return check.problem(f"{version}, but {wanted} is needed", f"create a new environment with Python {wanted}")


def metadata_lag(declared: Groups, installed: Groups) -> list[Finding]:
    """Check whether a checkout was changed after its installation; pip then does not know the newer extras."""

    def lines(groups: Groups) -> dict[str, set[tuple[str, str]]]:
        return {extra: {(need.name.lower(), str(need.specifier)) for need in groups[extra]} for extra in groups}

    if not installed.get(""):
        found = f"{PROJECT} runs from its source without being installed"
    elif lines(declared) != lines(installed):
        found = "pyproject.toml was changed since the last install"
    else:
        return []
    return [Check(TOPIC, "checkout").note(found, install_line())]


def dependencies(needs: Sequence[Requirement], version_of: VersionOf) -> list[Finding]:
    """Check the required packages: one finding for all that fit, one for each that does not."""
    bad = [need for need in needs if not is_met(need, version_of)]
    good = [f"{need.name} {version_of(need.name)}" for need in needs if need not in bad]
    findings = [Check(TOPIC, "dependencies").ok(", ".join(good))] if good else []
    for need in bad:
        findings.append(Check(TOPIC, need.name).problem(_what_is_wrong(need, version_of), _pip_install(need)))
    return findings


def extras(groups: Groups, version_of: VersionOf) -> list[Finding]:
    """Check every extra: installed, missing (no problem), or installed in a version that does not fit."""
    findings = []
    for extra in user_extras(groups):
        needs = groups[extra]
        absent = [need for need in needs if version_of(need.name) is None]
        wrong = [need for need in needs if need not in absent and not is_met(need, version_of)]
        check, line = Check(TOPIC, f"extra {extra}"), install_line(extra)
        if wrong:
            text = "; ".join(_what_is_wrong(need, version_of) for need in wrong)
            findings.append(check.problem(text, line))
        elif absent:
            text = f"not installed: {', '.join(need.name for need in absent)}"
            findings.append(check.note(text, line))
        else:
            findings.append(check.ok(", ".join(f"{need.name} {version_of(need.name)}" for need in needs)))
    return findings


def conflicts(names: Iterable[str], requirements_of: RequirementsOf, version_of: VersionOf) -> list[Finding]:
    """Find packages that conflict with installed versions of others, such as pytorch-tabular and pandas 3."""
    findings = []
    for name in names:
        for need in requirements_of(name):
            if version_of(need.name) is not None and not is_met(need, version_of):
                text = f"{name} {version_of(name)} needs {need.name}{need.specifier}, got {version_of(need.name)}"
                findings.append(Check(TOPIC, f"{name} and {need.name}").problem(text, _pip_install(need)))
    return findings or [Check(TOPIC, "versions").ok("no installed package contradicts another")]


def imports(modules: Sequence[str], errors: Mapping[str, str]) -> list[Finding]:
    """Find modules that are installed but cannot be imported."""
    findings = []
    if len(errors) < len(modules):
        text = f"{len(modules) - len(errors)} of {len(modules)} installed packages can be imported"
        findings.append(Check(TOPIC, "imports").ok(text))
    for module, error in errors.items():
        fix = f"reinstall its package: pip install --force-reinstall --no-deps {_package_of(module)}"
        findings.append(Check(TOPIC, f"import {module}").problem(error, fix))
    return findings


def import_errors(modules: Sequence[str], timeout: float = IMPORT_SECONDS) -> dict[str, str]:
    """Import each module in a separate process and return the errors by module.

    A module that ends the process is named, and those after it are tried in another one.
    """
    errors: dict[str, str] = {}
    left = list(modules)
    while left:
        try:
            words = [sys.executable, "-c", _IMPORT_EACH, *left]
            done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
            output, ended = done.stdout, f"ended the process with code {done.returncode}"
        except subprocess.TimeoutExpired as error:
            output, ended = _decoded(error.stdout), f"took more than {timeout:g} seconds"
        results = dict(_reports(output))
        errors |= {name: text for name, text in results.items() if text}
        stuck = [name for name, text in results.items() if text is None]
        errors |= dict.fromkeys(stuck, ended)
        if not results:
            return errors | dict.fromkeys(left, ended)
        left = [name for name in left if name not in results]
    return errors


def module_of(package: str) -> str:
    """Return the module that a package is imported by.

    >>> module_of("pytorch-frame"), module_of("pytorch-tabular")
    ('torch_frame', 'pytorch_tabular')
    """
    return MODULES.get(package, package.replace("-", "_"))


def _what_is_wrong(need: Requirement, version_of: VersionOf) -> str:
    found = version_of(need.name)
    return f"{need.name}{need.specifier} is needed, " + ("got none" if found is None else f"got {found}")


def _pip_install(need: Requirement) -> str:
    return f"pip install '{need.name}{need.specifier}'"


def _package_of(module: str) -> str:
    return next((package for package, name in MODULES.items() if name == module), module.replace("_", "-"))


def _wanted_python() -> str:
    try:
        return metadata(PROJECT)["Requires-Python"] or ">=3.11"
    except PackageNotFoundError:
        return ">=3.11"


def _reports(output: str) -> Iterable[tuple[str, str | None]]:
    for line in output.splitlines():
        try:
            name, text = json.loads(line)
        except (ValueError, TypeError):  # a module that prints while it is imported
            continue
        yield name, text


def _decoded(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
