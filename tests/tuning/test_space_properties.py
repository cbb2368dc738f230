"""Properties of made-up spaces: what is suggested lies in its range, and filling changes searched settings alone."""

import json
import warnings
from collections.abc import Iterator
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.tuning.parameter import is_search
from lightleak.tuning.space import read_space

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "none", "1", "[1]", 0.5, 2.0])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("pq"), inner)
)


@st.composite
def ranges(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["float", "int", "choice"]))
    if kind == "choice":
        of = draw(st.lists(VALUES, min_size=2, max_size=4, unique_by=as_text))
        return {"search": kind, "of": of, "default": draw(st.sampled_from(of))}
    if kind == "int":
        low, step, steps = draw(st.integers(-5, 50)), draw(st.integers(1, 7)), draw(st.integers(1, 9))
        node = {"search": kind, "low": low, "high": low + step * steps}
        way = draw(st.sampled_from(["all", "log", "step"] if low > 0 else ["all", "step"]))
        default = low + step * draw(st.integers(0, steps))
        return {**node, "default": default, **({"step": step} if way == "step" else {"log": way == "log"})}
    if draw(st.booleans()):
        step, steps = draw(st.sampled_from([0.1, 0.25, 0.3, 1e-4])), draw(st.integers(1, 9))
        low, high = 0.0, round(step * steps, 10)
        default = round(step * draw(st.integers(0, steps)), 10)
        return {"search": kind, "low": low, "high": high, "step": step, "default": default}
    low = draw(st.floats(1e-6, 10))
    high = low * draw(st.floats(1.01, 1e4))
    return {"search": kind, "low": low, "high": high, "log": draw(st.booleans()), "default": draw(st.floats(low, high))}


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """Settings, searches and lists of both in sections; conditions name any of the searches before them."""
    tree: dict[str, Any] = {"fixed": draw(VALUES), "section": {"inner": {}}}
    homes = [("", tree), ("section.", tree["section"]), ("section.inner.", tree["section"]["inner"])]
    known: list[tuple[str, dict[str, Any]]] = []
    for number in range(draw(st.integers(1, 6))):
        prefix, home = draw(st.sampled_from(homes))
        node = draw(ranges())
        conditions = [(key, met(other)) for key, other in known if met(other)]
        if conditions and draw(st.booleans()):
            key, values = draw(st.sampled_from(conditions))
            allowed = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
            node = {**node, "when": {key: allowed}}
            if draw(st.booleans()):
                home[f"s{number}"] = [node, {**draw(ranges()), "when": {key: values}}]
                continue
        elif draw(st.booleans()):
            home[f"s{number}"] = ["fixed", node]
            known.append((f"{prefix}s{number}.1", node))
            continue
        home[f"s{number}"] = node
        known.append((f"{prefix}s{number}", node))
    return tree


def met(node: dict[str, Any]) -> list[Any]:
    """Values that a condition on a search may name."""
    if node["search"] == "choice":
        return list(node["of"])
    return [node["low"], node["default"]] if node["search"] == "int" else []


def as_text(value: Any) -> str:
    """Equal for what YAML holds equal, slowly and obviously: 2.0 is 2, true is no number."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_text(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_text, value)) + "]"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value)
    return repr(float(value))


def in_range(node: dict[str, Any], value: Any) -> bool:
    if node["search"] == "choice":
        return as_text(value) in map(as_text, node["of"])
    if type(value) is not (int if node["search"] == "int" else float) or not node["low"] <= value <= node["high"]:
        return False
    return "step" not in node or abs((value - node["low"]) / node["step"] % 1 - 0.5) > 0.5 - 1e-6


def searches(tree: Any, path: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Dotted keys of searches, with their alternatives."""
    if is_search(tree):
        yield path, [tree]
    elif isinstance(tree, list) and tree and all(is_search(one) for one in tree):
        yield path, tree
    elif isinstance(tree, dict | list):
        for key, one in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from searches(one, f"{path}.{key}".lstrip("."))


def applying(nodes: list[dict[str, Any]], values: dict[str, Any]) -> dict[str, Any] | None:
    """The first search whose conditions hold."""
    for node in nodes:
        if all(
            key in values and as_text(values[key]) in map(as_text, allowed)
            for key, allowed in node.get("when", {}).items()
        ):
            return node
    return None


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Dotted keys of searches; raises where anything else differs."""
    if is_search(before) or (isinstance(before, list) and before and all(is_search(one) for one in before)):
        yield path
    elif isinstance(before, dict):
        for key, one in before.items():
            if key in after:
                yield from differences(one, after[key], f"{path}.{key}".lstrip("."))
            else:
                assert any_search(one)  # left out: nothing but a search may be
        assert set(after) <= set(before)
    elif isinstance(before, list):
        if len(before) == len(after):
            for index, one in enumerate(before):
                yield from differences(one, after[index], f"{path}.{index}")
        else:
            assert any_search(before)
    else:
        assert as_text(before) == as_text(after)


def any_search(node: Any) -> bool:
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return is_search(node) or any(any_search(one) for one in inner)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Every example makes a study, and Optuna would announce it."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


SAMPLERS = {
    "random": lambda: optuna.samplers.RandomSampler(seed=0),
    "tpe": lambda: optuna.samplers.TPESampler(seed=0, n_startup_trials=2, multivariate=True, group=True),
    "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=0, population_size=2),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=25)
@given(tree=trees())
def test_suggested_values_come_back_and_fill_the_config(sampler: str, tree: dict[str, Any]) -> None:
    space = read_space(tree)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Optuna warns of values it cannot store or that are out of range
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(sampler=SAMPLERS[sampler]())
        study.enqueue_trial(space.defaults())
        for number in range(5):
            trial = study.ask()
            suggested = space.suggest(trial)
            study.tell(trial, float(number % 3))
            stored = study.trials[-1].params
            values = space.values(stored)
            assert {key: as_text(one) for key, one in values.items()} == {
                key: as_text(one) for key, one in suggested.items()
            }
            if number == 0:
                assert stored == space.defaults()
            filled = space.fill(values)
            assert not any_search(filled)
            assert set(differences(tree, filled)) <= set(values)
            expected = {key: applying(nodes, values) for key, nodes in searches(tree)}
            assert set(values) == {key for key, node in expected.items() if node is not None}
            assert all(in_range(expected[key], value) for key, value in values.items())
            again = space.suggest(optuna.trial.FixedTrial(stored))
            assert list(map(as_text, again.values())) == list(map(as_text, values.values()))
            json.dumps([space.describe(), values], allow_nan=False)
