"""The recommended setting: the cheapest that protects, on constructed frontiers where the right answer is known."""

import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest

from lightleak.core.results import FrontierRow
from lightleak.experiments.kinds.frontier.summary import entry, frontier_tables
from lightleak.report.kinds.frontier_advice import Recommendation, recommend
from lightleak.report.kinds.frontier_groups import compare
from lightleak.report.kinds.frontier_points import WIDEST, Point
from lightleak.report.page import fill

GUESS = 0.5
FULL = {"restarts": 30, "steps": 1500}
STEADY = (0.01, -0.01, 0.005, -0.005, 0.01, -0.01, 0.005, -0.005)
"""Differences from a mean, by client: an interval of about 1.4 points."""

GOOD = (0.84, 0.85, 0.86)
Numbers = Sequence[float]
GUESSES = [
    FrontierRow(attack="random", run="r", seed=0, batch_index=i, batch_size=32, metrics={"cell_accuracy": GUESS})
    for i in range(len(STEADY))
]


def rows(
    name: str, cells: Numbers, accuracy: Numbers = GOOD, value: float | None = None, attack: str = "tableak", **of: Any
) -> list[FrontierRow]:
    """Attacks on clients 0, 1, ... and trainings with seeds 0, 1, ..."""
    option = {"dp_sgd": "noise_multiplier"}.get(name)
    same = {"defense": name, "defense_strength": value, "defense_option": option, "run": "r", "batch_size": 32}
    budget = of.pop("options", FULL)
    proofs = {key: of.pop(key) for key in ("certified_rows", "certified_wrong") if key in of}
    return [
        *(
            FrontierRow(
                **same, **proofs, attack=attack, seed=0, batch_index=i, metrics={"cell_accuracy": one}, options=budget
            )
            for i, one in enumerate(cells)
        ),
        *(FrontierRow(**same, **of, attack="none", seed=i, accuracy=one) for i, one in enumerate(accuracy)),
    ]


def around(mean: float, clients: int = 8) -> list[float]:
    return [mean + one for one in STEADY[:clients]]


def advised(*found: Sequence[FrontierRow]) -> Recommendation:
    """What is recommended next to an undefended point that leaks 30 points."""
    (frontier,) = compare([*rows("none", around(0.8)), *GUESSES, *(row for some in found for row in some)])
    return recommend(frontier)


def test_the_cheapest_setting_under_which_the_interval_includes_guessing() -> None:
    found = advised(
        rows("sign", around(0.7), (0.86, 0.87, 0.88)),  # cheaper, but leaks
        rows("clipping", around(0.5), (0.82, 0.83, 0.84)),
        rows("gaussian_noise", around(0.49), (0.70, 0.71, 0.72)),  # protects as well, at a higher price
    )
    assert found.outcome == "protects" and found.cheapest.name == "Clipping" and found.ties == ()
    assert [one.protection for one in found.tested] == ["leaks", "protects", "protects"]
    assert found.cheapest.accuracy.mean == pytest.approx(0.83) and found.cheapest.accuracy.has_interval
    assert found.cheapest.accuracy_lost.mean == pytest.approx(0.02)
    cheapest = found.cheapest.to_dict(comparisons=3)
    assert cheapest["attack"] == "tableak"
    assert cheapest["leakage"]["low"] < 0 < cheapest["leakage"]["high"] < cheapest["at_most"] < WIDEST


def test_none_tested_protects_whatever_the_budget() -> None:
    """A better attack reads more, not less: attacks of a small budget that beat guessing everywhere suffice."""
    for budget in (FULL, {"restarts": 1, "steps": 10}):
        found = advised(*(rows(name, around(0.6), options=budget) for name in ("sign", "clipping")))
        assert found.outcome == "none protects" and found.cheapest is None
        assert "None of the 2 tested protects" in found.sentence


def test_less_than_the_published_budget_recommends_nothing() -> None:
    found = advised(rows("sign", around(0.5), options={"restarts": 1, "steps": 10}))
    assert found.outcome == "weak attacks" and found.cheapest is None


@pytest.mark.parametrize(
    "cells",
    [
        around(0.5, clients=4),  # narrow, but over four clients
        [0.5, 0.5],  # equal by chance: no interval without width
        [0.3, 0.7, 0.4, 0.6, 0.35, 0.65, 0.45, 0.55],  # eight clients, 25 points wide
        [0.5],
    ],
)
def test_an_interval_that_includes_guessing_because_n_is_tiny_is_no_protection(cells: Numbers) -> None:
    found = advised(rows("sign", cells))
    assert found.outcome == "too few measurements" and found.cheapest is None
    assert [one.name for one in found.undecided] == ["Sign"]
    assert "Too few measurements to tell" in found.sentence
    leaking = advised(rows("sign", cells), rows("clipping", around(0.7)))
    assert leaking.outcome == "too few measurements" and len(leaking.undecided) == 1
    assert advised(rows("sign", cells), rows("clipping", around(0.5))).cheapest.name == "Clipping"


def test_equal_utility_goes_to_the_guarantee_and_the_others_are_named() -> None:
    private = rows("dp_sgd", around(0.5), GOOD, 2.0, epsilon=1.0, release_epsilon=2.2, delta=1e-5)
    cheaper = rows("clipping", around(0.5), (0.855, 0.845, 0.858))  # 0.3 points more, which may be chance
    found = advised(rows("sign", around(0.49)), private)
    assert found.cheapest.name == "DP-SGD 2" and [one.name for one in found.ties] == ["Sign"]
    found = advised(rows("sign", around(0.49)), private, cheaper)
    assert found.cheapest.name == "Clipping" and [one.name for one in found.ties] == ["DP-SGD 2", "Sign"]
    single = advised(rows("sign", around(0.5), [0.84]), rows("clipping", around(0.5), [0.85]))
    assert single.cheapest.name == "Clipping" and single.ties == ()


def test_a_guarantee_adds_a_bound_on_attacks_that_nobody_has_tried() -> None:
    private = rows("dp_sgd", around(0.5), (0.80, 0.81, 0.82), 2.0, epsilon=1.0, release_epsilon=2.2, delta=1e-5)
    found = advised(rows("sign", around(0.5)), private)
    assert found.cheapest.name == "Sign" and found.cheapest.bound is None and found.guaranteed.name == "DP-SGD 2"
    assert found.guaranteed.bound == pytest.approx(NormalDist().cdf(1 / 2))  # of two rows, sigma 2
    assert "Sign comes with no guarantee" in found.guarantee and "69.1 times" in found.guarantee
    assert advised(private).guarantee.startswith("It comes with a guarantee")
    loose = rows("dp_sgd", around(0.5), GOOD, 0.1, epsilon=90.0, release_epsilon=150.0, delta=1e-5)
    assert advised(loose).guaranteed is None and "No tested setting limits" in advised(loose).guarantee


def test_a_guarantee_is_known_from_epsilon_where_the_noise_is_not() -> None:
    local = rows("flower_local_dp", around(0.5), GOOD, 0.2, epsilon=2.0, release_epsilon=0.2, delta=1e-5)
    assert advised(local).cheapest.bound == pytest.approx(0.5 * 2.718281828**0.2 + 1e-5)


def test_any_attack_that_beats_guessing_counts_and_so_does_a_proof() -> None:
    """The best attack in the mean is erratic; a steady one that reads less is measurably better than guessing."""
    erratic = [0.3, 0.9, 0.4, 0.8, 0.3, 0.9, 0.4, 0.8]
    found = advised([*rows("sign", erratic), *rows("sign", around(0.53), (), attack="inverting_gradients")])
    sign = found.tested[0].to_dict(comparisons=1)
    assert sign["attack"] == "tableak" and sign["leakage"]["low"] < 0
    assert found.outcome == "none protects"
    proven = rows("clipping", around(0.5), (), attack="exact", certified_rows=3, certified_wrong=1)
    found = advised([*rows("clipping", around(0.5)), *proven])
    assert found.tested[0].proven.share == pytest.approx(2 / 32) and found.tested[0].protection == "leaks"
    spent = {"chains": 192, "sweeps": 15}
    nothing = rows("clipping", around(0.45), (), attack="exact", options=spent, certified_rows=0, certified_wrong=0)
    found = advised([*rows("clipping", around(0.5)), *nothing])
    assert found.tested[0].proven.share == 0 and found.tested[0].proven.n == 8 * 32
    assert found.outcome == "protects"


def test_no_defense_is_recommended_where_nothing_leaks_or_nothing_was_measured() -> None:
    (frontier,) = compare([*rows("none", around(0.5)), *GUESSES, *rows("sign", around(0.5))])
    assert recommend(frontier).outcome == "no leakage"
    assert advised().outcome == "not measured"


def test_a_defense_is_not_credited_with_what_may_be_missing_without_it() -> None:
    """The undefended point leaks little, and measurably no more than the defended one."""
    sign = [0.51 - one for one in STEADY]
    (frontier,) = compare([*rows("none", around(0.51)), *GUESSES, *rows("sign", [one - 0.004 for one in sign])])
    assert frontier.none.protection == "leaks" and frontier.tried[0].protection_alone == "protects"
    assert recommend(frontier).outcome == "too few measurements"


def test_terminal_json_and_report_say_the_same() -> None:
    every = [*rows("none", around(0.8)), *rows("sign", around(0.5), (0.82, 0.83, 0.84)), *GUESSES]
    (frontier,) = compare(every)
    advice = recommend(frontier)
    assert "Sign" in advice.sentence
    (table,) = frontier_tables({"rows": [row.to_dict() for row in every]})
    assert f"{advice.sentence} {advice.guarantee}" in table.said
    assert f"{advice.sentence} {advice.guarantee}" in str(fill("frontier", "summary", frontier, 1, advice))
    written = json.loads(json.dumps(entry(frontier)))["recommendation"]
    assert (written["outcome"], written["cheapest"], written["guaranteed"]) == ("protects", "Sign", None)
    (tested,) = written["tested"]
    assert tested["leakage"]["n"] == 8 and tested["accuracy"]["mean"] == pytest.approx(0.83)


@pytest.mark.parametrize(
    ("name", "attacks", "is_adaptive"),
    [
        ("random_pruning", ["tableak"], False),
        ("random_pruning", ["tableak", "exact_pruned"], True),
        ("sign", ["tableak", "exact_signs"], True),
        ("of a plug-in", ["tableak"], None),
    ],
)
def test_a_recommendation_says_whether_an_attack_that_knows_the_defense_was_tried(
    name: str, attacks: list[str], is_adaptive: bool | None
) -> None:
    spent = {"options": {"restarts": 30, "steps": 5000, "sweeps": 9}}
    found = [rows(name, around(GUESS), GOOD if i == 0 else (), attack=one, **spent) for i, one in enumerate(attacks)]
    advice = advised(*found)
    assert advice.cheapest is not None and advice.cheapest.is_adaptive is is_adaptive
    assert ("adaptive: true" in advice.sentence) is (is_adaptive is False)


EXACT = {"attack": "exact", "options": {"chains": 192, "sweeps": 15}}


def test_a_point_that_exact_inversion_alone_attacked_is_never_recommended() -> None:
    """Strong attacks on other points say nothing of it, as in a run that was cut off before they came to it."""
    found = advised(rows("clipping", around(0.7)), rows("sign", around(0.4), **EXACT))
    assert found.outcome == "weak attacks" and found.cheapest is None
    found = advised(rows("clipping", around(0.5)), rows("sign", around(0.4), (0.9, 0.91, 0.92), **EXACT))
    assert found.cheapest.name == "Clipping" and [one.name for one in found.undecided] == ["Sign"]


def test_nothing_is_recommended_without_a_reference_or_a_network_that_has_learned() -> None:
    (frontier,) = compare([*GUESSES, *rows("sign", around(0.5))])
    assert recommend(frontier).outcome == "no reference"
    for majority, outcome in ((0.86, "not learned"), (0.7, "protects")):
        undefended = rows("none", around(0.8), majority=majority)
        (frontier,) = compare([*undefended, *GUESSES, *rows("sign", around(0.5), majority=majority)])
        assert recommend(frontier).outcome == outcome


def test_accuracies_are_compared_on_the_trainings_that_are_shared() -> None:
    lucky = [row for row in rows("sign", around(0.5), (0.80, 0.81, 0.84)) if row.attack != "none" or row.seed == 2]
    found = advised(lucky, rows("clipping", around(0.5), (0.82, 0.83, 0.86)))
    assert found.cheapest.name == "Clipping"


def test_an_epsilon_that_nobody_has_shown_limits_nothing() -> None:
    claimed = rows("nvflare_svt", around(0.5), GOOD, 0.1, epsilon=0.2, release_epsilon=0.2, delta=1e-5)
    assert advised(claimed).cheapest.bound is None and "No tested setting limits" in advised(claimed).guarantee


def test_what_knows_a_defense_reads_what_clients_send() -> None:
    for protocol, name, knows in (
        ("fedsgd", "exact_joint", True),
        ("fedavg", "exact_fedavg", True),
        ("fedavg", "tableak", False),
    ):
        noised = [replace(row, protocol=protocol) for row in rows("gaussian_noise", around(0.5), (), attack=name)]
        assert Point(tuple(noised)).is_adaptive is knows
    pruned = [replace(row, protocol="fedavg") for row in rows("random_pruning", around(0.5), ())]
    assert Point(tuple(pruned)).is_adaptive is None  # there is no attack on weight updates that knows it
