import dataclasses
import json
import shutil

import pytest

from lightleak.callbacks.intermediate_store import TRAINING, load_observation, save_observation
from lightleak.core.errors import ObservationError, UsageError
from lightleak.experiments.kinds.vertical.kind import load_capture
from lightleak.experiments.kinds.vertical.rows import UNKNOWN_TRAINING
from lightleak.experiments.run import attack_captures
from lightleak.experiments.took import TOOK

HOW_TRAINED = ("seed", "defense", "defense_name", "defense_strength", "variant", "threat", "threat_model")
INFORMED = ("informed_fraction", "informed_low", "informed_high", "informed_error")


@pytest.fixture(scope="module")
def watching(small):
    return small(attacks={"provfl_b_mixture": {}, "prior": {}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("attacked") / "run"


@pytest.fixture(scope="module")
def attacked(finished, watching, silent, folder):
    """Results of the captures of a whole audit, attacked by one process in ``folder``; tests only read them."""
    return attack_captures(watching, finished / "captures", folder, [], silent)


def test_gives_what_the_audit_gave(finished, attacked, folder):
    audited = {
        (row["adversary"], row["true_fraction"], row["estimated_fraction"])
        for row in json.loads((finished / "results.json").read_text())["rows"]
        if row["attack"] == "provfl_b_mixture"
    }
    again = {
        (row["adversary"], row["true_fraction"], row["estimated_fraction"])
        for row in attacked["rows"]
        if row["attack"] == "provfl_b_mixture" and "passive" in row["unit"]
    }
    assert again == audited
    assert (folder / "report.html").is_file()


def test_a_row_states_how_its_training_went(attacked, finished):
    """As the audit does; the null reads nothing of a training, whoever manipulated it."""
    audited = {
        (row["adversary"], row["defense"], row["variant"]): {name: row[name] for name in HOW_TRAINED}
        for row in json.loads((finished / "results.json").read_text())["rows"]
        if row["attack"] in ("provfl_b_mixture", "provfl_m")
    }
    again = [row for row in attacked["rows"] if row["attack"] == "provfl_b_mixture"]
    assert len(again) == len(audited) == 8
    for row in again:
        whole = audited[row["adversary"], row["defense"], row["variant"]]
        assert {name: row[name] for name in HOW_TRAINED} == whole
    nulls = [row for row in attacked["rows"] if row["attack"] == "aia_raw_adjusted"]
    assert all("does" not in row["threat"] and "honest-but-curious" in row["threat_model"] for row in nulls)


def test_an_estimate_is_also_that_of_an_adversary_who_knows_the_defense(attacked, finished):
    """As in the audit: of a capture under the defense "half", what its inverse makes of the estimate."""
    attacked_both_times = ("provfl_b_mixture", "aia_raw_adjusted")

    def by_training(rows):
        found = [row for row in rows if row["attack"] in attacked_both_times and row["variant"] == "passive"]
        return {(row["attack"], row["adversary"], row["defense"]): [row[name] for name in INFORMED] for row in found}

    again = by_training(attacked["rows"])
    assert len(again) == 8 and again == by_training(json.loads((finished / "results.json").read_text())["rows"])
    guesses = [row for row in attacked["rows"] if row["attack"] == "prior"]
    assert any(row["informed_high"] != row["high"] for row in attacked["rows"] if row not in guesses)
    assert all(row["informed_fraction"] == row["estimated_fraction"] for row in guesses), "a guess reads no record"


@pytest.mark.parametrize(
    ("changes", "is_known"),
    [
        ({"defense_options": None, "defense_strength": 0.25}, False),  # as earlier versions stored it
        ({"defense_name": "of another session"}, False),
        ({}, True),
    ],
)
def test_nothing_is_inverted_where_the_settings_of_the_defense_are_not_known(
    changes, is_known, finished, watching, silent, tmp_path
):
    place = next((finished / "captures").glob("*half-passive*C1*"))
    shutil.copytree(place, tmp_path / "captures" / "one")
    file = tmp_path / "captures" / "one" / TRAINING
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    rows = attack_captures(watching, tmp_path / "captures", tmp_path / "run", [], silent)["rows"]
    assert all(row["defense"] == "half" and ("informed_error" in row) is is_known for row in rows)


def test_an_attack_that_was_not_there_while_the_model_trained_says_so(finished, small, silent, tmp_path):
    config = small(attacks={"mine": {"attack": "provfl_m", "estimator": "mixture"}, "aia": {}})
    captures = tmp_path / "captures"
    for name in ("passive", "provfl_m"):
        place = next((finished / "captures").glob(f"*none-{name}*C1*"))
        shutil.copytree(place, captures / place.name)
    rows = attack_captures(config, captures, tmp_path / "run", [], silent)["rows"]
    watched, manipulated = ([row for row in rows if f"-{name}-" in row["capture"]] for name in ("passive", "provfl_m"))
    assert [row["variant"] for row in watched if row["label"] == "mine"] == ["mine"]
    assert [row["variant"] for row in manipulated if row["label"] == "mine"] == ["mine, LR+MR"]
    (mine,) = (row for row in watched if row["label"] == "mine")
    assert mine["details"]["augmentation"] == "passive" and "nobody manipulated this training" in mine["warnings"][-1]
    (read,) = (row for row in manipulated if row["label"] == "aia")
    assert read["threat_model"].startswith(
        "An active party (C1) that trains on the property in place of the auxiliary rows' labels and bends its own "
        "bottom network on the auxiliary rows after every epoch, reads "
    )


def test_a_capture_that_does_not_say_how_it_was_trained_is_not_called_undefended(finished, watching, silent, tmp_path):
    captures = tmp_path / "captures"
    shutil.copytree(finished / "captures", captures, ignore=shutil.ignore_patterns(TRAINING))
    rows = attack_captures(watching, captures, tmp_path / "run", [], silent)["rows"]
    assert all(row["defense"] is None and UNKNOWN_TRAINING in row["warnings"] for row in rows)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "defense not known" in page and "no defense" not in page.lower()


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        ("{", ObservationError, "is not JSON"),
        ('{"schema_version": 1, "seed": "x"}', ObservationError, "key 'seed': expected a whole number, got 'x'"),
        (
            '{"schema_version": 1, "seed": 0, "defense": "a", "defense_name": "withdraw", "defense_options": {"b": 1}}',
            UsageError,
            "training.json: defense 'withdraw' has no setting b",
        ),
    ],
)
def test_a_damaged_record_of_the_training_is_refused(content, kind, said, finished, watching, silent, tmp_path):
    place = next((finished / "captures").glob("*none-passive*C1*"))
    shutil.copytree(place, tmp_path / "captures" / "one")
    (tmp_path / "captures" / "one" / TRAINING).write_text(content)
    with pytest.raises(kind, match=said):
        attack_captures(watching, tmp_path / "captures", tmp_path / "run", [], silent)


def test_works_without_the_truth(finished, watching, attacked, silent, tmp_path):
    captures = tmp_path / "captures"
    shutil.copytree(finished / "captures", captures, ignore=shutil.ignore_patterns("truth"))
    results = attack_captures(watching, captures, tmp_path / "run", [], silent)
    for row, known in zip(results["rows"], attacked["rows"], strict=True):
        assert row["true_fraction"] is row["absolute_error"] is row["covered"] is None
        assert row["estimated_fraction"] == known["estimated_fraction"]


def test_a_truth_of_another_observation_is_refused(finished, tmp_path):
    first, other = (
        sorted((finished / "captures").glob("*none-passive*C1*")),
        sorted((finished / "captures").glob("*half-passive*C1*")),
    )
    shutil.copytree(first[0] / "observation", tmp_path / "observation")
    shutil.copytree(other[0] / "truth", tmp_path / "truth")
    with pytest.raises(ObservationError, match="is about religious=strongly of"):
        load_capture(tmp_path)


def test_a_folder_without_captures_is_refused(watching, silent, tmp_path):
    with pytest.raises(UsageError, match="holds no captured update"):
        attack_captures(watching, tmp_path, tmp_path / "run", [], silent)


def test_the_null_is_paired_capture_by_capture(attacked):
    """Also where several captures share property, role and seed, as those with and without a defense do."""
    rows = attacked["rows"]
    nulls = {row["capture"]: row["informed_error"] for row in rows if row["attack"] == "aia_raw_adjusted"}
    assert len(nulls) == len({row["capture"] for row in rows}) > 2
    for row in rows:
        assert row["own_columns_error"] == nulls[row["capture"]]


def test_a_capture_without_own_columns_is_attacked_without_the_null(finished, watching, silent, tmp_path):
    place = next((finished / "captures").glob("*none-passive*C2*"))
    seen = dataclasses.replace(load_observation(place / "observation"), features=None)
    save_observation(seen, tmp_path / "captures" / "one" / "observation")
    shutil.copytree(place / "truth", tmp_path / "captures" / "one" / "truth")
    rows = attack_captures(watching, tmp_path / "captures", tmp_path / "run", [], silent)["rows"]
    assert {row["attack"] for row in rows} == {"provfl_b_mixture", "prior"}
    assert all(row["own_columns_error"] is row["learned_from_exchange"] is None for row in rows)
    assert "from its own columns, without the exchange, is not known" in (tmp_path / "run" / "report.html").read_text()


def test_two_workers_give_the_rows_of_one(finished, watching, attacked, silent, tmp_path):
    two = attack_captures(dataclasses.replace(watching, workers=2), finished / "captures", tmp_path / "two", [], silent)
    assert untimed(attacked) == untimed(two)


def untimed(results):
    return [
        {key: value for key, value in row.items() if key not in TOOK and "seconds" not in key}
        for row in results["rows"]
    ]
