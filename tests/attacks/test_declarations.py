import pytest

from lightleak.attacks import ATTACKS
from lightleak.attacks.model_inversion import INVERSION_ATTACKS
from lightleak.attacks.property_inference import PROPERTY_ATTACKS
from lightleak.core.registry import Registry

BASELINES = {"random", "prior", "aia_raw", "aia_raw_adjusted", "public_pseudo_labeled", "public_random"}


@pytest.mark.parametrize("registry", [ATTACKS, PROPERTY_ATTACKS, INVERSION_ATTACKS], ids=lambda registry: registry.kind)
def test_attacks_declare_a_title_of_their_own_and_whether_they_are_baselines(registry: Registry) -> None:
    made = {name: registry.get(name)() for name in registry.names()}
    assert {name: attack.name for name, attack in made.items()} == {name: name for name in made}
    titles = [attack.title for attack in made.values()]
    assert all(titles) and len(set(titles)) == len(titles)
    assert {name for name, attack in made.items() if attack.is_baseline} == BASELINES & set(made)


def test_the_titles_are_those_of_the_literature() -> None:
    assert ATTACKS.get("tableak")().title == "TabLeak"
    assert PROPERTY_ATTACKS.get("provfl_m")().title == "ProVFL-M"
    assert INVERSION_ATTACKS.get("plgmi")().title == "PLG-MI"
