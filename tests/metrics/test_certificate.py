"""What a results row says of a certificate, and whether certified rows are right."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.certificate import Certificate, Feasibility
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.metrics.certificate import (
    NAMES,
    certificate_facts,
    certified_accuracy,
    wrong_certificates,
)
from lightleak.metrics.score import match

PLANNED = Feasibility((4,), (9,), (8,), 0.0, "exact", "enough")
TABLE = pd.DataFrame(
    {"age": [20, 35, 50, 65], "sex": ["F", "M", "F", "M"], "job": ["a", "b", "c", "d"], "ill": ["0", "1", "0", "1"]}
)


@pytest.fixture(scope="module")
def encoder() -> TableEncoder:
    columns = Column.integer("age"), Column.categorical("sex", ["F", "M"]), Column.categorical("job", list("abcd"))
    return TableEncoder(TableSchema(columns, Column.categorical("ill", ["0", "1"]))).fit(TABLE)


def certificate_of(status: Sequence[Any], digits: Sequence[bool] | None = None) -> Certificate:
    sure = tuple(s == "certified" for s in status) if digits is None else tuple(digits)
    return Certificate(0.5, tuple(status), sure, (1,) * len(status), PLANNED)


def made(encoder: TableEncoder, rows: pd.DataFrame, status: Sequence[Any] | None) -> Reconstruction:
    n = len(rows)
    certificate = None if status is None else certificate_of(status)
    uncertainty = pd.DataFrame(float("nan"), index=range(n), columns=list(rows.columns))
    return Reconstruction(
        "x",
        ThreatModel(labels="none"),
        rows.reset_index(drop=True),
        torch.zeros(n, dtype=torch.long),
        encoder.encode(rows),
        uncertainty,
        0.0,
        0.0,
        certificate=certificate,
    )


def truth_of(encoder: TableEncoder) -> GroundTruth:
    return GroundTruth(encoder.encode(TABLE), torch.zeros(4, dtype=torch.long))


def test_facts_are_json_and_none_without_a_certificate() -> None:
    assert certificate_facts(None) == dict.fromkeys(NAMES)
    facts = certificate_facts(Certificate(0.25, ("certified", "likely"), (False, False), (1, 1), PLANNED))
    assert set(facts) == set(NAMES) and json.loads(json.dumps(facts)) is not None
    assert (facts["certified_rows"], facts["certified_share"], facts["certificate_residual"]) == (1, 0.5, 0.25)
    assert facts["row_status"] == ["certified", "likely"] and facts["expected"] == "exact"
    assert facts["feasibility"]["reason"] == "enough"


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_only_certified_rows_are_judged_wherever_they_stand(encoder: TableEncoder, order: list[int]) -> None:
    found = TABLE[["age", "sex", "job"]].copy()
    found.loc[1, "age"] = 34  # a certified row whose number is off by a hair: right, but not equal
    found.loc[3, ["sex", "job"]] = ["F", "a"]  # a row that is not certified, and wrong
    status = ["certified", "certified", "certified", "likely"]
    reconstruction = made(encoder, found.iloc[order], [status[i] for i in order])
    judged = certified_accuracy(reconstruction, truth_of(encoder), encoder)
    assert (judged["certified_accuracy"], judged["certified_exact"]) == (1.0, pytest.approx(2 / 3))


def test_a_certified_row_is_judged_by_the_row_that_it_equals() -> None:
    """Two rows within the tolerance of each other: pairing them the other way round has more cells right."""
    schema = TableSchema((Column.continuous("x"),), Column.categorical("ill", ["0", "1"]))
    encoder = TableEncoder(schema).fit(pd.DataFrame({"x": range(101)}))
    near = 0.9 * TOLERANCE * float(encoder.deviation[0])
    true = pd.DataFrame({"x": [50.0, 50.0 - near]})
    truth = GroundTruth(encoder.encode(true), torch.zeros(2, dtype=torch.long))
    found = made(encoder, pd.DataFrame({"x": [50.0, 50.0 + near]}), ["certified", "likely"])
    assert match(found, truth, encoder).order.tolist() == [1, 0]
    judged = certified_accuracy(found, truth, encoder)
    assert judged == {"certified_accuracy": 1, "certified_exact": 1, "certified_wrong": 0, "certified_digits_wrong": 0}


def test_a_wrong_certified_row_shows(encoder: TableEncoder) -> None:
    found = TABLE[["age", "sex", "job"]].copy()
    found.loc[0, ["age", "sex", "job"]] = [64, "M", "b"]
    reconstruction = made(encoder, found, ["certified", "likely", "likely", "likely"])
    judged = certified_accuracy(reconstruction, truth_of(encoder), encoder)
    assert judged == {
        "certified_accuracy": 0.0,
        "certified_exact": 0.0,
        "certified_wrong": 0,  # another row has these categories and this label
        "certified_digits_wrong": 1,
    }


def test_wrong_claims_are_counted_row_by_row_and_by_what_they_claim(encoder: TableEncoder) -> None:
    found = TABLE[["age", "sex", "job"]].copy()
    found.loc[1, "age"] = 36  # 0.05 deviations: right categories, wrong digits
    found.loc[2] = found.loc[0]  # the true row bears out one of the two
    reconstruction = made(encoder, found, ["certified"] * 4)

    def claims(digits: Sequence[bool]) -> tuple[int, int]:
        certificate = certificate_of(["certified"] * 4, digits)
        return wrong_certificates(replace(reconstruction, certificate=certificate), truth_of(encoder), encoder)

    assert claims([True] * 4) == (1, 2)
    assert claims([True, False, True, True]) == (1, 1)
    assert claims([False] * 4) == (1, 0)
    flipped = replace(reconstruction, labels=torch.tensor([0, 1, 0, 0]))
    assert wrong_certificates(flipped, truth_of(encoder), encoder) == (2, 2)
    assert wrong_certificates(replace(reconstruction, certificate=None), truth_of(encoder), encoder) == (0, 0)


@pytest.mark.parametrize("status", [None, ["likely", "likely", "missing", "likely"]])
def test_nothing_certified_is_nothing_to_judge(encoder: TableEncoder, status: list[str] | None) -> None:
    reconstruction = made(encoder, TABLE[["age", "sex", "job"]], status)
    judged = certified_accuracy(reconstruction, truth_of(encoder), encoder)
    assert set(judged.values()) == {None}
