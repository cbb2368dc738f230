"""Tables of errors, kinds of results and defences."""

from typing import Any

import pytest

from lightleak.report.vertical.comparison import compare, properties
from lightleak.report.vertical.result import PropertyResult, Setting
from lightleak.report.vertical.tables import defense_panels, error_tables, kind_table, shown_kinds

DEFENDED = Setting("adult", defense="withdraw ratio 0.5")


def rows(errors: tuple[float, ...], first_seed: int = 0, **changes: Any) -> list[PropertyResult]:
    values: dict[str, Any] = {
        "run": "run", "setting": Setting("adult"), "attack": "provfl_b", "variant": "passive", "adversary": "C1",
        "property_name": "sex=Male", "true": 0.5, "own_error": 0.2, "auc": 0.9,
    }  # fmt: skip
    values |= changes
    found = ({"estimated": 0.5 + error, "unaware": 0.5 + error} | values for error in errors)
    return [PropertyResult(seed=seed, **one) for seed, one in enumerate(found, first_seed)]


def test_adversaries_share_a_row_and_variants_do_where_each_has_one() -> None:
    found = (
        rows((0.1, 0.1))
        + rows((0.05, 0.05), adversary="C2")
        + rows((0.02, 0.02), attack="provfl_m", variant="LR+MR")
        + rows((0.2, 0.2), attack="provfl_m", variant="MR", adversary="C2")
        + rows((0.3,), attack="aia")
        + rows((0.2, 0.2), attack="prior")
        + rows((0.01, 0.01), attack="aia_raw_adjusted")
    )
    (table,) = error_tables(properties(compare(found)))
    assert table.title == "sex=Male"
    titles = ["ProVFL-M (C1: LR+MR, C2: MR)", "ProVFL-B", "AIA", "Own columns alone"]
    assert [row.title for row in table.rows] == titles
    assert [sorted(row.cells) for row in table.rows] == [["C1", "C2"], ["C1", "C2"], ["C1"], ["C1"]]
    assert [sorted(row.is_best) for row in table.rows] == [["C1"], ["C2"], [], []]
    assert [row.n_seeds for row in table.rows] == [[2], [2], [1], [2]]
    assert [row.reads_exchange for row in table.rows] == [True, True, True, False]
    (redacted,) = error_tables(properties(compare(found)), redact=True)
    assert [row.title for row in redacted.rows] == titles[:-1]


def test_variants_of_one_adversary_stand_apart() -> None:
    found = rows((0.1,), attack="provfl_m", variant="LR") + rows((0.2,), attack="provfl_m", variant="MR")
    (table,) = error_tables(properties(compare(found)))
    assert [row.title for row in table.rows] == ["ProVFL-M, LR", "ProVFL-M, MR"]


def test_titles_say_the_setting_and_the_dataset_where_they_differ() -> None:
    found = rows((0.1,)) + rows((0.2,), setting=Setting("adult", epoch=3)) + rows((0.1,), setting=Setting("bank"))
    tables = error_tables(properties(compare(found)))
    assert [table.title for table in tables] == ["adult: sex=Male", "bank: sex=Male"]
    assert [row.title for row in tables[0].rows] == ["ProVFL-B · epoch not stated", "ProVFL-B · epoch 3"]


def test_kinds_are_compared_where_there_are_several() -> None:
    found = [
        *rows((0.1,), by_kind={"AO": 0.4, "VG": 0.53}),
        *rows((0.3,), first_seed=1, by_kind={"AO": 0.2, "VG": 0.5}),
        *rows((0.2,), adversary="C2", by_kind={"AO": 0.7}),
    ]
    table = kind_table(properties(compare(found)))
    ((title, (row,)),) = table
    assert (title, row.title) == ("sex=Male", "ProVFL-B")
    assert {kind: value.mean for kind, value in row.errors.items()} == pytest.approx({"AO": 0.2, "VG": 0.015})
    assert row.together and row.together.mean == pytest.approx(0.2)
    assert shown_kinds(table) == ["AO", "VG"]
    assert kind_table(properties(compare(rows((0.1,), true=None, by_kind={"AO": 0.4, "VG": 0.5})))) == ()


def test_a_defence_is_measured_against_the_same_seeds() -> None:
    found = rows((0.11, 0.32), setting=DEFENDED, auc=0.85, defense_strength=0.5) + rows((0.01, 0.02, 0.9))
    (panel,) = defense_panels(compare(found))
    assert panel.title == "sex=Male · C1" and not panel.changes_share
    (name, plain), (other, defended) = panel.lines
    assert (name, plain.rise, plain.cost, other) == ("none", None, None, "withdraw ratio 0.5")
    # Seeds 0 and 1: .11 - .01 and .32 - .02; seed 2 has no defended counterpart.
    assert defended.rise and defended.rise.mean == pytest.approx(0.2) and defended.rise.n == 2
    assert defended.cost and defended.cost.mean == pytest.approx(-0.05)
    assert list(panel.styles) == ["withdraw ratio", "no defence"]


def test_under_each_defence_the_attack_is_chosen_on_other_seeds() -> None:
    found = (
        rows((0.1, 0.1)) + rows((0.2, 0.2), setting=DEFENDED)
        + rows((0.05, 0.05), attack="aia") + rows((0.4, 0.4), attack="aia", setting=DEFENDED)
        + rows((0.01, 0.01), attack="provfl_m", variant="MR")
    )  # fmt: skip
    (panel,) = defense_panels(compare(found))
    (_, plain), (_, defended) = panel.lines
    assert (plain.group.title, defended.group.title) == ("ProVFL-M, MR", "ProVFL-B")
    # ProVFL-M was not tried under the defence: it is compared with AIA, which was closest of those tried with both.
    assert defended.rise and defended.rise.mean == pytest.approx(0.15)


def test_who_does_not_know_the_defence_stands_apart_where_it_matters() -> None:
    known = rows((0.01, 0.02), setting=DEFENDED, unaware=0.35, trained=0.34)
    (panel,) = defense_panels(compare(rows((0.01, 0.01)) + known))
    assert panel.changes_share
    group = panel.lines[1][1].group
    assert group.error and group.error.mean == pytest.approx(0.015)
    assert group.unaware_error and group.unaware_error.mean == pytest.approx(0.15)
    assert group.trained_error and group.trained_error.mean == pytest.approx(0.01)


def test_without_a_defence_there_is_no_panel() -> None:
    assert defense_panels(compare(rows((0.1,)))) == ()
    (panel,) = defense_panels(compare(rows((0.1,), setting=DEFENDED)))
    assert panel.lines[0][1].rise is None and panel.drawing is not None
    (unknown,) = defense_panels(compare(rows((0.1,), setting=DEFENDED, auc=None)))
    assert unknown.drawing is None


def test_redaction_draws_nothing_of_own_columns() -> None:
    groups = compare(rows((0.1,)) + rows((0.2,), setting=DEFENDED))
    drawn, redacted = (defense_panels(groups, redact)[0].drawing for redact in (False, True))
    assert drawn and "guess" in drawn
    assert redacted and "guess" not in redacted
