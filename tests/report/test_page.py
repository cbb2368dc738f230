import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import UsageError
from lightleak.report import build_report
from lightleak.report.page import render, run_names
from lightleak.report.result import METRICS, parse_result
from lightleak.report.run_folder import RunFolder, load_run

HOSTILE = "<script>alert(1)</script>"


def test_a_full_run_shows_every_section(page_of, make_run) -> None:
    page = page_of(make_run(n_batches=3, epochs=4))
    assert page.ids == [
        "summary",
        "strongest",
        "limits",
        "what",
        "attacks",
        "training",
        "columns",
        "rows",
        "confidence",
        "run",
    ]
    for words in (
        "An honest-but-curious server recovered",
        "guessing without the update gets",
        "FedSGD: in each step",
        "TabLeak, Inverting Gradients: An honest-but-curious server that knows the update",
        "It is the median batch, number 2 of 3 by accuracy, not the best one.",
        "This file holds private data.",
        "Validation accuracy of the target",
        "lightleak audit config.yaml",
        "versions torch 2.13.0",
        "Seed: 0.",
        "Leakage of the census table",
        "command lightleak audit adult.yaml",
        "restarts 30, steps 1500",
    ):
        assert words in page.text


def test_fedavg_is_told_in_its_own_words_throughout(page_of, make_run) -> None:
    local = {"protocol": "fedavg", "local_epochs": 5, "local_batches": 4, "local_batch_size": 8, "n_clients": 2}
    page = page_of(
        make_run(n_batches=3, epochs=4, extra=local | {"defense": "gaussian_noise", "defense_strength": 0.01})
    )
    for words in (
        "rows of 2 clients whose updates were averaged",
        "Here: 5 local epochs of 4 batches; the server sees the mean of 2 clients, not what each has sent.",
        "Under FedAvg the server also knows",
        "Rows behind an update",
        "rows behind the update",  # the axis
        "Updates of 32 rows.",
        "on one update of",
        "gaussian noise 0.01",
    ):
        assert words in page.text, words
    for words in ("FedSGD", "client's batch", "epoch of training", "one batch of"):
        assert words not in page.text, words


def test_the_best_of_many_has_an_interval_that_allows_for_the_choice(page_of, make_run) -> None:
    text = page_of(make_run(n_batches=5)).text
    assert "strongest of the 4 combinations of attack and setting measured. It is named after the fact" in text
    assert "(Bonferroni, 4 comparisons)" in text
    single = re.search(r"of all cells \(95% interval (\d+\.\d) to (\d+\.\d)\)", text)
    wide = re.search(r"allow for the choice, read (\d+\.\d) to (\d+\.\d) as", text)
    assert single and wide
    assert float(wide[1]) < float(single[1]) and float(wide[2]) >= float(single[2])


def test_the_report_stands_in_the_run_folder_and_is_the_owners(make_run, tmp_path: Path) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    report = build_report(folder)
    assert report == folder / "report.html"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    report.chmod(0o644)
    assert stat.S_IMODE(build_report(folder).stat().st_mode) == 0o600
    assert build_report(folder, tmp_path / "other.html") == tmp_path / "other.html"
    assert not list(folder.glob(".report-*"))


def test_the_file_is_self_contained(outline, make_run) -> None:
    text = build_report(make_run(n_batches=2, epochs=2)).read_text(encoding="utf-8")
    page = outline(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    assert not re.search(r"url\(|@import|src=|https?://|\son\w+=", text)
    assert set(re.findall(r'href="([^"]*)"', text)) <= {f"#{name}" for name in page.ids}
    assert "default-src 'none'" in text


def test_every_value_is_escaped(page_of, make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=2, epochs=2)
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        cells = folder / row["reconstruction"]
        if row["source"] == "initial":
            cells.write_text(
                "row,column,true,reconstructed,correct,entropy\n"
                + "".join(f'{i},"{HOSTILE}","{HOSTILE}","\'""><img src=x>",{i},0.3\n' for i in range(2))
            )
        row["column_accuracy"] = {HOSTILE: 0.5}
        row["attack"] = HOSTILE if row["attack"] != "random" else "random"
        for name in ("dataset", "target", "protocol", "defense", "labels", "threat_model"):
            row[name] = HOSTILE
    (folder / "results.json").write_text(json.dumps(raw))
    (folder / "config.yaml").write_text(HOSTILE)
    (folder / "environment.json").write_text(json.dumps({HOSTILE: {HOSTILE: HOSTILE}}))
    page = page_of(folder)
    assert "script" not in page.tags and "img" not in page.tags
    assert page.text.count(HOSTILE) > 20
    assert "'\"><img src=x>" in page.text


def test_redaction_leaves_no_value(outline, page_of, make_run) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=3)
    for file in (folder / "reconstructions").glob("*.csv"):
        cells = pd.read_csv(file)
        cells["true"], cells["reconstructed"] = "secret-truth", "secret-guess"
        cells.to_csv(file, index=False)
    assert {"secret-truth", "secret-guess"} <= set(page_of(folder).text.split())
    report = build_report(folder, redact=True).read_text(encoding="utf-8")
    assert "secret" not in report
    page = outline(report)
    assert "Redacted." in page.text
    assert "✓" in page.text and "✗" in page.text
    assert "marital-status" in page.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epochs": 0}, "No update was attacked during training"),
        ({"keep_rows": False}, "No reconstructed rows were kept"),
        ({"attacks": ("tableak",)}, "Guessing without the update was not measured"),
        ({"n_batches": 1}, "too few batches were measured"),
        ({"n_batches": 1}, "It is the only batch whose rows were kept."),
        ({"attacks": ("random",)}, "Only the guessing baseline has finished"),
        ({"n_batches": 0}, "No attack has finished yet"),
        ({"without": ("config.yaml",)}, "holds no config.yaml"),
        ({"batch_sizes": (128,)}, "The first 64 of 128 rows are shown."),
        ({"extra": {"labels": "restored", "label_count_error": 1.5}}, "Wrong labels"),
        ({"extra": {"cell_accuracy": None}}, "how much was recovered rightly is unknown"),
        ({"extra": {"source": "training", "epoch": 1}}, "during training, on updates captured"),
        ({"extra": {"batch_size": 1}}, "of a client's single row"),
    ],
)
def test_a_missing_piece_is_left_out_or_explained(page_of, make_run, options: dict[str, Any], says: str) -> None:
    page = page_of(make_run(**({"batch_sizes": (8,), "n_batches": 2} | options)))
    assert says in page.text


NUMBERS = st.sampled_from([None, float("nan"), 0.0, 0.5, 1.0, 7.5, "text", -0.3])
ROWS = st.fixed_dictionaries(
    {"attack": st.sampled_from(["tableak", "random", "x"])},
    optional={
        **{name: NUMBERS for name in METRICS},
        **{name: st.sampled_from([None, "", "a", 3]) for name in ("dataset", "target", "defense", "labels", "options")},
        "protocol": st.sampled_from([None, "fedsgd", "other"]),
        "source": st.sampled_from([None, "initial", "training"]),
        "epoch": st.sampled_from([None, 0, 3]),
        "batch_size": st.sampled_from([None, 1, 32]),
        "batch_index": st.integers(0, 2),
        "column_accuracy": st.none() | st.dictionaries(st.sampled_from(["age", "sex"]), NUMBERS),
        "reconstruction": st.sampled_from([None, "missing.csv"]),
    },
)


@given(st.lists(ROWS, max_size=6))
@settings(max_examples=40)
def test_any_part_of_any_row_may_be_missing(outline, rows: list[dict[str, Any]]) -> None:
    results = tuple(parse_result(row, "run", "row") for row in rows)
    log = pd.DataFrame({"epoch": [0, 1], "val/accuracy": [0.5, None]})
    page = outline(render([RunFolder("run", Path("."), results, log, None, {})]))
    assert {"what", "training", "rows", "run"} <= set(page.ids)
    assert "nan" not in page.text.lower().split() and "None" not in page.text.split()


def test_several_runs_stand_side_by_side(outline, make_named_run, tmp_path: Path) -> None:
    first = make_named_run("plain")(batch_sizes=(8,), n_batches=2)
    second = make_named_run("noisy")(batch_sizes=(8,), n_batches=2, extra={"defense": "noise"})
    page = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "plain · defence none" in page.text
    assert "noisy · defence noise" in page.text
    assert "strongest of the 4 combinations" in page.text
    with pytest.raises(UsageError, match="each run folder must be given once"):
        build_report([first, first], tmp_path / "both.html")


def test_wrong_use_is_named(make_run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one run folder"):
        build_report([])
    with pytest.raises(UsageError, match=r"results\.json is missing"):
        build_report(tmp_path)
    folder = make_run(batch_sizes=(8,), n_batches=1)
    with pytest.raises(UsageError, match=r"output must lie in an existing folder, got .*nowhere"):
        build_report(folder, tmp_path / "nowhere" / "report.html")


def test_a_failed_write_leaves_nothing_behind(make_run, tmp_path: Path) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    target = tmp_path / "taken"
    target.mkdir()
    before = set(tmp_path.iterdir())
    with pytest.raises(OSError):
        build_report(folder, target)
    assert set(tmp_path.iterdir()) == before


def test_names_of_runs_tell_them_apart() -> None:
    assert run_names([Path("a/x"), Path("a/y")]) == ["x", "y"]
    assert run_names([Path("p/a/x"), Path("q/a/x")]) == ["p/a/x", "q/a/x"]


def test_the_report_is_the_same_each_time(make_run) -> None:
    run = load_run(make_run(n_batches=2, epochs=2))
    assert render([run]) == render([replace(run)])
