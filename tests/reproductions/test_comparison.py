"""``comparison.md``: the paper's cells next to ours, and when they agree."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.summary import Summary, summarize
from lightleak.reproductions.comparison import FEWEST, Compared, chance_of_agreement, markdown, rounding
from lightleak.reproductions.paper.values import PaperCell, PaperTable

CELL = PaperCell("cell_accuracy", "percent", 79.3, 4.5, dataset="adult", attack="tableak", batch_size=32)
ENVIRONMENT = {
    "date": "2026-01-02T03:04:05+00:00",
    "cores": 2,
    "device": "cpu",
    "python": "3.11.7",
    "packages": {"torch": "2.13.0", "lightleak": "0.1.0"},
}


def table(*cells: PaperCell, **changes: Any) -> PaperTable:
    made = PaperTable("t", "Someone, 2023", "Sec. 9", "A caption", "cell_accuracy", "percent", cells, table=17)
    return replace(made, **changes)


def exactly(value: float, n: int = FEWEST) -> Summary:
    return Summary(value, math.nan, n, math.nan, math.nan)


def test_means_agree_within_their_combined_interval() -> None:
    half = 1.96 * 4.5 / math.sqrt(50) + 0.05  # the paper's error and rounding; ours has no interval
    for ours, agrees in ((0.0, True), (half - 0.01, True), (half + 0.01, False)):
        assert Compared(CELL, exactly(79.3 + ours), measurements=50).agrees is agrees
        assert Compared(CELL, exactly(79.3 - ours), measurements=50).agrees is agrees
    assert Compared(CELL, exactly(math.nan), measurements=50).agrees is None
    ours = Summary(69.0, 5.0, 5, 61.0, 77.0)
    far = replace(CELL, mean=60.0, std=20.0)
    assert Compared(far, ours, measurements=50).agrees is True  # 9 apart; the combined half width is 9.7
    assert Compared(replace(far, std=2.0), ours, measurements=50).agrees is False


def test_a_paper_without_a_deviation_is_taken_to_spread_as_ours_does() -> None:
    bare, ours = replace(CELL, mean=60.0, std=None), Summary(69.0, 5.0, 5, 62.8, 75.2)
    half = 2.776445 * 5  # Student's quantile, as the deviation is that of five values
    for measurements, allowed in ((1, math.hypot(6.2, half)), (50, math.hypot(6.2, half / math.sqrt(50)))):
        one = Compared(bare, ours, measurements=measurements)
        assert one.allowed == pytest.approx(allowed + 0.05, rel=1e-5)
        assert one.agrees is (allowed >= 9)


def test_measurements_that_are_all_equal_are_taken_to_spread_as_the_papers_do() -> None:
    allowed = 1.96 * 4.5 * math.hypot(1 / math.sqrt(50), 1 / math.sqrt(5)) + 0.05
    for above, agrees in ((allowed - 0.01, True), (allowed + 0.01, False)):
        equal = Summary(79.3 + above, 0.0, 5, 79.3 + above, 79.3 + above)
        assert Compared(CELL, equal, measurements=50).agrees is agrees
        assert Compared(CELL, replace(equal, n=1), measurements=50, is_fact=True).agrees is (above < 1.3)


def test_a_printed_zero_keeps_its_digits() -> None:
    for metric, unit, mean, half in (
        ("continuous_entropy", "nats", -4.0, 0.005),
        ("cell_accuracy", "percent", 95.0, 0.05),
        ("distinguishing_accuracy", "fraction", 0.5, 0.005),
        ("absolute_error", "fraction", 0.03, 0.00005),
        ("psnr", "dB", 20.0, 0.05),
        ("rows", "count", 1000.0, 0.5),
    ):
        assert rounding(PaperCell(metric, unit, mean)) == pytest.approx(half, rel=1e-3), unit


def test_chance_is_agreement_after_an_exchange() -> None:
    near, far = Compared(CELL, exactly(79.3)), Compared(replace(CELL, mean=20.0), exactly(20.0))
    assert chance_of_agreement([near, far]) == 0.0
    assert chance_of_agreement([near, replace(near), far]) == pytest.approx(1 / 3)  # 2 of the 6 exchanges
    assert chance_of_agreement([near]) is None
    other = Compared(replace(CELL, metric="rmse"), exactly(79.3))
    assert chance_of_agreement([near, other, Compared(CELL, exactly(79.3, 1))]) is None


@pytest.mark.parametrize(
    ("printed", "ours", "agrees"),
    [
        (4.2, 4.24, True),
        (4.2, 4.26, False),
        (33699.0, 33699.4, True),
        (33699.0, 33700.0, False),
        (105.0, 105.0, True),
        (105.0, 106.0, False),
        (0.8, 0.75, True),
    ],
)
def test_facts_agree_to_the_digit_that_is_printed(printed: float, ours: float, agrees: bool) -> None:
    cell = PaperCell("tolerance", "column units", printed, dataset="adult", column="age")
    assert Compared(cell, exactly(ours, n=1), is_fact=True).agrees is agrees


def test_fewer_than_five_measurements_are_not_judged() -> None:
    few, enough = Compared(CELL, exactly(79.3, FEWEST - 1)), Compared(CELL, exactly(79.3))
    assert few.too_few and few.agrees is None
    assert not enough.too_few and enough.agrees is True
    assert not Compared(CELL, summarize([])).too_few  # not run
    assert not Compared(CELL, exactly(79.3, 1), same_data=False).too_few
    page = markdown(table(CELL), [few], ENVIRONMENT, "x", [])
    assert "cells agree" not in page and "Too few measurements: no cell was measured 5 times or more" in page
    assert "| 4 | +0.00 | too few |" in page
    page = markdown(table(CELL), [few, Compared(replace(CELL, batch_size=64), exactly(79.0))], ENVIRONMENT, "x", [])
    assert "1 of 1 cells agree (" in page and "1 more were measured fewer than 5 times, too few to judge." in page


ERROR = PaperCell("absolute_error", "fraction", 0.0186, dataset="adult", property_name="sex=Male", adversary="C1")


@pytest.mark.parametrize("unit", ["distance", "seconds"])
def test_nothing_is_said_of_seconds_and_of_distances(unit: str) -> None:
    assert Compared(PaperCell("made", unit, 4.4), exactly(4.4)).agrees is None


def test_page_of_fractions_has_their_columns_decimals_and_tolerances() -> None:
    varied = replace(
        ERROR, option="lambda", value=1.0, attack="provfl_m", variant="MR", defense="laplace", strength=0.1
    )
    page = markdown(table(varied), [Compared(varied, summarize([0.02, 0.03] * 3))], ENVIRONMENT, "x", [])
    header, _, row = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    shown = dict(zip(header, row, strict=True))
    expected = {"property_name": "sex=Male", "adversary": "C1", "attack": "provfl_m", "variant": "MR"}
    expected |= {"option": "lambda", "value": "1", "defense": "laplace", "strength": "0.1"}
    assert expected.items() <= shown.items()
    assert (shown["paper"], shown["ours"], shown["difference"]) == ("0.0186", "0.0250 ± 0.0055", "+0.0064")
    assert "1 of 1 cells agree (two values agree if their difference is within" in page


def test_nothing_is_said_of_correlations_and_of_values_that_are_missing() -> None:
    assert Compared(PaperCell("kendall_tau", "correlation", -0.1), exactly(0.4)).agrees is None
    assert Compared(replace(CELL, mean=float("nan")), exactly(50)).agrees is None
    assert Compared(CELL, summarize([])).agrees is None


@given(st.lists(st.floats(0, 100), min_size=2, max_size=8))
def test_difference_is_ours_minus_theirs(values: list[float]) -> None:
    assert Compared(CELL, summarize(values)).difference == pytest.approx(sum(values) / len(values) - 79.3)


def test_page_shows_every_cell_with_what_varies() -> None:
    compared = [
        Compared(CELL, summarize([78.0, 80.0] * 3)),
        Compared(replace(CELL, attack="random", std=None), summarize([])),
        Compared(replace(CELL, batch_size=64, mean=math.nan, std=None), exactly(12345.6)),
    ]
    page = markdown(table(CELL, notes="Said in a footnote."), compared, ENVIRONMENT, "lightleak reproduce t", ["Ours."])
    lines = page.splitlines()
    assert lines[0] == "# t: A caption"
    assert "Someone, 2023, Table 17, Sec. 9." in page
    assert "Made by `lightleak reproduce t` on 2026-01-02, 2 cores, cpu, Python 3.11.7, torch 2.13.0" in page
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    assert rows[0][:6] == ["dataset", "attack", "batch_size", "metric", "paper", "ours"]
    assert rows[0][6:] == ["95% interval", "n", "difference", "agrees"]
    assert rows[2][:6] == ["adult", "tableak", "32", "cell_accuracy", "79.3 ± 4.50", "79.0 ± 1.10"]
    assert rows[2][7:] == ["6", "-0.30", "yes"]
    assert "| adult | random | 32 | cell_accuracy | 79.3 | not run |  | 0 |  |  |" in lines
    assert "| adult | tableak | 64 | cell_accuracy | - | 12346 |  | 5 |  |  |" in lines
    assert "1 of 1 cells agree" in page
    assert lines[-2:] == ["- Said in a footnote.", "- Ours."]


def test_page_of_a_figure_has_no_verdict() -> None:
    figure = table(table=None, figure=9, description="Curves.")
    page = markdown(figure, [Compared(replace(CELL, mean=math.nan, std=None), exactly(50))], ENVIRONMENT, "x", [])
    assert "Figure 9" in page and "The paper prints no numbers to compare with." in page and "- Curves." in page


def test_a_stand_in_is_named_in_the_head_of_its_own_column() -> None:
    cells = [replace(CELL, dataset="femnist"), replace(CELL, dataset="femnist", batch_size=64)]
    ours = [Compared(cell, exactly(70.0), same_data=False, stand_in="digits (stand-in)") for cell in cells]
    page = markdown(table(*cells), ours, ENVIRONMENT, "lightleak", [])
    assert "| paper: femnist | ours: digits (stand-in) |" in page
    assert "nothing is judged" in page and "-9.30" not in page  # 70.0 less the cell's 79.3
    mixed = [ours[0], Compared(cells[1], exactly(70.0))]
    assert "| paper | ours |" in markdown(table(*cells), mixed, ENVIRONMENT, "lightleak", [])


def test_settings_of_local_training_are_columns() -> None:
    cells = [replace(CELL, local_epochs=5, local_batch_size=m, random_batches=m == 5) for m in (1, 5)]
    page = markdown(table(*cells), [Compared(cell, exactly(70.0)) for cell in cells], ENVIRONMENT, "lightleak", [])
    assert "| local_epochs | local_batch_size | random_batches |" in page
    assert "| 5 | 1 | False |" in page and "| 5 | 5 | True |" in page


def test_the_side_of_an_interval_that_faces_the_paper_counts() -> None:
    """A share of 1 has an interval on one side only."""
    cell = PaperCell("distinguishing_accuracy", "fraction", 0.97)
    ours = Summary(1.0, math.nan, 16, 0.81, 1.0)
    assert Compared(cell, ours).agrees is True
    assert Compared(replace(cell, mean=0.7), ours).agrees is False
    assert Compared(replace(cell, mean=0.9), replace(ours, mean=0.5, low=0.2, high=0.6)).agrees is False
