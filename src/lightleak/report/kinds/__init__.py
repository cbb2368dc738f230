"""One module for each kind of run: which sections its page has, which columns, which words."""

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from lightleak.report.page import Page
from lightleak.report.read import Run

MODULES = {
    "updates": "updates",
    "vertical": "vertical",
    "released-model": "released",
    "defense-frontier": "frontier",
    "tuning": "study",
}
"""Module of each kind."""


class Kind(Protocol):
    """What a module of this package has to define."""

    def page(self, runs: Sequence[Run], redact: bool) -> Page:
        """Make the page of runs of this kind; with ``redact`` it shows no value of a private row."""


def kind_of(runs: Sequence[Run]) -> Kind:
    """The module that draws the pages of these runs."""
    return cast(Kind, import_module(f"lightleak.report.kinds.{MODULES[runs[0].kind]}"))
