"""Cards are complete, and settings are as they say: every attack and defense accepts what its card prints."""

from importlib.resources import files
from typing import Any

import pytest
import yaml

from lightleak.attacks import ATTACKS
from lightleak.attacks.model_inversion import INVERSION_ATTACKS
from lightleak.attacks.property_inference import PROPERTY_ATTACKS
from lightleak.cards import Card, find_cards, load_catalogue
from lightleak.cards.catalogue import CATALOGUE, Catalogue
from lightleak.cards.registries import read_registries
from lightleak.cards.settings import REQUIRED
from lightleak.core.errors import UsageError
from lightleak.core.plugins import PLUGINS
from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES
from lightleak.defenses.vertical import VERTICAL_DEFENSES
from lightleak.metrics import METRICS
from lightleak.metrics.images import IMAGE_METRICS
from lightleak.metrics.inversion import INVERSION_METRICS
from lightleak.targets import NETWORKS

REGISTERED = read_registries(load_catalogue().exact)  # whether `exact` accepts a target takes seconds to find out
CARDS = REGISTERED.cards
OF_ATTACKS = [card for card in CARDS if card.kind == "attack"]
MAKERS = {name: registry.get(name) for registry in (ATTACKS, PROPERTY_ATTACKS, INVERSION_ATTACKS) for name in registry}
DEFENSES = {
    (name, family): registry.get(name)
    for family, registry in (
        ("updates: what a client sends", UPDATE_DEFENSES),
        ("updates: how a client trains", TRAINING_DEFENSES),
        ("vertical", VERTICAL_DEFENSES),
    )
    for name in registry
}
NOT_REGISTERED = {"sm_pia"}
NOT_OPTIONS = {"as_published", "start_from", "trainer"}
"""Arguments that are no options of the attack that is made: a variant of the whole, a fitted model to start from, and
what goes to Lightning."""


def named(card: Card) -> str:
    return f"{card.family}, {card.name}"


def as_config(card: Card) -> dict[str, Any]:
    """The card's defaults as they would stand in a config."""
    config: dict[str, Any] = {}
    for setting in card.settings:
        group, _, name = setting.name.rpartition(".")
        place = config.setdefault(group, {}) if group else config
        place[name] = yaml.safe_load(setting.default)
    return config


@pytest.mark.slow
def test_the_shipped_file_is_what_the_registries_say() -> None:
    registered = read_registries()
    assert Catalogue.from_json(registered.to_json()) == registered
    shipped = (files("lightleak.cards") / CATALOGUE).read_text("utf-8")
    assert shipped == registered.to_json(), "run `python -m lightleak.cards`, which writes the file again"


def test_with_plug_ins_the_registries_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLUGINS, "json")  # any module: what it registers is in the registries
    load_catalogue.cache_clear()
    try:
        monkeypatch.setitem(NETWORKS._entries, "own", type("Own", (), {"__doc__": "A network of mine."}))
        found = load_catalogue()
        assert found.targets["own"] == "A network of mine"
        assert found.exact["own"].startswith("not supported: not built for tables with default options")
        assert found.exact["mlp"] == REGISTERED.exact["mlp"]
    finally:
        load_catalogue.cache_clear()


def test_every_name_of_every_registry_has_a_card_and_nothing_else_has() -> None:
    expected = [*MAKERS, *NOT_REGISTERED, *(name for name, _ in DEFENSES), *METRICS, *INVERSION_METRICS, *IMAGE_METRICS]
    assert sorted(card.name for card in CARDS) == sorted(expected)


@pytest.mark.parametrize("card", OF_ATTACKS, ids=named)
def test_a_card_of_an_attack_leaves_nothing_out(card: Card) -> None:
    for text in (card.summary, card.citation, card.threat_model, card.family):
        assert text.strip()
    assert card.needs and card.deviations
    assert all(point.endswith(".") for point in (*card.needs, *card.deviations))


@pytest.mark.parametrize("card", [card for card in CARDS if card.kind != "attack"], ids=named)
def test_a_card_of_a_defense_or_metric_says_what_it_is_and_whose(card: Card) -> None:
    assert card.summary and card.threat_model
    assert bool(card.citation) == (card.name != "none")


@pytest.mark.parametrize("card", [card for card in CARDS if card.kind != "metric"], ids=named)
def test_every_setting_has_a_meaning(card: Card) -> None:
    assert [setting.name for setting in card.settings if not setting.meaning] == []
    assert len({setting.name for setting in card.settings}) == len(card.settings)


@pytest.mark.parametrize("card", [card for card in OF_ATTACKS if card.name not in NOT_REGISTERED], ids=named)
def test_an_attack_takes_the_settings_of_its_card_and_has_them_by_default(card: Card) -> None:
    config = as_config(card)
    assert MAKERS[card.name](**config).options() == MAKERS[card.name]().options()
    for name in config:
        MAKERS[card.name](**{name: config[name]})


@pytest.mark.parametrize("card", OF_ATTACKS, ids=named)
def test_a_card_has_every_option_that_is_on_the_surface(card: Card) -> None:
    if card.name in NOT_REGISTERED | {"audit_max", "provfl_m"}:
        return  # whose options are those of their parts, arranged otherwise
    options = set(MAKERS[card.name]().options())
    assert options == set(as_config(card)) - (NOT_OPTIONS - options)


@pytest.mark.parametrize("card", [card for card in CARDS if card.kind == "defense"], ids=named)
def test_a_defense_takes_the_settings_of_its_card(card: Card) -> None:
    config = as_config(card)
    if card.name == "dp_sgd":
        config["noise_multiplier"] = 1.0  # it refuses its defaults: one of two must be chosen
    made = DEFENSES[card.name, card.family](**config)
    assert set(made.options()) == set(config)


def test_metrics_show_their_arguments_without_what_the_registry_has_bound() -> None:
    (card,) = find_cards("top25_numerical")
    assert [(setting.name, setting.default) for setting in card.settings] == [("share", "0.25")]
    (card,) = find_cards("attack_accuracy")
    assert [(setting.name, setting.default) for setting in card.settings] == [("n_classes", REQUIRED)]


def test_a_name_of_two_families_has_two_cards_with_figures_of_their_own() -> None:
    horizontal, vertical = find_cards("none")
    assert {horizontal.family.split(":")[0], vertical.family} == {"updates", "vertical"}
    assert horizontal.measured and not vertical.measured


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="'tablaek'; did you mean 'tableak'"):
        find_cards("tablaek")
    with pytest.raises(UsageError, match="lightleak list attacks"):
        find_cards("???")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("adult", "a dataset; lightleak data describe adult"),
        ("resnet", "a target; lightleak list targets"),
        ("tableak-table1", "a reproduction; lightleak reproduce tableak-table1 --plan"),
    ],
)
def test_a_name_that_has_no_card_is_answered_with_where_it_is_described(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is {said}"):
        find_cards(name)


def test_a_list_of_defenses_says_what_each_does() -> None:
    listed = dict(load_catalogue().lines("defenses"))
    assert listed["clipping"].startswith("updates: Scale the gradient down")
    assert listed["withdraw"].startswith("vertical: A share of the rows")
