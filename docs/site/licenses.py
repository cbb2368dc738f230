"""Licenses of what LightLeak depends on, from the metadata of what is installed."""

from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LONGEST = 60
"""Characters of a field 'License' above which it is the text of a license, not its name."""

UNKNOWN = "not stated in its metadata"


def page() -> str:
    """The page: what is needed, what each extra brings, and what these bring along."""
    groups = direct()
    parts = [
        "# Licenses of dependencies",
        "LightLeak is under Apache-2.0. What follows is what the packages installed where this page was built state in "
        "their metadata. ctgan and rdt are under the Business Source License: the extra `dev` alone brings them, our "
        "tests compare with them, and nothing that you run needs them. Tables have licenses of their own: "
        "`lightleak data describe NAME`.",
    ]
    for group, names in groups.items():
        parts += [f"## {'Needed' if not group else f'Extra `{group}`'}", table(names)]
    parts += [
        "## What these bring along",
        table(sorted(closure(groups) - {name for g in groups.values() for name in g})),
    ]
    return "\n\n".join(parts) + "\n"


def direct() -> dict[str, list[str]]:
    """Names that LightLeak requires itself, by extra; those it always needs under the empty name."""
    found: dict[str, list[str]] = {}
    for text in distribution("lightleak").requires or []:
        requirement = Requirement(text)
        extras = [extra for extra in distribution("lightleak").metadata.get_all("Provides-Extra") or []]
        for extra in ["", *extras]:
            if requirement.marker is None and extra:
                continue
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                found.setdefault(extra, []).append(canonicalize_name(requirement.name))
                break
    return {extra: sorted({name for name in names if name != "lightleak"}) for extra, names in sorted(found.items())}


def closure(groups: dict[str, list[str]]) -> set[str]:
    """All installed packages that these need, directly or not."""
    found: set[str] = set()
    queue = [name for names in groups.values() for name in names]
    while queue:
        name = queue.pop()
        package = installed(name)
        if name in found or package is None:
            continue
        found.add(name)
        for text in package.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                queue.append(canonicalize_name(requirement.name))
    return found


def installed(name: str) -> Distribution | None:
    """Metadata of an installed package."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def license(package: Distribution) -> str:
    """What a package states: an SPDX expression, else its classifiers, else a short field 'License'.

    >>> license(distribution("packaging"))
    'Apache Software License, BSD License'
    """
    meta = package.metadata
    classifiers = [c.split(" :: ")[-1] for c in meta.get_all("Classifier") or [] if c.startswith("License :: ")]
    names = [name for name in classifiers if name != "OSI Approved"]
    field = (meta.get("License") or "").strip()
    short = field if field and len(field) <= LONGEST and "\n" not in field else ""
    return meta.get("License-Expression") or short or ", ".join(names) or UNKNOWN


def table(names: list[str]) -> str:
    """One line per package."""
    lines = ["| package | version | license |", "| --- | --- | --- |"]
    for name in names:
        package = installed(name)
        version, terms = (package.version, license(package)) if package else ("", "not installed here")
        lines.append(f"| {name} | {version} | {terms.replace('|', '/')} |")
    return "\n".join(lines)
