"""The people of two runs on the terminal."""

from pathlib import Path

import pytest

from lightleak.cli import main
from lightleak.core.people import CSV_FILE
from lightleak.report.budget import PROOFS_ALONE

HEAD = "attack,person,row,label,seen,proven,first_seen,first_proven,recovered,verdict,unique,sharing"


def run(folder: Path, attack: str, verdict: str) -> str:
    folder.mkdir()
    lines = [f"{attack},{i},p{i},no,1,{int(verdict == 'proven')},0,,0,{verdict},True,0" for i in range(3)]
    (folder / CSV_FILE).write_text("\n".join([HEAD, *lines]))
    return str(folder)


@pytest.mark.parametrize(("attack", "cautions"), [("exact", True), ("audit_max", False)])
def test_who_is_safe_from_proofs_alone_is_not_called_safe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], attack: str, cautions: bool
) -> None:
    before, after = (run(tmp_path / one, attack, one) for one in ("proven", "not recovered"))
    assert main(["compare", before, after]) == 0
    said = capsys.readouterr().out
    assert (f"safe from these attacks alone: {PROOFS_ALONE}" in said) is cautions
    assert main(["compare", after, before]) == 0
    assert "safe from these attacks alone" not in capsys.readouterr().out
