"""Files that are whole or absent, whoever writes them at the same time."""

import threading
from pathlib import Path

import pytest

from lightleak.experiments.unit import write_whole


def test_a_file_written_by_several_at_once_is_one_of_theirs(tmp_path: Path) -> None:
    file, texts = tmp_path / "folder" / "row.json", [str(i) * 20_000 for i in range(8)]
    seen: list[str] = []

    def write(text: str) -> None:
        for _ in range(20):
            write_whole(file, text)
            seen.append(file.read_text())

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 160 and set(seen) <= set(texts)
    assert list(file.parent.iterdir()) == [file]


def test_what_breaks_off_leaves_the_old_text_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "row.json"
    write_whole(file, "old")

    def breaks_off(self: Path, content: bytes) -> None:
        with self.open("wb") as half:
            half.write(content[:2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", breaks_off)
    with pytest.raises(OSError, match="no space"):
        write_whole(file, "newer")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
