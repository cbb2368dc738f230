"""Configs with the names of earlier versions: in a file, as a flag, and in the folder of a run."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from lightleak.cli import main
from lightleak.experiments.load import load_config
from lightleak.experiments.run import resumed_config, run_audit

VERTICAL = {"kind": "vertical", "data": {"name": "fair"}, "properties": ["religious=strongly"]}


def written(folder: Path, tree: dict[str, Any]) -> Path:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(tree))
    return file


@pytest.mark.parametrize(
    ("old", "new"), [("horizontal", "updates"), ("defence-frontier", "defense-frontier"), (None, "updates")]
)
def test_a_file_with_the_old_name_of_a_kind_is_read(old: str | None, new: str, tmp_path: Path) -> None:
    tree = {"data": {"name": "synthetic"}, **({} if old is None else {"kind": old})}
    tree |= {"defenses": ["sign"]} if old == "defence-frontier" else {}
    assert load_config(written(tmp_path, tree)).kind == new


def test_an_old_kind_is_read_as_a_flag(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, {"data": {"name": "synthetic"}}), {"kind": "horizontal"}).kind == "updates"


def test_an_old_key_is_read_in_a_file_and_as_a_flag(tmp_path: Path) -> None:
    file = written(tmp_path, VERTICAL | {"auxiliary": {"mislabelled": 0.25}})
    assert load_config(file).auxiliary.mislabeled == 0.25
    assert load_config(file, {"auxiliary.mislabelled": 0.5}).auxiliary.mislabeled == 0.5


@pytest.mark.parametrize("attacks", [{"public_pseudo_labelled": {"top_n": 9}}, ["public_pseudo_labelled"]])
def test_an_attack_is_found_by_its_former_name(attacks: Any, tmp_path: Path) -> None:
    file = written(tmp_path, {"kind": "released-model", "data": {"name": "diabetes130"}, "attacks": attacks})
    assert list(load_config(file).attacks) == ["public_pseudo_labeled"]


def test_a_folder_of_an_earlier_version_is_resumed(tiny: Any, silent: Console, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = run_audit(tiny(attacks=["random"], training__epochs=0), folder, console=silent)
    saved = folder / "config.yaml"
    saved.write_text(saved.read_text().replace("kind: updates", "kind: horizontal"))
    assert "kind: horizontal" in saved.read_text()
    assert run_audit(resumed_config(folder), folder, console=silent) == before


def test_an_unknown_kind_is_refused_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, {"kind": "diagonal", "data": {"name": "synthetic"}})
    assert main(["audit", str(file), "--output", str(tmp_path / "run")]) == 2
    assert "kind must be one of" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
