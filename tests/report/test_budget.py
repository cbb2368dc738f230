"""What attacks could spend stands in every summary, and nothing is concluded from less than was published."""

import json
from importlib.resources import files

import pytest

from lightleak.attacks import ATTACKS
from lightleak.attacks.model_inversion.attack import INVERSION_ATTACKS
from lightleak.core.results import UpdateRow
from lightleak.core.results import flat as flat_settings
from lightleak.report.attacks import FILE_NAME, WORK, registered
from lightleak.report.budget import BASELINES, NOTHING_FOLLOWS, PROOFS_ALONE, budget


def published(attack: str) -> dict[str, str]:
    """Its settings as results state them."""
    registry = ATTACKS if attack in ATTACKS else INVERSION_ATTACKS
    return flat_settings(registry.get(attack)().options())


def of(attack: str, options: dict[str, str] | None = None) -> UpdateRow:
    return UpdateRow(attack=attack, options=options or {})


FULL = of("tableak", {"restarts": "30", "steps": "1500"})
EXACT = of("exact", {"chains": "192", "sweeps": "15"})
SHORT = of("tableak", {"restarts": "30", "steps": "750"})


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (FULL, "Attack budget: TabLeak (30 restarts, 1500 steps, as published)."),
        (of("tableak", {"restarts": "60", "steps": "1500"}), "(60 restarts, 1500 steps, at least as published)."),
        (SHORT, f"Attack budget: TabLeak, 750 steps in place of 1500. {NOTHING_FOLLOWS}"),
        (of("plgmi", {"iterations": "10"}), "PLG-MI, 10 iterations in place of "),
        (of("plgmi", published("plgmi")), "Attack budget: PLG-MI (1000 iterations, as by default)."),
        (of("plgmi", {"bridge": "exact"}), f"PLG-MI (settings not all stated). {NOTHING_FOLLOWS}"),
        (of("tableak", {"restarts": "many", "steps": "1500"}), f"(settings not all stated). {NOTHING_FOLLOWS}"),
        (of("provfl_b", {"samples": "20", "queries": "100"}), "ProVFL-B, 20 samples in place of 200. "),
        (of("provfl_b_mixture", {"estimator": "mixture", "samples": "1"}), "ProVFL-B, mixture (as published)."),
        (of("provfl_m", {"estimator": "mixture", "queries": "1"}), "ProVFL-M (as published)."),
        (of("audit_max", {"tableak.steps": "50"}), "Exact + TabLeak, 50 steps in place of 1500. "),
        (of("aia", {"network": "mlp"}), "Attack budget: AIA (as published)."),
        (of("tableak"), f"Attack budget: TabLeak (settings not stated). {NOTHING_FOLLOWS}"),
        (of("of_a_plugin", {"steps": "3"}), f"of a plugin (no published budget is known). {NOTHING_FOLLOWS}"),
    ],
)
def test_every_attack_stands_beside_its_published_budget(found: UpdateRow, sentence: str) -> None:
    assert sentence in budget([found]).sentence
    assert budget([found]).is_weak is (NOTHING_FOLLOWS in budget([found]).sentence)


def test_guesses_and_trainings_have_no_budget() -> None:
    guesses = [of(name) for name in (*BASELINES, "none")]
    assert budget(guesses).sentence == "" and not budget(guesses).is_weak


@pytest.mark.parametrize("other", [FULL, EXACT, of("deep_gradient_leakage", {"restarts": "1", "steps": "1500"})])
def test_one_attack_below_its_budget_is_enough_for_no_conclusion(other: UpdateRow) -> None:
    both = budget([other, SHORT, other])
    assert both.is_weak and both.sentence.endswith(NOTHING_FOLLOWS) and both.sentence.count("TabLeak, 750") == 1


def test_exact_inversion_alone_shows_nothing_of_a_defense_and_beside_an_optimization_it_does() -> None:
    alone = budget([EXACT, of("random")])
    assert alone.is_weak and alone.sentence.endswith(PROOFS_ALONE)
    assert not budget([EXACT, FULL]).is_weak
    joint = of("exact_joint", {name: text for name, text in published("exact_joint").items() if name in WORK})
    assert not budget([joint]).is_weak


def test_all_of_a_composed_attacks_stages_must_be_known() -> None:
    whole = published("audit_max")
    assert not budget([of("audit_max", whole)]).is_weak
    del whole["tableak.steps"]
    assert budget([of("audit_max", whole)]).is_weak


def test_the_file_of_titles_and_published_budgets_is_current() -> None:
    """``python -m lightleak.cards`` writes it."""
    shipped = json.loads(files("lightleak.report").joinpath(FILE_NAME).read_text(encoding="utf-8"))
    assert shipped == registered()
