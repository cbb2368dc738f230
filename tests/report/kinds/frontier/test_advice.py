"""The recommended setting: the cheapest that protects, on constructed frontiers where the right answer is known."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
import yaml

from lightleak.core.people import People
from lightleak.core.records import write_record
from lightleak.core.results import FrontierRow, UpdateRow
from lightleak.experiments.kinds.frontier.summary import entry, frontier_tables
from lightleak.report.attacks import shipped
from lightleak.report.kinds.frontier_advice import Recommendation, command, recommend
from lightleak.report.kinds.frontier_groups import compare
from lightleak.report.kinds.frontier_points import WIDEST, Point
from lightleak.report.page import fill
from lightleak.report.read import Run

GUESS = 0.5
FULL = {"restarts": 30, "steps": 1500}
STEADY = (0.01, -0.01, 0.005, -0.005, 0.01, -0.01, 0.005, -0.005)
"""Differences from a mean, by client: an interval of about 1.4 points."""

GOOD = (0.84, 0.85, 0.86)
Numbers = Sequence[float]
GUESSES = [
    FrontierRow(
        attack="random",
        run="r",
        seed=0,
        batch_index=i,
        batch_size=32,
        metrics={"cell_accuracy": GUESS, "close_match_rate": 0.0},
    )
    for i in range(len(STEADY))
]


def rows(
    name: str, cells: Numbers, accuracy: Numbers = GOOD, value: float | None = None, attack: str = "tableak", **of: Any
) -> list[FrontierRow]:
    """Attacks on clients 0, 1, ... and trainings with seeds 0, 1, ...; ``auroc`` by training, ``whole`` by client."""
    option = {"dp_sgd": "noise_multiplier"}.get(name)
    same = {"defense": name, "defense_strength": value, "defense_option": option, "run": "r", "batch_size": 32}
    budget = of.pop("options", FULL)
    proofs = {key: of.pop(key) for key in ("certified_rows", "certified_wrong") if key in of}
    auroc, whole = of.pop("auroc", [None] * len(accuracy)), of.pop("whole", [0.0] * len(cells))
    scores = [{"cell_accuracy": one, "close_match_rate": share} for one, share in zip(cells, whole, strict=True)]
    same |= {key: of.pop(key, {}) for key in ("defense_settings", "defense_knowledge")}
    return [
        *(
            FrontierRow(**same, **proofs, attack=attack, seed=0, batch_index=i, metrics=one, options=budget)
            for i, one in enumerate(scores)
        ),
        *(
            FrontierRow(**same, **of, attack="none", seed=i, accuracy=one, auroc=area)
            for i, (one, area) in enumerate(zip(accuracy, auroc, strict=True))
        ),
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
    assert found.cheapest.lost("accuracies").mean == pytest.approx(0.02)
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
    assert "DP-SGD 2 (no attack of this run knows it), Sign (no attack of this run knows it)" in found.sentence
    single = advised(rows("sign", around(0.5), [0.84]), rows("clipping", around(0.5), [0.85]))
    assert single.cheapest.name == "Clipping" and single.ties == ()


def test_a_guarantee_adds_a_bound_on_attacks_that_nobody_has_tried() -> None:
    private = rows("dp_sgd", around(0.5), (0.80, 0.81, 0.82), 2.0, epsilon=1.0, release_epsilon=2.2, delta=1e-5)
    found = advised(rows("sign", around(0.5)), private)
    assert found.cheapest.name == "Sign" and found.cheapest.bound is None and found.guaranteed.name == "DP-SGD 2"
    assert found.guaranteed.bound == pytest.approx(NormalDist().cdf(1 / 2))  # of two rows, sigma 2
    assert "Sign comes with no guarantee" in found.guarantee and "69.1 times" in found.guarantee
    # In FedAvg a row takes part in a noised step of every local epoch.
    local = [replace(row, protocol="fedavg", local_epochs=None if row.is_training else 4) for row in private]
    assert Point(tuple(local)).bound == pytest.approx(NormalDist().cdf(1))
    unknown = Point(tuple(replace(row, local_epochs=None) for row in local))
    assert unknown.bound == 1  # by epsilon alone, which limits nothing here
    assert advised(private).guarantee.startswith("It comes with a guarantee")
    loose = rows("dp_sgd", around(0.5), GOOD, 0.1, epsilon=90.0, release_epsilon=150.0, delta=1e-5)
    assert advised(loose).guaranteed is None and "No tested setting limits" in advised(loose).guarantee


@pytest.mark.parametrize(("labels", "said"), [("true", "records of equal label was"), ("restored", "records was")])
def test_a_bound_is_about_records_of_equal_label_where_labels_are_shared(labels: str, said: str) -> None:
    found = rows("dp_sgd", around(0.5), GOOD, 2.0)
    frontier = [replace(row, label_setting=labels) for row in (*rows("none", around(0.8)), *GUESSES, *found)]
    assert f"which of two {said} used" in recommend(*compare(frontier)).guarantee


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
    assert f"{advice.sentence} {advice.guarantee} {advice.over_training}" in table.said
    assert f"{advice.sentence} {advice.guarantee}" in str(fill("frontier", "summary", frontier, 1, advice))
    written = json.loads(json.dumps(entry(frontier)))["recommendation"]
    assert (written["outcome"], written["cheapest"], written["guaranteed"]) == ("protects", "Sign", None)
    (tested,) = written["tested"]
    assert tested["leakage"]["n"] == 8 and tested["accuracy"]["mean"] == pytest.approx(0.83)


def test_the_terminal_shows_both_ends_of_an_interval() -> None:
    """Half a width would put 100% plus and minus 22 above what is possible."""
    (table,) = frontier_tables({"rows": [row.to_dict() for row in (*rows("none", [1.0] * 5), *GUESSES)]})
    assert table.cells[0][3:5] == ["85.0% 82-88", "100.0% 54-100"]


@pytest.mark.parametrize(
    ("name", "attacks", "left_out", "is_adaptive"),
    [
        ("random_pruning", ["tableak"], "any", False),
        ("random_pruning", ["tableak", "exact_pruned"], "any", True),
        ("random_pruning", ["tableak", "exact_pruned"], "smallest", False),  # made for another defense
        ("gradient_compression", ["tableak", "exact_pruned"], "smallest", True),
        ("sign", ["tableak", "exact_signs"], "any", True),
        ("no_such_defense", ["tableak"], "any", None),
    ],
)
def test_a_recommendation_says_whether_an_attack_that_knows_the_defense_was_tried(
    name: str, attacks: list[str], left_out: str, is_adaptive: bool | None
) -> None:
    spent = {"options": {"restarts": 30, "steps": 5000, "sweeps": 9, "left_out": left_out}}
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


def test_of_a_network_that_has_learned_nothing_no_cost_is_shown_as_certain() -> None:
    """Two trainings that name the commonest label agree exactly; nothing was lost, as there was nothing to lose."""
    same = {"majority": 0.412, "auroc": (0.59, 0.55)}
    plain, clipped = (rows(name, around(0.9), (0.412, 0.412), **same) for name in ("none", "clipping"))
    (frontier,) = compare([*plain, *clipped, *GUESSES])
    found = recommend(frontier)
    assert found.outcome == "none protects" and "What a defense costs cannot be judged" in found.sentence
    cost = found.tested[0].change("accuracies")
    assert cost and cost.ends == pytest.approx((-(1 - 0.05**0.5), 1 - 0.05**0.5))
    able = rows("none", around(0.9), (0.8, 0.81), **same)
    (frontier,) = compare([*able, *clipped, *GUESSES])
    assert "cannot be judged" not in recommend(frontier).sentence


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


COMMONEST = (0.735, 0.735, 0.735)
"""Accuracy of a network that names the commonest label for everyone, in every training."""


def test_a_network_that_names_the_commonest_label_is_not_free() -> None:
    """Its accuracy stays, or even rises by chance, while its AUROC falls."""
    collapsed = rows("sign", around(0.5), COMMONEST, auroc=(0.55, 0.52, 0.57))
    ranking = rows("clipping", around(0.5), (0.734, 0.733, 0.735), auroc=(0.79, 0.80, 0.81))
    found = advised(collapsed, ranking)
    assert found.cheapest.name == "Clipping" and found.ties == ()
    lost = advised(rows("none", (), COMMONEST, auroc=(0.80, 0.81, 0.82)), ranking).cheapest.to_dict(1)
    assert lost["auroc"]["mean"] == pytest.approx(0.80) and lost["auroc_lost"]["mean"] == pytest.approx(0.01)
    # The other way round: a better AUROC does not make up for an accuracy that is lower by more.
    blunt = rows("sign", around(0.5), (0.60, 0.61, 0.62), auroc=(0.81, 0.82, 0.83))
    assert advised(blunt, ranking).cheapest.name == "Clipping"
    # Without the AUROC of one, as in results of earlier versions, accuracy alone decides.
    assert advised(collapsed, rows("clipping", around(0.5), (0.73, 0.731, 0.732))).cheapest.name == "Sign"


def test_a_recommended_network_that_learned_nothing_is_called_useless() -> None:
    ruined = rows("sign", around(0.5), COMMONEST, auroc=(0.49, 0.52, 0.5), majority=0.735)
    assert "keeps the network from learning" in advised(ruined).sentence
    ranking = rows("sign", around(0.5), COMMONEST, auroc=(0.79, 0.80, 0.81), majority=0.735)
    assert "keeps the network from learning" not in advised(ranking).sentence


@pytest.mark.parametrize(("auroc", "outcome"), [((0.8, 0.81, 0.79), "protects"), ((0.49, 0.52, 0.5), "not learned")])
def test_a_network_with_the_accuracy_of_the_commonest_label_has_learned_what_its_auroc_shows(
    auroc: Numbers, outcome: str
) -> None:
    undefended = rows("none", around(0.8), COMMONEST, auroc=auroc, majority=0.735)
    (frontier,) = compare([*undefended, *GUESSES, *rows("sign", around(0.5), COMMONEST, auroc=auroc)])
    assert recommend(frontier).outcome == outcome


@pytest.mark.parametrize(
    ("whole", "outcome"),
    [
        ([1 / 32] * 8, "none protects"),  # a row of each client, equal everywhere: no spread between clients
        ([1.0] + [0.0] * 7, "none protects"),  # one client whole, the others not at all
        ([1 / 32] + [0.0] * 7, "protects"),  # one row in 256, which guessing may also hit
        ([0.0] * 8, "protects"),
    ],
)
def test_rows_recovered_whole_without_proof_are_a_leak_where_the_mean_over_cells_shows_nothing(
    whole: Numbers, outcome: str
) -> None:
    assert advised(rows("sign", around(0.5), whole=whole)).outcome == outcome


def test_rows_that_guessing_recovers_as_often_are_no_leak() -> None:
    narrow = [replace(row, metrics={**row.metrics, "close_match_rate": 0.1}) for row in GUESSES]
    (frontier,) = compare([*rows("none", around(0.8)), *narrow, *rows("sign", around(0.5), whole=[0.1] * 8)])
    assert recommend(frontier).outcome == "protects"


@pytest.mark.parametrize(
    ("cells", "outcome"),
    [([GUESS] * 8, "protects"), ([GUESS] * 4, "too few measurements"), ([GUESS + 0.1] * 8, "none protects")],
)
def test_an_attack_that_returns_the_guess_for_every_client_does_not_hide_protection(
    cells: Numbers, outcome: str
) -> None:
    """As `exact_joint` does where noise hides the rows: the differences are equal, which says nothing against them."""
    joint = {"attack": "exact_joint", "options": {"chains": 192, "sweeps": 15, "steps": 9000, "restarts": 90}}
    assert advised(rows("sign", around(GUESS)), rows("sign", cells, (), **joint)).outcome == outcome


@pytest.mark.parametrize(
    ("clients", "outcome"), [(0, "too few measurements"), (1, "too few measurements"), (8, "protects")]
)
def test_a_defense_protects_from_no_attack_that_was_not_run_on_it(clients: int, outcome: str) -> None:
    """The strongest attack on the undefended network must have failed under the defense, on as many clients."""
    stronger = rows("none", around(0.9), (), attack="inverting_gradients")
    failed = rows("sign", around(0.5, clients), (), attack="inverting_gradients")
    found = advised(stronger, rows("sign", around(0.5)), failed)
    assert found.outcome == outcome and (found.cheapest is None) == (outcome != "protects")


def test_an_attack_that_knows_the_defense_stands_in_for_the_strongest_without_one() -> None:
    """As `adaptive` runs them: `audit_max` without a defense, `exact_signs` under the defense that it knows."""
    budgets = {name: budget for of in shipped()["budgets"].values() for name, budget in of.items()}
    stronger = rows("none", around(0.9), (), attack="audit_max", options=budgets["audit_max"])
    assert advised(stronger, rows("sign", around(0.5))).outcome == "too few measurements"
    knowing = rows("sign", around(0.5), (), attack="exact_signs", options=budgets["exact_signs"])
    assert advised(stronger, rows("sign", around(0.5)), knowing).outcome == "protects"


NOISE = {"name": "gaussian_noise", "options": {"scale": 0.1}, "point": "update"}


def trained(defense: dict[str, Any], *people: People, spent: dict[str, int] | None = None) -> Run:
    """A run of attacks on all updates of a training, with their published budgets."""
    usual = shipped()["budgets"]["as published"]
    attacks = ["exact", *(one.attack for one in people)]
    found = [
        UpdateRow(attack=one, defense=defense["name"], options=spent or usual[one], batch_size=32) for one in attacks
    ]
    raw = {"people": [write_record(one) for one in people]}
    return Run("people", Path(), "updates", tuple(found), raw, config=yaml.safe_dump({"defense": defense}))


def everyone(attack: str, proven: int = 0, recovered: int = 0) -> People:
    rest = 640 - proven - recovered
    return People(
        attack=attack, n=640, proven=proven, proven_numbers=0, recovered=recovered, not_recovered=rest,
        has_certificates=proven > 0, claims=proven, wrong=0, rows=640, unit="step",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("people", "outcome", "said"),
    [
        ([everyone("exact", proven=1)], "none protects", "1 of 640 people were proven"),
        ([everyone("audit_max", recovered=612), everyone("random")], "none protects", "612 more recovered"),
        ([everyone("audit_max", recovered=60), everyone("random", recovered=60)], "protects", "none of 640 people"),
        ([everyone("audit_max"), everyone("random")], "protects", "none of 640 people"),
        # Exact inversion alone finds nothing under noise: the reader is sent on.
        ([everyone("exact"), everyone("random")], "protects", "lightleak audit configs/people.yaml"),
        ([], "protects", "lightleak audit configs/people.yaml"),
    ],
)
def test_people_of_a_training_under_the_same_defense_count(people: list[People], outcome: str, said: str) -> None:
    noised = rows("gaussian_noise", around(0.5), value=0.1, defense_settings=NOISE)
    every = [*rows("none", around(0.8)), *GUESSES, *noised]
    run = trained(NOISE, *people)
    (frontier,) = compare(every, [run])
    advice = recommend(frontier)
    assert advice.outcome == outcome and said in advice.over_training
    written = NOISE | {"options": {"scale": "0.1"}}  # the same in another spelling: exposed people count, no others
    (frontier,) = compare(every, [trained(written, *people)])
    assert recommend(frontier).outcome == outcome and "none of 640" not in recommend(frontier).over_training
    weaker = NOISE | {"options": {"scale": 0.001}}
    for other in (trained(weaker, *people), replace(run, config=None), replace(run, rows=())):
        (frontier,) = compare(every, [other])
        assert recommend(frontier).outcome == "protects"


def test_a_weak_attack_that_finds_nobody_over_a_training_shows_nothing() -> None:
    noised = rows("gaussian_noise", around(0.5), value=0.1, defense_settings=NOISE)
    run = trained(NOISE, everyone("audit_max"), everyone("random"), spent={"steps": 1})
    (frontier,) = compare([*rows("none", around(0.8)), *GUESSES, *noised], [run])
    assert "configs/people.yaml" in recommend(frontier).over_training


def test_people_of_another_table_or_protocol_say_nothing_of_a_frontier() -> None:
    noised = rows("gaussian_noise", around(0.5), value=0.1, defense_settings=NOISE)
    run = trained(NOISE, everyone("exact", proven=1))
    for of in ({"dataset": "adult"}, {"target": "net"}, {"protocol": "fedavg"}):
        elsewhere = replace(run, rows=(replace(run.of(UpdateRow)[0], **of),))
        (frontier,) = compare([*rows("none", around(0.8)), *GUESSES, *noised], [elsewhere])
        assert recommend(frontier).outcome == "protects"


def test_the_command_for_people_has_the_whole_defense_and_an_attack_that_knows_it() -> None:
    noised = rows("gaussian_noise", around(0.5), value=0.1, defense_settings=NOISE)
    assert command(advised(noised).cheapest) == (
        """lightleak audit configs/people.yaml --defense '{"name": "gaussian_noise", "options": {"scale": 0.1}}' """
        """--attacks.exact_joint '{}' --capture.sample.exact_joint 20"""
    )
    pruned = rows("random_pruning", around(0.5), defense_settings={"name": "random_pruning", "options": {}})
    assert """--attacks.exact_pruned '{"left_out": "any"}'""" in command(advised(pruned).cheapest)
    knows = {"exact_signs": {"cut": 1e-5, "noise": 2e-6}}
    (cut,) = advised(rows("nvflare_svt", around(0.5), defense_knowledge=knows)).tested
    assert """--attacks.exact_signs '{"cut": 1e-05, "noise": 2e-06}'""" in command(cut)
    (one,) = advised(rows("clipping", around(0.5))).tested
    assert "--attacks.audit_max" in command(one)  # of what knows it, exact inversion alone


def test_one_strength_under_other_settings_of_the_defense_is_another_point() -> None:
    """Two runs with one label: the one that leaks does not vanish in the mean of both."""
    loose, tight = ({"name": "dp_sgd", "options": {"noise_multiplier": 1.0, "max_grad_norm": n}} for n in (1.0, 100.0))
    found = advised(
        rows("dp_sgd", around(0.52), value=1.0, defense_settings=tight),
        rows("dp_sgd", around(0.48), value=1.0, defense_settings=loose),
    )
    assert sorted(one.protection for one in found.tested) == ["leaks", "protects"]
