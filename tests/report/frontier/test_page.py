"""The whole page of a defence frontier."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lightleak.report import build_report
from lightleak.report.frontier.result import parse_result
from lightleak.report.frontier.run_folder import FrontierRun, load_frontier_run
from lightleak.report.legacy import render_frontier
from lightleak.report.run_folder import RunFolder

HOSTILE = "<script>alert(1)</script>"
SECTIONS = ["summary", "buys", "frontier", "limits", "what", "run"]


def test_a_full_run_shows_every_section(page_of, make_frontier) -> None:
    page = page_of(make_frontier())
    assert page.ids == SECTIONS
    for words in (
        "What a defence buys",
        "In plain language",
        "The first to consider: Gaussian noise 0.01",
        "Gaussian noise of scale 0.01 cuts what can be read from a client",
        "Of 19 points measured",
        "Pareto-best",
        "beaten by",
        "not distinguishable from",
        "DP-SGD noise multiplier 1",
        "at delta 1e-05",
        "How to read it",
        "Leakage is a lower bound",
        "An honest-but-curious server",
        "Guessing: A server that knows column marginals.",
        "10 epochs, batches of 32, sgd at 0.01",
        "lightleak audit config.yaml",
        "packages torch 2.13.0",
        "trainings 14 min 15 s for 95",
    ):
        assert words in page.text, words
    assert "nan" not in page.text.lower().split() and "None" not in page.text.split()


def interval_of(values: list[float], lowest: float = 0.0) -> str:
    """Mean and 95% interval in percent, computed by the standard library and scipy alone."""
    mean, n = statistics.fmean(values), len(values)
    half = stats.t.ppf(0.975, n - 1) * statistics.stdev(values) / n**0.5
    ends = [f"{100 * min(max(end, lowest), 1) + 0.0:.1f}".replace("-", "−") for end in (mean - half, mean + half)]
    return f"{ends[0]} to {ends[1]}"


def signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{abs(100 * value):.1f}"


def test_numbers_in_the_table_are_those_of_the_rows(page_of, make_frontier) -> None:
    folder = make_frontier(curves=("none", "random_pruning"))
    raw = json.loads((folder / "results.json").read_text())["rows"]

    def values(defense: str, strength: float | None, attack: str, name: str) -> list[float]:
        wanted = (defense, strength, attack)
        return [row[name] for row in raw if (row["defense"], row["defense_strength"], row["attack"]) == wanted]

    trained, cells = (
        values("random_pruning", 0.9, "none", "accuracy"),
        values("random_pruning", 0.9, "tableak", "cell_accuracy"),
    )
    lost = [a - b for a, b in zip(values("none", None, "none", "accuracy"), trained, strict=True)]
    over = [a - b for a, b in zip(cells, values("none", None, "random", "cell_accuracy"), strict=True)]
    (row,) = [row for row in page_of(folder).rows if row and row[0] == "Random pruning probability 0.9"]
    assert row[1:6] == [
        f"{100 * statistics.fmean(trained):.1f}% {interval_of(trained)}",
        f"{statistics.fmean(values('random_pruning', 0.9, 'none', 'auroc')):.3f}",
        f"{signed(statistics.fmean(lost))} {interval_of(lost, -1)}",
        f"{100 * statistics.fmean(cells):.1f}% {interval_of(cells)}",
        f"{signed(statistics.fmean(over))} {interval_of(over, -1)}",
    ]


def test_epsilon_has_a_column_where_something_is_guaranteed(page_of, make_named_frontier) -> None:
    with_it = page_of(make_named_frontier("a")(curves=("none", "dp_sgd")))
    assert [row[1] for row in with_it.rows if row and row[0].startswith("DP-SGD noise")] == ["9.83", "2.94", "1.02"]
    without = page_of(make_named_frontier("b")(curves=("none", "sign")))
    assert "Epsilon" not in without.text


def test_several_attacks_are_named_by_point(page_of, make_frontier) -> None:
    folder = make_frontier(curves=("none", "sign"), attacks=("tableak", "inverting_gradients", "random"))
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        if row["attack"] == "inverting_gradients" and row["defense"] == "sign":
            row["cell_accuracy"] += 0.2
    (folder / "results.json").write_text(json.dumps(raw))
    rows = {row[0]: row for row in page_of(folder).rows if row}
    assert "TabLeak" in rows["no defence"] and "Inverting Gradients" in rows["Sign"]


@pytest.mark.parametrize(
    ("options", "says", "gone"),
    [
        ({"curves": ()}, "Nothing has finished yet", ["frontier", "limits"]),
        ({"curves": ("sign",)}, "undefended network has not been measured", []),
        ({"clients": 0}, "there is nothing to draw", []),
        ({"trainings": 0}, "not measured yet", []),
        ({"without": ("config.yaml", "environment.json")}, "holds no config.yaml", []),
        ({"trainings": 1, "clients": 1}, "as far as one training each can tell", []),
    ],
)
def test_a_missing_piece_is_left_out_or_explained(page_of, make_frontier, options, says: str, gone: list[str]) -> None:
    page = page_of(make_frontier(**options))
    assert says in page.text
    assert {"summary", "buys", "what", "run"} <= set(page.ids) and not set(gone) & set(page.ids)
    assert {f"#{name}" for name in gone}.isdisjoint(re.findall(r"#\w+", page.text))


def test_values_of_the_run_are_escaped(page_of, make_frontier) -> None:
    folder = make_frontier(curves=("none", "sign"), extra={"dataset": HOSTILE, "target": HOSTILE, "training": HOSTILE})
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        row |= {"threat_model": HOSTILE, "defense_words": HOSTILE, "options": {HOSTILE: HOSTILE}}
        if row["defense"] == "sign":
            row |= {"defense_label": HOSTILE, "defense_option": HOSTILE, "defense_strength": 1}
    (folder / "results.json").write_text(json.dumps(raw))
    page = page_of(folder)
    assert "script" not in page.tags
    assert HOSTILE in page.text


NUMBERS = st.sampled_from([None, float("nan"), 0.0, 0.5, 1.0, 7.5, "text", -0.3])
TEXTS = st.sampled_from([None, "", "a", 3])
ROWS = st.fixed_dictionaries(
    {"attack": st.sampled_from(["none", "tableak", "random", "x"])},
    optional={
        **{name: NUMBERS for name in ("accuracy", "auroc", "cell_accuracy", "epsilon", "delta", "seconds")},
        **{name: TEXTS for name in ("dataset", "target", "training", "threat_model", "options", "labels")},
        "defense": st.sampled_from([None, "none", "sign", "gaussian_noise"]),
        "defense_strength": NUMBERS,
        "defense_label": TEXTS,
        "defense_words": TEXTS,
        "batch_size": NUMBERS,
        "batch_index": st.integers(0, 2),
        "seed": st.integers(0, 2),
    },
)


@given(st.lists(ROWS, max_size=10))
@settings(max_examples=80, deadline=None)
def test_any_part_of_any_row_may_be_missing(outline, rows: list[dict[str, Any]]) -> None:
    results = tuple(parse_result(row, "run", "row") for row in rows)
    run = FrontierRun(RunFolder("run", Path("."), (), pd.DataFrame(), None, {}), results)
    page = outline(render_frontier([run]))
    assert {"what", "run"} <= set(page.ids)
    assert "nan" not in page.text.lower().split() and "None" not in page.text.split()


def test_several_runs_are_pooled_and_several_tables_stand_apart(outline, make_named_frontier, tmp_path: Path) -> None:
    first = make_named_frontier("monday")(curves=("none", "sign"), trainings=2, clients=2)
    second = make_named_frontier("tuesday")(curves=("none", "sign"), trainings=3, clients=4, seed=1)
    pooled = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "Measured with 5 trainings and 6 clients" in pooled.text
    assert "monday" in pooled.text and "tuesday" in pooled.text
    third = make_named_frontier("other")(curves=("none", "sign"), extra={"dataset": "german"})
    apart = outline(build_report([first, third], tmp_path / "apart.html").read_text(encoding="utf-8"))
    assert apart.text.count("Accuracy lost, points") == 2
    assert build_report([first, second]) == first / "combined.html"


def test_the_report_is_the_same_each_time_and_redacted_or_not(make_frontier) -> None:
    folder = make_frontier(trainings=2, clients=2)
    page = render_frontier([load_frontier_run(folder)])
    assert page == render_frontier([load_frontier_run(folder)]) == render_frontier([load_frontier_run(folder)], True)
