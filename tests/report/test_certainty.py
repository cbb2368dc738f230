import pytest

from lightleak.report.certainty import certainty
from lightleak.report.comparison import Group
from lightleak.report.estimate import Estimate
from lightleak.report.result import Setting


def group(attack: str, **metrics: float) -> Group:
    return Group(Setting("run"), attack, 8, (), {name: Estimate(value) for name, value in metrics.items()})


def test_quarters_are_paired_by_kind() -> None:
    found = certainty(
        [
            group("tableak", top25_categorical=0.99, bottom25_categorical=0.6, top25_numerical=0.8),
            group("random", top25_categorical=0.5, bottom25_categorical=0.5),
            group("gradinversion"),
        ]
    )
    assert [one.kind for one in found] == ["categorical"]
    (pair,) = found[0].pairs
    assert (pair.label, pair.start, pair.end) == ("TabLeak", pytest.approx(0.6), pytest.approx(0.99))
    assert pair.note == "+39.0"


def test_no_confidence_no_section() -> None:
    assert certainty([group("tableak")]) == ()
