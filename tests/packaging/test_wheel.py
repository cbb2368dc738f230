"""What is built and handed out: files of wheel and sdist, extras, and the smoke test that CI runs on the wheel."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

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


def test_all_is_every_extra_of_users_but_flower() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    chosen = set(everything.removeprefix("lightleak[").removesuffix("]").split(","))
    assert chosen == set(extras) - {"all", "dev", "docs", "flower"}
    code = (ROOT / "tests" / "packaging" / "smoke.py").read_text()
    assert all(f'    "{extra}": ' in code for extra in chosen), "the smoke test imports a package of every extra"
