"""The search space of a study: an experiment's config with searches in place of values.

A search whose conditions do not hold is left out of the config. A list of searches that all have a ``when`` gives one
setting other ranges under other conditions: the first whose conditions hold is taken.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from lightleak.core.errors import UsageError, close_match
from lightleak.experiments.settings import plain
from lightleak.tuning.parameter import MISSING, Condition, Parameter, is_search, read_search, words

_LEFT_OUT = object()

Searches = Mapping[str, list[Parameter]]
"""The ranges of every searched setting, by its dotted key."""


@dataclass(frozen=True)
class Space:
    """What a study may vary, in an order in which conditions come before what depends on them.

    Attributes:
        tree: the config with its searches, as plain values.
        parameters: every search that can apply; what a fixed setting rules out is not among them.
        searched: keys of all searches, ruled out or not.
    """

    tree: dict[str, Any]
    parameters: tuple[Parameter, ...]
    searched: frozenset[str]

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Return a value for every search that applies, by dotted key, chosen by an Optuna trial."""
        return self._decide(lambda parameter: parameter.suggest(trial))

    def each_choice(self) -> Iterator[dict[str, Any]]:
        """Yield values in which one choice after the other is taken, everything else at its default."""
        for chosen in self.parameters:
            for value in chosen.of:
                yield self._decide(partial(_chosen_or_fallback, chosen, value))

    def defaults(self) -> dict[str, Any]:
        """Return the default trial as ``study.enqueue_trial`` takes it: stored values by Optuna's names."""
        stored: dict[str, Any] = {}

        def default(parameter: Parameter) -> Any:
            stored[parameter.name] = parameter.encode(parameter.default)
            return parameter.default

        self._decide(default)
        return stored

    def values(self, optuna_params: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by dotted key from a trial's ``params``; a trial that was cut short has only some.

        Raises:
            UsageError: a name or value that this space does not know.
        """
        by_name = {parameter.name: parameter for parameter in self.parameters}
        if unknown := [name for name in optuna_params if name not in by_name]:
            raise UsageError(
                f"parameter {unknown[0]!r} is none of this study's: {', '.join(by_name)}; the config was changed after "
                "the study began"
            )
        return {by_name[name].key: by_name[name].decode(stored) for name, stored in optuna_params.items()}

    def fill(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config with every search replaced by its value, or left out where its conditions do not hold.

        Raises:
            UsageError: a value is missing, outside its range, or of a search that does not apply.
        """

        def given(parameter: Parameter) -> Any:
            if parameter.key not in values:
                raise UsageError(f"{parameter.key}: needs a value, {parameter.allowed}, got none")
            parameter.check(values[parameter.key])
            return values[parameter.key]

        applied = self._decide(given)
        if spare := [key for key in values if key not in applied]:
            why = "its conditions do not hold" if spare[0] in self.searched else "it is not searched"
            raise UsageError(f"{spare[0]}: takes no value here, as {why}, got {values[spare[0]]!r}")
        filled: dict[str, Any] = _replace_searches(self.tree, (), lambda key, _: applied.get(key, _LEFT_OUT))
        return plain(filled)

    def describe(self) -> list[dict[str, Any]]:
        """Return the parameters, JSON-ready."""
        return [parameter.describe() for parameter in self.parameters]

    def _decide(self, choose: Callable[[Parameter], Any]) -> dict[str, Any]:
        """Return values by key of the searches that apply: of those of one key, the first whose conditions hold."""
        values: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.key not in values and all(self._holds(one, values) for one in parameter.when):
                values[parameter.key] = choose(parameter)
        return values

    def _holds(self, condition: Condition, values: Mapping[str, Any]) -> bool:
        if condition.key not in self.searched:
            return True  # a fixed setting: decided when the space was read
        return condition.key in values and condition.holds_for(values[condition.key])


def read_space(tree: Mapping[str, Any]) -> Space:
    """Return the space of a config; without searches it has no parameters.

    Raises:
        UsageError: a search is wrong (see `read_search`), a condition names no setting, can never hold or is
            circular, or a search that applies in the default trial has no default.
    """
    copy: dict[str, Any] = plain(tree)
    searches: dict[str, list[Parameter]] = {}

    def collect(key: str, nodes: list[Mapping[str, Any]]) -> object:
        if key in searches:
            raise UsageError(f"{key}: two searches have this dotted key; name their settings without dots")
        searches[key] = _named([read_search(key, node) for node in nodes])
        return _LEFT_OUT

    _replace_searches(copy, (), collect)
    fixed = dict(_settings(copy, ()))
    for parameter in chain(*searches.values()):
        for condition in parameter.when:
            _check_condition(parameter, condition, searches, fixed)
    possible: list[Parameter] = []
    for key in _ordered(searches):
        possible += [one for one in searches[key] if _is_possible(one, searches, fixed, possible)]
    space = Space(copy, tuple(possible), frozenset(searches))
    space._decide(_require_default)
    return space


def _chosen_or_fallback(chosen: Parameter, value: Any, parameter: Parameter) -> Any:
    return value if parameter is chosen else parameter.fallback


def _require_default(parameter: Parameter) -> Any:
    if parameter.default is MISSING:
        raise UsageError(f"{parameter.key}: needs a default, {parameter.allowed}: it applies in the default trial")
    return parameter.default


def _replace_searches(node: Any, path: tuple[str, ...], put: Callable[[str, list[Mapping[str, Any]]], Any]) -> Any:
    """A copy of ``node`` with ``put(key, alternatives)`` in place of every search, unless that is `_LEFT_OUT`."""
    if is_search(node):
        return put(".".join(path), [node])
    if _is_alternatives(node, path):
        return put(".".join(path), node)
    if isinstance(node, Mapping):
        entries = [(key, _replace_searches(one, (*path, str(key)), put)) for key, one in node.items()]
        return {key: one for key, one in entries if one is not _LEFT_OUT}
    if isinstance(node, list):
        items = [_replace_searches(one, (*path, str(index)), put) for index, one in enumerate(node)]
        return [one for one in items if one is not _LEFT_OUT]
    return node


def _is_alternatives(node: Any, path: tuple[str, ...]) -> bool:
    """Whether a list gives one setting several ranges; otherwise its items are settings of their own.

    Raises:
        UsageError: some of its searches have a ``when`` and some have none.
    """
    if not isinstance(node, list) or not node or not all(map(is_search, node)):
        return False
    conditional = [one for one in node if "when" in one]
    if conditional and len(conditional) < len(node):
        raise UsageError(
            f"{'.'.join(path)}: either every search of a list has a when (ranges of one setting, of which the first "
            f"that holds counts) or none (items), got {len(conditional)} of {len(node)}"
        )
    return bool(conditional)


def _settings(node: Any, path: tuple[str, ...]) -> Iterable[tuple[str, Any]]:
    """Yield every fixed value by dotted key; sections, and lists that hold searches, are no values."""
    if is_search(node) or _is_alternatives(node, path):
        return
    if isinstance(node, Mapping):
        for key, one in node.items():
            yield from _settings(one, (*path, str(key)))
        return
    if isinstance(node, list):
        for index, one in enumerate(node):
            yield from _settings(one, (*path, str(index)))
        if _holds_search(node):
            return
    yield ".".join(path), node


def _holds_search(node: Any) -> bool:
    if isinstance(node, Mapping):
        return is_search(node) or any(map(_holds_search, node.values()))
    return isinstance(node, list) and any(map(_holds_search, node))


def _named(alternatives: list[Parameter]) -> list[Parameter]:
    """Number the names of ranges of one key that differ: a name in Optuna has one range."""
    ranges = list(dict.fromkeys(one.range for one in alternatives))
    if len(ranges) == 1:
        return alternatives
    return [replace(one, name=f"{one.key}#{ranges.index(one.range) + 1}") for one in alternatives]


def _check_condition(parameter: Parameter, condition: Condition, searches: Searches, fixed: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a condition that names no setting, or that no value of a searched one can meet."""
    place = f"{parameter.key}: when names {condition.key!r}"
    if condition.key not in searches:
        if condition.key not in fixed:
            hint = close_match(condition.key, (*searches, *fixed))
            raise UsageError(
                f"{place}, which is no setting of this config{hint}; a condition needs the dotted key of a search or "
                "of a value that is written out"
            )
        return
    others = searches[condition.key]
    if all(one.kind == "float" and one.step is None for one in others):
        raise UsageError(
            f"{place}, a search over a continuous range, of which no exact value is ever drawn; name a choice"
        )
    for value in condition.allowed:
        if not any(one.contains(value) for one in others):
            raise UsageError(f"{place}, which must be {' or '.join(one.allowed for one in others)}, got {words(value)}")


def _ordered(searches: Searches) -> list[str]:
    """Return keys in the order of the config, but each after those that its conditions name.

    Raises:
        UsageError: conditions are circular.
    """
    order: list[str] = []

    def visit(key: str, behind: tuple[str, ...]) -> None:
        if key in behind:
            circle = " -> ".join((*behind[behind.index(key) :], key))
            raise UsageError(f"{key}: circular `when` condition: {circle}")
        if key not in order:
            for one in searches[key]:
                for condition in one.when:
                    if condition.key in searches:
                        visit(condition.key, (*behind, key))
            order.append(key)

    for key in searches:
        visit(key, ())
    return order


def _is_possible(
    parameter: Parameter, searches: Searches, fixed: Mapping[str, Any], possible: Iterable[Parameter]
) -> bool:
    """Whether fixed settings leave the conditions a chance, given those ``possible`` that they may name."""
    return all(
        any(one.key == condition.key and any(map(one.contains, condition.allowed)) for one in possible)
        if condition.key in searches
        else condition.holds_for(fixed[condition.key])
        for condition in parameter.when
    )
