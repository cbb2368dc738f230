"""Every check in an environment of its own: ``nox`` for those that CI runs, ``nox -l`` for all.

Sessions of a Python that is not installed are skipped. Further arguments for pip come by the variable PIP_ARGS, as in
the Makefile (another index for a CPU-only torch, say).
"""

import os
import shlex

import nox

PYTHONS = ["3.11", "3.12", "3.13"]
TORCHES = ["2.13.0", "2.11.0"]
"""The version that constraints.txt pins, and an older one whose ``torch.func`` differs enough to find what breaks."""

CHECKED = "all,dev,docs"
"""Extras of the tests, as in the Makefile."""

nox.options.sessions = ["lint", "tests-3.11(torch='2.13.0')", "docs", "notebooks", "wheel-3.11"]
nox.options.error_on_missing_interpreters = False
nox.options.reuse_existing_virtualenvs = True


def install(session: nox.Session, *what: str, torch: str = TORCHES[0]) -> None:
    """Install what is pinned, but for torch, of which the session says the version."""
    pins = "constraints.txt"
    if torch != TORCHES[0]:
        pins = os.path.join(session.create_tmp(), "constraints.txt")
        with open("constraints.txt") as given, open(pins, "w") as file:
            # torch 2.11 also needs an older setuptools.
            file.writelines(line for line in given if not line.startswith(("torch==", "setuptools==")))
            file.write(f"torch=={torch}\n")
    session.install("-c", pins, *shlex.split(os.environ.get("PIP_ARGS", "")), *what)


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """Style, types and layers."""
    install(session, "-e", f".[{CHECKED}]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("lint-imports")


@nox.session(python=PYTHONS)
@nox.parametrize("torch", TORCHES)
def tests(session: nox.Session, torch: str) -> None:
    """Tests but those of the documentation, the notebooks and the wheel, which have sessions of their own."""
    install(session, "-e", f".[{CHECKED}]", torch=torch)
    chosen = session.posargs or ["--ignore=tests/examples", "--ignore=tests/packaging"]
    session.run("pytest", "-n", "2", *chosen, env={"OMP_NUM_THREADS": "1"})


@nox.session(python="3.11")
def docs(session: nox.Session) -> None:
    """The documentation, without a broken link."""
    install(session, "-e", f".[{CHECKED}]")
    session.run("mkdocs", "build", "--strict")


@nox.session(python="3.11")
def notebooks(session: nox.Session) -> None:
    """The examples, from the first cell to the last."""
    install(session, "-e", f".[{CHECKED}]")
    session.run("pytest", "-n", "0", "tests/examples", env={"OMP_NUM_THREADS": "1"})


@nox.session(python=PYTHONS)
def wheel(session: nox.Session) -> None:
    """Wheel and sdist, and the wheel with all extras in an environment that has nothing else."""
    folder = session.create_tmp()
    session.install("-c", "constraints.txt", "build")
    session.run("python", "-m", "build", "--outdir", folder)
    (built,) = (name for name in os.listdir(folder) if name.endswith(".whl"))
    where = os.path.abspath(os.path.join(folder, built))
    install(session, f"lightleak[all] @ file://{where}")
    session.run("python", os.path.abspath("tests/packaging/smoke.py"), env={"OMP_NUM_THREADS": "1"})
