"""Examples in docstrings as code: Markdown would read their brackets as links."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1(?! *$).+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts every example of a docstring between fences."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""A docstring with its examples between fences.

    >>> fenced("Add.\n\n>>> 1 + 1\n2\n\nMore.").splitlines()
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'More.']
    """
    return _EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
