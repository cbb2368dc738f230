"""Two marks on a line by name."""

from lightleak.report.blocks import Figure
from lightleak.report.charts import MOST_DRAWN, gains, pairs_by_name


def test_names_stand_by_what_leaks_over_the_reference() -> None:
    reached, guessed = {"country": 0.95, "age": 0.6, "sex": 0.5}, {"country": 0.9, "age": 0.2, "sex": 0.55}
    assert list(gains(reached, guessed)) == ["age", "country", "sex"]
    *_, figure = pairs_by_name("columns", reached, guessed, "guessing", "recovered")
    assert isinstance(figure, Figure)
    notes = [figure.drawing.index(note) for note in ("+40.0", "+5.0", "−5.0")]
    assert notes == sorted(notes)


def test_without_a_reference_the_highest_value_comes_first() -> None:
    assert gains({"a": 0.2, "b": 0.9}, {}) == {"b": None, "a": None}
    (figure,) = pairs_by_name("columns", {"a": 0.2, "b": 0.9}, {}, "guessing", "recovered")  # no legend of two marks
    assert isinstance(figure, Figure) and 'class="from"' not in figure.drawing


def test_a_wide_table_keeps_what_leaks_most() -> None:
    (figure,) = pairs_by_name("columns", {f"c{i}": i / 100 for i in range(100)}, {}, "guessing", "recovered")
    assert isinstance(figure, Figure)
    assert figure.drawing.count('class="to"') == MOST_DRAWN
    assert "c99:" in figure.drawing and "c10:" not in figure.drawing
