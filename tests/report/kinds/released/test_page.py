"""The whole page of released-model runs."""

import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from lightleak.report import build_report

HOSTILE = "<script>alert(1)</script>"
SECTIONS = [
    "summary", "tested", "what", "attacks", "searches", "classes", "columns", "rows", "memorization", "losses",
    "labels", "warnings", "run",
]  # fmt: skip
SEARCHES = ("random", "softmax", "gradient", "tpe")
TRAININGS = (0, 1, 2, 3, 4)


def test_a_full_run_shows_every_section(make_released, page_of) -> None:
    page = page_of(make_released(searches=SEARCHES, seeds=TRAININGS, evaluations=1))
    assert page.ids == SECTIONS
    for fact in (
        "What a diagnosis model gives away",
        "could make up records of its 20 groups",
        "by 4 of 4 measures; that the model gives away what its groups look like would take all 5",
        "Taken for it by a second judge",
        "“Condition learned”: how often a classifier that learned from the made-up rows names the class of public rows",
        "Released model MLP 2048-1024-512-256",
        "91.2% on training rows, 33.4% on held-out ones, after 29 epochs",
        "Public rows of the attacker 37,208",
        "PLG-MI An attacker who holds the released model with its weights",
        "real rows 40.1%",
        "chance 5.0%",
        "PLG-MI · gradient search",
        "Generator without the model's loss",
        "95% and above",
        "num_procedures (discrete)",
        "The closest pairs of the baselines: Public rows sorted by the model",
        "Discriminator loss",
        "logarithmic scale, linear around 0",
        "1,900 public rows are used in 19 of 20 classes. Left out: 518 (3 public rows, at least 20 are needed)",
        "class 518 is left out",
        "21 min 0 s",
        "pseudo_labels.top_n 100",
        "This file contains private data.",
        "19 private rows and as many made-up ones",
    ):
        assert fact in page.text, fact
    assert len(re.findall(r'<svg class="chart"', page.source)) >= 5


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and 95% interval by the standard library and scipy alone."""
    mean, n = statistics.fmean(values), len(values)
    half = stats.t.ppf(0.975, n - 1) * statistics.stdev(values) / n**0.5
    return mean, mean - half, mean + half


def shown(mean: float, low: float, high: float) -> str:
    return f"{100 * mean:.1f}% ({100 * max(low, 0):.1f} to {100 * min(high, 1):.1f})"


def test_numbers_on_the_page_are_those_of_the_rows(make_released, page_of) -> None:
    folder = make_released(searches=("random", "gradient"), seeds=TRAININGS, evaluations=1)
    raw = json.loads((folder / "results.json").read_text())["rows"]
    of: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in raw:
        if row["class"] == "all":
            of[row["attack"], row["latent_search"]].append(row)
    page = page_of(folder)
    lines = {
        row[0].replace("\xa0", " "): row for row in reversed(page.rows) if len(row) > 4
    }  # the first table with a name wins
    known = {
        "PLG-MI · gradient search": ("plgmi", "gradient"),
        "PLG-MI · random z": ("plgmi", "random"),
        "Public rows sorted by the model": ("public_pseudo_labeled", "random"),
        "Generator without the model's loss": ("gan_without_target", "random"),
        "Public rows at random": ("public_random", "random"),
    }
    best = [row["attack_accuracy"] for row in of["public_pseudo_labeled", "random"]]
    for title, key in known.items():
        rows, line = of[key], lines[title]
        mean, low, high = interval([row["attack_accuracy"] for row in rows])
        assert line[1] == re.sub("[()]", "", shown(mean, low, high))
        if key[0] == "plgmi":  # paired by training
            gain, least, most = interval(
                [row["attack_accuracy"] - other for row, other in zip(rows, best, strict=True)]
            )
            assert line[2] == f"+{100 * gain:.1f} {100 * least:.1f} to {100 * most:.1f}"
            assert f"has {100 * gain:.1f} more" in page.text or key[1] == "random"
        else:
            assert line[2] == "–"
        assert line[3] == f"{100 * statistics.fmean(row['shapes_score'] for row in rows):.1f}%"
        assert line[4] == f"{100 * statistics.fmean(row['pair_trends_score'] for row in rows):.1f}%"
        assert line[5] == f"{statistics.fmean(row['inversion_loss'] for row in rows):.2f}"
        by_class = [row["gower_distance"] for row in raw if row["class"] != "all" and _key(row) == key]
        assert line[6] == f"{statistics.fmean(by_class):.3f}".removeprefix("0")
        assert line[9].startswith("5 5 evaluations of ")
    assert lines["Real private rows, held out"][1] == "40.1%"
    head = next(row for row in page.rows if row and row[0] == "Search")
    found = {row[0]: dict(zip(head, row, strict=True)) for row in page.rows if len(row) == len(head)}
    names = {"gradient": "gradient search", "random": "random z"}
    for search, name in names.items():
        values = [100 * row["attack_accuracy"] for row in of["plgmi", search]]
        assert found[name]["Attack accuracy, %"] == f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"
    for title, name in (("of the rows", "inversion_loss"), ("at z*", "inversion_loss_searched")):
        values = [row[name] for row in of["plgmi", "gradient"]]
        shown_loss = f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"
        assert found["gradient search"][f"Inversion loss {title}, nats"] == shown_loss
    assert found["random z"]["Inversion loss at z*, nats"] == "–"  # nothing was searched
    pairs = zip(of["plgmi", "gradient"], of["plgmi", "random"], strict=True)
    change, low, high = interval([one["attack_accuracy"] - other["attack_accuracy"] for one, other in pairs])
    ends = " to ".join(f"{100 * end:.1f}".replace("-", "−") for end in (low, high))
    changed = found["gradient search"]["Change, points"]
    assert changed == f"{100 * change:+.1f} {ends}".replace("-", "−")
    assert found["random z"]["Change, points"] == "–"


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return row["attack"], row["latent_search"]


def test_numbers_of_the_classes_are_those_of_the_entries(make_released, page_of) -> None:
    folder = make_released()
    entry = next(
        one for one in json.loads((folder / "inversion.json").read_text())["entries"] if one["attack"] == "plgmi"
    )
    page = page_of(folder)
    heat = [row for row in page.rows if len(row) == 6]
    first = next(index for index, row in enumerate(heat) if row[0] == "Class")
    sizes = entry["class_shapes"]["columns"]
    for one, row in zip(entry["class_shapes"]["classes"], heat[first + 1 :], strict=False):
        scores = one["scores"]
        mean = sum(scores[name] * sizes[name] for name in sizes) / sum(sizes.values())
        assert row == [one["class"], *(f"{100 * scores[name]:.1f}" for name in sizes), f"{100 * mean:.1f}"]
    pairs = {row[0]: row for row in page.rows if row and row[0].endswith(" real")}
    assert set(pairs) == {f"{one['class']} real" for one in entry["nearest"]}
    for one in entry["nearest"]:
        assert f"{one['private']['bmi']:.6g}" in pairs[f"{one['class']} real"]
    for column, score in entry["column_shapes"].items():
        assert [column, f"{100 * score:.1f}%"] in page.rows
    for one in entry["pseudo_labels"]:
        assert [one["class"], f"{one['public_rows']:,}", str(one["used"]), one["excluded"] or ""] in page.rows


def test_the_file_is_self_contained(make_released, page_of) -> None:
    page = page_of(make_released(searches=SEARCHES))
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    assert not re.search(r"url\(|@import|src=|https?://|\son\w+=", page.source)
    assert set(re.findall(r'href="(?!data:text/csv)([^"]*)"', page.source)) <= {f"#{name}" for name in page.ids}
    assert "default-src 'none'" in page.source


KNOWN = {  # names that the reader looks for; what else names something is data
    "schema_version", "rows", "entries", "scores", "columns", "groups", "classes", "class", "column", "kind", "score",
    "metric", "distance", "reconstructed", "private", "public_rows", "used", "excluded", "share_nearer_to_train", "low",
    "high", "n", "train_mean", "heldout_mean", "iteration", "generator", "discriminator", "inversion", "conditioning",
}  # fmt: skip


def hostile(value: Any, known: set[str], spare: tuple[str, ...]) -> Any:
    """Every text, and every name that is not known, made hostile; fields in ``spare`` keep what they hold."""
    if isinstance(value, dict):
        return {
            key if key in known else HOSTILE + key: one if key in spare else hostile(one, known, spare)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [hostile(one, known, spare) for one in value]
    return HOSTILE + value if isinstance(value, str) and value != "all" else value


def test_every_value_is_escaped(make_released, page_of) -> None:
    folder = make_released(evaluations=2, searches=("random", "gradient"))
    for file in ("results.json", "inversion.json"):
        raw = json.loads((folder / file).read_text())
        first = raw["rows" if file == "results.json" else "entries"][0]
        # The kind of the run and the searches say how the page is laid out.
        spare = ("kind", "latent_search") if file == "results.json" else ("latent_search",)
        (folder / file).write_text(json.dumps(hostile(raw, KNOWN | set(first) | set(raw), spare)))
    (folder / "config.yaml").write_text(HOSTILE)
    (folder / "environment.json").write_text(json.dumps({HOSTILE: {HOSTILE: HOSTILE}}))
    page = page_of(folder)
    assert "script" not in page.tags
    assert page.text.count(HOSTILE) > 200
    assert page.ids == SECTIONS


def test_redaction_leaves_no_value_of_a_row(make_released, page_of) -> None:
    folder = make_released(evaluations=2)
    raw = json.loads((folder / "inversion.json").read_text())
    for entry in raw["entries"]:
        for index, pair in enumerate(entry["nearest"]):  # values that nothing else on the page could equal
            pair["private"] |= {"bmi": 7777.01 + index, "race": "Narnian"}
            pair["reconstructed"] |= {"bmi": 8888.01 + index, "race": f"Vulcan{index}"}
    (folder / "inversion.json").write_text(json.dumps(raw))
    values = ("7777.01", "8888.01", "+1.11e+03", "Narnian", "Vulcan3")
    page = page_of(folder)
    assert all(value in page.text for value in values)
    page = page_of(folder, redact=True)
    assert not any(value in page.source for value in (*values, "7777", "8888", "Vulcan"))
    assert "Redacted." in page.text and "No private and no made-up row." in page.text
    assert page.ids == [name for name in SECTIONS if name not in ("searches", "rows")]
    assert 'href="#rows"' not in page.source


GONE = {"attacks", "searches", "classes", "columns", "rows", "memorization", "losses", "labels", "warnings"}


@pytest.mark.parametrize(
    ("options", "says", "gone"),
    [
        ({"evaluations": 0}, "no attack on the model has finished", GONE),
        ({"attacks": ("public_random",)}, "no attack on the model has finished",
         {"searches", "columns", "rows", "losses", "labels", "warnings"}),
        ({"attacks": ("plgmi",)}, "Nothing was measured with public data alone", {"searches"}),
        ({"evaluations": 1}, "one training: no interval", {"searches"}),
        ({"inversion": False}, "Whether single private records come through was not measured.",
         {"columns", "rows", "memorization", "losses", "labels"}),
        ({"parts": ("losses",)}, "Conditioning loss", {"columns", "rows", "labels"}),
        ({"by_class": False, "parts": ()}, "Attack and baselines", {"classes"}),
        ({"excluded": ()}, "No class is left out.", set()),
        ({"seeds": (0, 1), "evaluations": 2}, "2 4 evaluations of 20,000 rows", set()),
        ({"settings": ("0", "2")}, "PLG-MI · setting 2", set()),
        ({"without": ("config.yaml",)}, "contains no config.yaml", set()),
        ({"without": ("environment.json",)}, "Seed: 0", set()),
        ({"extra": {"attack_accuracy": None}}, "No other model judged", set()),
        ({"extra": {"real_rows_accuracy": None, "real_rows_accuracy_class": None}},
         "share of rows that the evaluation model takes", set()),
        ({"extra": {name: None for name in ("dataset", "target", "evaluation", "setting", "threat_model")}},
         "not stated", {"searches"}),
    ],
)  # fmt: skip
def test_a_missing_piece_is_left_out_or_explained(make_released, page_of, options, says: str, gone: set[str]) -> None:
    page = page_of(make_released(**options))
    assert says in page.text
    assert {"what", "run"} <= set(page.ids) and not gone & set(page.ids)
    assert set(re.findall(r'href="#(\w+)"', page.source)) == set(page.ids)
    assert "nan" not in page.text.lower().split() and "None" not in page.text.split()


def test_settings_stand_side_by_side(make_released, page_of) -> None:
    page = page_of(make_released(settings=("0", "2"), evaluations=1))
    assert ["", "setting 0", "setting 2"] in page.rows
    assert ["Private rows", "49,121", "49,121"] in page.rows
    assert ["Released model", "MLP 2048-1024-512-256", "MLP 2048-1024-512-256"] in page.rows


NUMBERS = st.sampled_from([None, float("nan"), 0.0, 0.5, 1.0])
TEXTS = st.sampled_from([None, "", "a", 3])
SIZES = st.sampled_from([None, 0, 3, 40])
ROWS = st.fixed_dictionaries(
    {"attack": st.sampled_from(["plgmi", "public_random", "public_pseudo_labeled", "x"])},
    optional={
        **{
            name: NUMBERS
            for name in (
                "attack_accuracy", "attack_accuracy_low", "attack_accuracy_high", "shapes_score", "pair_trends_score",
                "inversion_loss", "exact_match_rate", "gower_distance", "seconds", "fit_seconds", "ceiling",
                "ceiling_class", "target_test_accuracy", "real_rows_accuracy", "over_public_attack_accuracy",
                "over_public_nearer_to_train", "distinct_nearest_rows", "condition_accuracy",
            )
        },
        **{name: TEXTS for name in ("dataset", "target", "evaluation", "label", "bridge", "threat_model")},
        "options": st.sampled_from([None, {}, {"a": {"b": [1, None]}}]),
        "samples": SIZES,
        "latent_search": st.sampled_from([None, "random", "gradient", "softmax", "odd"]),
        "class": st.sampled_from([None, "all", "428", "414"]),
        "setting": st.sampled_from([None, "2"]),
        "seed": st.integers(0, 1),
        "evaluation_index": st.integers(0, 1),
        "warnings": st.sampled_from([None, [], ["careful"]]),
    },
)  # fmt: skip
CURVES = st.sampled_from([None, [], [1.0, None, 3.0], [2.0], [-1.0, 0.5, 20.0]])
LABELS = st.sampled_from([None, [], [{"class": "428"}], [{"class": "a", "used": 3, "excluded": "few"}]])
ENTRIES = st.fixed_dictionaries(
    {"attack": st.sampled_from(["plgmi", "public_random"])},
    optional={
        "setting": st.sampled_from([None, "2"]),
        "latent_search": st.sampled_from([None, "random"]),
        "class_shapes": st.fixed_dictionaries({}, optional={
            "groups": st.sampled_from([None, [], ["b", "a"]]), "columns": st.sampled_from([None, {"a": 2}, {"a": 0}]),
            "classes": st.lists(st.fixed_dictionaries({"class": TEXTS}, optional={
                "scores": st.dictionaries(st.sampled_from(["a", "b"]), NUMBERS)}), max_size=2)}),
        "column_shapes": st.dictionaries(st.sampled_from(["a", "b"]), NUMBERS),
        "lowest_columns": st.lists(
            st.fixed_dictionaries({}, optional={"column": TEXTS, "score": NUMBERS, "metric": TEXTS}), max_size=2),
        "nearest": st.lists(st.fixed_dictionaries({}, optional={
            "class": TEXTS, "distance": NUMBERS, "private": st.dictionaries(st.sampled_from(["a", "b"]), NUMBERS),
            "reconstructed": st.dictionaries(st.sampled_from(["b", "c"]), NUMBERS)}), max_size=2),
        "losses": st.dictionaries(st.sampled_from(["iteration", "generator", "discriminator", "conditioning"]), CURVES),
        "pseudo_labels": LABELS,
        "memorisation": st.dictionaries(st.sampled_from(["share_nearer_to_train", "low", "high", "n"]), NUMBERS),
        "task": st.dictionaries(st.sampled_from(["classes", "features"]), st.one_of(SIZES, st.just(["a", "b"]))),
        "target_scores": st.dictionaries(st.sampled_from(["train_accuracy", "epochs"]), NUMBERS),
    },
)  # fmt: skip


@given(st.lists(ROWS, max_size=8), st.lists(ENTRIES, max_size=3), st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_part_of_any_row_and_entry_may_be_missing(
    page_of, tmp_path: Path, rows: list[dict[str, Any]], entries: list[dict[str, Any]], redact: bool
) -> None:
    results = [row | {"kind": "released-model"} for row in rows]
    (tmp_path / "results.json").write_text(json.dumps({"schema_version": 1, "rows": results}))
    (tmp_path / "inversion.json").write_text(json.dumps({"schema_version": 1, "entries": entries}))
    (tmp_path / "config.yaml").write_text("kind: released-model")
    page = page_of(tmp_path, redact)
    assert {"what", "run"} <= set(page.ids)
    assert "nan" not in page.text.lower().split()


def test_several_runs_are_pooled_over_their_seeds(make_named_released, outline, tmp_path: Path) -> None:
    first = make_named_released("monday")(seeds=(0, 1), evaluations=1)
    second = make_named_released("tuesday")(seeds=(2,), evaluations=1)
    page = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "3 3 evaluations of 20,000 rows" in page.text
    assert "95% intervals over trainings, each with its own models and generator" in page.text
    assert "monday" in page.text and "tuesday" in page.text
    same = outline(build_report([first, make_named_released("again")(evaluations=1)], tmp_path / "c.html").read_text())
    assert "PLG-MI · run monday" in same.text and "PLG-MI · run again" in same.text
    assert build_report([first, second]) == first / "combined.html"


@pytest.mark.parametrize("seeds", [(0, 1, 2), (3, 4, 5)])
def test_runs_of_different_models_are_compared(make_named_released, outline, tmp_path: Path, seeds) -> None:
    config = {"kind": "released-model", "data": {"name": "diabetes130"}}
    defended = config | {"training": {"dp_sgd": {"noise_multiplier": 1.0}}}
    first = make_named_released("plain")(seeds=(0, 1, 2), evaluations=1, config=config)
    second = make_named_released("defended")(seeds=seeds, evaluations=1, config=defended)
    page = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert ["", "run plain", "run defended"] in page.rows
    assert "3 3 evaluations of 20,000 rows" in page.text and "6 6 evaluations" not in page.text
    (first / "config.yaml").unlink()
    (second / "config.yaml").unlink()  # nothing says that their models were made alike
    page = outline(build_report([first, second], tmp_path / "both.html").read_text(encoding="utf-8"))
    assert ["", "run plain", "run defended"] in page.rows


def test_the_report_is_the_same_each_time(make_released) -> None:
    folder = make_released(evaluations=2)
    assert build_report(folder).read_text() == build_report(folder).read_text()
