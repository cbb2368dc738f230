"""No text cell of an exported table is a formula to a spreadsheet, no number is changed, and reading undoes it."""

import csv
from io import StringIO

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.csv_text import csv_text, without_escape

CELLS = st.text(st.sampled_from("=+-@'\t\r\n,\"a1.e \u00e9"), max_size=6)


def read(text: str) -> pd.DataFrame:
    return pd.read_csv(StringIO(text, newline=""), dtype=str, keep_default_na=False)


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "-"])
def test_text_that_begins_like_a_formula_is_escaped_in_cells_and_names(cell: str) -> None:
    text = csv_text(pd.DataFrame({cell: [cell, "plain"], "n": [-1, 2.5]}))
    (name, _), (first, number), (second, _) = list(csv.reader(StringIO(text, newline="")))
    assert (name, first, number, second) == (f"'{cell}", f"'{cell}", "-1.0", "plain")
    assert read(csv_text(pd.DataFrame({"a": [cell]}), raw=True))["a"][0] == cell


def test_numbers_stay_numbers_whatever_holds_them() -> None:
    frame = pd.DataFrame(
        {"mixed": [-3, "-3", "+1.5e-3", "-.5", None, -0.25], "category": pd.Categorical(["-1", "=x"] * 3)}
    )
    assert csv_text(frame) == "mixed,category\n-3,-1\n-3,'=x\n+1.5e-3,-1\n-.5,'=x\n,-1\n-0.25,'=x\n"


@given(st.lists(CELLS, min_size=1, max_size=5))
def test_what_is_written_reads_as_it_was(cells: list[str]) -> None:
    written = read(csv_text(pd.DataFrame({"cell": cells, "row": range(len(cells))})))
    assert not any(cell[:1] in tuple("=@\t\r\n") for cell in written["cell"] if cell)
    assert [without_escape(cell) for cell in written["cell"]] == cells
