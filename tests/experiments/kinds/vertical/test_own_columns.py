"""What an adversary's own columns tell is never blamed on the exchange, and what the exchange adds is found."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from lightleak.attacks.property_inference.prior import PriorGuess
from lightleak.core.errors import UsageError
from lightleak.core.property_estimate import PropertyEstimate
from lightleak.core.results import read_row
from lightleak.defenses.vertical.withdraw import WithdrawDefense
from lightleak.experiments.kinds.vertical.config import OWN_COLUMNS, VerticalConfig
from lightleak.experiments.kinds.vertical.rows import beside_own_columns, estimate_row
from lightleak.experiments.run import run_audit
from lightleak.report.kinds.vertical_findings import Findings
from lightleak.report.kinds.vertical_groups import compare
from lightleak.report.page import fill

N_ROWS = 1200


@pytest.mark.parametrize(("reads_records", "informed"), [(True, 2 / 3), (False, 0.5)])
def test_a_guess_that_reads_no_record_is_not_corrected(reads_records: bool, informed: float) -> None:
    guess = PropertyEstimate(0.5, 0.0, 1.0, 0.5, 0.0, "", reads_records=reads_records)
    facts = SimpleNamespace(epoch=1, n_parties=2)
    seen: Any = SimpleNamespace(adversary="C1", facts=facts, auxiliary=SimpleNamespace(property_name="a=b"))
    truth: Any = SimpleNamespace(fraction=0.5, trained_fraction=1 / 3)
    row = estimate_row("u", PriorGuess(), guess, seen, truth, WithdrawDefense(0.5))
    assert row["informed_fraction"] == pytest.approx(informed)
    assert row["informed_error"] == pytest.approx(informed - 0.5)


def survey(folder: Path, own_columns_tell: bool) -> Path:
    """A third of the rows smoke, which decides the outcome; the adversary's `cough` tells who does, or nothing."""
    draw = np.random.default_rng(0)
    smokes = draw.random(N_ROWS) < 1 / 3
    cough = smokes ^ (draw.random(N_ROWS) < 0.02) if own_columns_tell else draw.random(N_ROWS) < 0.5
    ill = smokes ^ (draw.random(N_ROWS) < 0.25)
    table = pd.DataFrame(
        {
            "smokes": np.where(smokes, "yes", "no"),
            "height": draw.normal(size=N_ROWS).round(3),
            "cough": np.where(cough, "yes", "no"),
            "weight": draw.normal(size=N_ROWS).round(3),
            "ill": np.where(ill, "yes", "no"),
        }
    )
    table.to_csv(folder / "survey.csv", index=False)
    return folder / "survey.csv"


def audit(folder: Path, console: Console, own_columns_tell: bool, **settings: Any) -> list[dict[str, Any]]:
    config = {
        "kind": "vertical",
        "data": {"table": str(survey(folder, own_columns_tell)), "label": "ill"},
        "properties": ["smokes=yes"],
        "parties": {"columns": [["smokes", "height"], ["cough", "weight"]]},
        "training": {"epochs": 4, "optimizer": {"name": "sgd", "learning_rate": 0.1}},
        "auxiliary": {"size": 200},
        "adversaries": ["C1"],
        "attacks": {"provfl_b_discriminant": {}},
        "seeds": [0, 1, 2, 3, 4],
        "device": "cpu",
        "workers": 1,
        "keep_captures": False,
    } | settings
    return run_audit(VerticalConfig.parse(config), folder / "run", [], console)["rows"]


def groups_of(rows: list[dict[str, Any]]):
    return compare(read_row(row, f"row {i}") for i, row in enumerate(rows))


def opening(groups) -> str:
    return " ".join(fill("vertical", "lead", Findings(tuple(groups))).unescape().split())


@pytest.fixture(scope="module")
def told_by_own(tmp_path_factory: pytest.TempPathFactory, silent: Console) -> list[dict[str, Any]]:
    return audit(tmp_path_factory.mktemp("own"), silent, own_columns_tell=True)


@pytest.fixture(scope="module")
def told_by_exchange(tmp_path_factory: pytest.TempPathFactory, silent: Console) -> list[dict[str, Any]]:
    half = {"none": {}, "half": {"defense": "withdraw", "ratio": 0.5}}
    return audit(tmp_path_factory.mktemp("exchange"), silent, own_columns_tell=False, defenses=half)


def test_what_own_columns_tell_is_not_called_learned(told_by_own) -> None:
    """The attack is right to 3 points in a table where one half would be 17 off: none of it comes from the exchange."""
    groups = groups_of(told_by_own)
    attack = next(group for group in groups if not group.is_baseline)
    assert attack.error and attack.error.mean < 0.03
    assert not attack.leaks()
    assert "was not shown to learn the share" in opening(groups)


def test_what_the_exchange_adds_is_called_learned(told_by_exchange) -> None:
    groups = groups_of([row for row in told_by_exchange if row["defense"] == "none"])
    attack = next(group for group in groups if not group.is_baseline)
    learned = attack.learned()
    assert attack.leaks() and learned and learned.mean > 0.05
    assert "could learn the share" in opening(groups) and "smokes=yes" in opening(groups)


def test_every_row_stands_beside_the_null_of_its_training(told_by_exchange) -> None:
    assert {row["label"] for row in told_by_exchange} == {OWN_COLUMNS, "provfl_b_discriminant"}
    nulls = {(row["seed"], row["defense"]): row for row in told_by_exchange if row["label"] == OWN_COLUMNS}
    assert len(nulls) == 10
    for row in told_by_exchange:
        null = nulls[row["seed"], row["defense"]]
        assert row["own_columns_error"] == null["informed_error"]
        assert row["learned_from_exchange"] == pytest.approx(null["informed_error"] - row["informed_error"])


def test_a_withdrawal_hides_nothing_from_who_knows_the_ratio(told_by_exchange) -> None:
    """The estimate is right of the rows that were trained on, wrong of those before, and right again once inverted."""
    defended = [row for row in told_by_exchange if row["defense"] == "half" and row["label"] == "provfl_b_discriminant"]
    for row in defended:
        share = row["true_fraction"]
        assert row["trained_fraction"] == pytest.approx(share / 2 / (1 - share / 2), abs=0.002)
        assert row["absolute_error"] == pytest.approx(abs(row["estimated_fraction"] - share))
        assert row["trained_error"] == pytest.approx(abs(row["estimated_fraction"] - row["trained_fraction"]))
    unaware, trained, informed = (
        np.mean([row[name] for row in defended]) for name in ("absolute_error", "trained_error", "informed_error")
    )
    assert unaware > 0.1 and trained < 0.05 and informed < 0.05


def test_the_null_of_a_watched_training_serves_an_attack_that_takes_part() -> None:
    shared = {"property": "a=b", "adversary": "C1", "defense": "none", "seed": 0, "epoch": 2}
    rows = [
        shared | {"label": "provfl_m", "informed_error": 0.01},
        shared | {"label": OWN_COLUMNS, "informed_error": 0.04},
        shared | {"label": OWN_COLUMNS, "informed_error": 0.5, "seed": 1},
        shared | {"label": "aia", "informed_error": 0.2, "adversary": "C2"},
    ]
    found = beside_own_columns(rows)
    assert [row["own_columns_error"] for row in found] == [0.04, 0.04, 0.5, None]
    assert [row["learned_from_exchange"] for row in found] == [pytest.approx(0.03), 0.0, 0.0, None]


def test_the_null_cannot_be_left_out_or_replaced(small) -> None:
    assert list(small(attacks={"prior": {}}).attacks) == [OWN_COLUMNS, "prior"]
    assert small(attacks={OWN_COLUMNS: {"classifier": "svm"}}).attacks == {OWN_COLUMNS: {"classifier": "svm"}}
    with pytest.raises(UsageError, match=r"attacks\.aia_raw_adjusted must be the attack of that name, got 'prior'"):
        small(attacks={OWN_COLUMNS: {"attack": "prior"}, "provfl_b": {}})
    with pytest.raises(UsageError, match="attacks must name at least one, got none"):
        small(attacks={})


def test_the_summary_of_the_results_holds_what_was_learned(finished) -> None:
    written = json.loads((finished / "results.json").read_text())
    assert all("own_columns_error" in row for row in written["rows"])
    summarised = next(entry for entry in written["summary"] if entry["attack"] == "provfl_b_mixture")
    assert {"mean", "low", "high", "n", "std"} == set(summarised["learned_from_exchange"])
