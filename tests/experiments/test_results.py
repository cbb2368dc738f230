"""What a run prints and writes besides its rows."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightleak.core.people import People, Rate, Risk
from lightleak.core.records import write_record
from lightleak.experiments.kinds.updates.summary import update_tables
from lightleak.experiments.results import write_results
from lightleak.experiments.terminal import print_results


def printed(results: dict[str, Any], width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    print_results(update_tables(results), results, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def row(**changes: Any) -> dict[str, Any]:
    facts = {
        "dataset": "health-heritage",
        "target": "mlp-400-400-400",
        "protocol": "fedsgd",
        "attack": "deep_gradient_leakage",
        "batch_size": 128,
        "labels": "restored",
        "defense": "none",
        "source": "training",
        "epoch": 10,
        "seed": 0,
        "batch_index": 0,
        "cell_accuracy": 0.5,
        "exact_match_rate": 0.25,
        "seconds": 123.456,
    }
    return facts | changes


def test_table_fits_a_terminal_and_loses_nothing(tmp_path: Path) -> None:
    rows = [
        row(),
        row(batch_index=1, cell_accuracy=0.7),
        row(source="initial", epoch=0, attack="random", seconds=0.01),
    ]
    lines = printed(write_results(tmp_path, rows))
    assert lines[0].startswith("dataset health-heritage; target mlp-400-400-400; labels restored;")
    assert lines[1].split() == ["clients", "batch", "attack", "cells", "interval", "rows", "n", "s"]
    assert "epoch 10" in lines[2] and "deep_gradient_leakage" in lines[2] and " 60.0 " in lines[2]
    assert lines[3].split() == ["untrained", "128", "random", "50.0", "-", "25.0", "1", "0.01"]
    assert max(map(len, lines[1:])) <= 80 and "…" not in "".join(lines)


def test_a_table_with_proofs_fits_as_well(tmp_path: Path) -> None:
    sure = {"cell_accuracy": 1.0, "exact_match_rate": 1.0, "certified_share": 1.0, "source": "initial", "epoch": 0}
    rows = [row(attack="audit_max", batch_index=i, seconds=0.17, **sure) for i in range(2)]
    lines = printed(write_results(tmp_path, [*rows, row(attack="inverting_gradients", seconds=8.07)]))
    assert lines[2].split()[-5:] == ["22.4-100.0", "100.0", "100.0", "2", "0.17"]
    assert max(map(len, lines[1:])) <= 80 and "…" not in "".join(lines)


def test_the_attacks_of_the_quickstart_fit_in_full_and_longer_names_are_broken(tmp_path: Path) -> None:
    proven = {"labels_proven": True, "certified_rows": 4, "certified_share": 1.0}
    rows = [
        row(attack=attack, source="initial", epoch=0, labels="true", batch_index=i, cell_accuracy=share, seconds=17.58)
        | (proven if attack == "audit_max" else {})
        for attack in ("audit_max", "inverting_gradients")
        for i, share in enumerate((1.0, 0.9))
    ]
    *_, last = printed(write_results(tmp_path, rows))
    assert last.startswith("true   untrained   128 inverting_gradients ") and last.split()[-1] == "17.6"
    for one in rows:
        one["attack"] = one["attack"].replace("gradients", "gradients_fedavg")
    lines = printed(write_results(tmp_path, rows))
    assert max(map(len, lines[1:])) <= 80 and "…" not in "".join(lines)
    first, rest = (line.split() for line in lines[-2:])
    assert first[3] + rest[0] == "inverting_gradients_fedavg"


def test_what_differs_becomes_a_column(tmp_path: Path) -> None:
    lines = printed(write_results(tmp_path, [row(), row(dataset="adult")]), width=120)
    assert lines[1].split()[0] == "dataset"
    assert [line.split()[0] for line in lines[2:]] == ["health-heritage", "adult"]


def test_fedavg_and_the_defense_are_said_above_the_table(tmp_path: Path) -> None:
    local = {"protocol": "fedavg", "local_epochs": 5, "local_batches": 4, "local_batch_size": 8, "n_clients": 1}
    defended = local | {"defense": "dp_sgd", "defense_strength": 1.0, "epsilon": 2.943, "delta": 1e-5}
    defended |= {"release_epsilon": 4.377}
    head, _, line = printed(write_results(tmp_path, [row(**defended, epoch=3)]), width=200)
    said = "; FedAvg, local epochs 5; defense dp_sgd 1; epsilon 2.94 of the training; "
    assert f"{said}epsilon 4.38 of one update whose batch is known; cells and rows" in head
    assert line.startswith("round 3")
    plain, *_ = printed(write_results(tmp_path, [row(**local), row(**local | {"local_epochs": 1})]), width=200)
    assert "; FedAvg; cells and rows" in plain


@pytest.mark.parametrize(
    "change",
    [
        {"local_epochs": 10},
        {"local_batches": 2},
        {"n_clients": 4},
        {"defense_strength": 0.1},
        {"protocol": "fedsgd"},
        {"epsilon": 1.0},
    ],
)
def test_what_differs_in_protocol_or_defense_is_another_group(tmp_path: Path, change: dict[str, Any]) -> None:
    local = {"protocol": "fedavg", "local_epochs": 5, "local_batches": 4, "local_batch_size": 8, "n_clients": 1}
    first = row(**local, defense="gaussian_noise", defense_strength=0.01)
    groups = write_results(tmp_path, [first, first | {"batch_index": 1}, first | change])["summary"]
    assert [group["cell_accuracy"]["n"] for group in groups] == [2, 1]
    assert all(groups[1][name] == value for name, value in change.items())


def test_rows_without_truth_are_shown_without_accuracy(tmp_path: Path) -> None:
    lines = printed(write_results(tmp_path, [row(cell_accuracy=None, exact_match_rate=None)]))
    assert lines[2].split()[-5:] == ["-", "-", "-", "1", "123"]


def test_no_rows_are_said(tmp_path: Path) -> None:
    results = write_results(tmp_path, [])
    assert results == {"schema_version": 1, "rows": [], "summary": []}
    assert printed(results) == ["nothing is finished yet"]


def test_results_are_written_as_returned_without_nan(tmp_path: Path) -> None:
    results = write_results(tmp_path, [row(rmse=float("nan"), extra=3.0)], extra_keys=("extra",))
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert results["rows"][0]["rmse"] is None
    assert results["summary"][0]["extra"] == 3.0  # a key of the group, not a metric


def test_batches_that_were_drawn_at_random_are_one_line(tmp_path: Path) -> None:
    sizes = [29, 32, 38, 32]
    rows = [
        row(batch_size=n, local_batch_size=n, planned_batch_size=32, cell_accuracy=n / 100, batch_index=i)
        for i, n in enumerate(sizes)
    ]
    results = write_results(tmp_path, rows)
    assert len(results["summary"]) == 3  # the file keeps every size
    lines = printed(results)
    (line,) = (one.split() for one in lines if "deep_gradient_leakage" in one)
    assert "~32" in line and "4" in line and f"{sum(sizes) / 4:.1f}" in line
    assert any("~n" in one for one in lines)


def test_labels_of_an_attack_that_proves_them_are_not_called_true(tmp_path: Path) -> None:
    proven = {"attack": "exact", "labels": "true", "labels_proven": True, "certified_share": 1.0}
    rows = [row(labels="true"), row(**proven, certified_rows=8), row(**proven | {"attack": "none"}, certified_rows=0)]
    lines = [line.split() for line in printed(write_results(tmp_path, rows), width=120)]
    known = {name: line for line in lines for name in ("deep_gradient_leakage", "exact", "none") if name in line}
    assert {name: line[0] for name, line in known.items()} == {
        "deep_gradient_leakage": "true",
        "exact": "proven",
        "none": "true",
    }


@pytest.mark.parametrize(("share", "says"), [(1.0, "36.8-100.0"), (0.0, "0.0-63.2")])
def test_equal_values_prove_no_certainty(tmp_path: Path, share: float, says: str) -> None:
    """Three equal shares: the share of batches that differ is below 1 - 0.05 ** (1 / 3)."""
    rows = [row(cell_accuracy=share, batch_index=index) for index in range(3)]
    (line,) = (line for line in printed(write_results(tmp_path, rows)) if says in line)
    assert f" {100 * share:.1f} " in line


def test_people_have_a_table_of_their_own(tmp_path: Path) -> None:
    people = People(
        "exact", 30162, 30132, 30000, 30, 0, True, 30132, 0, 30162, "step", singling_out=Risk(Rate.of(9, 10))
    )
    results = write_results(tmp_path, [row(attack="exact")]) | {"people": [write_record(people)]}
    lines = printed(results)
    assert lines[-3].startswith("people: training rows in some attacked update; wrong: proofs that fit nobody")
    assert " ".join(lines[-1].split()) == "exact 30162 30132 99.9 to 99.9% 0 30 90.0% - -"
    assert max(map(len, lines[-2:])) <= 80
