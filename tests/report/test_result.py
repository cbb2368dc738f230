import pytest

from lightleak.core.errors import UsageError
from lightleak.report.result import Setting, parse_result


def test_all_fields_arrive() -> None:
    raw = {
        "dataset": "adult", "target": "mlp", "protocol": "fedsgd", "attack": "tableak", "batch_size": 32,
        "labels": "true", "defense": "none", "seed": 1, "batch_index": 4, "source": "training", "epoch": 3,
        "cell_accuracy": 0.8, "seconds": 2, "column_accuracy": {"age": 0.5, "sex": None}, "threat_model": "A server.",
        "options": {"restarts": 30}, "reconstruction": "reconstructions/a.csv",
    }  # fmt: skip
    found = parse_result(raw, "run", "row 0")
    assert found.setting == Setting("run", "adult", "mlp", "fedsgd", "none", "true", "training", 3)
    assert (found.attack, found.batch_size, found.unit) == ("tableak", 32, (1, 4))
    assert found.metrics == {"cell_accuracy": 0.8, "seconds": 2.0}
    assert found.column_accuracy == {"age": 0.5}
    assert found.options == {"restarts": "30"}
    assert (found.threat_model, found.reconstruction) == ("A server.", "reconstructions/a.csv")


def test_what_is_fedavgs_alone_is_read_of_fedavg_alone() -> None:
    raw = {"attack": "a", "local_epochs": 5, "local_batches": 4, "n_clients": 2, "defense_strength": 1, "epsilon": None}
    fedavg = parse_result(raw | {"protocol": "fedavg"}, "run", "row 0").setting
    assert (fedavg.local_epochs, fedavg.local_batches, fedavg.n_clients, fedavg.strength) == (5, 4, 2, 1.0)
    # A FedSGD row of an earlier version says none of it and must still be of the same setting.
    fedsgd = parse_result(raw | {"protocol": "fedsgd"}, "run", "row 0").setting
    assert fedsgd == Setting("run", protocol="fedsgd", strength=1.0) and fedavg.epsilon is None


@pytest.mark.parametrize("undefined", [None, float("nan"), float("inf"), "0.5", True, [0.5]])
def test_an_undefined_metric_is_absent(undefined: object) -> None:
    raw = {"attack": "a", "cell_accuracy": undefined, "column_accuracy": undefined, "batch_size": undefined}
    found = parse_result(raw, "run", "row 0")
    assert (found.metrics, found.column_accuracy) == ({}, {})
    assert found.batch_size is None


@pytest.mark.parametrize("raw", [None, [], {}, {"attack": None}])
def test_a_row_without_attack_is_refused_by_name(raw: object) -> None:
    with pytest.raises(UsageError, match="row 7: expected a mapping with the name of an 'attack'"):
        parse_result(raw, "run", "row 7")
