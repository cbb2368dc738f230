"""The whole page of vertical runs."""

import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lightleak.core.results import read_row
from lightleak.report import build_report
from lightleak.report.kinds import vertical
from lightleak.report.page import render
from lightleak.report.read import Run

HOSTILE = "<script>alert(1)</script>"
SECTIONS = ["summary", "tested", "what", "shares", "errors", "kinds", "defenses", "norms", "warnings", "run"]

DEFENSES = ("none", "laplace scale 0.1", "withdraw ratio 0.5")


def test_a_full_run_shows_every_section(page_of, make_vertical) -> None:
    page = page_of(make_vertical(defenses=DEFENSES))
    assert page.ids == SECTIONS
    for words in (
        "What two insurers tell each other",
        "the same by own columns alone",
        "The attack was chosen among 3: for each seed the one that was closest on the other seeds.",
        "all 4 combinations of property and adversary at once (Bonferroni)",
        "Adversary C1 active party: it holds the labels",
        "trains its own network for the attack",
        "true 66.",
        "Own columns alone",
        "C2, without the labels",
        "withdraw ratio 0.5",
        "Change of AUC, points",
        "overlap (BC)",
        "not told apart from the auxiliary share",
        "(21 of 21 estimates)",
        "lightleak audit config.yaml",
        "packages torch 2.13.0",
        "Seeds: 0, 1, 2, 3, 4, 5, 6.",
        "samples 200, queries 100",
    ):
        assert words in page.text, words
    assert "nan" not in page.text.lower().split() and "None" not in page.text.split()


def _chosen_elsewhere(by_attack: dict[str, list[dict[str, Any]]]) -> list[float]:
    """Errors of the attack that is closest on all other seeds, seed by seed."""
    seeds = range(len(next(iter(by_attack.values()))))
    errors = {name: [row["absolute_error"] for row in rows] for name, rows in by_attack.items()}
    best = [min(errors, key=lambda name: sum(errors[name]) - errors[name][seed]) for seed in seeds]
    return [errors[name][seed] for seed, name in enumerate(best)]


def shown(values: list[float]) -> str:
    """Mean and 95% interval in points, computed by the standard library and scipy alone."""
    mean, n = statistics.fmean(values), len(values)
    half = stats.t.ppf(0.975, n - 1) * statistics.stdev(values) / n**0.5
    ends = [f"{100 * min(max(end, 0), 1):.1f}" for end in (mean - half, mean + half)]
    return f"{100 * mean:.1f} ({ends[0]} to {ends[1]})"


def test_seeds_of_one_split_are_not_said_to_have_others(page_of, make_vertical) -> None:
    own, fixed = "with another split, training", "with another training"
    drawn = page_of(make_vertical()).text
    assert own in drawn and "differs between splits" in drawn and "other splits and trainings" in drawn
    same = page_of(make_vertical(properties=("sex=Male",), extra={"true_fraction": 0.66})).text
    assert fixed in same and "differs between splits" not in same and "describes other trainings" in same


def test_what_manipulation_adds_is_said(page_of, make_vertical) -> None:
    folder = make_vertical(properties=("sex=Male",), attacks=("provfl_b", "provfl_m", "aia_raw_adjusted"))
    text = page_of(folder).text
    assert "it departs from the agreed procedure" in text
    assert re.search(r"following it, it came to within [\d.]+ points \(95% .*? by ProVFL-B\.", text)


def test_titles_say_the_setting_where_it_differs(page_of, make_named_vertical, tmp_path: Path, outline) -> None:
    parts = {"properties": ("sex=Male",), "seeds": (0, 1), "norms": False}
    first = make_named_vertical("a")(**parts, adversaries=("C1",), attacks=("provfl_b",))
    second = make_named_vertical("b")(**parts, adversaries=("C1",), attacks=("provfl_b",), extra={"epoch": 3})
    page = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert {row[0] for row in page.rows if row and row[0].startswith("ProVFL-B ·")} == {
        "ProVFL-B · epoch 18", "ProVFL-B · epoch 3",
    }  # fmt: skip


def test_variants_of_one_adversary_stand_apart(page_of, make_vertical) -> None:
    folder = make_vertical(properties=("sex=Male",), seeds=(0, 1), adversaries=("C1",), attacks=("provfl_m",))
    raw = json.loads((folder / "results.json").read_text())
    raw["rows"] += [row | {"variant": "LR"} for row in raw["rows"]]
    (folder / "results.json").write_text(json.dumps(raw))
    assert {"ProVFL-M, LR", "ProVFL-M, LR+MR"} <= {row[0] for row in page_of(folder).rows if row}


def test_who_does_not_know_the_defense_stands_apart_where_it_matters(page_of, make_vertical) -> None:
    parts = {"properties": ("sex=Male",), "adversaries": ("C1",), "defenses": ("none", "withdraw ratio 0.5")}
    assert "not knowing the defense" not in page_of(make_vertical(**parts)).text
    known = {"informed_fraction": 0.66, "estimated_fraction": 0.4, "trained_fraction": 0.41, "true_fraction": 0.65}
    page = page_of(make_vertical(**parts, extra=known))
    head = next(row for row in page.rows if "More than without" in row)
    line = dict(zip(head, next(row for row in page.rows if row and row[0] == "withdraw ratio 0.5"), strict=True))
    names = ("Off by, not knowing the defense", "That one off the trained share")
    assert [line[name].partition(" ")[0] for name in names] == ["25.0", "1.0"]
    assert "not knowing the defense" not in page_of(make_vertical(**parts, extra=known), redact=True).text


def test_numbers_on_the_page_are_those_of_the_rows(page_of, make_vertical) -> None:
    folder = make_vertical(properties=("sex=Male",), defenses=DEFENSES)
    raw = json.loads((folder / "results.json").read_text())["rows"]
    by: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in raw:
        by[row["adversary"], row["attack"], row["defense"]].append(row)
    page = page_of(folder)
    assert "&#39;" not in page.text  # nothing is escaped twice
    start = page.rows.index(["sex=Male · C1"])
    found = {"C1": {row[0]: row for row in page.rows[start + 1 : start + 5]}}
    assert page.rows[start + 5] == ["sex=Male · C2"]
    found["C2"] = {row[0]: row for row in page.rows[start + 6 : start + 10]}
    for adversary, lines in found.items():
        variant = {"C1": "LR+MR", "C2": "MR"}[adversary]
        for attack, title in (("provfl_b", "ProVFL-B"), ("aia", "AIA"), ("provfl_m", f"ProVFL-M, {variant}")):
            line, rows = lines[title], by[adversary, attack, "none"]
            assert line[1] == shown([row["absolute_error"] for row in rows])
            learned = statistics.fmean(row["own_columns_error"] - row["absolute_error"] for row in rows)
            assert line[2].startswith(f"{100 * learned:+.1f} (".replace("-", "−"))
            spread = statistics.fmean(row["true_fraction"] * (1 - row["true_fraction"]) for row in rows)
            worth = spread / statistics.fmean(row["absolute_error"] ** 2 for row in rows)
            assert line[3].startswith(f"{worth:,.0f} (")
            assert line[4:] == [f"{sum(row['covered'] for row in rows)} of 7", "7"]
        own = lines["Own columns alone"]
        errors = [row["own_columns_error"] for row in by[adversary, "aia_raw_adjusted", "none"]]
        assert own[1] == shown(errors) and own[2] == "–"
    assert found["C1"]["ProVFL-B"][4] != "7 of 7"
    head = next(row for row in page.rows if "More than without" in row)
    defense_row = dict(zip(head, next(row for row in page.rows if row and row[0] == "withdraw ratio 0.5"), strict=True))
    defended, plain = (
        {name: by["C1", name, defense] for name in ("provfl_b", "aia")} for defense in ("withdraw ratio 0.5", "none")
    )
    assert defense_row["Off by, points"] == re.sub("[()]", "", shown(_chosen_elsewhere(defended)))
    cost = statistics.fmean(b["auc"] - a["auc"] for a, b in zip(plain["provfl_b"], defended["provfl_b"], strict=True))
    assert defense_row["Change of AUC, points"].startswith(f"−{-100 * cost:.1f} ")
    head = next(row for row in page.rows if "Together" in row)
    after = page.rows[page.rows.index(head) :]
    kinds = dict(zip(head, next(row for row in after if row[0] == "ProVFL-B"), strict=True))
    errors = [abs(row["by_kind"]["AO"] - row["true_fraction"]) for row in by["C1", "provfl_b", "none"]]
    assert kinds["AO, own output"] == shown(errors)


def test_warnings_and_assumptions_of_many_properties_stand_once(page_of, make_vertical) -> None:
    folder = make_vertical(properties=("sex=Male", "race=White"), attacks=("aia",), seeds=(0, 1))
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        row["warnings"] = [f"{row['property']} in {row['adversary']}: p = {1e-05 * (1 + row['seed'])}, too close"]
    (folder / "results.json").write_text(json.dumps(raw))
    text = page_of(folder).text
    assert text.count("people of whom it knows whether they have the property") == 1
    assert text.count("too close") == 2  # C1 and C2, but neither each seed nor each property
    assert "the property in C1: p = 1e-05, too close" in text
    assert "sex=Male, C1, AIA (2 of 2 estimates); race=White, C1, AIA (2 of 2 estimates)" in text


def test_the_file_is_self_contained(outline, make_vertical) -> None:
    text = build_report(make_vertical(defenses=DEFENSES)).read_text(encoding="utf-8")
    page = outline(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    assert not re.search(r"url\(|@import|src=|https?://|\son\w+=", text)
    assert set(re.findall(r'href="(?!data:text/csv)([^"]*)"', text)) <= {f"#{name}" for name in page.ids}
    assert "default-src 'none'" in text


def test_every_value_is_escaped(page_of, make_vertical) -> None:
    folder = make_vertical(seeds=(0, 1), defenses=DEFENSES)
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        row |= {name: HOSTILE for name in ("dataset", "target", "property", "adversary", "variant", "threat_model")}
        row |= {
            "attack": HOSTILE,
            "warnings": [HOSTILE],
            "options": {HOSTILE: HOSTILE},
            "seed": f"{HOSTILE}{row['seed']}",
        }
        row["defense"] = HOSTILE + row["defense"]
    (folder / "results.json").write_text(json.dumps(raw))
    norms = json.loads((folder / "norms.json").read_text())
    for entry in norms["entries"]:
        entry |= {name: HOSTILE for name in ("dataset", "property", "variant", "kind", "norm", "seed", "defense")}
    (folder / "norms.json").write_text(json.dumps(norms))
    (folder / "config.yaml").write_text(HOSTILE)
    (folder / "environment.json").write_text(json.dumps({HOSTILE: {HOSTILE: HOSTILE}}))
    page = page_of(folder)
    assert "script" not in page.tags
    assert page.text.count(HOSTILE) > 40


def test_redaction_leaves_no_share(page_of, make_vertical) -> None:
    folder = make_vertical(properties=("sex=Male",), defenses=DEFENSES)
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:  # shares that nothing else on the page could equal
        row |= {"true_fraction": 0.4321, "estimated_fraction": 0.4321 + 0.001 * row["seed"], "prior": 0.2789}
        row |= {"own_columns_error": 0.1532}
        row |= {"by_kind": {"AO": 0.4343, "VG": 0.4345}, "warnings": ["estimate 43.4% near the share of 27.9%"]}
    (folder / "results.json").write_text(json.dumps(raw))
    shares = ("43.2%", "43.4%", "43.5%", "27.9%", "15.3")  # true, estimated, prior, and what own columns are off by
    page = page_of(folder)
    assert all(share in page.text for share in shares)
    page = page_of(folder, redact=True)
    assert not any(share in page.text for share in shares)
    assert "Redacted." in page.text
    assert page.ids == [name for name in SECTIONS if name != "shares"]
    assert "0.3 (0.1 to 0.5)" in page.text  # errors 0, 0.1, ..., 0.6 points
    assert "estimate …% near the share of …%" in page.text
    assert next(row for row in page.rows if len(row) > 4 and row[0] == "ProVFL-B")[2] == "yes"
    assert "Own columns alone" not in [row[0] for row in page.rows if len(row) > 4]
    assert not re.search(r'class="guess', build_report(folder, redact=True).read_text())
    assert re.search(r'class="guess', build_report(folder).read_text())


@pytest.mark.parametrize(
    ("options", "says", "gone"),
    [
        ({"seeds": (), "norms": False}, "Nothing can be said yet", SECTIONS[3:9]),
        ({"attacks": ("prior",)}, "no attack on the exchange has finished", ["shares", "errors", "kinds", "defenses"]),
        ({"seeds": (0,)}, "one training: no interval", ["defenses"]),
        ({"seeds": (0,)}, "The attack was chosen among 3: afterwards, on this seed.", []),
        ({"seeds": (0,)}, "Bars are the attack's own 95% intervals.", []),
        ({"truth": False}, "The true shares are not part of this run", ["kinds"]),
        ({"norms": False}, "No record and no value of a record", ["norms"]),
        ({"properties": ("sex=Male",)}, "66.", ["warnings"]),
        ({"adversaries": ("C2",)}, "company that does not know the outcomes (C2)", ["kinds"]),
        ({"without": ("config.yaml",)}, "contains no config.yaml", []),
        ({"without": ("environment.json",)}, "Seeds: 0", []),
        ({"defenses": DEFENSES[1:]}, "7 seeds; laplace scale 0.1.", []),
        ({"extra": {"dataset": None, "auc": None, "seed": None}}, "not stated", ["defenses"]),
    ],
)  # fmt: skip
def test_a_missing_piece_is_left_out_or_explained(page_of, make_vertical, options, says: str, gone: list[str]) -> None:
    page = page_of(make_vertical(**options))
    assert says in page.text
    assert {"what", "run"} <= set(page.ids) and not set(gone) & set(page.ids)
    assert {f"#{name}" for name in gone}.isdisjoint(re.findall(r"#\w+", page.text))


SHARES = st.sampled_from([None, float("nan"), 0.0, 0.5, 1.0])
NUMBERS = st.sampled_from([None, float("nan"), 0.0, 0.5, 1.0, 7.5, -0.3])
TEXTS = st.sampled_from([None, "", "a"])
ROWS = st.fixed_dictionaries(
    {"attack": st.sampled_from(["provfl_b", "prior", "x"]), "property": st.sampled_from(["sex=Male", "a"])},
    optional={
        **{name: SHARES for name in ("true_fraction", "trained_fraction", "prior", "auc", "own_columns_error")},
        **{name: NUMBERS for name in ("estimated_fraction", "informed_fraction", "low", "high", "seconds")},
        **{name: TEXTS for name in ("dataset", "target", "variant", "threat_model", "defense_name")},
        "adversary": st.sampled_from([None, "C1", "C2", "C3"]),
        "epoch": st.sampled_from([None, 3]),
        "defense": st.sampled_from([None, "none", "noise 0.1", "noise 0.5"]),
        "defense_strength": st.sampled_from([None, 0.1, 0.5]),
        "by_kind": st.dictionaries(st.sampled_from(["AO", "VG", "x"]), NUMBERS),
        "seed": st.integers(0, 2),
    },
)


@given(st.lists(ROWS, max_size=8), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_part_of_any_row_may_be_missing(outline, rows: list[dict[str, Any]], redact: bool) -> None:
    read = tuple(read_row(row | {"kind": "vertical"}, "row", "run") for row in rows)
    page = outline(render(vertical.page([Run("run", Path("."), "vertical", read)], redact)))
    assert {"summary", "what", "run"} <= set(page.ids)
    assert "nan" not in page.text.lower().split() and "None" not in page.text.split()


def test_several_runs_are_pooled_over_their_seeds(outline, make_named_vertical, tmp_path: Path) -> None:
    first = make_named_vertical("monday")(properties=("sex=Male",), seeds=(0, 1, 2))
    second = make_named_vertical("tuesday")(properties=("sex=Male",), seeds=(3, 4))
    page = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "5 seeds; no defense." in page.text
    assert "monday" in page.text and "tuesday" in page.text
    assert build_report([first, second]) == first / "combined.html"


def test_runs_with_and_without_a_defense_are_compared_in_the_summary(
    outline, make_named_vertical, tmp_path: Path
) -> None:
    plain = make_named_vertical("plain")(
        properties=("sex=Male",), attacks=("provfl_b",), extra={"own_columns_error": 0.4}
    )
    noisy = make_named_vertical("noisy")(
        properties=("sex=Male",),
        attacks=("provfl_b",),
        defenses=("withdraw ratio 0.5",),
        extra={"own_columns_error": 0.4},
    )
    text = outline(build_report([noisy, plain], tmp_path / "both.html").read_text(encoding="utf-8")).text
    assert "Withdraw ratio 0.5 (the company attacked leaves some of the customers who have the trait out" in text
    assert re.search(
        r"helps: an attacker who knows of it is then [\d.]+ points off instead of [\d.]+ \(change \+[\d.]+, 95% int",
        text,
    )


def test_several_tables_are_named(outline, make_named_vertical, tmp_path: Path) -> None:
    first = make_named_vertical("a")(properties=("sex=Male",), seeds=(0, 1))
    second = make_named_vertical("b")(properties=("sex=Male",), seeds=(0, 1), extra={"dataset": "census"})
    page = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "adult: sex=Male" in page.text and "census: sex=Male" in page.text


def test_the_report_is_the_same_each_time(make_vertical) -> None:
    folder = make_vertical(seeds=(0, 1))
    assert build_report(folder).read_bytes() == build_report(folder).read_bytes()
