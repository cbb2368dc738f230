import json
from pathlib import Path

import pandas as pd
import pytest

from lightleak.report.kinds.updates_groups import exposures
from lightleak.report.kinds.updates_runs import effect, measured_runs
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


def of_attacks(folder: Path, *attacks: str) -> Path:
    """Leaves only the rows of these attacks."""
    raw = json.loads((folder / "results.json").read_text())
    raw["rows"] = [row for row in raw["rows"] if row["attack"] in attacks]
    (folder / "results.json").write_text(json.dumps(raw))
    return folder


def test_only_attacks_that_both_runs_tried_say_what_a_defense_did(plain, defended) -> None:
    first = plain(attacks=ATTACKS)
    second = of_attacks(defended(first, kept=1.0), "inverting_gradients", "random")
    for runs in ((first, second), (second, first)):
        _, other = measured_runs([load_run(folder) for folder in runs])
        (one,) = other.exposed
        assert set(one.effect.signs) == {"○"} and not one.effect.helps
        assert one.effect.before.risk.mean == one.effect.after.risk.mean
        assert one.effect.before.attacks == one.effect.after.attacks == {"inverting_gradients"}


def test_runs_of_other_attacks_show_no_effect(plain, defended) -> None:
    first = plain(attacks=ATTACKS)
    second = of_attacks(defended(first, kept=1.0), "inverting_gradients", "random")
    found = measured_runs([load_run(of_attacks(first, "tableak", "random")), load_run(second)])
    assert [one.effect for one in found[1].exposed] == [None]


@pytest.mark.parametrize(("recovered", "signs"), [(0.02, {"▼"}), (0.99, None)])
def test_an_attack_that_only_the_defended_run_tried_can_take_the_help_back(
    plain, defended, rewritten, recovered: float, signs: set[str] | None
) -> None:
    first = plain(attacks=("tableak", "inverting_gradients", "random"))
    second = defended(first, kept=0.1)
    shares = ("cell_accuracy", "close_match_rate", "exact_match_rate")
    for name in shares:
        rewritten(second, **{name: lambda row, name=name: recovered if row["attack"] == "tableak" else row.get(name)})
    _, other = measured_runs([load_run(of_attacks(first, "inverting_gradients", "random")), load_run(second)])
    found = other.exposed[0].effect
    assert found is None if signs is None else set(found.signs) <= signs | {"○"} and found.helps
