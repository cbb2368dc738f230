"""Reading rows."""

import math

import pytest

from lightleak.core.errors import UsageError
from lightleak.report.released.result import ALL, METRICS, Setting, parse_result


def test_a_row_is_read_whole() -> None:
    raw = {"attack": "plgmi", "label": "mine", "dataset": "t", "target": "mlp-3", "evaluation": "gandalf", "setting": 2}
    raw |= {"seed": 1, "evaluation_index": 3, "latent_search": "tpe", "bridge": "shared", "class": "428", "samples": 50}
    raw |= {name: 0.5 for name in METRICS}
    raw |= {"options": {"a": 1, "b": {"c": [2, 3], "d": None}}, "warnings": ["w"], "threat_model": "Somebody."}
    found = parse_result(raw, "run", "row 0")
    assert found.setting == Setting("t", "mlp-3", "gandalf", "2")
    assert (found.run, found.attack, found.label, found.seed, found.evaluation_index) == ("run", "plgmi", "mine", 1, 3)
    assert (found.search, found.bridge, found.class_name, found.samples) == ("tpe", "shared", "428", 50)
    assert (found.warnings, found.threat_model) == (("w",), "Somebody.")
    assert dict(found.metrics) == dict.fromkeys(METRICS, 0.5)
    assert dict(found.options) == {"a": "1", "b.c": "2 3", "b.d": "None"}


def test_what_is_missing_or_no_number_is_unknown() -> None:
    raw = {"attack": "plgmi", "attack_accuracy": None, "shapes_score": math.nan, "seconds": "3", "ceiling": True}
    found = parse_result(raw | {"label": "", "options": 3, "warnings": "w", "samples": None}, "run", "row 0")
    assert (found.label, found.class_name, found.samples) == ("plgmi", ALL, None)
    assert not found.metrics and not found.options and not found.warnings


def test_names_of_older_versions_are_read() -> None:
    found = parse_result({"attack": "plgmi", "ceiling": 0.3, "ceiling_class": 0.2}, "run", "row 0")
    assert dict(found.metrics) == {"real_rows_accuracy": 0.3, "real_rows_accuracy_class": 0.2}


@pytest.mark.parametrize("raw", [None, [], {}, {"attack": None}, {"attack": 3}])
def test_a_row_without_an_attack_is_named(raw) -> None:
    with pytest.raises(UsageError, match=r"row 7: .*name of an 'attack'"):
        parse_result(raw, "run", "row 7")
