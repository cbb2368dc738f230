"""A registry with dummy entries."""

from collections.abc import Callable

import pytest

from lightleak.core.errors import UsageError
from lightleak.core.facts import Facts
from lightleak.core.former_names import note_once
from lightleak.core.registry import Registry


@pytest.fixture
def networks() -> Registry[Callable[[], str]]:
    registry: Registry[Callable[[], str]] = Registry("network")

    @registry.register("resnet")
    def resnet() -> str:
        return "a resnet"

    registry.register("mlp")(lambda: "an mlp")
    return registry


def test_entries_are_found_by_name(networks: Registry[Callable[[], str]]):
    assert networks.get("resnet")() == "a resnet"
    assert networks.get("mlp")() == "an mlp"


def test_registering_returns_the_entry_itself():
    def entry() -> str:
        return "it"

    assert Registry[Callable[[], str]]("thing").register("it")(entry) is entry


def test_names_are_sorted(networks: Registry[Callable[[], str]]):
    assert networks.names() == tuple(networks) == ("mlp", "resnet")
    assert "mlp" in networks and "cnn" not in networks


def test_unknown_name_lists_the_known_and_the_closest(networks: Registry[Callable[[], str]]):
    with pytest.raises(UsageError) as caught:
        networks.get("resnett")
    assert str(caught.value) == "unknown network 'resnett' (did you mean 'resnet'?); known: mlp, resnet"
    with pytest.raises(UsageError) as caught:
        networks.get("zzz")
    assert str(caught.value) == (
        "unknown network 'zzz'; known: mlp, resnet. A file that registers one of your own is loaded where "
        "LIGHTLEAK_PLUGINS names it"
    )


def test_a_name_is_given_once(networks: Registry[Callable[[], str]]):
    with pytest.raises(ValueError, match="network 'mlp' is registered twice"):
        networks.register("mlp")(lambda: "another")
    assert networks.get("mlp")() == "an mlp"


def test_facts_stand_beside_an_entry_once() -> None:
    shapes: Registry[int] = Registry("shape")
    shapes.register("square", Facts("has four sides"))(4)
    shapes.register("line")(2)
    assert shapes.facts("square").summary == "has four sides"
    assert shapes.facts("line") == Facts()
    shapes.describe("line", Facts("has two ends"))
    assert shapes.facts("line").summary == "has two ends"
    with pytest.raises(ValueError, match="'line' is described twice"):
        shapes.describe("line", Facts())


def test_facts_of_an_unknown_name_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown shape 'circle'"):
        Registry[int]("shape").facts("circle")
    with pytest.raises(UsageError, match="unknown shape 'circle'"):
        Registry[int]("shape").describe("circle", Facts())


def test_a_former_name_is_accepted_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    note_once.cache_clear()
    kinds = Registry[int]("attack")
    kinds.register("public_pseudo_labeled")(4)
    assert "public_pseudo_labelled" in kinds and kinds.get("public_pseudo_labelled") == 4
    assert kinds.names() == ("public_pseudo_labeled",)
    assert [record.args for record in caplog.records] == [("public_pseudo_labelled", "public_pseudo_labeled")]
    assert "public_pseudo_labelled" not in Registry[int]("attack")
