import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.datasets import load_dataset
from lightleak.data.property import Property
from lightleak.data.schema import Column, TableSchema
from lightleak.experiments.kinds.vertical.arrangement import PUBLISHED, arrange, arrange_published, published_order
from lightleak.experiments.kinds.vertical.config import PartiesConfig

SCHEMA = TableSchema(
    (
        Column.integer("age"),
        Column.categorical("job", list("abcdef")),
        Column.categorical("sex", ["F", "M"]),
        Column.integer("hours"),
        Column.categorical("city", list("xyz")),
    ),
    Column.categorical("ill", ["0", "1"]),
)


@given(
    st.sampled_from(["job=a", "sex=M", "city=z"]),
    st.integers(2, 5),
    st.one_of(st.none(), st.floats(0.05, 0.95)),
)
def test_the_property_is_the_victims_and_no_feature_is_torn(wanted, number, share):
    known = Property.parse(wanted)
    found = arrange(SCHEMA, known, PartiesConfig(number=number, victim_share=share))
    dealt = [name for names in found.columns for name in names]
    assert sorted(dealt) == sorted(SCHEMA.names)
    assert len(found.columns) == number
    assert known.column in found.columns[found.victim]
    assert found.adversary != found.victim


def test_the_victims_share_grows_with_its_setting():
    widths = []
    for share in (0.1, 0.5, 0.9):
        found = arrange(SCHEMA, Property("sex", "M"), PartiesConfig(victim_share=share))
        widths.append(sum(SCHEMA.columns[SCHEMA.names.index(name)].width for name in found.columns[0]))
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


def test_explicit_columns_make_the_holder_the_victim():
    parties = PartiesConfig(columns=(("age", "job"), ("sex", "city"), ("hours",)))
    found = arrange(SCHEMA, Property("sex", "M"), parties)
    assert (found.victim, found.adversary) == (1, 2)
    chosen = arrange(SCHEMA, Property("sex", "M"), PartiesConfig(columns=parties.columns, adversary=0))
    assert chosen.adversary == 0


@pytest.mark.parametrize("adversary", [1, 3, -1])
def test_the_adversary_must_be_another_party(adversary):
    parties = PartiesConfig(columns=(("age", "job"), ("sex", "city"), ("hours",)), adversary=adversary)
    with pytest.raises(UsageError, match="another party than 1"):
        arrange(SCHEMA, Property("sex", "M"), parties)


@pytest.mark.parametrize(("wanted", "message"), [("size=1", "no column 'size'"), ("sex=X", "has no value 'X'")])
def test_an_unknown_property_is_refused(wanted, message):
    with pytest.raises(UsageError, match=message):
        arrange(SCHEMA, Property.parse(wanted), PartiesConfig())


def test_a_dataset_without_a_published_layout_is_refused():
    with pytest.raises(UnsupportedError, match="'german', only for adult"):
        published_order("german")


@pytest.mark.parametrize(
    ("dataset", "options", "wanted", "width"),
    [
        # Encoded widths of ProVFL's Table III.
        ("adult", {"missing": "category", "final_weight": False, "duplicates": "drop"}, "race=White", 111),
        ("bank", {}, "contact=telephone", 51),
        ("census", {"part": "test"}, "race=Black", 511),
        ("lawschool", {}, "resident=0", 39),
    ],
)
def test_published_layout_has_the_papers_width(data_dir, dataset, options, wanted, width):
    table = load_dataset(dataset, data_dir, **options)
    frame = table.test.iloc[:500]
    inputs, widths, found = arrange_published(published_order(dataset), table.schema, frame, Property.parse(wanted))
    assert inputs.shape == (500, width)
    assert widths == (PUBLISHED[dataset].victim_width, width - PUBLISHED[dataset].victim_width)
    # The property's own column was moved to the front.
    assert torch.equal(inputs[:, 0].bool(), torch.from_numpy(Property.parse(wanted).mask(frame)))
    assert (found.victim, found.adversary) == (0, 1)


def test_published_layout_leaks_the_property_to_the_adversary(data_dir):
    """The other one-hot columns of sex and race stay with the adversary, those of workclass do not."""
    table = load_dataset("adult", data_dir, missing="category", final_weight=False, duplicates="drop")
    frame = table.test.iloc[:2000]
    order = published_order("adult")
    leaks = {}
    for wanted in ("sex=Male", "race=White", "workclass=Private"):
        known = Property.parse(wanted)
        inputs, widths, _ = arrange_published(order, table.schema, frame, known)
        has, own = known.mask(frame), inputs[:, widths[0] :].numpy()
        # Without the property, one of the adversary's 0/1 columns says so: a perfect rule from its columns alone.
        never_with = [c for c in own.T if set(np.unique(c)) <= {0.0, 1.0} and not c[has].any()]
        leaks[wanted] = bool(never_with) and np.array_equal(np.any(never_with, axis=0), ~has)
    assert leaks == {"sex=Male": True, "race=White": True, "workclass=Private": False}


def test_published_numbers():
    order = PUBLISHED["bank"]
    table = pd.DataFrame({name: [1.0, 2.0, 3.0] for name in order.numbers})
    schema_columns = [Column.integer(name) for name in order.numbers]
    schema_columns += [Column.categorical(name, ["u", "v"]) for name in order.categories]
    for name in order.categories:
        table[name] = ["u", "v", "u"]
    schema = TableSchema(tuple(schema_columns), Column.categorical("y", ["no", "yes"]))
    inputs, _, _ = arrange_published(order, schema, table, Property("month", "v"))
    assert inputs[:, 0].tolist() == [0.0, 1.0, 0.0]
    assert inputs[:, -1].tolist() == pytest.approx([0.333, 0.667, 1.0])  # divided by the largest, three decimals
