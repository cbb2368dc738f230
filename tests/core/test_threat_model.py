"""Threat models as data and as sentences."""

import json
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from lightleak.core.threat_model import ThreatModel

EVERYTHING = ThreatModel(labels="true", marginals=True, batch_statistics=True, batch_labels=True, local_training=True)
NOTHING = ThreatModel(labels="none", update=False, column_bounds=False, encoder_statistics=False)


def test_dictionary_is_json_and_complete():
    state = json.loads(json.dumps(EVERYTHING.to_dict()))
    assert ThreatModel(**state) == EVERYTHING
    assert set(state) == {field.name for field in fields(ThreatModel)}


def test_threat_models_do_not_change():
    with pytest.raises(FrozenInstanceError):
        EVERYTHING.labels = "none"  # type: ignore[misc]


def test_sentence_lists_all_that_is_known():
    assert EVERYTHING.describe() == (
        "An honest-but-curious server that knows the update, the number of rows of each class, column bounds, encoder "
        "statistics, column marginals, the batch's BatchNorm statistics, how the client trained and which batch holds "
        "which labels."
    )
    assert NOTHING.describe() == "An honest-but-curious server that knows nothing."
    assert replace(NOTHING, marginals=True).describe().endswith(" that knows column marginals.")


def test_bounds_and_statistics_of_attacked_rows_are_part_of_the_sentence():
    known = ThreatModel(labels="true")
    assert known.describe(includes_attacked=True).startswith(known.describe())
    assert known.describe(includes_attacked=True).endswith("counted on rows that include the attacked ones.")
    assert known.describe(includes_attacked=False).endswith("counted on rows other than the attacked ones.")
    assert NOTHING.describe(includes_attacked=True) == NOTHING.describe()


@pytest.mark.parametrize("labels", ["true", "restored", "none"])
def test_labels_are_named_by_where_they_come_from(labels: str):
    sentence = replace(EVERYTHING, labels=labels, local_training=False).describe()
    assert ("the true labels" in sentence) == (labels == "true")
    assert ("labels restored from the update" in sentence) == (labels == "restored")


@pytest.mark.parametrize("fact", [f.name for f in fields(ThreatModel) if f.name != "labels"])
def test_every_assumption_changes_the_sentence(fact: str):
    without = replace(EVERYTHING, **{fact: False})
    assert len(without.describe()) < len(EVERYTHING.describe())
