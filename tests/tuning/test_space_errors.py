"""What a space refuses: the message names the dotted key, what is allowed and what came."""

import re
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.experiments.settings import read_yaml
from lightleak.tuning.space import read_space

TWO = "of: [x, y], default: x"


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("a: {b: {search: real, low: 0, high: 1}}", "a.b: unknown search 'real'; known: float, int, choice"),
        ("a: {search: flaot, low: 0, high: 1}", "a: unknown search 'flaot' (did you mean 'float'?)"),
        (
            "a: {search: float, low: 0, hihg: 1}",
            "a: a search of kind float takes low, high, log, step, default, when, got 'hihg' (did you mean 'high'?)",
        ),
        ("a: {search: choice, of: [1, 2], low: 0}", "a: a search of kind choice takes of, default, when, got 'low'"),
        ("a: {search: int, of: [1, 2], low: 0, high: 1}", "takes low, high, log, step, default, when, got 'of'"),
        ("a: {search: float, low: 0, default: 0}", "a: a search of kind float needs high"),
        ("a: {search: int, default: 3}", "a: a search of kind int needs low and high"),
        ("a: {search: choice, default: 3}", "a: a search of kind choice needs of"),
        ("a: {search: float, low: 1, high: 1, default: 1}", "a: low must be below high, got low 1.0 and high 1.0"),
        ("a: {search: int, low: 9, high: 1}", "a: low must be below high, got low 9 and high 1"),
        ("a: {search: float, low: 0, high: 1, log: true}", "a: low must be above 0 with log, got 0.0"),
        ("a: {search: int, low: 0, high: 9, log: true}", "a: low must be at least 1 with log, got 0"),
        ("a: {search: float, low: 0, high: 1, log: 1}", "a: log must be true or false, got 1"),
        ("a: {search: float, low: null, high: 1}", "a: low must be a number, got null"),
        ("a: {search: float, low: none, high: 1}", "a: low must be a number, got 'none'"),
        ("a: {search: float, low: 0, high: 1e18}", "a: low and high must be at most 2**53 in magnitude, got low 0.0"),
        ("a: {search: float, low: 0, high: 1, step: 1e-18}", "a: step must be at least 2**-53 of the range"),
        ("a: {restarts: {search: int, low: 1, high: 1000000000000}}", "a.restarts must be at most 100000, got 1000000"),
        ("a: {search: float, low: false, high: 1}", "a: low must be a number, got False"),
        ("a: {search: int, low: 1.5, high: 3}", "a: low must be a whole number, got 1.5"),
        ("a: {search: int, low: 1, high: 3.0}", "a: high must be a whole number, got 3.0"),
        ("a: {search: int, low: 1, high: 9, step: 2.0}", "a: step must be a whole number, got 2.0"),
        ("a: {search: int, low: 1, high: 9, step: 0}", "a: step must be above 0, got 0"),
        ("a: {search: int, low: 1, high: 9, step: 1, log: true}", "a: log and step exclude each other"),
        (
            "a: {search: float, low: 0, high: 1, step: 0.3}",
            "a: high must be low and a whole number of steps, got low 0.0, high 1.0 and step 0.3",
        ),
        ("a: {search: float, low: 0, high: 1, default: 2}", "a: default must be a number from 0.0 to 1.0, got 2"),
        ("a: {search: float, low: 0.1, high: 0.3, default: 0.30000000000000004}", "a: default must be a number from"),
        ("a: {search: float, low: 0, high: 1, default: null}", "a: default must be a number from 0.0 to 1.0, got null"),
        ("a: {search: float, low: 0, high: 1, default: true}", "a: default must be a number from 0.0 to 1.0, got True"),
        ("a: {search: int, low: 0, high: 1, default: true}", "a: default must be a whole number from 0 to 1, got True"),
        ("a: {search: int, low: 0, high: 4, default: 3.0}", "a: default must be a whole number from 0 to 4, got 3.0"),
        ("a: {search: int, low: 5, high: 60, step: 5, default: 7}", "a whole number from 5 to 60 in steps of 5, got 7"),
        ("a: {search: choice, of: [[1], [2]], default: [3]}", "a: default must be one of [1], [2], got [3]"),
        ("a: {search: choice, of: [1, 2], default: true}", "a: default must be one of 1, 2, got True"),
        ("a: {search: choice, of: [none, x], default: null}", "a: default must be one of none, x, got null"),
        ("a: {search: choice, of: [1]}", "a: of must be a list of at least two choices, got [1]"),
        ("a: {search: choice, of: null}", "a: of must be a list of at least two choices, got null"),
        ("a: {search: choice, of: xy}", "a: of must be a list of at least two choices, got 'xy'"),
        ("a: {search: choice, of: [[1, 2], x, [1, 2.0]]}", "a: of must hold different choices, got [1, 2.0] twice"),
        (f"a: {{search: choice, of: [1, {{search: choice, {TWO}}}]}}", "a: a choice cannot hold a search"),
        (
            "a: {search: float, low: 0, high: 1}",
            "a: needs a default, a number from 0.0 to 1.0: it applies in the default trial",
        ),
        (f"a: {{search: choice, {TWO}, when: {{b: 1}}}}", "a: when names 'b', which is no setting of this config"),
        (f"a: {{search: choice, {TWO}, when: {{bbb.ccd: 1}}}}\nbbb: {{ccc: 1}}", "(did you mean 'bbb.ccc'?)"),
        (f"a: {{search: choice, {TWO}, when: {{b: 1}}}}\nb: {{c: 1}}", "a: when names 'b', which is no setting"),
        (
            f"a: {{search: choice, {TWO}, when: {{b: [[1]]}}}}\nb: [1, {{search: choice, {TWO}}}]",
            "when names 'b', which is",
        ),
        (f"a: {{search: choice, {TWO}, when: {{}}}}", "a: when must map dotted keys to values"),
        (f"a: {{search: choice, {TWO}, when: b}}", "a: when must map dotted keys to values"),
        (f"a: {{search: choice, {TWO}, when: {{b: []}}}}\nb: 1", "a: when.b must name at least one value"),
        (
            f"a: {{search: choice, {TWO}, when: {{b: z}}}}\nb: {{search: choice, {TWO}}}",
            "a: when names 'b', which must be one of x, y, got z",
        ),
        (
            f"a: {{search: choice, {TWO}, when: {{b: 7}}}}\nb: {{search: int, low: 0, high: 5, default: 1}}",
            "which must be a whole number from 0 to 5, got 7",
        ),
        (
            f"a: {{search: choice, {TWO}, when: {{b: 0.5}}}}\nb: {{search: float, low: 0, high: 1, default: 0.5}}",
            "a search over a continuous range, of which no exact value is ever drawn",
        ),
        (f"a: {{search: choice, {TWO}, when: {{a: x}}}}", "a: circular `when` condition: a -> a"),
        (
            "".join(f"{key}: {{search: choice, {TWO}, when: {{{other}: x}}}}\n" for key, other in ("ac", "ba", "cb")),
            "a -> c -> b -> a",
        ),
        (
            f"c: 1\na: [{{search: choice, {TWO}}}, {{search: choice, {TWO}, when: {{c: 1}}}}]",
            "a: either every search of a list has a when",
        ),
        (
            f"a: {{b: {{search: choice, {TWO}}}}}\na.b: {{search: choice, {TWO}}}",
            "a.b: two searches have this dotted key",
        ),
    ],
)
def test_a_wrong_search_is_refused(tree: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_space(read_yaml(tree))


SPACE = (
    "{a: {search: choice, of: [x, y], default: x}, b: {search: int, low: 1, high: 3, default: 1, when: {a: x}}, c: 1}"
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": "x"}, "b: needs a value, a whole number from 1 to 3, got none"),
        ({"a": "x", "b": 4}, "b: must be a whole number from 1 to 3, got 4"),
        ({"a": "z", "b": 1}, "a: must be one of x, y, got 'z'"),
        ({"a": "y", "b": 1}, "b: takes no value here, as its conditions do not hold, got 1"),
        ({"a": "y", "c": 2}, "c: takes no value here, as it is not searched, got 2"),
    ],
)
def test_values_that_do_not_fit_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_space(read_yaml(SPACE)).fill(values)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"d": 1}, "parameter 'd' is none of this study's: a, b; the config was changed after the study began"),
        ({"a": "z"}, "a: must be one of x, y, got 'z'"),
        ({"b": 17}, "b: must be a whole number from 1 to 3, got 17"),
    ],
)
def test_a_trial_of_another_space_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_space(read_yaml(SPACE)).values(params)
