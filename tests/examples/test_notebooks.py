"""The notebooks run from the first cell to the last, explain themselves, and are stored without outputs."""

from pathlib import Path

import nbformat
import pytest

nbclient = pytest.importorskip("nbclient", reason="the extra dev brings it")
pytest.importorskip("ipykernel", reason="the extra dev brings it")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
CELL_SECONDS = 240
"""A cell takes under 20 seconds; a busy machine may take longer, a cell that hangs does not end."""


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["bank-and-shop", "hospital", "tune-a-defense"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_without_outputs_and_explains_itself(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert len(prose) >= 4 and notebook.cells[0].source.startswith("# ")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")
