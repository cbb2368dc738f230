"""The sections of a page: which rows, which numbers."""

import re
from typing import Any

import pytest

from lightleak.report.blocks import Details, Figure, Heading, Table

SHAPES = {"groups": ["number", "flag"], "columns": {"number": 1, "flag": 3}}


def rows(attack: str, *accuracies: float, **fields: Any) -> list[dict[str, Any]]:
    """One training for each accuracy, evaluated once."""
    common = {"attack": attack, "evaluation_index": 0, "real_rows_accuracy": 0.4, "setting": "2"}
    return [common | {"seed": k, "attack_accuracy": value} | fields for k, value in enumerate(accuracies)]


def entry(attack: str = "plgmi", **parts: Any) -> dict[str, Any]:
    return {"attack": attack, "setting": "2"} | parts


ONE = rows("plgmi", 0.8)


def test_a_table_has_what_one_setting_has(sections_of) -> None:
    found = sections_of(
        [
            *rows("plgmi", 0.8, 0.9, latent_search="random"), *rows("plgmi", 0.7, 0.8, latent_search="gradient"),
            *rows("public_random", 0.1, 0.2), *rows("plgmi", 0.5, setting="3"),
        ]
    )  # fmt: skip
    table = found.of("attacks", Table)[0]
    titles = {group.title: [line.cells[0].text for line in group.lines] for group in table.groups}
    assert titles == {
        "setting 2": ["PLG-MI · random\u00a0z", "PLG-MI · gradient search", "Public rows at random",
                      "Real private rows, held out"],
        "setting 3": ["PLG-MI", "Real private rows, held out"],
    }  # fmt: skip
    gains = [line.cells[2].text.split(" ")[0] for line in table.groups[0].lines]
    assert gains == ["+70.0", "+60.0", "–", "–"]
    css = [line.css for group in table.groups for line in group.lines]
    assert css == ["best", "", "baseline", "baseline", "", "baseline"]


def test_dots_and_lines_stand_where_their_values_are(sections_of) -> None:
    made = [*rows("plgmi", 0.75, 0.85, label="<b>mine</b>"), *rows("public_random", 0.6, 0.6)]
    (figure,) = sections_of(made, [entry("x", task={"classes": 20})]).of("attacks", Figure)
    drawn = figure.drawing
    assert re.findall(r'x="([\d.]+%)"[^>]* class="(s0|baseline)"', drawn) == [("80%", "s0"), ("60%", "baseline")]
    assert re.findall(r'x="([\d.]+%)"[^>]* class="seed s0"', drawn) == ["75%", "85%"]
    assert re.search(r'x1="40%"[^>]*class="truth"', drawn) and re.search(r'x1="5%"[^>]*class="guess"', drawn)
    assert "real rows 40.0%" in drawn and "chance 5.0%" in drawn and "seed 1, evaluation 0: 85.0%" in drawn
    assert "<b>" not in drawn and "&lt;b&gt;mine" in drawn


def test_measures_stand_beside_those_of_public_rows(sections_of) -> None:
    over = {"over_public_attack_accuracy": 0.2, "over_public_distinct_nearest_rows": 0.1}
    over |= {"public_attack_accuracy": 0.6, "public_distinct_nearest_rows": 0.5, "distinct_nearest_rows": 0.6}
    over |= {"condition_accuracy": 0.5, "public_condition_accuracy": 0.6}
    made = [*rows("plgmi", 0.8, 0.8, **over), *rows("public_pseudo_labeled", 0.6, **over), *rows("public_random", 0.1)]
    made[1] |= {"over_public_attack_accuracy": 0.22, "over_public_distinct_nearest_rows": 0.12}
    lines = sections_of(made).lines("attacks", "Attacks compared with public rows")
    assert list(lines) == ["PLG-MI"]  # the public rows themselves are not compared, nor what has no figures of them
    accuracy, _, shapes, rows_, _, condition = lines["PLG-MI"]
    assert accuracy == "80.0%| of 60.0%| +21.0 (8.3 to 33.7)"
    assert rows_ == "0.6 rows| of 0.5 rows| +0.1 (−0.017 to 0.2)"
    assert shapes == "–| –" and condition == "50.0%| of 60.0%"


def searched(name: str, shift: float, loss: float, **fields: Any) -> list[dict[str, Any]]:
    """Three trainings, whose changes are alike and not equal."""
    values = [value + change * shift for value, change in zip((0.60, 0.64, 0.70), (0.98, 1.0, 1.02), strict=True)]
    return rows("plgmi", *values, latent_search=name, inversion_loss=loss, **fields)


def searches(found: Any) -> dict[str, dict[str, str]]:
    """Cells by search and heading."""
    (table,) = found.of("searches", Table)
    lines = [line for group in table.groups for line in group.lines]
    return {
        str(line.cells[0].text): dict(zip(table.head[1:], (cell.text for cell in line.cells[1:]), strict=True))
        for line in lines
    }


CHANGE, LOSS = "Change, points", "Inversion loss of the rows, nats"


@pytest.mark.parametrize(("shift", "loss", "change"), [(0.05, 6.84, "+5.0"), (-0.05, 6.84, "−5.0"), (0.0, 14.0, "0.0")])
def test_searches_are_compared_training_by_training(sections_of, shift: float, loss: float, change: str) -> None:
    found = searches(sections_of([*searched("random", 0.0, 13.05), *searched("gradient", shift, loss)]))
    assert list(found) == ["gradient search", "random\u00a0z"]
    made, plain = found.values()
    assert (made[LOSS], plain[LOSS]) == (f"{loss:.2f} ± 0.00", "13.05 ± 0.00")
    assert plain["Attack accuracy, %"] == "64.7 ± 5.0"
    assert made[CHANGE] == change and plain[CHANGE] == "–"
    assert not {"Inversion loss at z*, nats", "Column shapes, %"} & set(plain)  # not measured


def test_a_small_loss_keeps_its_digits(sections_of) -> None:
    found = sections_of([*searched("random", 0.0, 13.05), *searched("gradient", 0.0, 0.0000123)])
    assert searches(found)["gradient search"][LOSS] == "1.2e−05"


def test_changes_are_measured_from_where_the_searches_start(sections_of) -> None:
    made = [*searched("random", 0.0, 13.0), *searched("softmax", 0.1, 10.0), *searched("tpe", 0.15, 9.0)]
    found = searches(sections_of(made))
    assert list(found) == ["Bayesian search (TPE)", "random\u00a0z", "random\u00a0z, likeliest categories"]
    tpe, plain, start = found.values()
    assert (tpe[CHANGE], plain[CHANGE]) == ("+5.0", "−10.0") and start[CHANGE] == "–"


def test_the_searches_of_each_attack_are_compared_where_it_has_several(sections_of) -> None:
    assert "searches" not in sections_of([*searched("random", 0, 1), *rows("public_random", 0.1)]).by_id
    both = [
        *searched("random", 0, 1, bridge="exact"), *searched("gradient", 0, 1, bridge="exact"),
        *searched("random", 0, 1, bridge="shared"), *searched("gradient", 0, 1, bridge="shared"),
        *searched("odd", 0, 1, setting="3"), *searched("gradient", 0, 1, setting="3"),
    ]  # fmt: skip
    (table,) = sections_of(both).of("searches", Table)
    assert [group.title for group in table.groups] == [
        "PLG-MI · exact bridge · setting 2", "PLG-MI · shared transform · setting 2", "PLG-MI · setting 3",
    ]  # fmt: skip
    assert [line.cells[0].text for line in table.groups[-1].lines] == ["gradient search", "odd"]


def test_classes_stand_beside_real_rows(sections_of) -> None:
    made = [
        {"attack": "plgmi", "class": name, "evaluation_index": k, "attack_accuracy": own + 0.01 * k,
         "real_rows_accuracy_class": real}
        for name, own, real in (("a", 0.5, 0.6), ("b", 0.9, 0.3), ("c", 0.7, None)) for k in (0, 2)
    ]  # fmt: skip
    found = sections_of(made)
    (figure,) = found.of("classes", Figure)
    shown = dict(re.findall(r"(\w): made-up rows ([\d.]+%)", figure.drawing))
    assert shown == {"a": "51.0%", "b": "91.0%", "c": "71.0%"}
    assert "b: real rows 30.0%" in figure.drawing and "c: real rows" not in figure.drawing
    assert "+61.0" in figure.drawing and "In 1 of 3 classes" in found.words("classes")
    bare = [{name: row[name] for name in row if name != "real_rows_accuracy_class"} for row in made]
    assert "of 3 classes" not in sections_of(bare).words("classes")


def shapes(seed: int = 0, **classes: dict[str, float]) -> dict[str, Any]:
    listed = [{"class": name, "scores": scores} for name, scores in classes.items()]
    return entry(seed=seed, class_shapes=SHAPES | {"classes": listed})


def test_a_heat_map_is_a_mean_over_seeds_classes_and_columns(sections_of) -> None:
    first = shapes(a={"number": 0.5, "flag": 0.9}, b={"number": 0.7, "flag": 0.7})
    found = sections_of(ONE, [first, shapes(1, a={"number": 0.7, "flag": 0.9})])
    lines = found.lines("classes", "Column shapes")
    assert lines["a"] == ["60.0", "90.0", f"{100 * (0.6 + 3 * 0.9) / 4:.1f}"]  # over columns, not over kinds
    assert lines["b"] == ["70.0", "70.0", "70.0"]
    assert lines["All classes"] == ["65.0", "80.0", f"{100 * (0.65 + 3 * 0.8) / 4:.1f}"]
    assert found.of("classes", Table)[0].head == (
        "Class", "number<small>1 column</small>", "flag<small>3 columns</small>", "mean",
    )  # fmt: skip
    listed = [{"class": "a", "scores": {"x": 0.2, "y": 0.4}}, {"class": "b", "scores": {"x": 0.3}}]
    sizeless = entry(class_shapes={"groups": ["x", "y"], "columns": {"x": 9}, "classes": listed})
    lines = sections_of(ONE, [sizeless]).lines("classes", "Column shapes")
    assert (lines["a"], lines["b"]) == (["20.0", "40.0", "30.0"], ["30.0", "–", "30.0"])


def test_the_lowest_columns_are_those_of_the_attack(sections_of) -> None:
    low = [
        {"column": "b", "kind": "boolean", "score": 0.8, "metric": "TVComplement"},
        {"column": "a", "kind": "discrete", "score": 0.6, "metric": "KSComplement"},
    ]
    full = {"lowest_columns": low, "column_shapes": {"b": 0.8, "a": 0.6, "c": 0.9}, "seed": 3}
    made = [*ONE, *rows("public_random", 0.1)]
    found = sections_of(made, [entry(), entry(**full), entry("public_random", **full)])
    (details,) = (one for one in found.of("columns", Details) if "lowest" in one.summary)
    assert all(part in details.summary for part in ("PLG-MI", "seed 3", "the 2 lowest, 70.0%"))
    assert found.lines("columns", "All columns") == {"a": ["60.0%"], "b": ["80.0%"], "c": ["90.0%"]}
    (figure,) = found.of("columns", Figure)
    assert re.findall(r">([ab] \(\w+\))<", figure.drawing) == ["a (discrete)", "b (boolean)"]
    assert figure.drawing.index("bar s0") < figure.drawing.index("bar s1")


def test_one_sorting_of_the_public_rows_stands_once(sections_of) -> None:
    labels = [
        {"class": "a", "public_rows": 90, "used": 10},
        {"class": "b", "public_rows": 2, "used": 0, "excluded": "2 rows are too few"},
        {"class": "c", "public_rows": 5},
    ]
    other = [{"class": "a", "public_rows": 91, "used": 10}]
    made = [*ONE, *rows("public_pseudo_labeled", 0.6), *rows("plgmi", 0.7, label="x")]
    found = sections_of(
        made,
        [
            entry(pseudo_labels=labels),
            entry("public_pseudo_labeled", pseudo_labels=labels),
            entry(label="x", pseudo_labels=other),
        ],
    )
    assert [heading.text for heading in found.of("labels", Heading)] == ["PLG-MI", "x"]
    first, second = found.of("labels", Table)
    lines = [[cell.text for cell in line.cells] for line in first.groups[0].lines]
    assert lines == [["a", "90", "10", ""], ["b", "2", "0", "2 rows are too few"], ["c", "5", "–", ""]]
    assert [cell.text for cell in second.groups[0].lines[0].cells] == ["a", "91", "10", ""]
    assert "10 public rows are used in 2 of 3 classes" in found.words("labels")
    assert "b (2 rows are too few)" in found.words("labels") and "No class is left out" in found.words("labels")
    seeds = sections_of(made, [entry(pseudo_labels=labels, seed=seed) for seed in (4, 7)])
    assert [heading.text for heading in seeds.of("labels", Heading)] == ["PLG-MI, seed 4"]


FULL = {
    "iteration": [0, 10, 20],
    "generator": [1.0, -1.0, -2.0],
    "discriminator": [-5.0, 0.5, 0.1],
    "inversion": [9.0, None, 2.0],
    "conditioning": [3.0, 0.1, 0.01],
}


def test_one_training_is_drawn_once_two_of_its_losses_on_a_logarithmic_axis(sections_of) -> None:
    made = [*searched("random", 0, 1), *searched("tpe", 0, 1), *rows("gan_without_target", 0.5)]
    found = sections_of(
        made,
        [
            entry(latent_search="random", seed=1), entry(latent_search="random", seed=2, losses=FULL),
            entry(latent_search="tpe", seed=3, losses=FULL),
            entry("gan_without_target", losses={"generator": [1.0, 2.0], "inversion": [1.0, None], "conditioning": []}),
        ],
    )  # fmt: skip
    first, second = found.of("losses", Details)
    assert (first.summary, first.is_open, second.is_open) == ("PLG-MI, seed 2", True, False)
    panels = first.blocks[0].figures
    assert [one.title for one in panels] == ["Generator loss", "Discriminator loss", "Inversion loss",
                                             "Conditioning loss"]  # fmt: skip
    assert ["logarithmic" in one.caption for one in panels] == [False, True, False, True]
    assert [one.title for one in second.blocks[0].figures] == ["Generator loss"]  # the others are too short


def memory(share: float | None, low: float | None = None, high: float | None = None, **others: Any) -> dict[str, Any]:
    return {"train_mean": 0.07, "heldout_mean": 0.072, "share_nearer_to_train": share, "low": low, "high": high,
            "n": 1000} | others  # fmt: skip


def test_attacks_and_baselines_stand_around_one_half(sections_of) -> None:
    made = [*ONE, *rows("public_random", 0.1), *rows("gan_without_target", 0.5)]
    entries = [
        entry(memorisation=memory(0.55, 0.53, 0.57)),
        entry("public_random", memorisation=memory(0.51, 0.49, 0.53)),
        entry("gan_without_target"),
    ]
    found = sections_of(made, entries)
    assert found.lines("memorization") == {
        "PLG-MI": [".0700", ".0720", "55.0% (53.0 to 57.0)", "1,000"],
        "Public rows at random": [".0700", ".0720", "51.0% (49.0 to 53.0)", "1,000"],
    }
    (table,) = found.of("memorization", Table)
    assert [line.css for line in table.groups[0].lines] == ["", "baseline"]
    (figure,) = found.of("memorization", Figure)
    drawn = figure.drawing
    assert "PLG-MI: 55.0% (95% interval 53.0 to 57.0)" in drawn and "chance 50%" in drawn
    at = {label: float(x) for x, label in re.findall(r'x="([\d.]+)%"[^>]*class="tick"[^>]*>(\d+)%<', drawn)}
    line = re.search(r'x1="([\d.]+)%"[^>]*class="guess"', drawn)
    assert line and float(line[1]) == at["50"]
    assert "memorization" not in sections_of(ONE, [entry()]).by_id
    bare = sections_of(ONE, [entry(memorisation={"train_mean": 0.1})])
    assert bare.lines("memorization") == {"PLG-MI": [".1000", "–", "–", "–"]} and not bare.of("memorization", Figure)


def test_seeds_are_pooled_with_an_interval_over_them(sections_of) -> None:
    other = memory(0.51, 0.49, 0.53, train_mean=0.08, heldout_mean=0.084, n=500)
    found = sections_of(ONE, [entry(memorisation=memory(0.55, 0.53, 0.57)), entry(memorisation=other, seed=1)])
    assert found.lines("memorization")["PLG-MI"] == [".0750", ".0780", "53.0% (27.6 to 78.4)", "1,500"]


def test_rows_of_classes_are_no_attacks_of_their_own(sections_of) -> None:
    made = [*rows("plgmi", 0.8, seconds=2.0), *(ONE[0] | {"class": name, "attack_accuracy": 0.7} for name in "ab")]
    tables = [block for block in sections_of(made).blocks("tested") if isinstance(block, Table)]
    (said,) = (str(line.cells[1].text) for one in tables for group in one.groups for line in group.lines
               if "of wall time" in str(line.cells[1].text))  # fmt: skip
    assert said == "2.00 s of wall time for all 1 attacks together"


def test_the_share_is_that_of_all_evaluations_as_among_the_measures(sections_of) -> None:
    shares = {0: 0.70, 1: 0.50, 2: 0.48}
    made = [row for index, share in shares.items() for row in rows("plgmi", 0.8, evaluation_index=index,
                                                                   nearer_to_train=share, samples=1000)]  # fmt: skip
    found = sections_of(made, [entry(memorisation=memory(0.70, 0.66, 0.74))])
    assert found.lines("memorization")["PLG-MI"] == [".0700", ".0720", "56.0% (52.0 to 60.0)", "3,000"]
    trainings = [*made, *rows("plgmi", 0.8, seed=1, nearer_to_train=0.50, samples=1000)]
    both = [entry(memorisation=memory(0.70, 0.66, 0.74)), entry(memorisation=memory(0.50, 0.46, 0.54), seed=1)]
    assert sections_of(trainings, both).lines("memorization")["PLG-MI"][2].startswith("53.0% (14.9 to 91.1")


def pair(name: str, distance: float | None, private: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    return {"class": name, "distance": distance, "private": private, "reconstructed": made}


PAIRS = [
    pair("x", 0.2, {"bmi": 20.5, "n": 3, "race": "A", "flag": "no"}, {"bmi": 19.25, "n": 5, "race": "A", "flag": "no"}),
    pair("y", 0.1, {"bmi": 30.0, "n": 1, "race": "A", "flag": "yes"}, {"bmi": 30, "n": 1, "race": "B", "flag": "yes"}),
    pair("z", None, {"bmi": 1, "n": 1, "race": "A", "flag": "no"}, {"bmi": 1, "n": 1, "race": "A", "flag": "no"}),
]


def plain(cell: Any) -> str:
    return re.sub(r"<[^>]*>", "", str(cell.text))


def test_the_closest_pairs_stand_side_by_side(sections_of) -> None:
    far = pair("x", 0.5, {"a": 1}, {"a": 2})
    made = [*ONE, *rows("public_random", 0.1)]
    found = sections_of(made, [entry(nearest=PAIRS, seed=4), entry("public_random", nearest=[far, far], seed=4)])
    (table,) = found.of("rows", Table)
    assert table.head == ("Class", "bmi", "n", "race", "distance")  # in flag every pair agrees
    lines = [[plain(cell) for cell in line.cells] for group in table.groups for line in group.lines]
    assert lines == [  # the closest first, without a distance last
        ["y real", "30", "1", "A", ""], ["made up", "✓30", "✓1", "✗B", ".100"],
        ["x real", "20.5", "3", "A", ""], ["made up", "19.25 (−1.25)", "5 (+2)", "✓A", ".200"],
        ["z real", "1", "1", "A", ""], ["made up", "✓1", "✓1", "✓A", "–"],
    ]  # fmt: skip
    words = found.words("rows")
    for part in ("1 of 3 pairs", "mean distance is .150", "Public rows at random .500", "1 column", "flag"):
        assert part in words
    assert "rows" not in sections_of(made, [entry(nearest=PAIRS)], redact=True).by_id
    assert "rows" not in sections_of(made, [entry("public_random", nearest=PAIRS)]).by_id


def test_what_one_row_lacks_is_not_compared(sections_of) -> None:
    found = sections_of(ONE, [entry(nearest=[pair("x", 0.1, {"a": 1, "b": None}, {"b": 2, "c": "q"})])])
    (table,) = found.of("rows", Table)
    real, made = table.groups[0].lines
    assert [plain(cell) for cell in real.cells] == ["x real", "1", "–", "–", ""]
    assert [plain(cell) for cell in made.cells] == ["made up", "–", "?2", "?q", ".100"]
    assert "0 of 1 pairs" in found.words("rows")
