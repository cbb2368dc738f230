"""Data files of this package."""

from importlib.resources import files
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: ten times as fast, and `lightleak explain` waits for it."""


def read_shipped(name: str) -> str:
    """Return the text of a file that lies next to this module."""
    return (files("lightleak.cards") / name).read_text("utf-8")


def read_shipped_yaml(name: str) -> Any:
    """Return the values of a YAML file that lies next to this module."""
    return yaml.load(read_shipped(name), _LOADER)
