"""The people of two runs on the terminal."""

from pathlib import Path
from typing import get_args

import pytest

from lightleak.cli import main
from lightleak.core.people import CSV_FILE, Outcome
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


def test_every_person_has_one_outcome_and_names_are_whole_at_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    before, after = (run(tmp_path / one, "inverting_gradients", one) for one in ("proven", "recovered"))
    for folder, verdict in ((before, "proven"), (after, "recovered")):
        second = run(tmp_path / f"second {verdict}", "exact", verdict)
        lines = (Path(second) / CSV_FILE).read_text().splitlines()[1:]
        with (Path(folder) / CSV_FILE).open("a") as file:
            file.write("\n" + "\n".join(lines))
    assert main(["compare", before, after, "--output", str(tmp_path / "both.csv")]) == 0
    said = capsys.readouterr().out
    lines = {
        one[1].strip(): [int(n) for n in one[2:5]] for line in said.splitlines() if len(one := line.split("│")) == 6
    }
    assert all(name in said for name in ("inverting_gradients", "exact", "all attacks together"))
    assert lines["still recovered"] == lines["people in both"] == [3, 3, 3]
    assert sum(n for name, (n, *_) in lines.items() if name in get_args(Outcome)) == 3
    assert "no,proven,recovered,still recovered" in (tmp_path / "both.csv").read_text()


def test_runs_in_which_people_were_seen_unequally_often_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = (run(tmp_path / one, "exact", one) for one in ("proven", "recovered"))
    assert main(["compare", before, after]) == 0
    assert "attacked updates on average" not in capsys.readouterr().out
    for folder, seen in ((before, 20), (after, 1)):
        file = Path(folder) / CSV_FILE
        lines = file.read_text().replace(",no,1,", f",no,{seen},").splitlines()
        file.write_text("\n".join([*lines, *(line.replace("exact,", "tableak,") for line in lines[1:])]))
    assert main(["compare", before, after]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "exact, tableak, all attacks together: a person was in 20 attacked updates on average in DIR and 1 in OTHER"
        in said
    )
    assert said.count("attacked updates on average") == 1


def test_attacks_of_one_run_alone_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (run(tmp_path / one, "exact", one) for one in ("proven", "recovered"))
    file = Path(before) / CSV_FILE
    head, *lines = file.read_text().splitlines()
    file.write_text("\n".join([head, *lines, *(line.replace("exact,", "tableak,") for line in lines)]))
    assert main(["compare", before, after]) == 0
    said = capsys.readouterr().out
    assert "run in DIR alone and not compared: tableak" in said and "all attacks together" not in said
    assert main(["compare", after, before]) == 0
    assert "run in OTHER alone and not compared: tableak" in capsys.readouterr().out
