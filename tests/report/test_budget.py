"""What attacks could spend stands in every summary, and nothing is concluded from less than was published."""

from dataclasses import dataclass, field

import pytest

from lightleak.report.budget import BASELINES, NOTHING_FOLLOWS, budget, fewer


@dataclass
class Found:
    attack: str | None
    options: dict[str, str] = field(default_factory=dict)


FULL = Found("tableak", {"restarts": "30", "steps": "1500"})
SHORT = Found("tableak", {"restarts": "30", "steps": "750"})


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (FULL, "Attack budget: TabLeak (30 restarts, 1500 steps, as published)."),
        (Found("tableak", {"restarts": "60", "steps": "1500"}), "(60 restarts, 1500 steps, at least as published)."),
        (SHORT, f"Attack budget: TabLeak, 750 steps in place of 1500. {NOTHING_FOLLOWS}"),
        (Found("plgmi", {"iterations": "10"}), "plgmi, 10 iterations in place of "),
        (Found("plgmi", {"bridge": "exact"}), "Attack budget: plgmi (as by default)."),
        (Found("provfl_b", {"samples": "20", "queries": "100"}), "ProVFL-B, 20 samples in place of 200. "),
        (Found("audit_max", {"tableak.steps": "50"}), "Exact + TabLeak, 50 steps in place of 1500. "),
        (Found("aia", {"network": "mlp"}), "Attack budget: AIA (as published)."),
        (Found("tableak"), "Attack budget: TabLeak (settings not stated)."),
        (Found("of_a_plugin", {"steps": "3"}), "of a plugin (no published budget is known)."),
    ],
)
def test_every_attack_stands_beside_its_published_budget(found: Found, sentence: str) -> None:
    assert sentence in budget([found]).sentence
    assert budget([found]).is_weak is bool(fewer(str(found.attack), found.options))


def test_guesses_and_trainings_have_no_budget() -> None:
    guesses = [Found(name) for name in (*BASELINES, None)]
    assert budget(guesses).sentence == "" and not budget(guesses).is_weak


def test_one_attack_with_its_whole_budget_is_enough_to_conclude_from() -> None:
    both = budget([FULL, SHORT, FULL])
    assert not both.is_weak and NOTHING_FOLLOWS not in both.sentence
    assert both.sentence.count("TabLeak") == 2
