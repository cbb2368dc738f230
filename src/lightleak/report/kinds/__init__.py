"""One module for each kind of run makes its page: which sections it has, which columns, which words.

What a kind needs beyond that has its name in front: ``updates_groups`` groups rows, ``updates_summary`` is a section.
"""

from collections.abc import Sequence
from importlib import import_module

from lightleak.core.errors import UsageError
from lightleak.core.results import row_kinds
from lightleak.report.blocks import Page
from lightleak.report.read import Run

MODULES = {
    "updates": "updates",
    "vertical": "vertical",
    "released-model": "released",
    "defense-frontier": "frontier",
    "tuning": "study",
}
"""Module of each kind; the page of another kind is made by the module that defines its row."""


def page_of(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of runs of one kind; with ``redact`` it shows no value of a private row."""
    kind = runs[0].kind
    name = f"lightleak.report.kinds.{MODULES[kind]}" if kind in MODULES else row_kinds()[kind].__module__
    module = import_module(name)
    if not hasattr(module, "page"):
        raise UsageError(f"no report of kind {kind!r}: {name} defines no function page(runs, redact)")
    page: Page = module.page(runs, redact)
    return page
