import pytest

from lightleak.core.errors import UsageError
from lightleak.report.frontier.result import Setting, Strength, parse_result
from lightleak.report.frontier.run_folder import load_frontier_run


def test_a_training_and_an_attack_are_told_apart() -> None:
    trained = parse_result({"attack": "none", "accuracy": 0.8, "seed": 3, "batch_index": 1}, "run", "row 0")
    assert (trained.attack, trained.client, trained.accuracy) == (None, None, 0.8)
    attacked = parse_result({"attack": "tableak", "cell_accuracy": 0.7, "seed": 3, "batch_index": 1}, "run", "row 1")
    assert (attacked.attack, attacked.client, attacked.cell_accuracy) == ("tableak", 1, 0.7)
    assert trained.key == ("run", "3", "None") and attacked.key == ("run", "3", "1")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "0.5", True])
def test_what_is_no_number_is_unknown(value) -> None:
    row = dict.fromkeys(
        ("accuracy", "auroc", "cell_accuracy", "epsilon", "delta", "seconds", "defense_strength"), value
    )
    found = parse_result({"attack": "none", **row}, "run", "row")
    assert {found.accuracy, found.auroc, found.cell_accuracy, found.epsilon, found.delta, found.seconds} == {None}
    assert found.strength == Strength() and found.strength.is_none


def test_a_curve_without_a_label_has_the_name_of_its_defence() -> None:
    found = parse_result({"attack": "none", "defense": "sign"}, "run", "row")
    assert (found.strength.label, found.strength.is_none) == ("sign", False)


@pytest.mark.parametrize("raw", [None, [], {"accuracy": 1.0}, {"attack": None}])
def test_a_row_must_name_an_attack_or_none(raw) -> None:
    with pytest.raises(UsageError, match="row 7: expected a mapping with the name of an 'attack'"):
        parse_result(raw, "run", "row 7")


def test_a_folder_is_read_with_its_settings(make_frontier) -> None:
    run = load_frontier_run(make_frontier(curves=("none", "sign"), trainings=2, clients=3))
    assert run.folder.title == "What a defence buys"
    assert len(run.results) == 2 * 2 + 2 * 3 + 3  # trainings, attacks, and guessing without a defence alone
    assert {result.setting for result in run.results} == {
        Setting("adult", "mlp-100-100", "fedsgd", 32, "10 epochs, batches of 32, sgd at 0.01", "true")
    }
