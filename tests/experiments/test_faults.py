"""A damaged file of a run folder is recognised, named, set aside and made again; a full disk leaves nothing half."""

import errno
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from lightleak.core.errors import UsageError
from lightleak.experiments.folder import opened_folder
from lightleak.experiments.run import resumed_config, run_audit
from lightleak.experiments.took import TOOK
from lightleak.targets.checkpoints import LastCheckpoint

LAST = Path("checkpoints") / "last.ckpt"


def rows(folder: Path) -> list[dict[str, Any]]:
    found = json.loads((folder / "results.json").read_text())["rows"]
    return [{key: value for key, value in row.items() if key not in TOOK} for row in found]


def reconstructions(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.glob("reconstructions/*.csv")}


def set_aside(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.damaged-1")}


def cut(file: Path, size: int | None = None) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2 if size is None else size])


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def resumed(
    run: Path, finished: Path, silent: Console, caplog: pytest.LogCaptureFixture
) -> Callable[[], tuple[set[str], str]]:
    """Resumes the copy, and compares it with the run; returns what was set aside and what was said of it."""

    def resume() -> tuple[set[str], str]:
        run_audit(resumed_config(run), run, console=silent)
        assert rows(run) == rows(finished)
        assert reconstructions(run) == reconstructions(finished)
        assert "weights_only" not in caplog.text
        found = set_aside(run)
        assert all(Path(name).name.removesuffix(".damaged-1") in caplog.text for name in found)
        return found, caplog.text

    return resume


def test_damaged_units_and_facts_are_made_again(run: Path, resumed: Any) -> None:
    cut(run / "units" / "random-initial-b4-000.json")
    (run / "units" / "random-initial-b4-001.json").write_bytes(b"")
    cut(run / "reconstructions" / "tableak-initial-b4-000.csv")
    (run / "packs.json").write_text("3")
    (run / "environment.json").write_bytes(b"\xff{")
    found, _ = resumed()
    assert found == {
        "environment.json.damaged-1",
        "packs.json.damaged-1",
        "reconstructions/tableak-initial-b4-000.csv.damaged-1",
        "units/random-initial-b4-000.json.damaged-1",
        "units/random-initial-b4-001.json.damaged-1",
        "units/tableak-initial-b4-000.json.damaged-1",
    }
    assert len(json.loads((run / "environment.json").read_text())["sessions"]) == 1


def _truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


def _of_another_kind(content: bytes) -> bytes:
    return b"no checkpoint"


@pytest.mark.parametrize("change", [_truncated, _flipped, _of_another_kind])
def test_a_damaged_checkpoint_starts_the_training_again(
    run: Path, finished: Path, resumed: Any, change: Callable[[bytes], bytes]
) -> None:
    (run / "training.json").unlink()
    (run / LAST).write_bytes(change((run / LAST).read_bytes()))
    found, said = resumed()
    assert found == {f"{LAST}.damaged-1"} and "the training starts from its first epoch" in said
    assert (run / "training.json").read_text() == (finished / "training.json").read_text()
    assert torch.load(run / LAST, weights_only=True)["epoch"] == 1


def test_a_damaged_capture_is_captured_again(run: Path, resumed: Any) -> None:
    first, second = sorted((run / "captures").iterdir())
    cut(first / "observation" / "tensors.safetensors")
    cut(second / "truth" / "truth.safetensors")
    found, _ = resumed()
    assert found == {f"captures/{capture.name}.damaged-1" for capture in (first, second)}


def test_a_redacted_run_keeps_no_capture_that_was_set_aside(tiny: Any, tmp_path: Path, silent: Console) -> None:
    run_audit(config := tiny(redact=True, initial__batches=0), tmp_path / "run", console=silent)
    first, second = sorted((tmp_path / "run" / "captures").iterdir())
    cut(first / "observation" / "facts.json")
    expected = rows(tmp_path / "run")
    run_audit(config, tmp_path / "run", console=silent)
    assert rows(tmp_path / "run") == expected
    assert sorted((tmp_path / "run" / "captures").iterdir()) == [first, second]
    assert not list((tmp_path / "run").rglob("truth"))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_run_of_which_every_file_is_cut_is_made_again(run: Path, resumed: Any, share: float) -> None:
    for file in run.rglob("*"):
        if file.is_file() and file.name != "config.yaml":
            cut(file, int(share * file.stat().st_size))
    found, _ = resumed()
    assert len(found) > 10


def test_what_says_what_a_folder_is_about_is_not_made_again(tmp_path: Path) -> None:
    saved = tmp_path / "reproduction.json"
    saved.write_text("{")
    with (
        pytest.raises(UsageError, match=r"reproduction\.json is damaged, and says what .* is about; choose another"),
        opened_folder(tmp_path, saved, "reproduction", lambda: None),
    ):
        pass
    assert saved.is_file() and not set_aside(tmp_path)


def test_a_disk_that_fills_up_leaves_the_checkpoint_before(
    tiny: Any, tmp_path: Path, finished: Path, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(monitor__attack="inverting_gradients", monitor__options={"steps": 5})
    plain, calls = Path.write_bytes, []

    def write_bytes(self: Path, content: Any) -> int:
        if self.name.startswith("last.ckpt") and (calls.append(self) or len(calls) == 2):
            plain(self, bytes(content)[:12288])
            raise OSError(errno.ENOSPC, "No space left on device")  # as `write` raises it, without a name
        return plain(self, content)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"No space left on device: .*last\.ckpt"):
        patch.setattr(Path, "write_bytes", write_bytes)
        run_audit(config, folder, console=silent)
    assert calls[0].parent == folder / "checkpoints", "staged in the run folder"
    assert [file.name for file in (folder / "checkpoints").iterdir()] == ["last.ckpt"]
    assert torch.load(folder / LAST, weights_only=True)["epoch"] == 0
    run_audit(resumed_config(folder), folder, console=silent)
    assert rows(folder) == rows(finished)


def test_a_second_damage_is_set_aside_beside_the_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 2):
        (tmp_path / "last.ckpt").write_bytes(bytes([number]))
        with caplog.at_level(logging.WARNING):
            assert LastCheckpoint(tmp_path).resumed() is None
        assert (tmp_path / f"last.ckpt.damaged-{number}").read_bytes() == bytes([number])
    assert caplog.text.count("was renamed to last.ckpt.damaged-") == 2
