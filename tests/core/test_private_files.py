"""Private files, whatever the umask outside."""

import os
import stat
from pathlib import Path

import pytest
from fsspec.implementations import local

from lightleak.core.private_files import private_files


@pytest.fixture(params=[0, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_reads_what_the_block_creates_and_afterwards_all_is_as_before(umask: int, tmp_path: Path) -> None:
    with pytest.raises(KeyError), private_files():
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "file").touch()
        raise KeyError
    (tmp_path / "later").touch()
    assert mode(tmp_path / "folder") == 0o700 and mode(tmp_path / "folder" / "file") == 0o600
    assert mode(tmp_path / "later") == 0o666 & ~umask


def test_blocks_may_lie_in_one_another(umask: int) -> None:
    with private_files():
        with private_files():
            pass
        assert os.umask(0o077) == 0o077
    assert os.umask(umask) == umask


def test_checkpoints_too_after_another_has_been_written_outside(umask: int, tmp_path: Path) -> None:
    def written(name: str) -> int:
        files = local.LocalFileSystem()
        with files.transaction, files.open(tmp_path / name, "wb") as file:  # as Lightning saves
            file.write(b"weights")
        return mode(tmp_path / name)

    local.get_umask.cache_clear()
    assert written("outside") == 0o666 & ~umask
    with private_files():
        assert written("inside") == 0o600
    assert written("afterwards") == 0o666 & ~umask
