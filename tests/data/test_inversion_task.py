"""The task of a model inversion audit, on a made table and on Diabetes-130."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lightleak.core.errors import DataError, UsageError
from lightleak.data.assembly import cut_table
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.data.inversion_task import InversionTask, TaskConfig, make_inversion_task
from lightleak.data.schema import Column, TableSchema
from lightleak.data.table import DatasetCard, Table

CARD = DatasetCard("hospital", "A made hospital", (), (), "none", "none")
CODES = ("flu", "burn", "cold", "gout", "scar", "rash")
PARTS = ("private_train", "private_validation", "private_test", "private_judge", "public")
CONFIG = TaskConfig(private_classes=3, features=6, group="patient", trees=10, test_fraction=0.15)


@pytest.fixture
def table() -> Table:
    """1,500 stays of 900 patients; `stay` numbers the rows, `trace` is the patient as a feature."""
    rng = np.random.default_rng(0)
    n = 1500
    patient = rng.integers(0, 900, n)
    code = rng.choice(len(CODES), n, p=[0.1, 0.25, 0.05, 0.3, 0.1, 0.2])
    frame = pd.DataFrame(
        {
            "stay": np.arange(n),
            "trace": patient,
            "age": rng.normal(30 + 8 * code, 6).round(1),
            "drug": np.where(rng.random(n) < 0.7, np.array(["a", "b", "c"])[code % 3], "a"),
            "sex": rng.choice(["F", "M"], n),
            "ward": np.where(np.arange(n) == 7, "tent", rng.choice(["north", "south"], n)),
            "code": np.array(CODES)[code],
            "patient": [f"p{p}" for p in patient],
        }
    )
    columns = (
        Column.categorical("sex", ["F", "M"]),
        Column.integer("stay", 0, n),
        Column.integer("trace"),
        Column.continuous("age"),
        Column.categorical("drug", ["a", "b", "c"]),
        Column.categorical("ward", ["north", "south", "tent"]),
    )
    schema = TableSchema(columns, Column.categorical("code", CODES), sensitive=("sex", "age", "code"))
    return Table(CARD, schema, frame.iloc[:1000].reset_index(drop=True), frame.iloc[1000:].reset_index(drop=True))


def frames(task: InversionTask) -> list[pd.DataFrame]:
    return [getattr(task, name) for name in PARTS]


def test_the_parts_hold_the_selected_columns_of_the_right_rows(table) -> None:
    task = make_inversion_task(table, replace(CONFIG, features=8), seed=0)
    whole = pd.concat([table.train, table.test], ignore_index=True)
    assert task.schema.label.categories == ("gout", "burn", "rash")
    # Numbers first, then booleans, each in the order of the table's schema; 'tent' is too rare, F is not M.
    assert task.schema.names == ("stay", "trace", "age", "sex=M", "drug=a", "drug=b", "drug=c", "ward=south")
    assert task.schema.column("stay").upper == 1500 and task.schema.column("age").upper is None
    assert task.schema.sensitive == ("age", "sex=M", "code")
    for name, frame in zip(PARTS, frames(task), strict=True):
        source = whole.loc[frame["stay"]].reset_index(drop=True)
        assert tuple(frame.columns) == task.schema.names + (("code",) if name != "public" else ())
        assert np.array_equal(frame["drug=b"] == "yes", source["drug"] == "b")
        assert np.array_equal(frame["sex=M"] == "yes", source["sex"] == "M")
        assert np.array_equal(frame["age"], source["age"])
        assert set(source["code"]) == set(task.schema.label.categories if name != "public" else ("flu", "cold", "scar"))
        if name != "public":
            assert np.array_equal(frame["code"], source["code"])
        pd.testing.assert_frame_equal(task.schema.validate(frame, require_label=name != "public"), frame)
    sides = [set(frame["trace"]) for frame in frames(task)]
    assert sum(map(len, sides)) == len(set.union(*sides))
    assert task.facts["rows"] == {
        **{name: len(frame) for name, frame in zip(PARTS, frames(task), strict=True)},
        "dropped": len(whole) - sum(map(len, frames(task))),
    }


def with_gaps(table: Table) -> tuple[Table, pd.DataFrame]:
    """The table read with gaps in ages, drugs and traces, and its rows with these gaps, by stay."""
    whole = pd.concat([table.train, table.test], ignore_index=True)
    holes = np.random.default_rng(1).random((len(whole), 3)) < 0.3
    names = ["age", "drug", "trace"]
    gappy = whole.assign(**{name: whole[name].mask(holes[:, at]) for at, name in enumerate(names)})
    columns = tuple(replace(one, missing="impute") if one.name in names else one for one in table.schema.columns)
    schema = replace(table.schema, columns=columns)
    rows = np.random.default_rng(2).permutation(len(whole))
    return cut_table(CARD, schema, gappy, rows[:1000], rows[1000:], group="patient"), gappy.set_index("stay")


def test_gaps_of_either_side_are_filled_from_that_side_alone(table) -> None:
    made, gappy = with_gaps(table)
    task = make_inversion_task(made, replace(CONFIG, features=8), seed=0)
    private = pd.concat([task.private_train, task.private_validation, task.private_test, task.private_judge])
    medians = []
    for side in (private, task.public):
        before = gappy.loc[side["stay"]]
        age, trace, drug = (before[name].to_numpy() for name in ("age", "trace", "drug"))
        np.testing.assert_array_equal(side["age"], np.where(np.isnan(age), np.nanmedian(age), age))
        lower = np.nanquantile(trace, 0.5, method="lower")
        np.testing.assert_array_equal(side["trace"], np.where(np.isnan(trace), lower, trace))
        is_a = np.where(before["drug"].isna(), before["drug"].mode()[0] == "a", drug == "a")
        np.testing.assert_array_equal(side["drug=a"] == "yes", is_a)
        medians.append(np.nanmedian(age))
    assert medians[0] != medians[1]


def test_private_rows_do_not_reach_the_gaps_of_public_ones(table) -> None:
    config = replace(CONFIG, features=7)

    def older(part: pd.DataFrame) -> pd.DataFrame:
        return part.assign(age=part["age"] + 50.0 * part["code"].isin(["gout", "burn", "rash"]))

    changed = replace(table, train=older(table.train), test=older(table.test))
    public, again = (make_inversion_task(with_gaps(one)[0], config, seed=0).public for one in (table, changed))
    pd.testing.assert_series_equal(public["age"], again["age"])


def test_a_column_without_a_value_on_one_side_is_refused(table) -> None:
    made, _ = with_gaps(table)
    public = make_inversion_task(made, replace(CONFIG, features=8), seed=0).public["stay"]
    rows = pd.concat([made.train, made.test])["stay"].isin(public).to_numpy()
    made = replace(made, imputed={"age": rows})
    with pytest.raises(DataError, match=r"'age'.* has no value in any public row"):
        make_inversion_task(made, replace(CONFIG, features=8), seed=0)


def test_facts_say_what_the_split_left_and_are_json(table) -> None:
    task = make_inversion_task(table, CONFIG, seed=0)
    facts = json.loads(json.dumps(task.facts))
    assert facts["config"]["private_classes"] == 3 and facts["encoded_columns"] == 8
    assert [entry["class"] for entry in facts["classes"]] == list(task.schema.label.categories)
    for name, frame in zip(PARTS[:4], frames(task), strict=False):
        counts = frame["code"].value_counts()
        assert {entry["class"]: entry[name] for entry in facts["classes"]} == counts.to_dict()
    assert set(facts["importance"]) == set(task.schema.names)
    assert list(facts["importance"].values()) == sorted(facts["importance"].values(), reverse=True)
    assert facts["rows"]["dropped"] > 0 and facts["public_classes"] == 3


@pytest.mark.parametrize("kind", ["impurity", "permutation"])
def test_the_most_important_columns_are_kept(table, kind) -> None:
    everything = make_inversion_task(table, replace(CONFIG, features=8, importance=kind), seed=0)
    ranking = list(everything.facts["importance"])
    for features in (1, 3, 6):
        task = make_inversion_task(table, replace(CONFIG, features=features, importance=kind), seed=0)
        assert set(task.schema.names) == set(ranking[:features])
        assert [name for name in everything.schema.names if name in ranking[:features]] == list(task.schema.names)
    assert ranking[0] == "age"


@pytest.mark.parametrize(("kind", "unseen"), [("impurity", PARTS[1:]), ("permutation", PARTS[2:])])
def test_rows_that_are_not_trained_on_choose_no_features(table, kind, unseen) -> None:
    config = replace(CONFIG, features=4, importance=kind)
    task = make_inversion_task(table, replace(config, features=8), seed=0)
    stays = np.concatenate([getattr(task, name)["stay"] for name in unseen])
    rng = np.random.default_rng(1)

    def spoilt(frame: pd.DataFrame) -> pd.DataFrame:
        hit = frame["stay"].isin(stays)
        ages = np.where(hit, rng.normal(size=len(frame)) * 1e3, frame["age"])
        wards = np.where(hit, "tent", frame["ward"])
        return frame.assign(age=ages, ward=wards, drug=np.where(hit, "c", frame["drug"]))

    other = make_inversion_task(Table(CARD, table.schema, spoilt(table.train), spoilt(table.test)), config, seed=0)
    again = make_inversion_task(table, config, seed=0)
    assert other.schema == again.schema
    assert other.facts["importance"] == again.facts["importance"]
    assert "age" in again.schema.names and not other.public["age"].equals(again.public["age"])


def test_the_same_rows_in_another_order_make_the_same_task(table) -> None:
    config = replace(CONFIG, split="in_distribution", public_fraction=0.3)
    whole = pd.concat([table.train, table.test]).sample(frac=1.0, random_state=3)
    shuffled = Table(CARD, table.schema, whole.iloc[:200], whole.iloc[200:])
    first, second = (make_inversion_task(each, config, seed=5) for each in (table, shuffled))
    assert first.schema == second.schema and first.facts == second.facts
    for a, b in zip(frames(first), frames(second), strict=True):
        in_order = [frame.sort_values(list(frame.columns)).reset_index(drop=True) for frame in (a, b)]
        pd.testing.assert_frame_equal(*in_order)
    other = make_inversion_task(table, config, seed=6)
    assert other.facts["importance"] != first.facts["importance"]


def test_a_group_column_of_the_schema_is_no_feature(table) -> None:
    with_group = make_inversion_task(table, replace(CONFIG, group="trace"), seed=0)
    assert with_group.facts["encoded_columns"] == 7 and "trace" not in with_group.schema.names


def test_without_a_group_no_row_is_dropped(table) -> None:
    task = make_inversion_task(table, replace(CONFIG, group=None), seed=0)
    assert task.facts["rows"]["dropped"] == 0 and task.facts["rows"] == task.facts["groups"]


def test_public_values_beyond_the_private_ones_are_encoded(table) -> None:
    far = table.train.assign(age=np.where(table.train["code"] == "flu", 1e4, table.train["age"]))
    task = make_inversion_task(Table(CARD, table.schema, far, table.test), replace(CONFIG, features=8), seed=0)
    encoder = TableEncoder(task.schema, "onehot").fit(task.private_train)
    beyond = task.public["age"] > task.private_train["age"].max()
    encoded = encoder.encode(task.public)
    assert beyond.any() and encoded.isfinite().all()
    exact = encoder.decode(encoded, clamp=False)["age"]
    np.testing.assert_allclose(exact, task.public["age"], rtol=1e-5)
    assert encoder.decode(encoded)["age"].max() == task.private_train["age"].max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"private_classes": 1}, "task.private_classes must be at least 2, got 1"),
        ({"features": 0}, "task.features must be at least 1, got 0"),
        ({"trees": 0}, "task.trees must be at least 1, got 0"),
        ({"leaf_rows": 0}, "task.leaf_rows must be at least 1, got 0"),
        ({"importance": "gain"}, "task.importance must be one of impurity, permutation, got 'gain'"),
        ({"split": "random"}, "task.split must be one of class, in_distribution, got 'random'"),
        ({"test_fraction": 0.0}, "task.test_fraction must be above 0 and below 1, got 0.0"),
        ({"validation_fraction": 1.0}, "task.validation_fraction must be above 0 and below 1, got 1.0"),
        ({"public_fraction": float("nan")}, "task.public_fraction must be above 0 and below 1, got nan"),
        ({"min_frequency": 0.5}, "task.min_frequency must be at least 0 and below 0.5, got 0.5"),
    ],
)
def test_settings_are_checked_on_construction(change, message) -> None:
    with pytest.raises(UsageError, match=message):
        TaskConfig(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": 9}, r"task.features must be at most 8 \(encoded columns of 'hospital'"),
        ({"private_classes": 6}, r"task.private_classes must be at most 5 .*, got 6"),
        ({"group": "person"}, "task.group must be a column .*, got 'person'"),
        ({"group": "code"}, "task.group must be a column .* other than the label, got 'code'"),
    ],
)
def test_settings_that_the_table_cannot_serve_are_refused(table, change, message) -> None:
    with pytest.raises(UsageError, match=message):
        make_inversion_task(table, replace(CONFIG, **change), seed=0)


def test_rows_without_a_group_are_refused(table) -> None:
    table.test.loc[3, "patient"] = None
    with pytest.raises(DataError, match="column 'patient' names the group of each row; 1 rows have none"):
        make_inversion_task(table, CONFIG, seed=0)


def test_a_private_class_named_like_the_figures_over_all_classes_is_refused(table) -> None:
    def renamed(name: str) -> Table:
        label = Column.categorical("code", [{name: "all"}.get(one, one) for one in CODES])
        parts = (part.replace({"code": {name: "all"}}) for part in (table.train, table.test))
        return Table(CARD, replace(table.schema, label=label), *parts)

    with pytest.raises(DataError, match="the label column 'code' has a private class named 'all'"):
        make_inversion_task(renamed("gout"), CONFIG, seed=0)
    make_inversion_task(renamed("cold"), CONFIG, seed=0)  # of public rows no class is shown


def test_diabetes130_leaves_the_rows_that_were_counted_by_hand(data_dir) -> None:
    table = load_dataset("diabetes130", data_dir, label="diagnosis", diagnoses="codes", groups=True)
    config = TaskConfig(group="patient_nbr", trees=3, leaf_rows=50)
    task = make_inversion_task(table, config, seed=0)
    rows = task.facts["rows"]
    # Of 101,745 rows 51,706 are of the 20 most frequent codes; 8,236 patients with such rows have 12,831 others.
    assert sum(rows[name] for name in PARTS[:4]) == 51_706
    assert (rows["public"], rows["dropped"], task.facts["groups"]["dropped"]) == (37_208, 12_831, 8_236)
    assert task.schema.label.categories[:3] == ("428", "414", "786")
    for entry in task.facts["classes"]:
        counts = np.array([entry[name] for name in PARTS[:4]])
        # 1,115 rows are the least; a patient's rows stay together, so a share is met to one point or so.
        assert np.abs(counts / counts.sum() - config.private_shares).max() < 0.03
    assert len(task.schema.columns) == 50 and "num_procedures" in task.schema.names
    assert not any(name.startswith(("diagnosis", "patient_nbr")) for name in task.schema.names)


def test_a_patient_written_in_two_ways_is_one_group(table) -> None:
    expected = make_inversion_task(table, CONFIG, seed=0)
    odd = {name: getattr(table, name).copy() for name in ("train", "test")}
    for frame in odd.values():
        frame.loc[::3, "patient"] += " "
    task = make_inversion_task(replace(table, **odd), CONFIG, seed=0)
    for frame, known in zip(frames(task), frames(expected), strict=True):
        pd.testing.assert_frame_equal(frame, known)


def test_groups_of_numbers_and_text_are_one_group_where_their_text_is_equal(table) -> None:
    odd = {name: getattr(table, name).copy() for name in ("train", "test")}
    for frame in odd.values():
        numbers = frame["trace"].astype(object)
        frame["patient"] = numbers.where(frame.index % 2 == 0, frame["trace"].astype(str))
    sides = [set(frame["trace"]) for frame in frames(make_inversion_task(replace(table, **odd), CONFIG, seed=0))]
    assert sum(map(len, sides)) == len(set.union(*sides))
