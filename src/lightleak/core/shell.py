"""Commands that a reader pastes into a shell."""

import shlex
from pathlib import Path


def shell_word(word: str | Path) -> str:
    """Return a word of a command, quoted where a shell would read it as something else.

    >>> shell_word("runs/people"), shell_word("my run")
    ('runs/people', "'my run'")
    """
    return shlex.quote(str(word))
