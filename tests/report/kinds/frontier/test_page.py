"""The whole page of a defense frontier."""

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lightleak.core.errors import UsageError
from lightleak.core.results import read_row
from lightleak.experiments.kinds.frontier.summary import frontier_tables
from lightleak.report import build_report
from lightleak.report.kinds.frontier import page as frontier_page
from lightleak.report.page import render
from lightleak.report.read import Run, load_run

HOSTILE = "<script>alert(1)</script>"
SECTIONS = ["summary", "frontier", "tested", "what", "run"]


def test_a_full_run_shows_every_section(page_of, make_frontier) -> None:
    page = page_of(make_frontier())
    assert page.ids == SECTIONS
    for words in (
        "Gaussian noise 0.01",
        "Pareto-best",
        "beaten by",
        "at least as good in both (below guessing counts as 0) and measurably better in one",
        "not distinguishable from",
        "at delta 1e-05",
        "Guessing how often each value occurs among other people",
        "10 epochs, batches of 32, sgd at 0.01",
        "Gaussian noise of scale 0.001",  # every defense in words
        "lightleak audit config.yaml",
        "packages torch 2.13.0",
        "trainings 14 min 15 s for 95 units",
        "restarts 30, steps 1500",
    ):
        assert words in page.text, words
    assert "nan" not in page.text.lower().split() and "None" not in page.text.split()


def test_the_checklist_answers_what_a_frontier_measures(page_of, make_frontier) -> None:
    whole = {"close_match_rate": 0.25, "n_clients": 1}
    folder = make_frontier(curves=("none", "gaussian_noise", "clipping", "dp_sgd"), extra=whole)
    page = page_of(folder)
    answers = {row[0]: row[1] for row in page.rows if len(row) == 2}

    def said(question: str) -> str:
        (found,) = (answer for asked, answer in answers.items() if asked.startswith(question))
        return found

    assert said("Did the attacks succeed more often").startswith("79.") and "by guessing" in said("Did the attacks")
    assert said("Can single people be told apart").startswith("25 of 100 records read whole without a defense (19.4 to")
    assert said("Can two recovered") == "Not tested: each attack reads one message"
    assert said("Can a value of a person be deduced").startswith("In part: 79.")
    assert said("On how many attempts") == "At each point 5 trainings and 6 messages; 95% intervals throughout"
    assert said("How many records stand behind") == "32 records"
    assert "Gaussian noise 0.01: −0.1 (−0.2 to −0.1) points" in said("What does the protection cost")
    assert said("Where is noise added").startswith("By each client, to its update before it is sent")
    epsilon = said("Which epsilon")
    assert (
        "DP-SGD, strength 0.5: epsilon 9.83, delta 1e-05" in epsilon
        and "clipping to norm 0.1 and clipping to norm 1 state no" in epsilon
    )
    assert "Not known from this report" not in page.text.partition("Checklist")[2]
    assert "The three risks Singling out: 25 of 100 records read whole" in page.text


def test_few_measurements_and_weak_attacks_are_named(page_of, make_named_frontier) -> None:
    changed = {"none": (0.79, 0.84), "sign": (0.6, 0.86)}
    single = page_of(make_named_frontier("1")(curves=tuple(changed), changed=changed, trainings=1, clients=1)).text
    assert "Measured with 1 training and 1 client" in single and "give no intervals" in single
    weak = page_of(make_named_frontier("weak")(curves=("none", "sign"), extra={"options": {"steps": 100}})).text
    assert "TabLeak, 100 steps in place of 1500" in weak and "first to" not in weak


def defense(row: Sequence[str]) -> str:
    """Name and strength at the head of a line, without what is said of the point."""
    return re.split(" (?:★|recommended|the cheapest|not |beaten)", row[0])[0]


def test_the_table_has_a_line_for_every_point_in_order(page_of, make_frontier) -> None:
    page = page_of(make_frontier(curves=("none", "gaussian_noise", "dp_sgd", "sign")))
    start = next(i for i, row in enumerate(page.rows) if "Epsilon, training" in row)
    found = [(defense(row), row[1].split()[0]) for row in page.rows[start + 1 : start + 9]]
    assert found == [
        ("no defense", "–"),
        ("Gaussian noise scale 0.001", "–"),
        ("Gaussian noise scale 0.01", "–"),
        ("Gaussian noise scale 0.1", "–"),
        ("DP-SGD noise multiplier 0.5", "9.83"),
        ("DP-SGD noise multiplier 1", "2.94"),
        ("DP-SGD noise multiplier 2", "1.02"),
        ("Sign", "–"),
    ]


def test_verdicts_name_their_rivals(page_of, make_frontier) -> None:
    changed = {"none": (0.79, 0.84), "sign": (0.6, 0.84), "dp_sgd": (0.7, 0.8)}
    heads = [row[0] for row in page_of(make_frontier(curves=tuple(changed), changed=changed)).rows if row]
    assert "DP-SGD noise multiplier 1 beaten by Sign" in heads
    assert any(head.startswith("Sign ★ Pareto-best") for head in heads)


def interval_of(values: list[float], lowest: float = 0.0) -> str:
    """Mean and 95% interval in percent, computed by the standard library and scipy alone."""
    mean, n = statistics.fmean(values), len(values)
    half = stats.t.ppf(0.975, n - 1) * statistics.stdev(values) / n**0.5
    ends = [f"{100 * min(max(end, lowest), 1) + 0.0:.1f}".replace("-", "−") for end in (mean - half, mean + half)]
    return f"{ends[0]} to {ends[1]}"


def signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{abs(100 * value):.1f}"


def changed(values: list[float]) -> str:
    return f"▼ {signed(statistics.fmean(values))} ({interval_of(values, -1)})"


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
    changes, ranks = (
        [
            b - a
            for a, b in zip(
                values("none", None, "none", name), values("random_pruning", 0.9, "none", name), strict=True
            )
        ]
        for name in ("accuracy", "auroc")
    )
    read = [b - a for a, b in zip(values("none", None, "tableak", "cell_accuracy"), cells, strict=True)]
    over = [a - b for a, b in zip(cells, values("none", None, "random", "cell_accuracy"), strict=True)]
    (row,) = [row for row in page_of(folder).rows if row and defense(row) == "Random pruning probability 0.9"]
    assert row[1:5] == [
        f"{100 * statistics.fmean(trained):.1f}% {interval_of(trained)} {changed(changes)}",
        f"{statistics.fmean(values('random_pruning', 0.9, 'none', 'auroc')):.3f} {changed(ranks)}",
        f"{100 * statistics.fmean(cells):.1f}% {interval_of(cells)} {changed(read)}",
        f"{signed(statistics.fmean(over))} {interval_of(over, -1)}",
    ]


def test_epsilon_has_a_column_where_something_is_guaranteed(page_of, make_named_frontier) -> None:
    both = make_named_frontier("a")(curves=("none", "dp_sgd"), extra={"release_epsilon": 4.38})
    found = [
        [one.split()[0] for one in row[1:3]] for row in page_of(both).rows if row and row[0].startswith("DP-SGD noise")
    ]
    assert found == [["9.83", "4.38"], ["2.94", "4.38"], ["1.02", "4.38"]]
    without = page_of(make_named_frontier("b")(curves=("none", "sign")))
    assert "Epsilon" not in without.text


def test_several_attacks_are_named_by_point(page_of, make_frontier) -> None:
    folder = make_frontier(curves=("none", "sign"), attacks=("tableak", "inverting_gradients", "random"))
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        if row["attack"] == "inverting_gradients" and row["defense"] == "sign":
            row["cell_accuracy"] += 0.2
    (folder / "results.json").write_text(json.dumps(raw))
    cells = {defense(row): row[3] for row in page_of(folder).rows if len(row) > 3}
    assert cells["no defense"].endswith("by TabLeak") and cells["Sign"].endswith("by Inverting Gradients")


@pytest.mark.parametrize(
    ("options", "says", "gone"),
    [
        ({"curves": ()}, "the run has no results", ["frontier"]),
        ({"curves": ("sign",)}, "no attack without a defense has finished", []),
        ({"clients": 0}, "there is nothing to draw", []),
        ({"clients": 0}, "10 epochs, batches of 32, sgd at 0.01", []),
        ({"trainings": 0}, "not measured yet", []),
        ({"without": ("config.yaml", "environment.json")}, "contains no config.yaml", []),
        ({"trainings": 1, "clients": 1}, "One training and one client", []),
    ],
)
def test_a_missing_piece_is_left_out_or_explained(page_of, make_frontier, options, says: str, gone: list[str]) -> None:
    page = page_of(make_frontier(**options))
    assert says in page.text
    assert page.ids == [name for name in SECTIONS if name not in gone]
    assert {f"#{name}" for name in gone}.isdisjoint(re.findall(r"#\w+", page.text))


def test_values_of_the_run_are_escaped(page_of, make_frontier) -> None:
    folder = make_frontier(curves=("none", "sign"), extra={"dataset": HOSTILE, "target": HOSTILE, "training": HOSTILE})
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        row |= {"threat": None, "threat_model": HOSTILE, "defense_words": HOSTILE, "options": {HOSTILE: HOSTILE}}
        if row["defense"] == "sign":
            row |= {"defense_label": HOSTILE, "defense_option": HOSTILE, "defense_strength": 1}
    (folder / "results.json").write_text(json.dumps(raw))
    page = page_of(folder)
    assert "script" not in page.tags
    assert HOSTILE in page.text


SHARES = st.sampled_from([None, float("nan"), 0.0, 0.5, 1.0])
NUMBERS = st.sampled_from([None, float("nan"), float("inf"), 0.0, 7.5])
TEXTS = st.sampled_from([None, "", "a", 3])
ROWS = st.fixed_dictionaries(
    {"kind": st.just("defense-frontier"), "attack": st.sampled_from(["none", "tableak", "random", "x"])},
    optional={
        **{name: SHARES for name in ("accuracy", "auroc", "cell_accuracy", "delta")},
        **{name: NUMBERS for name in ("epsilon", "release_epsilon", "seconds", "defense_strength")},
        **{name: TEXTS for name in ("dataset", "target", "training", "threat_model", "labels")},
        **{name: TEXTS for name in ("defense_label", "defense_words")},
        "options": st.sampled_from([None, {"steps": 3}]),
        "defense": st.sampled_from([None, "none", "sign", "gaussian_noise"]),
        "batch_size": st.sampled_from([None, 0, 8]),
        "batch_index": st.integers(0, 2),
        "seed": st.integers(0, 2),
    },
)


@given(st.lists(ROWS, max_size=10))
@settings(max_examples=80, deadline=None)
def test_any_part_of_any_row_may_be_missing(outline, rows: list[dict[str, Any]]) -> None:
    found = tuple(read_row(row, "row", "run") for row in rows)
    page = outline(render(frontier_page([Run("run", Path("."), "defense-frontier", found)], redact=False)))
    assert {"what", "run"} <= set(page.ids)
    assert "nan" not in page.text.lower().split() and "None" not in page.text.split()


@pytest.mark.parametrize("changed", [{"attack": None}, {"accuracy": "0.5"}, {"accuracy": 7.5}, {"epsilon": True}])
def test_a_row_that_cannot_be_right_is_refused(make_frontier, changed: dict[str, Any]) -> None:
    folder = make_frontier(curves=("none",), extra=changed)
    with pytest.raises(UsageError, match=rf"results.json, row 0, key '{next(iter(changed))}'"):
        load_run(folder)


def test_several_runs_are_pooled_and_several_tables_stand_apart(outline, make_named_frontier, tmp_path: Path) -> None:
    first = make_named_frontier("monday")(curves=("none", "sign"), trainings=2, clients=2)
    second = make_named_frontier("tuesday")(curves=("none", "sign"), trainings=3, clients=4, seed=1)
    pooled = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "Measured with 5 trainings and 6 clients" in pooled.text
    assert "monday" in pooled.text and "tuesday" in pooled.text
    third = make_named_frontier("other")(curves=("none", "sign"), extra={"dataset": "german"})
    apart = outline(build_report([first, third], tmp_path / "apart.html").read_text(encoding="utf-8"))
    assert apart.text.count("Over guessing, points") == 2
    assert build_report([first, second]) == first / "combined.html"


def test_the_report_is_the_same_each_time_and_redacted_or_not(make_frontier) -> None:
    run = load_run(make_frontier(trainings=2, clients=2))
    assert len({render(frontier_page([run], redact)) for redact in (False, False, True)}) == 1


def test_a_frontier_beside_attacks_on_updates_says_what_would_help(
    page_of, make_named_frontier, make_named_run, tmp_path: Path
) -> None:
    frontier = make_named_frontier("defenses")()
    run = make_named_run("attacked")(attacks=("tableak", "random"), batch_sizes=(32,), n_batches=3)
    pages = [build_report(both, tmp_path / f"{i}.html") for i, both in enumerate(((run, frontier), (frontier, run)))]
    assert pages[0].read_text() == pages[1].read_text()
    first = re.sub(r"<[^>]+>|\s+", " ", pages[0].read_text().partition('id="risk"')[0])
    said = re.sub(r" +", " ", first.partition("What would help")[2])
    assert "By defenses (adult, mlp-100-100, 32 records a message):" in said
    assert "Gaussian noise 0.1 is the cheapest of" in said and "It costs" in said
    assert "points of accuracy" in said and "of AUROC" in said and "lightleak audit configs/people.yaml" in said
    assert "To find out what a defense would change" not in said
    assert "To find out what a defense would change" in build_report(run).read_text()


def test_a_point_without_a_guarantee_says_why(page_of, make_frontier) -> None:
    folder = make_frontier(curves=("none", "dp_sgd"), extra={"no_guarantee": "statistics leave the client"})
    assert "no guarantee: statistics leave the client" in page_of(folder).text
    (table,) = frontier_tables(json.loads((folder / "results.json").read_text()))
    (said,) = (line for line in table.said if line.startswith("no guarantee of "))
    assert "DP-SGD 0.5, DP-SGD 1" in said and said.endswith(": statistics leave the client")
