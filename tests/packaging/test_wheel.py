"""What is built and handed out: files of wheel and sdist, extras, and the smoke test that CI runs on the wheel."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, built by what is installed."""
    pytest.importorskip("hatchling", reason="the extra dev brings it")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_holds_the_package_as_it_is_and_its_types(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "src" / "lightleak"
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert {str(path.relative_to(ROOT / "src")) for path in files} <= names
    assert "lightleak/py.typed" in names
    assert not [name for name in names if not name.startswith(("lightleak/", "lightleak-"))]


def test_the_sdist_holds_what_a_packager_needs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ("LICENSE", "README.md", "CITATION.cff", "constraints.txt", "noxfile.py", "examples/hospital.ipynb")
    assert {*needed, "src/lightleak/py.typed", "tests/packaging/smoke.py", "configs/quickstart.yaml"} <= names


def test_all_is_every_extra_of_users() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    chosen = set(everything.removeprefix("lightleak[").removesuffix("]").split(","))
    assert chosen == set(extras) - {"all", "dev", "docs"}
    code = (ROOT / "tests" / "packaging" / "smoke.py").read_text()
    assert all(f'    "{extra}": ' in code for extra in chosen), "the smoke test imports a package of every extra"


def test_one_set_of_pins_satisfies_every_default_and_optional_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    optional = [line for needs in project["optional-dependencies"].values() for line in needs]
    needs = [Requirement(line) for line in [*project["dependencies"], *optional]]
    unmet = [str(need) for need in needs if need.name != "lightleak" and not need.specifier.contains(_pin(need, pins))]
    assert not unmet


def _pin(need: Requirement, pins: dict[str, str]) -> str:
    """The pinned version; xgboost is pinned under the name of its CPU build."""
    return pins["xgboost-cpu" if need.name == "xgboost" else canonicalize_name(need.name)]
