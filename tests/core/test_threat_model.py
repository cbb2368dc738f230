"""Threat models as data and as sentences."""

import json
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from lightleak.core.errors import UsageError
from lightleak.core.records import read_record
from lightleak.core.threat_model import Threat, ThreatModel

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


ATTACKERS = [
    Threat("server", ("update",), ("true_labels", "column_bounds", "counted_with_attacked")),
    Threat("active_party", ("own_columns", "labels", "AO"), ("property_sample",), sample=500, about="sex=Female"),
    Threat("passive_party", ("VG",), does=("replaces_own_labels", "refines_network"), sample=500, epoch=3),
    Threat("model_holder", ("weights",), ("public_rows",), ("ignores_gradient",)),
    Threat("nobody", sample=500),
]


@pytest.mark.parametrize("threat", ATTACKERS, ids=lambda threat: threat.who)
def test_a_threat_model_is_written_and_read(threat: Threat) -> None:
    written = json.loads(json.dumps(threat.to_dict()))
    assert read_record(Threat, written, "row 0") == threat
    assert None not in written.values() and [] not in written.values()


@pytest.mark.parametrize("threat", ATTACKERS, ids=lambda threat: threat.who)
def test_a_sentence_holds_the_facts(threat: Threat) -> None:
    sentence = threat.describe()
    facts = [str(threat.sample or ""), threat.about or "", f"epoch {threat.epoch}" if threat.epoch is not None else ""]
    assert all(fact in sentence for fact in facts)
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"who": "thief"}, "key 'who': expected one of server, "),
        ({"who": None}, "key 'who': expected a value, got nothing"),
        ({"sees": ["everything"]}, "key 'sees', entry 0: expected one of update, "),
        ({"sample": -1}, "key 'sample': expected at least 0, got -1"),
    ],
)
def test_words_outside_the_vocabulary_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=f"row 0, {message}"):
        read_record(Threat, {"who": "server"} | change, "row 0")


@pytest.mark.parametrize(("includes", "known"), [(True, "counted_with_attacked"), (False, "counted_without_attacked")])
def test_a_threat_model_of_updates_is_data(includes: bool, known: str) -> None:
    threat = ThreatModel(labels="true", marginals=True).threat(includes)
    assert (threat.who, threat.sees) == ("server", ("update",))
    assert set(threat.knows) == {"true_labels", "column_bounds", "encoder_statistics", "marginals", known}
    assert "class_counts" in ThreatModel(labels="true", local_training=True).threat().knows
    assert NOTHING.threat(includes) == Threat("server")
