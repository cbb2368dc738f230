"""One's own method next to the attacks of a run: which pairs are formed, and what is refused."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightleak.cli import main
from lightleak.cli.own_method import Compared, compare_with, table, tables
from lightleak.core.errors import UsageError
from lightleak.experiments.terminal import print_results
from lightleak.report.intervals import paired_difference

GOLDEN = Path(__file__).parents[1] / "golden"


def run_folder(tmp_path: Path, kind: str) -> Path:
    """A run folder with the rows of a recorded run."""
    folder = tmp_path / kind
    folder.mkdir()
    results = json.loads((GOLDEN / f"{kind}.json").read_text("utf-8"))["results"]
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "results.json").read_text())["rows"]


def write_csv(folder: Path, lines: list[dict[str, Any]], name: str = "mine.csv") -> Path:
    file = folder.parent / name
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return file


def one(compared: list[Compared], attack: str, metric: str, **condition: Any) -> Compared:
    (found,) = [
        pair
        for pair in compared
        if (pair.attack, pair.metric) == (attack, metric) and pair.condition.items() >= condition.items()
    ]
    return found


def updates_csv(folder: Path, **more: Any) -> Path:
    lines = [
        {"batch_size": row["batch_size"], "source": row["source"], "epoch": row["epoch"], "seed": row["seed"]}
        | {"batch_index": row["batch_index"], "cell_accuracy": 0.75}
        | more
        for row in rows_of(folder)
        if row["attack"] == "random"
    ]
    return write_csv(folder, lines)


def test_updates_are_paired_by_their_keys_and_compared_with_every_attack(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "updates")
    compared = compare_with(folder, updates_csv(folder))
    assert {pair.attack for pair in compared} == {row["attack"] for row in rows_of(folder)}
    theirs = {
        row["batch_index"]: row["cell_accuracy"]
        for row in rows_of(folder)
        if (row["attack"], row["source"], row["batch_size"]) == ("tableak", "initial", 4)
    }
    pair = one(compared, "tableak", "cell_accuracy", source="initial", batch_size=4)
    assert pair.difference == paired_difference(theirs, dict.fromkeys(theirs, 0.75))
    assert (pair.method, pair.own.mean, pair.difference.n) == ("mine", 0.75, len(theirs))


def test_the_same_by_the_name_of_a_unit(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "updates")
    lines = [
        {"attack": "spear", "unit": row["unit"], "cell_accuracy": 0.75, "rmse": ""}
        for row in rows_of(folder)
        if row["attack"] == "random"
    ]
    by_unit = compare_with(folder, write_csv(folder, lines))
    by_keys = compare_with(folder, updates_csv(folder))
    assert {pair.method for pair in by_unit} == {"spear"}
    assert [pair.difference for pair in by_unit] == [pair.difference for pair in by_keys]


@pytest.mark.parametrize(("kind", "prior"), [("vertical", "prior"), ("attack_vertical", "prior (variant passive)")])
def test_a_vertical_estimate_is_scored_by_its_distance_from_the_truth(tmp_path: Path, kind: str, prior: str) -> None:
    folder = run_folder(tmp_path, kind)
    (row, *_) = rows_of(folder)
    (other, *_) = [r for r in rows_of(folder) if r["attack"] == "prior" and r["adversary"] == row["adversary"]]
    lines = [{"unit": row["unit"], "estimated_fraction": row["true_fraction"] + 0.01}]
    pair = one(compare_with(folder, write_csv(folder, lines)), prior, "absolute_error")
    assert pair.own.mean == pytest.approx(0.01)
    assert pair.difference.mean == pytest.approx(0.01 - other["absolute_error"])
    assert not pair.difference.has_interval and pair.verdict == "one observation, no interval"


def test_evaluations_of_one_released_model_are_averaged(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "released")
    theirs = [
        row["attack_accuracy"]
        for row in rows_of(folder)
        if (row["attack"], row["latent_search"], row["class"]) == ("plgmi", "gradient", "all")
    ]
    compared = compare_with(folder, write_csv(folder, [{"seed": 0, "attack_accuracy": 0.5}]))
    pair = one(compared, "plgmi (latent_search gradient)", "attack_accuracy")
    assert len(theirs) == 2 and pair.ours.mean == pytest.approx(sum(theirs) / 2)
    assert pair.condition["class"] == "all" and pair.difference.n == 1
    lines = [{"seed": 0, "evaluation_index": at, "attack_accuracy": 0.4 + at / 5} for at in (0, 1)]
    again = one(compare_with(folder, write_csv(folder, lines)), pair.attack, pair.metric)
    assert again.own.mean == pytest.approx(0.5) and again.difference.n == 1


@pytest.mark.parametrize("kind", ["fedavg", "frontier", "attack_updates", "attack_released", "reproduction"])
def test_a_copy_of_an_attack_of_any_kind_of_run_does_not_differ_from_it(tmp_path: Path, kind: str) -> None:
    folder = run_folder(tmp_path, kind)
    metric = "attack_accuracy" if kind == "attack_released" else "cell_accuracy"
    rows = [row for row in rows_of(folder) if row["attack"] != "none"]
    first = [row for row in rows if row["attack"] == rows[0]["attack"]]
    if kind == "attack_released":
        first = [row for row in first if row["latent_search"] == "random"]
    file = write_csv(folder, [{"unit": row["unit"], metric: row[metric]} for row in first])
    same = [pair for pair in compare_with(folder, file) if pair.attack.split(" (")[0] == rows[0]["attack"]]
    if kind == "attack_released":
        same = [pair for pair in same if "random" in pair.attack]
    assert same and all(pair.difference.mean == 0 for pair in same)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"batch_index": 0}], "no column with a score"),
        ([{"cell_accuracy": 0.5}], "no column that names the observation"),
        ([{"batch_index": 0, "cell_acuracy": 0.5}], "did you mean 'cell_accuracy'"),
        ([{"batch_index": 0, "adversary": "C1", "cell_accuracy": 0.5}], "column 'adversary' is neither"),
        ([{"unit": "random-initial-b4-000", "cell_accuracy": 83}], "a share from 0 to 1 .no percentage., got 83"),
        ([{"unit": "random-initial-b4-000", "rmse": -1}], "rmse must be at least 0, got -1"),
        ([{"unit": "random-initial-b4-000", "rmse": "nan"}], "rmse must be at least 0, got nan"),
        ([{"unit": "random-initial-b4-000", "rmse": "low"}], "rmse must be a number or empty, got 'low'"),
        ([{"unit": "random-b4", "cell_accuracy": 0.5}], "line 2 .unit random-b4. matches no row"),
        ([{"batch_index": 7, "cell_accuracy": 0.5}], "matches no row of the run, which has batch_index: 0, 1"),
        ([{"batch_index": 0, "cell_accuracy": 0.5}], "several observations, which differ in batch_size"),
        ([{"unit": "random-initial-b4-000", "cell_accuracy": 0.5}] * 2, "line 3: repeats the observation of line 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_paired_is_refused(tmp_path: Path, lines: list[dict[str, Any]], message: str) -> None:
    folder = run_folder(tmp_path, "updates")
    with pytest.raises(UsageError, match=message):
        compare_with(folder, write_csv(folder, lines))


def test_curves_of_one_defense_are_conditions_of_their_own(tmp_path: Path) -> None:
    rows = [
        {"kind": "defense-frontier", "attack": "tableak", "unit": f"tableak-{i}-{label}", "seed": 0, "batch_index": i}
        | {"defense": "gaussian_noise", "defense_label": label, "defense_strength": 0.01, "cell_accuracy": accuracy}
        for label, accuracy in (("on updates", 0.2), ("on steps", 0.8))
        for i in range(4)
    ]
    (tmp_path / "results.json").write_text(json.dumps({"schema_version": 1, "rows": rows}))
    lines = [{"unit": f"tableak-{i}-on updates", "cell_accuracy": 0.5} for i in range(4)]
    (compared,) = compare_with(tmp_path, write_csv(tmp_path / "run", lines))
    assert compared.ours.mean == pytest.approx(0.2)
    named = [{"defense_label": "on steps", "batch_index": 0, "cell_accuracy": 0.5}]
    (compared,) = compare_with(tmp_path, write_csv(tmp_path / "run", named))
    assert compared.ours.mean == pytest.approx(0.8)


def test_a_study_and_a_folder_without_a_run_are_refused(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "study")
    file = write_csv(folder, [{"seed": 0, "cell_accuracy": 0.5}])
    with pytest.raises(UsageError, match="no row of an attack"):
        compare_with(folder, file)
    with pytest.raises(UsageError, match="is no run folder"):
        compare_with(tmp_path, file)
    with pytest.raises(UsageError, match="cannot be read as CSV"):
        compare_with(run_folder(tmp_path, "updates"), tmp_path / "missing.csv")


def test_the_command_prints_a_table_and_writes_page_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    folder = run_folder(tmp_path, "updates")
    before = sorted(path.name for path in folder.iterdir())
    assert main(["compare", str(folder), "--with", str(updates_csv(folder))]) == 0
    out = capsys.readouterr().out
    assert "audit_max" in out and "cell_accuracy" in out and f"comparison: {folder / 'comparison-mine.md'}" in out
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*before, "comparison-mine.md", "comparison-mine.json"]
    )
    content = json.loads((folder / "comparison-mine.json").read_text())["comparisons"]
    pairs = compare_with(folder, updates_csv(folder))
    assert len(content) == len(pairs)
    assert content[0]["difference"]["mean"] == pairs[0].difference.mean
    page = (folder / "comparison-mine.md").read_text()
    assert f"{pairs[0].difference.mean:+.3f}" in page and "dataset synthetic" in page
    assert main(["compare", str(folder)]) == 2
    assert "--with" in capsys.readouterr().err


def test_the_files_are_the_owners_alone(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "updates")
    assert main(["compare", str(folder), "--with", str(updates_csv(folder))]) == 0
    written = sorted(folder.glob("comparison-*"))
    assert [path.suffix for path in written] == [".json", ".md"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in written)


def test_on_80_columns_every_name_is_whole_and_what_all_share_stands_once(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "vertical")
    lines = [{"unit": row["unit"], "absolute_error": 0.1} for row in rows_of(folder) if row["attack"] == "prior"]
    compared = compare_with(folder, write_csv(folder, lines))
    console = Console(file=io.StringIO(), width=80)
    print_results(tables(compared), {}, console)
    said, *rest = console.file.getvalue().splitlines()
    assert "method mine, score absolute_error" in said and "defense half" in "\n".join(rest)
    assert "…" not in "".join(rest) and max(len(line.rstrip()) for line in rest) <= 80
    assert all(any(line.startswith(pair.attack) for line in rest) for pair in compared)
    assert all(f"{pair.difference.mean:+.3f}" in "".join(rest) for pair in compared)
    assert {"method", "score"}.isdisjoint(table(compared)[0])
