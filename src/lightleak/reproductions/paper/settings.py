"""Settings and notes behind the tables of a paper, as data: ``reproductions/paper/<paper>.yaml``."""

from functools import cache
from importlib.resources import files
from typing import Any

from lightleak.core.yaml_text import read_yaml


@cache
def paper_settings(paper: str) -> dict[str, Any]:
    """Return the content of a paper's file, read once per process; callers must not change it.

    >>> sorted(paper_settings("fedavg"))
    ['measurements', 'notes', 'presets']
    """
    text = files(__package__).joinpath(f"{paper}.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = read_yaml(text)
    return content


def note(paper: str, name: str, **values: object) -> str:
    """Return a note of a paper's file with ``values`` filled in.

    >>> note("provfl", "auc", seed=3)
    'AUC is that of one training (seed 3).'
    """
    text: str = paper_settings(paper)["notes"][name]
    return text.format(**values)


def measurements(paper: str, metric: str) -> int:
    """Return the number of measurements behind a printed mean.

    >>> measurements("tableak", "cell_accuracy"), measurements("tableak", "test_accuracy")
    (50, 5)
    """
    known: dict[str, int] = paper_settings(paper)["measurements"]
    return known.get(metric, known["all"])
