"""Groups over seeds, and which of them comes closest."""

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.results import VerticalRow
from lightleak.core.threat_model import Threat
from lightleak.report.kinds.vertical_findings import Findings, Outcome
from lightleak.report.kinds.vertical_groups import chosen, chosen_on_other_seeds, compare, properties, undefended
from lightleak.report.read import Run

SHARES = st.floats(0, 1)


def result(seed: int = 0, **changes: Any) -> VerticalRow:
    values: dict[str, Any] = {
        "run": "run", "dataset": "adult", "attack": "provfl_b", "variant": "passive", "adversary": "C1",
        "property_name": "sex=Male", "true_fraction": 0.66, "estimated_fraction": 0.65, "own_columns_error": 0.16,
    }  # fmt: skip
    return VerticalRow(seed=seed, **(values | changes))


@given(st.lists(st.tuples(SHARES, SHARES, SHARES), min_size=2, max_size=12))
def test_a_group_holds_means_over_seeds(shares) -> None:
    (group,) = compare(
        result(seed, true_fraction=t, estimated_fraction=e, own_columns_error=o)
        for seed, (t, e, o) in enumerate(shares)
    )
    errors = [abs(e - t) for t, e, _ in shares]
    learned = [o - abs(e - t) for t, e, o in shares]
    learned_mean, estimated = group.learned(), group.mean("estimated")
    assert group.error and learned_mean and group.own_error and estimated
    assert group.error.mean == pytest.approx(statistics.fmean(errors))
    assert learned_mean.mean == pytest.approx(statistics.fmean(learned), abs=1e-12)
    assert estimated.mean == pytest.approx(statistics.fmean(e for _, e, _ in shares))
    assert group.own_error.mean == pytest.approx(group.error.mean + learned_mean.mean, abs=1e-12)
    assert group.error.n == len(shares)


def test_the_interval_is_students_over_seeds() -> None:
    (group,) = compare(result(seed, estimated_fraction=0.66 + error) for seed, error in enumerate((-0.01, 0.02, 0.03)))
    # Mean .02, deviation .01, t(2) = 4.303.
    assert group.error and group.error.high == pytest.approx(0.02 + 4.3027 * 0.01 / math.sqrt(3), abs=1e-5)


def test_equal_errors_have_an_interval() -> None:
    (group,) = compare(result(seed, estimated_fraction=0.68) for seed in range(2))
    # Two equal errors leave open that up to 1 - .05 ** (1 / 2) of all differ.
    assert group.error and group.error.ends == pytest.approx((0.02 * 0.05**0.5, 0.02 + 0.98 * (1 - 0.05**0.5)))


def test_coverage_counts_known_intervals() -> None:
    rows = [
        result(0, low=0.6, high=0.7), result(1, low=0.4, high=0.6), result(2), result(3, low=0.66, high=0.66),
        result(4, low=0, high=1, true_fraction=None),
    ]  # fmt: skip
    assert compare(rows)[0].coverage == (2, 3)
    assert compare([result()])[0].coverage is None


def near(differences: list[float], own: float = 0.16, **changes: Any) -> list[VerticalRow]:
    """A row per seed whose error is ``own`` less the difference: what was learned from the exchange."""
    return [
        result(seed, estimated_fraction=0.66 + own - one, own_columns_error=own, **changes)
        for seed, one in enumerate(differences)
    ]


def test_one_seed_shows_no_leak() -> None:
    assert not compare([result()])[0].leaks()
    assert compare(near([0.15, 0.152, 0.148]))[0].leaks()
    assert not compare(near([0.0, 0.0, 0.0]))[0].leaks()
    # Two equal differences leave open what a third would be: Student's interval of them has no width.
    assert not compare(near([0.01, 0.01]))[0].leaks()


def test_what_was_not_paired_leaks_nothing() -> None:
    (group,) = compare([result(seed, own_columns_error=None) for seed in range(5)])
    assert group.learned() is None and not group.leaks()


def test_the_interval_of_what_was_learned_allows_for_the_choice() -> None:
    (group,) = compare(near([0.02, 0.05, 0.03, 0.06]))
    one, many = group.learned(1), group.learned(40)
    assert one and many and one.low and many.low is not None
    # Mean .04, deviation .01826; Student's t with 3 degrees of freedom at 1 - 0.05 / 40 / 2 is 11.984.
    assert one.low > 0 and many.low < 0 and one.mean == many.mean
    assert many.low == pytest.approx(0.04 - 11.984 * 0.0182574 / 2, abs=2e-4)
    assert group.leaks() and not group.leaks(40)


def test_no_more_is_learned_than_own_columns_leave_open() -> None:
    """Whoever answers exactly what its own columns tell cannot have come closer by more than these were off."""
    same = compare(
        result(seed, estimated_fraction=0.5, own_columns_error=own, true_fraction=0.5 - own)
        for seed, own in enumerate((0.015, 0.012, 0.022))
    )[0]
    learned = same.learned(2)
    assert learned and same.own_error and same.error and same.error.high and not same.leaks()
    assert learned.ends == pytest.approx((-same.error.high, same.own_error.high))


def test_runs_pool_where_seeds_differ_and_stand_apart_where_they_do_not() -> None:
    pooled = compare([result(0), result(1, run="b")])
    assert [len(group.rows) for group in pooled] == [2] and pooled[0].variant == ""
    apart = compare([result(0), result(0, run="b")])
    assert [group.variant for group in apart] == ["run run", "run b"]


def test_settings_tell_rows_of_one_seed_apart() -> None:
    rows = [result(seed, options={"queries": q, "aux": 9}) for seed in (0, 1) for q in (10, 100)]
    groups = compare(rows)
    assert [(group.variant, len(group.rows)) for group in groups] == [("queries 10", 2), ("queries 100", 2)]
    assert groups[1].title == "ProVFL-B (queries 100)"
    # A setting that differs by seed alone, such as a seed of its own, does not split a group.
    assert len(compare(result(seed, options={"seed": seed}) for seed in (0, 1))) == 1
    runs = [result(seed, run=f"run {seed}", options={"queries": 10 + seed}) for seed in (0, 1)]
    assert [group.variant for group in compare(runs)] == ["queries 10", "queries 11"]


def errors(attack: str, *values: float) -> list[VerticalRow]:
    return [result(seed, attack=attack, estimated_fraction=0.66 + value) for seed, value in enumerate(values)]


def test_a_seed_has_no_say_in_the_attack_it_is_measured_with() -> None:
    """Each attack is lucky once, on a seed of its own: chosen afterwards, the error would be nothing throughout."""
    lucky = [row for k in range(3) for row in errors(f"attack{k}", *(0.0 if seed == k else 0.3 for seed in range(3)))]
    found = chosen_on_other_seeds(compare(lucky))
    assert found is not None and found.chosen_among == 3
    assert [one.error for one in found.rows] == pytest.approx([0.3, 0.3, 0.3])


def test_every_capture_counts_though_all_are_attacked_with_one_seed() -> None:
    values = {"aia": (0.02, 0.02, 0.1), "provfl_b": (0.05, 0.05, 0.01)}
    rows = [replace(row, seed=0, capture=f"c{row.seed}") for name in values for row in errors(name, *values[name])]
    groups = compare(rows)
    assert [len(group.by_seed) for group in groups] == [3, 3]
    found = chosen_on_other_seeds(groups)
    assert found is not None and [one.attack for one in found.rows] == ["provfl_b", "provfl_b", "aia"]


def test_the_attack_that_is_closest_elsewhere_is_chosen() -> None:
    found = chosen_on_other_seeds(compare(errors("aia", 0.02, 0.02, 0.1) + errors("provfl_b", 0.05, 0.05, 0.01)))
    assert found is not None
    # Seeds 0 and 1: the others' means are .06 and .03; seed 2: .02 and .05.
    assert [one.attack for one in found.rows] == ["provfl_b", "provfl_b", "aia"]
    assert found.title == "ProVFL-B (2 of 3 seeds), AIA (1 of 3 seeds)"
    alone = compare(errors("aia", 0.02))
    assert chosen_on_other_seeds(alone) is alone[0]
    (single,) = (chosen_on_other_seeds(compare(errors("aia", 0.02) + errors("provfl_b", 0.01))),)
    assert single is not None and single.attack == "provfl_b" and single.chosen_among == 2


def test_what_learned_most_is_told_first() -> None:
    """The closest is not the one that tells: its own columns may tell as much."""
    leaking = compare(near([0.1, 0.11, 0.12]))[0]
    own = compare(near([0.0, 0.001, -0.001], own=0.01, adversary="C2"))[0]
    assert own.error and leaking.error and own.error.mean < leaking.error.mean
    assert Findings([own, leaking]).main is leaking
    assert Findings([own]).main is own
    # An answer that own columns give as well is closer to the truth than what may have learned something.
    perhaps = compare(near([0.3, -0.1, 0.2]))[0]
    assert not perhaps.leaks() and Findings([own, perhaps]).main is perhaps
    assert Findings([]).main is None


def test_few_seeds_and_what_reads_no_exchange_are_never_chosen() -> None:
    many = [result(seed, estimated_fraction=0.6) for seed in range(4)]
    exact = [
        result(seed, attack=name, estimated_fraction=0.66)
        for name in ("prior", "aia_raw", "aia_raw_adjusted")
        for seed in range(4)
    ]
    found = chosen_on_other_seeds(compare([*many, result(0, attack="single", estimated_fraction=0.66), *exact]))
    assert found is not None and {one.attack for one in found.rows} == {"provfl_b"}
    assert chosen_on_other_seeds(compare(exact)) is None
    assert chosen_on_other_seeds(compare([result(true_fraction=None)])) is None


def test_properties_hold_what_was_measured_without_a_defense() -> None:
    rows = [
        result(), result(defense="noise 0.1"), result(attack="prior", estimated_fraction=0.5), result(adversary="C2"),
        result(attack="aia_raw_adjusted"),
        result(property_name="a=b", defense="noise 0.1"), result(dataset="bank"),
    ]  # fmt: skip
    groups = compare(rows)
    found = properties(groups)
    assert [(title, len(same)) for title, same in found.items()] == [
        ("adult: sex=Male", 3), ("adult: a=b", 1), ("bank: sex=Male", 1),
    ]  # fmt: skip
    # Closest first, what reads no exchange last, one adversary after the other.
    first, second, _ = found.values()
    assert [group.attack for group in first] == ["provfl_b", "aia_raw_adjusted", "provfl_b"]
    assert [group.first.adversary for group in first] == ["C1", "C1", "C2"]
    assert second[0].defense == "noise 0.1"
    assert list(chosen(undefended(groups))) == [
        ("adult", "sex=Male", "C1"), ("adult", "sex=Male", "C2"), ("bank", "sex=Male", "C1"),
    ]  # fmt: skip
    assert len(undefended(compare(rows[1:2]))) == 1


def test_manipulation_is_what_the_threat_model_says_or_the_name_in_older_files() -> None:
    deeds = Threat("active_party", does=("refines_network",))
    for row, manipulates in (
        (result(threat=deeds), True),
        (result(threat=Threat("active_party"), attack="provfl_m", variant="MR"), False),
        (result(attack="provfl_m"), True),
        (result(attack="mine", variant="LR+MR"), True),
        (result(), False),
    ):
        assert compare([row])[0].manipulates is manipulates


def test_the_name_of_the_property_is_taken_out_of_what_holds_for_all() -> None:
    (group,) = compare([result(threat_model="Knows who has sex=Male, not sex=Males.", warnings=("sex=Male: odd",))])
    assert group.first.threat_model == "Knows who has the property, not sex=Males."
    assert group.first.warnings == ("the property: odd",)


WITHDRAWN = {"defense": "withdraw ratio 0.5", "defense_name": "withdraw", "defense_strength": 0.5}
PLACE = ("adult", "sex=Male", "C1")


def test_a_defense_is_measured_against_the_same_seeds() -> None:
    defended = [replace(row, auc=0.85, **WITHDRAWN) for row in errors("provfl_b", 0.11, 0.32)]
    found = Findings(
        compare(defended + [replace(row, auc=0.9) for row in errors("provfl_b", 0.01, 0.02, 0.3)])
    ).outcomes
    assert list(found) == ["none", "withdraw ratio 0.5"]
    plain, line = (lines[PLACE] for lines in found.values())
    assert (plain.change.rise(), plain.change.cost) == (None, None)
    # Seeds 0 and 1: .11 - .01 and .32 - .02; seed 2 has no defended counterpart.
    rise, cost = line.change.rise(), line.change.cost
    assert line.change.before == pytest.approx((0.01, 0.02)) and rise and rise.n == 2
    # Own columns alone are .16 off on every seed, the defended attack .215 on average.
    assert line.change.reads_own and line.change.after == pytest.approx((0.16, 0.16))
    assert rise.mean == pytest.approx(0.145)
    assert cost and cost.mean == pytest.approx(-0.05)


def test_under_each_defense_the_attack_is_chosen_on_other_seeds() -> None:
    plain = [*errors("provfl_b", 0.1, 0.1), *errors("aia", 0.05, 0.05)]
    plain += [replace(row, variant="MR") for row in errors("provfl_m", 0.01, 0.01)]
    defended = [replace(row, **WITHDRAWN) for row in (*errors("provfl_b", 0.2, 0.2), *errors("aia", 0.3, 0.3))]
    plain, defended = ([replace(row, own_columns_error=0.4) for row in some] for some in (plain, defended))
    before, after = (lines[PLACE] for lines in Findings(compare(plain + defended)).outcomes.values())
    assert (before.group.title, after.group.title) == ("ProVFL-M, MR", "ProVFL-B")
    # ProVFL-M was not tried under the defense: it is compared with AIA, which was closest of those tried with both.
    rise = after.change.rise()
    assert rise and rise.mean == pytest.approx(0.15) and after.untried == ("ProVFL-M, MR",)


def test_a_defense_is_known_by_its_name_and_not_by_its_label() -> None:
    withdrawn = replace(result(), **WITHDRAWN)
    plain, defended, odd = compare(
        [result(defense="plain", defense_name="none"), withdrawn, replace(withdrawn, defense="none")]
    )
    assert not plain.is_defended and plain.defense_label == "no defense" and odd.is_defended
    assert undefended([plain, defended]) == [plain]


def test_nothing_is_compared_where_no_seed_or_attack_is_shared() -> None:
    other_seed = [replace(result(7), **WITHDRAWN)]
    other_attack = [replace(row, **WITHDRAWN) for row in errors("aia", 0.1)]
    for defended in (other_seed, other_attack):
        line = Findings(compare([result(), *defended])).outcomes["withdraw ratio 0.5"][PLACE]
        assert (line.change.rise(), line.change.cost, line.helps(1)) == (None, None, False)
    (only,) = Findings(compare(other_seed)).outcomes.values()
    assert only[PLACE].change.rise() is None


def defended(attack: str, *values: float, **changes: Any) -> list[VerticalRow]:
    return [replace(row, **WITHDRAWN, **changes) for row in errors(attack, *values)]


def test_a_change_is_over_the_seeds_of_every_attack() -> None:
    """The strong attack was run on 2 of 4 seeds under the defense; the weak one alone would answer for the others."""
    plain = [*errors("provfl_m", 0.01, 0.01, 0.01, 0.01), *errors("aia", 0.1, 0.1, 0.1, 0.1)]
    weak = defended("aia", 0.1, 0.1, 0.1, 0.1)
    line = Findings(compare([*plain, *weak, *defended("provfl_m", 0.01, 0.02)])).outcomes["withdraw ratio 0.5"][PLACE]
    assert line.change.after == pytest.approx((0.01, 0.02)) and line.untried == ()
    assert line.change.before == pytest.approx((0.01, 0.01))


def test_an_attack_of_the_defended_run_alone_takes_part_in_no_change_and_denies_one() -> None:
    plain = errors("aia", 0.05, 0.06, 0.05, 0.06, 0.05)
    weak, strong = defended("aia", 0.15, 0.14, 0.15, 0.14, 0.15), defended("provfl_b", *[0.01] * 5)
    alone, both = (
        Findings(compare([*plain, *some])).outcomes[WITHDRAWN["defense"]][PLACE] for some in (weak, weak + strong)
    )
    assert alone.helps(1) and not both.helps(1)
    assert both.change == alone.change


def test_runs_that_differ_in_more_than_the_defense_credit_it_with_nothing() -> None:
    plain, after = [0.01, 0.012, 0.011, 0.01], [0.12, 0.121, 0.119, 0.12]

    def line(runs: tuple[Run, ...] = (), **changes: Any) -> Outcome:
        told = {"parties": 2, "threat": Threat("active_party", sample=400)}
        rows = [*(replace(row, **told) for row in errors("provfl_b", *plain)), *defended("provfl_b", *after, **changes)]
        return Findings(compare(rows), runs=runs).outcomes[WITHDRAWN["defense"]][PLACE]

    assert line().helps(1) and line().change.other == ()
    for changes, name in (
        ({"options": {"samples": 3}}, "samples"),
        ({"parties": 3}, "parties"),
        ({"threat": Threat("active_party", sample=40)}, "rows with known property"),
    ):
        assert line(**changes).change.other == (name,) and not line(**changes).helps(1)
    config = "{{training: {{epochs: {}}}, auxiliary: {{size: 400}}, workers: {}, defenses: {{a: {}}}}}"
    run, *others = (
        Run(name, Path(), config=config.format(epochs, workers, workers))
        for name, epochs, workers in (("run", 3, 1), ("same", 3, 2), ("longer", 30, 2))
    )
    assert [line((run, other), run=other.name).change.other for other in others] == [(), ("training.epochs",)]
