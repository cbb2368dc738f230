"""What a certificate counts and how it is written."""

import json
from dataclasses import fields

import pytest

from lightleak.core.certificate import Certificate, Feasibility, RowStatus

PLANNED = Feasibility((4, 4), (9, 8), (7, 6), 0.0, "exact", "8 + 6 equations of layer 2 test every row")


def certificate(*status: RowStatus) -> Certificate:
    return Certificate(1e-7, status, tuple(s == "certified" for s in status), (1,) * len(status), PLANNED)


@pytest.mark.parametrize(
    ("status", "certified", "complete"),
    [
        (("certified", "certified"), 2, True),
        (("certified", "likely", "missing"), 1, False),
        (("likely", "likely"), 0, False),
        (("missing",), 0, False),
    ],
)
def test_only_certified_rows_count(status: tuple[RowStatus, ...], certified: int, complete: bool) -> None:
    found = certificate(*status)
    assert found.certified == certified and found.complete is complete


def test_it_is_written_whole_as_json() -> None:
    found = certificate("certified", "missing")
    written = json.loads(json.dumps(found.to_dict()))
    assert written["status"] == ["certified", "missing"] and written["multiplicity"] == [1, 1]
    feasibility = {name: tuple(v) if isinstance(v, list) else v for name, v in written["feasibility"].items()}
    assert Feasibility(**feasibility) == PLANNED and PLANNED.to_dict()["ranks"] == (4, 4)
    assert written["residual"] == 1e-7 and written["scale"] == 1
    assert set(written) == {field.name for field in fields(Certificate)}


def test_digits_are_a_fact_of_their_own_of_rows_whose_cells_are_certified() -> None:
    found = Certificate(1e-7, ("certified", "certified", "likely"), (True, False, False), (1, 2, 1), PLANNED)
    assert found.certified == 2 and found.certified_digits == 1
    with pytest.raises(ValueError, match="cells are"):
        Certificate(1e-7, ("likely",), (True,), (1,), PLANNED)
    with pytest.raises(ValueError, match="2 rows, got 1"):
        Certificate(1e-7, ("certified", "likely"), (True,), (1, 1), PLANNED)


def test_certificates_are_equal_by_value_and_cannot_be_changed() -> None:
    assert certificate("certified") == certificate("certified") != certificate("likely")
    with pytest.raises(AttributeError):
        certificate("certified").residual = 0.0  # type: ignore[misc]
