"""Names of earlier versions, which are accepted with a note in the log."""

import logging
from functools import cache

logger = logging.getLogger(__name__)

REGISTERED = {"public_pseudo_labelled": "public_pseudo_labeled"}
"""Names of attacks by their former name."""


@cache
def note_once(old: str, new: str) -> None:
    """Note in the log that a setting has a new name; of each pair once."""
    logger.warning("the setting %r is now %r; the old name will be refused in a later version", old, new)


def current_name(name: str) -> str:
    """Return today's name of what is registered.

    >>> current_name("tableak")
    'tableak'
    """
    if name not in REGISTERED:
        return name
    note_once(name, REGISTERED[name])
    return REGISTERED[name]
