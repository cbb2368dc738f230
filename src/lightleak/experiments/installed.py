"""Which packages the project asks for, and which of them are installed."""

import re
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from lightleak.core.optional import PROJECT, checkout

FOR_DEVELOPERS = "dev"

VersionOf = Callable[[str], str | None]
"""The installed version of a distribution, ``None`` where there is none."""


@cache
def installed_version(package: str) -> str | None:
    """The installed version of a distribution, ``None`` where there is none.

    >>> installed_version("no-such-package") is None
    True
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def declared_requirements() -> dict[str, tuple[Requirement, ...]]:
    """What the code asks for, by extra (``""``: always): of the checkout it runs from, else of the metadata."""
    folder = checkout()
    if folder is None:
        return metadata_requirements()
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project.get("optional-dependencies", {})}
    return {extra: _of_this_machine(map(Requirement, lines)) for extra, lines in groups.items()}


def metadata_requirements() -> dict[str, tuple[Requirement, ...]]:
    """As `declared_requirements`, of the installed metadata; an old editable install may lag behind its checkout."""
    groups: dict[str, list[Requirement]] = {"": []}
    for need in _needs_of(PROJECT):
        match = re.search(r"extra == ['\"]([^'\"]+)['\"]", str(need.marker))
        groups.setdefault(match[1] if match else "", []).append(need)
    return {extra: _of_this_machine(group, extra) for extra, group in groups.items()}


def requirements_of(package: str) -> tuple[Requirement, ...]:
    """The requirements of an installed distribution on this machine, without its extras."""
    return _of_this_machine(_needs_of(package))


def _needs_of(package: str) -> list[Requirement]:
    """All that the metadata of a distribution ask for, on any machine; nothing where it is not installed."""
    try:
        return [Requirement(line) for line in requires(package) or []]
    except PackageNotFoundError:
        return []


def user_extras(groups: Iterable[str]) -> list[str]:
    """The extras that a user may want."""
    return [extra for extra in groups if extra not in ("", FOR_DEVELOPERS)]


def installed_extras(
    groups: dict[str, tuple[Requirement, ...]], version_of: VersionOf = installed_version
) -> dict[str, bool]:
    """For every extra that a user may want, whether all it asks for is there in a version that fits."""
    return {extra: all(is_met(need, version_of) for need in groups[extra]) for extra in user_extras(groups)}


def installed_versions(groups: dict[str, tuple[Requirement, ...]]) -> dict[str, str | None]:
    """The versions of the project, of all that it always needs, and of what is installed for its extras."""
    versions = {name: installed_version(name) for name in (PROJECT, *(need.name for need in groups[""]))}
    optional = {need.name for extra in user_extras(groups) for need in groups[extra]}
    return versions | {name: found for name in sorted(optional) if (found := installed_version(name))}


def is_met(need: Requirement, version_of: VersionOf = installed_version) -> bool:
    """Whether a distribution is installed in a version of its range.

    >>> is_met(Requirement("torch>=2.5"), lambda name: "2.13.0+cpu")
    True
    """
    found = version_of(need.name)
    return found is not None and need.specifier.contains(found, prereleases=True)


def _of_this_machine(needs: Iterable[Requirement], extra: str = "") -> tuple[Requirement, ...]:
    return tuple(need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra}))
