"""The record of every person in results.json, the file with a line for each, and two runs compared."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lightleak.core.errors import UsageError
from lightleak.core.people import (
    ALL_ATTACKS,
    CSV_COLUMNS,
    CSV_FILE,
    Change,
    Group,
    Links,
    Means,
    People,
    Point,
    Rate,
    Repeated,
    Risk,
    Sharing,
    changed_people,
    compare_people,
    load_people,
    read_people,
    risks_table,
)
from lightleak.core.records import write_record


def people(**changes: Any) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "attack": "exact",
            "person": [0, 1, 2, 3],
            "row": ["p1", "p5", "p7", "p8"],
            "label": ["no", "no", "NA", "yes"],
            "sensitive.sex": ["F", "M", "None", "M"],
            "seen": 1,
            "proven": 1,
            "first_seen": [0, 0, 1, 1],
            "first_proven": pd.array([0, None, 1, 1], dtype="Int64"),
            "recovered": 1,
            "verdict": ["proven", "recovered", "proven", "not recovered"],
            "unique": [True, True, True, False],
            "sharing": [0, 0, 0, 3],
        }
    )
    return frame.assign(**changes)


def outcomes(change: Change) -> dict[str, int]:
    """Those that somebody had."""
    return {name: n for name, n in change.outcomes.items() if n}


def test_a_record_survives_its_file() -> None:
    written = People(
        "exact",
        n=4,
        proven=2,
        proven_numbers=1,
        recovered=1,
        not_recovered=1,
        has_certificates=True,
        claims=3,
        wrong=1,
        rows=8,
        unique=3,
        unit="round",
        curve=(Point(1, 4, 2, 1),),
        singling_out=Risk(Rate.of(2, 4), Rate.of(0, 3), None),
        sharing=(Sharing(0, 3, 3), Sharing(1, 1, 0)),
        groups=(Group("sex", "F", 4, 2, 0.1, 0.9, 1, (Point(1, 4, 2, 1),)),),
        inference=Risk(Rate.of(4, 4), column="sex"),
        other_inferences=(Risk(Rate.of(3, 4), column="race"),),
        links=Links(2, 1, 1, 0, 1),
        repeated=(Repeated(2, 9, 6, 3), Repeated(4, 4, 4, 1)),
        means=Means(2, (0, 1), 1.0, None, 5),
    )
    assert read_people({"people": [write_record(written)]}, "results.json") == (written,)
    assert written.proven_rate == Rate.of(2, 4)
    assert written.recurring == written.repeated[1]
    assert replace(written, repeated=written.repeated[:1]).recurring == written.repeated[0]
    assert replace(written, repeated=()).recurring is None
    with pytest.raises(UsageError, match="people, entry 0, key 'n': expected at least 1"):
        read_people({"people": [{**write_record(written), "n": 0}]}, "results.json")
    with pytest.raises(UsageError, match="expected a list"):
        read_people({"people": {}}, "results.json")


@pytest.mark.parametrize(("successes", "n"), [(0, 7), (7, 7), (3, 7)])
def test_a_rate_lies_in_its_interval(successes: int, n: int) -> None:
    rate = Rate.of(successes, n)
    assert rate is not None and 0 <= rate.low <= rate.share <= rate.high <= 1


def test_a_table_of_people_is_read_as_it_was_written(tmp_path: Path) -> None:
    people().to_csv(tmp_path / CSV_FILE, index=False)
    read = load_people(tmp_path)
    pd.testing.assert_frame_equal(read, people(), check_dtype=False)
    assert read["first_proven"].isna().tolist() == [False, True, False, False]


def test_a_file_of_an_earlier_version_does_not_say_how_many_share_a_row(tmp_path: Path) -> None:
    people().drop(columns="sharing").to_csv(tmp_path / CSV_FILE, index=False)
    assert load_people(tmp_path)["sharing"].isna().all()


def test_how_many_share_a_row_is_missing_where_the_table_is_not_known(tmp_path: Path) -> None:
    people(unique=None, sharing=None).to_csv(tmp_path / CSV_FILE, index=False)
    assert load_people(tmp_path)["sharing"].isna().all()


def test_a_run_without_people_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"capture\.coverage"):
        load_people(tmp_path)
    (tmp_path / CSV_FILE).write_text("attack,person\nexact,0\n")
    with pytest.raises(UsageError, match="verdict"):
        load_people(tmp_path)
    assert "verdict" in CSV_COLUMNS


def test_two_runs_are_compared_person_by_person() -> None:
    after = people(verdict=["not recovered", "not recovered", "proven", "proven"])
    (change,) = compare_people(people(), after)
    assert change.n == 4 and outcomes(change) == {"stay proven": 1, "become safe": 2, "newly proven": 1}
    assert change.count("proven", None) == 2 and change.count(None, None) == 4


def test_who_is_recovered_without_proof_after_a_defense_is_counted() -> None:
    before = people(verdict=["proven", "recovered", "not recovered", "not recovered"])
    (change,) = compare_people(before, people(verdict=["recovered", "recovered", "recovered", "not recovered"]))
    assert outcomes(change) == {"still recovered": 2, "newly recovered": 1, "stay safe": 1}
    assert sum(change.outcomes.values()) == change.n


def test_people_of_one_run_alone_are_left_out() -> None:
    (change,) = compare_people(people(), people().iloc[2:])
    assert (change.n, change.outcomes["stay proven"], change.only_before, change.only_after) == (2, 1, 2, 0)
    (change,) = compare_people(people().iloc[2:], people())
    assert (change.n, change.only_before, change.only_after) == (2, 0, 2)


def test_in_how_many_updates_the_people_of_both_runs_were_is_compared() -> None:
    (change,) = compare_people(people(seen=[9, 20, 20, 20]).iloc[1:], people(seen=[1, 1, 2, 3]))
    assert change.updates == (20.0, 2.0)


def test_all_attacks_together_are_compared_where_every_one_was_run() -> None:
    both = pd.concat(
        [
            people(verdict=["not recovered"] * 4),
            people(attack="audit_max", verdict=["recovered", "not recovered", "proven", "proven"]).iloc[:3],
            people(attack="random", verdict=["recovered"] * 4),
        ]
    )
    before = pd.concat([people(), people(attack="audit_max")])
    alone, _, together = compare_people(before, both, guesses=["random"])
    assert (alone.attack, alone.n, alone.outcomes["become safe"]) == ("exact", 4, 3)
    assert (together.attack, together.n, together.only_before) == (ALL_ATTACKS, 3, 1)
    assert outcomes(together) == {"become safe": 1, "stay proven": 1, "still recovered": 1}
    assert together.from_to["proven -> recovered"] == 1


def test_attacks_of_one_run_alone_do_not_count_among_all() -> None:
    stronger = people(attack="tableak", verdict=["recovered"] * 4)
    (alone,) = compare_people(pd.concat([people(), stronger]), people())
    assert alone.attack == "exact"
    runs = [pd.concat([people(), people(attack="audit_max"), *more]) for more in ([stronger], [])]
    *_, together = compare_people(*runs)
    assert together.attack == ALL_ATTACKS and together.outcomes["become safe"] == 0


def test_every_person_of_both_runs_has_a_line_with_both_verdicts() -> None:
    after = people(verdict=["not recovered", "not recovered", "proven", "proven"]).iloc[1:]
    table = changed_people(people(), after)
    assert list(table) == ["attack", "person", "row", "label", "sensitive.sex", "before", "after", "outcome"]
    assert table[["row", "before", "after", "outcome"]].values.tolist() == [
        ["p5", "recovered", "not recovered", "become safe"],
        ["p7", "proven", "proven", "stay proven"],
        ["p8", "not recovered", "proven", "newly proven"],
    ]


def test_people_of_captures_alone_are_compared_by_number_and_values(tmp_path: Path) -> None:
    captured = people(unique="", row=["a:0", "a:1", "b:0", "b:1"])
    (change,) = compare_people(people(), captured)
    assert (change.n, change.outcomes["stay proven"]) == (4, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attack": "random"}, r"no attacks in common \(attacks exact and random\)"),
        ({"person": [10, 11, 12, 13]}, "no people in common"),
        ({"row": ["p1", "p5", "p7", "p9"]}, "1 of 4 people differ in 'row', the first is person 3"),
        ({"sensitive.sex": ["F", "F", "None", "M"]}, "different tables or splits"),
        ({"label": "no"}, "'label'"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare_people(people(), people(**changes))


def test_the_three_risks_are_a_table_that_names_what_was_not_measured() -> None:
    counts: dict[str, Any] = {"proven": 0, "proven_numbers": 0, "recovered": 0, "not_recovered": 9, "rows": 9}
    counts |= {"has_certificates": False, "claims": 0, "wrong": 0, "unit": "step"}
    measured = Risk(Rate.of(9, 10), Rate.of(1, 20), None, "sex")
    table = risks_table([People("exact", 9, **counts, inference=measured), People("random", 9, **counts)])
    assert table[["attack", "risk"]].values.tolist() == [
        [attack, risk] for attack in ("exact", "random") for risk in ("singling out", "linkage", "inference")
    ]
    line = table.iloc[2]
    assert (line["column"], line["main"], line["main_n"], line["control"], line["control_n"]) == (
        "sex",
        0.9,
        10,
        0.05,
        20,
    )
    assert line["main_low"] < 0.9 < line["main_high"] and pd.isna(line["baseline"]) and pd.isna(line["baseline_n"])
    assert table["main"].notna().sum() == 1
    several = People("exact", 9, **counts, inference=measured, other_inferences=(Risk(Rate.of(5, 9), column="race"),))
    assert risks_table([several])[["risk", "column"]].iloc[2:].values.tolist() == [
        ["inference", "sex"],
        ["inference", "race"],
    ]
    assert list(risks_table([]).columns) == list(table.columns) and risks_table([]).empty
