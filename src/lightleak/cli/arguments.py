"""Split a command line into the command's own arguments and settings that change its config."""

import argparse
from collections.abc import Sequence
from typing import Any

import yaml

from lightleak.core.errors import UsageError
from lightleak.core.yaml_text import RefusedYaml, read_yaml, unwritable

VALUE_FLAGS = {
    "audit": ("--output", "--resume"),
    "attack": ("--output", "--capture"),
    "tune": ("--output", "--workers", "--trials"),
}
"""Commands that take a config, whose settings are flags, and their own flags that take a value."""

BARE_FLAGS = ("--plan", "--help")
"""Flags that take no value, of some of these commands; settings of none."""

COMMA_FLAGS = ("--attacks", "--batch-sizes", "--categorical", "--drop", "--settings")
"""Flags that take several values as one word."""

PDF = ".pdf"


def check_words(arguments: Sequence[str]) -> None:
    """Raise `UsageError` for a word that no file name or file in UTF-8 can hold."""
    for word in arguments:
        if odd := unwritable(word):
            raise UsageError(f"arguments must be text in UTF-8 without the character {odd}, got {word!a}")


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the command's own arguments from settings (``--training.epochs 3``), in any order.

    >>> split_arguments(["audit", "--seed", "3", "a.yaml", "--plan"])
    (['audit', 'a.yaml', '--plan'], ['--seed', '3'])
    """
    if arguments and arguments[0] == "report":
        return _with_pdf_first(arguments), []
    if not arguments or arguments[0] not in VALUE_FLAGS:
        return list(arguments), []
    with_value = VALUE_FLAGS[arguments[0]]
    own, settings, queue = [], [], list(arguments)
    while queue:
        word = queue.pop(0)
        if not word.startswith("--") or word.partition("=")[0] in (*with_value, *BARE_FLAGS):
            own.append(word)
            if word in with_value and queue:
                own.append(queue.pop(0))
            continue
        settings.append(word)
        if "=" not in word and queue and not queue[0].startswith("--"):
            settings.append(queue.pop(0))
    return own, settings


def _with_pdf_first(arguments: Sequence[str]) -> list[str]:
    """Move ``--pdf`` with its FILE before the folders, as one word; a name that does not end in .pdf is a folder.

    >>> _with_pdf_first(["report", "a", "--pdf", "b"]), _with_pdf_first(["report", "a", "--pdf", "b.pdf"])
    (['report', '--pdf=', 'a', 'b'], ['report', '--pdf=b.pdf', 'a'])
    """
    if "--pdf" not in arguments:
        return list(arguments)
    at = arguments.index("--pdf")
    (*before,), (*after,) = arguments[:at], arguments[at + 1 :]
    file = after.pop(0) if after and after[0].lower().endswith(PDF) else ""
    return [*before[:1], f"--pdf={file}", *before[1:], *after]


def flag_settings(rest: Sequence[str]) -> dict[str, Any]:
    """Read ``--a.b value`` and ``--a.b=value`` as dotted keys and YAML values; ``trainer.`` is ``training.trainer.``.

    >>> flag_settings(["--seed=3", "--trainer.num-nodes", "2"])
    {'seed': 3, 'training.trainer.num_nodes': 2}
    """
    from lightleak.experiments.settings import setting_key

    settings: dict[str, Any] = {}
    queue = list(rest)
    while queue:
        flag = queue.pop(0)
        if not flag.startswith("--"):
            raise UsageError(f"expected a flag such as --training.epochs, got {flag!r}")
        key, given, text = flag[2:].partition("=")
        if not given:
            if not queue or queue[0].startswith("--"):
                raise UsageError(f"--{key} needs a value")
            text = queue.pop(0)
        try:
            settings[setting_key(key)] = read_yaml(text)
        except RefusedYaml as error:
            raise UsageError(f"--{key}: {error}") from error
        except yaml.YAMLError as error:
            raise UsageError(f"--{key} needs a YAML value, got {text!r}") from error
    return settings


def names(text: str | None) -> tuple[str, ...]:
    """Split a word that names several things.

    >>> names("a, b"), names(None)
    (('a', 'b'), ())
    """
    return tuple(name.strip() for name in text.split(",")) if text else ()


def unknown_word(word: str, arguments: Sequence[str], parsed: argparse.Namespace) -> str:
    """Return the message for an unknown word; one after a flag was perhaps meant for that flag.

    >>> words = ["data", "describe", "F", "--drop", "a", "b"]
    >>> unknown_word("b", words, argparse.Namespace(command="data", step="describe"))
    "unknown argument 'b' (--drop takes names separated by commas: --drop a,b); see lightleak data describe --help"
    """
    before = list(arguments[: arguments.index(word)])
    flags = [at for at, earlier in enumerate(before) if earlier.startswith("-")]
    hint = ""
    if flags and before[flags[-1]] in COMMA_FLAGS and not word.startswith("-"):
        flag, *values = before[flags[-1] :]
        hint = f" ({flag} takes names separated by commas: {flag} {','.join([*values, word])})"
    command = " ".join(filter(None, (parsed.command, getattr(parsed, "step", ""))))
    return f"unknown argument {word!r}{hint}; see lightleak {command} --help"
