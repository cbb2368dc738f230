"""The one YAML loader: plain values with string keys; what is repeated, endless or unwritable is refused at once."""

from pathlib import Path

import pytest
import yaml

from lightleak.core import yaml_text
from lightleak.core.yaml_text import MAX_DEPTH, RefusedYaml, read_yaml, read_yaml_file, yaml_of

BOTH = pytest.mark.parametrize("words", [False, True], ids=["values", "words"])


def bomb(levels: int, merged: bool = False) -> str:
    """Each level names the one below ten times."""
    lines = ["l0: &l0 {a: b}"]
    for i in range(1, levels + 1):
        names = ", ".join([f"*l{i - 1}"] * 10)
        lines.append(f"l{i}: &l{i} " + (f"{{<<: [{names}], k{i}: v}}" if merged else f"[{names}]"))
    return "\n".join(lines)


@BOTH
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3", "key 'a' stands on line 1 and again on line 3"),
        ("x:\n- {a: 1}\n- b: 1\n  'b': 2", "key 'b' stands on line 3 and again on line 4"),
        ("{a: {b: 1}, c: {b: 1, b: 2}}", "key 'b' stands on line 1 and again on line 1"),
        (bomb(9), "at most 500,000 values, aliases included; line 7"),
        ("a: &a [1, *a]", r"alias \*a on line 1 stands within what it names"),
        ("a: &a {b: {c: *a}}", r"alias \*a on line 1 stands within"),
        ("[" * 2000, f"nested at most {MAX_DEPTH} levels deep; line 1"),
        ("a: &a0 [1]\n" + "".join(f"b{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 80)), "levels deep; line 49"),
        ("? [a, b]\n: 1", "keys must be text, got a list or mapping on line 1"),
        ('a: "x\\0y"', r"line 1 holds the character U\+0000"),
        ('a:\n- "\\ud800"', r"line 2 holds the character U\+D800"),
        ('"\\udfff": 1', r"line 1 holds the character U\+DFFF"),
    ],
)
def test_what_is_refused_is_named_with_its_line(text: str, told: str, words: bool) -> None:
    with pytest.raises(RefusedYaml, match=told):
        read_yaml(text, words)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (bomb(9, merged=True), "at most 500,000 values"),
        ("attacks: {true: {}}", "keys must be text, got true on line 1; quote it"),
        ("a:\n  3: {}", "keys must be text, got 3 on line 2"),
        ("null: 1", "keys must be text, got null on line 1"),
        ("{? : 1}", "keys must be text, got nothing on line 1"),
        ("a: 1e308", "got 1e308 on line 1"),
        ("a: -.inf", "numbers must be finite"),
        ("a: .nan", "numbers must be finite"),
        ("a: 99999999999999999999", "at most 9.2e.18 in magnitude"),
        ("a: " + "9" * 5000, "is no number that can be read"),
        ("a: !!int word", "'word' on line 1 is no number"),
    ],
)
def test_values_are_refused_that_no_setting_takes(text: str, told: str) -> None:
    with pytest.raises(RefusedYaml, match=told):
        read_yaml(text)


@pytest.mark.parametrize("tag", ["binary", "set", "omap", "python/object:os.system"])
def test_tags_of_other_types_are_no_yaml_of_ours(tag: str) -> None:
    with pytest.raises(yaml.YAMLError, match="could not determine a constructor"):
        read_yaml(f"a: !!{tag} {{}}")


@BOTH
def test_what_is_merged_in_may_be_changed_and_aliases_may_repeat(words: bool) -> None:
    text = "base: &base {a: x, b: y}\nagain: [*base, *base]"
    assert read_yaml(text, words) == yaml.safe_load(text)
    merged = "base: &base {a: 1, b: 2}\nchanged: {<<: *base, a: 3}"
    assert read_yaml(merged) == yaml.safe_load(merged)
    assert read_yaml(merged)["changed"] == {"a": 3, "b": 2}


@pytest.mark.parametrize("text", ["1e3", "-2E-5", "1_0e4", "1e3x", "007", "0x1f", "no", "~", "2024-01-01", "1:30", ""])
def test_what_is_written_is_read_back_as_the_text_that_it_was(text: str) -> None:
    value = {"label": text, "words": [text, 1e-3, 1e3, 2, None, True]}
    assert read_yaml(yaml_of(value)) == value
    assert list(read_yaml(yaml_of({"b": 1, "a": 2}))) == ["b", "a"]


def test_limits_are_of_what_is_held_not_of_what_is_ordinary() -> None:
    assert len(read_yaml("\n".join(f"- word{i}" for i in range(2000)))) == 2000
    deep = read_yaml("[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1))
    for _ in range(MAX_DEPTH - 1):
        (deep,) = deep
    assert deep == 1
    assert read_yaml(f"seed: {2**63 - 1}") == {"seed": 2**63 - 1}


def test_a_text_or_file_that_is_too_long_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "MAX_BYTES", 10)
    file = tmp_path / "long.yaml"
    file.write_text("a: [this is never closed")
    for read in (lambda: read_yaml(file.read_text()), lambda: read_yaml_file(file)):
        with pytest.raises(RefusedYaml, match="at most 10 bytes, got 24"):
            read()
