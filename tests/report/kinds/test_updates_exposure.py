import json

import pandas as pd
import pytest

from lightleak.report.kinds.updates_groups import exposures
from lightleak.report.kinds.updates_runs import effect
from lightleak.report.read import load_run

ATTACKS = ("tableak", "inverting_gradients", "audit_max", "random")


def test_the_attack_that_got_most_counts_on_each_update(plain) -> None:
    folder = plain(attacks=ATTACKS, batch_sizes=(8, 32))
    rows = pd.DataFrame(json.loads((folder / "results.json").read_text())["rows"])
    attacks = rows[rows.attack != "random"]
    for one in exposures(load_run(folder)):
        own = attacks[attacks.batch_size == one.batch_size]
        at_risk = own.assign(risk=own[["exact_match_rate", "certified_share"]].astype(float).max(axis=1))
        assert one.risk.mean == pytest.approx(at_risk.groupby("batch_index").risk.max().mean())
        assert one.values.mean == pytest.approx(own.groupby("batch_index").cell_accuracy.max().mean())
        assert one.n == 6
        for attack in ("tableak", "inverting_gradients", "audit_max"):  # no single attack does better
            assert own[own.attack == attack].cell_accuracy.mean() <= one.values.mean + 1e-12


def test_guessing_puts_no_row_at_risk(plain) -> None:
    folder = plain(attacks=("random",))
    assert exposures(load_run(folder)) == ()


def test_a_row_is_at_risk_by_its_proof_alone_where_the_truth_is_unknown(plain) -> None:
    unknown = dict.fromkeys(("cell_accuracy", "exact_match_rate", "certified_exact", "certified_accuracy"))
    (one,) = exposures(load_run(plain(attacks=("audit_max",), extra=unknown)))
    assert not one.knows_truth and one.values is None
    assert one.risk.mean == 1.0


def test_moments_and_sizes_stand_apart(plain) -> None:
    found = exposures(load_run(plain(batch_sizes=(32, 8), epochs=2)))
    assert [(one.moment, one.batch_size) for one in found] == [
        ("before training", 8),
        ("before training", 32),
        ("during training", 32),
    ]


@pytest.mark.parametrize(("kept", "helps"), [(0.3, True), (1.0, False), (1.2, False)])
def test_a_defense_helps_where_the_interval_says_so(plain, defended, kept: float, helps: bool) -> None:
    first = plain()
    (before,), (after,) = (exposures(load_run(folder)) for folder in (first, defended(first, kept)))
    found = effect(before, after)
    assert found.is_paired
    assert found.helps is helps
