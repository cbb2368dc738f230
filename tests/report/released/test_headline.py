"""What the opening of a report says, from the numbers alone."""

from typing import Any

import pytest

from lightleak.report.released.comparison import compare
from lightleak.report.released.entries import Entry, Memorisation
from lightleak.report.released.headline import LIMITS, ONE_EVALUATION, ONE_GENERATOR, headline
from lightleak.report.released.result import parse_result
from lightleak.report.vertical.headline import Headline


def rows(attack: str, *accuracies: float, **fields: Any) -> list[dict[str, Any]]:
    common = {"attack": attack, "seed": 0, "ceiling": 0.4, "evaluation": "gandalf", "dataset": "t", "setting": "2"}
    return [common | {"evaluation_index": k, "attack_accuracy": value} | fields for k, value in enumerate(accuracies)]


def memory(
    attack: str, share: float | None, low: float | None = None, high: float | None = None, seed: int = 0
) -> Entry:
    found = Memorisation(0.07, 0.08, share, low, high, 100)
    return Entry("run", attack, attack, "t", "2", seed=seed, memorisation=found)


def said(*found: dict[str, Any], entries: tuple[Entry, ...] = ()) -> Headline:
    return headline(compare([parse_result(row, "run", "row") for row in found], entries), entries)


PLGMI = rows("plgmi", 0.80, 0.81, 0.82)


@pytest.mark.parametrize(
    ("public", "verdict"),
    [
        (rows("public_pseudo_labelled", 0.60, 0.61, 0.62),
         "The model gives away what its classes look like: the made-up rows are recognised 20.0 points (95% interval "
         "16.5 to 23.5) more often than public rows that the released model merely sorted into the classes (61.0%)"),
        (rows("gan_without_target", 0.79, 0.81, 0.83),
         "The made-up rows are not measurably better than rows made up without the model's loss (81.0%): the "
         "difference of 0.0 points"),
        (rows("public_random", 0.90, 0.91, 0.92),
         "The made-up rows are recognised 10.0 points less often than public rows drawn at random (91.0%): this attack "
         "got nothing out of the model"),
        (rows("public_random", 0.5), "That is 31.0 points more often than public rows drawn at random (50.0%); "),
        ([], "No baseline from public data was measured"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_the_best_baseline(public, verdict: str) -> None:
    lower = (
        rows("public_random", 0.04, 0.05, 0.06) if len(public) > 1 and public[0]["attack"] != "public_random" else []
    )
    found = said(*PLGMI, *public, *lower)
    assert found.verdict[0].startswith(verdict)
    assert found.sentence.startswith(
        "From the released model and public data alone, an attacker made up rows of which 81.0% (95% interval 78.5 to "
        "83.5) are taken, by another model, for the class they were made for."
    )
    assert ("Of public rows" in found.sentence or "Of rows made up" in found.sentence) == bool(public)
    assert len(found.tiles) == 2 + bool(public)


@pytest.mark.parametrize(
    ("ceiling", "line"),
    [
        (0.4, "They are recognised more often than real rows are (40.0%)"),
        (0.8, "The other model recognises real private rows in 80.0% of cases"),  # inside the interval
        (None, None),
    ],
)
def test_real_rows_are_no_bound_of_the_attack(ceiling, line) -> None:
    found = said(*(row | {"ceiling": ceiling} for row in PLGMI))
    assert any(line in one for one in found.verdict) if line else len(found.verdict) == 2
    assert len(found.tiles) == 1 + (ceiling is not None)


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ((), "Whether single rows the model was trained on come through was not measured."),
        ((memory("plgmi", None),), "was not measured"),
        ((memory("plgmi", 0.51),), "51.0% of the made-up rows lie nearer"),
        ((memory("plgmi", 0.51, 0.49, 0.53),), "No sign that single training rows are copied: 51.0%"),
        ((memory("plgmi", 0.93, 0.26, 0.99),), "Too few private rows were held out to say whether single training"),
        ((memory("plgmi", 0.45, 0.43, 0.47),), "No sign that single training rows are copied: 45.0%"),
        ((memory("plgmi", 0.60, 0.58, 0.62),), "Traces of single training rows may come through: 60.0%"),
        ((memory("plgmi", 0.60, 0.58, 0.62), memory("public_random", 0.5, 0.48, 0.52)),
         "Traces of single training rows come through: 60.0% of the made-up rows (95% interval 58.0 to 62.0)"),
        ((memory("plgmi", 0.60, 0.58, 0.62), memory("public_random", 0.59, 0.57, 0.61)),
         "But so do 59.0% of rows from public data, which cannot be copies."),
        ((memory("plgmi", 0.60, 0.58, 0.62), memory("plgmi", 0.62, 0.6, 0.64, seed=1)),
         "Traces"),
    ],
)  # fmt: skip
def test_copies_are_told_from_nearness_that_public_rows_have_too(entries, line: str) -> None:
    public = rows("public_random", 0.04, 0.05, 0.06)
    if len(entries) == 2 and entries[1].attack == "plgmi":  # over two seeds 61.0 (48.3 to 73.7): no longer sure
        line = "Too few private rows were held out to say whether single training rows are copied: 61.0%"
    assert any(line in one for one in said(*PLGMI, *public, entries=entries).verdict)


def test_equal_rows_stand_beside_those_of_public_rows() -> None:
    made = [row | {"exact_match_rate": 0.002 + 0.0001 * k} for k, row in enumerate(PLGMI)]
    public = rows("public_random", 0.04, 0.05, 0.06)
    line = "Of the made-up rows 0.2% equal a private training row in every column"
    assert f"{line}." in said(*made, *public).verdict
    equal = [row | {"exact_match_rate": 0.011 + 0.0001 * k} for k, row in enumerate(public)]
    assert (
        f"{line}; of public rows 1.1% do, so that equal rows alone say nothing about copying."
        in said(*made, *equal).verdict
    )
    nothing = [row | {"exact_match_rate": 0.0} for row in PLGMI]
    assert "No made-up row equals a private training row in every column." in said(*nothing, *equal).verdict
    none = [row | {"exact_match_rate": 0.0} for row in public]
    assert f"{line}; of public rows 0.0% do." in said(*made, *none).verdict


def test_how_the_attack_was_chosen_is_said() -> None:
    found = said(*PLGMI, *rows("plgmi", 0.7, 0.71, 0.72, label="other"), *rows("plgmi", 0.6, 0.7, setting="3"))
    assert found.selection.startswith("PLG-MI: 3 evaluations, 1 training of the models and the generator (setting 2).")
    assert "among 3 combinations measured" in found.selection
    single = said(*rows("plgmi", 0.8, samples=1000))
    assert single.selection == "PLG-MI: 1 evaluation of 1,000 rows, 1 training of the models and the generator."
    assert ONE_EVALUATION in single.limits and single.tiles[0].detail == "PLG-MI, one evaluation, no interval"


def test_limits_name_what_the_interval_is_over() -> None:
    assert ONE_GENERATOR in said(*PLGMI).limits
    seeds = said(*PLGMI, *(row | {"seed": 1} for row in PLGMI))
    assert seeds.limits == LIMITS
    assert "2 trainings" in seeds.selection


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ((), "No attack has finished yet"),
        (rows("public_random", 0.05), "Only the baselines from public data have been measured"),
        ([row | {"attack_accuracy": None} for row in PLGMI], "were not judged by another model"),
    ],
)
def test_nothing_measured_is_said(found, sentence: str) -> None:
    assert sentence in said(*found).sentence
    assert not said(*found).tiles and not said(*found).verdict
