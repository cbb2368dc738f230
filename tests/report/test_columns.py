from dataclasses import replace

from lightleak.report.columns import column_leakage
from lightleak.report.comparison import Group
from lightleak.report.result import Result, Setting

SETTING = Setting("run")


def group(columns: dict[str, float], attack: str = "tableak") -> Group:
    return Group(SETTING, attack, 8, (Result(SETTING, attack, 8, (0, 0), {}, columns, {}),), {})


def test_columns_stand_by_what_leaks_over_guessing() -> None:
    attack = group({"country": 0.95, "age": 0.6, "sex": 0.5})
    guessed = group({"country": 0.9, "age": 0.2, "sex": 0.55}, "random")
    found = column_leakage(replace(attack, baseline=guessed))
    assert found is not None
    assert [pair.label for pair in found.pairs] == ["age", "country", "sex"]
    assert [pair.note for pair in found.pairs] == ["+40.0", "+5.0", "−5.0"]
    assert found.most == ("age", "country")


def test_without_guessing_the_accuracy_alone_is_shown() -> None:
    found = column_leakage(group({"a": 0.2, "b": 0.9}))
    assert found is not None
    assert [(pair.label, pair.start, pair.note) for pair in found.pairs] == [("b", None, ""), ("a", None, "")]
    assert (found.most, found.guessed) == ((), False)


def test_no_columns_no_section() -> None:
    assert column_leakage(group({})) is None


def test_a_wide_table_keeps_what_leaks_most() -> None:
    found = column_leakage(group({f"c{i}": i / 100 for i in range(100)}))
    assert found is not None
    assert len(found.pairs) == 100
    assert found.drawing.count('class="to"') == 60
    assert "c99:" in found.drawing and "c10:" not in found.drawing
