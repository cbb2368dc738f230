"""What every defense of vertical federated learning looks like from outside (ProVFL, Sec. VII)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.core.registry import Registry
from lightleak.data.vertical import VerticalRows
from lightleak.defenses.defense import REFERENCE, Defense
from lightleak.targets.split import Transform


@dataclass(frozen=True)
class PreparedRows:
    """What is left to train on.

    Attributes:
        rows: the rows the parties train on, m of the n that were given.
        source: LongTensor ``[m]`` position of each of them among the given rows.
        has_property: BoolTensor ``[m]`` whether the person behind each id has the property, whatever its row now says.
    """

    rows: VerticalRows
    source: Tensor
    has_property: Tensor


class VerticalDefense(Defense):
    """A defense acts on the rows before training, on what travels while the parties train, or on neither."""

    def prepare(self, rows: VerticalRows, has_property: Tensor, victim_party: int, seed: int) -> PreparedRows:
        """The rows to train on; the same arguments give the same rows.

        The fraction an attack is to estimate is that of the rows given here, before anything is done to them.

        Args:
            rows: aligned training rows; not modified.
            has_property: BoolTensor ``[n]``, which the victim knows of its own rows.
            victim_party: index of the party that holds the property.
            seed: root seed.

        Raises:
            UsageError: no such party, or ``has_property`` is not a mask of the rows.
        """
        check_rows(rows, has_property, victim_party)
        return PreparedRows(rows, torch.arange(len(rows.ids)), has_property)

    def transform(self, seed: int) -> Transform:
        """What acts on the exchange of one training; a transform draws new noise at every step and serves once."""
        return Transform()

    def share_before(self, share: float) -> float:
        """Invert what the defense does to the share of records with the property.

        An adversary who knows the defense and its strength, but not which rows it touched, applies it to an estimate
        from the exchange. Increasing in ``share``; the default is for a defense that does not change the share.

        Args:
            share: share of the records that are trained on, in [0, 1].

        Returns:
            The share before the defense.
        """
        return share


VERTICAL_DEFENSES: Registry[type[VerticalDefense]] = Registry("defense")
"""Defenses by name; called with their settings."""


def make_defense(name: str, options: Mapping[str, Any] | None = None) -> VerticalDefense:
    """A defense of a config: its name and the settings to change.

    A name that is no defense's needs the setting ``defense``: ``{"weak": {"defense": "laplace", "scale": 0.001}}``.

    >>> from lightleak.defenses.vertical import make_defense
    >>> make_defense("laplace", {"scale": 0.001}).describe()
    'Laplace noise of scale 0.001 on gradients'

    Raises:
        UsageError: an unknown defense or setting, or a value out of range.
    """
    settings = dict(options or {})
    kind = VERTICAL_DEFENSES.get(settings.pop("defense", name))
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if unknown := sorted(set(settings) - set(known)):
        raise UsageError(
            f"defense {kind.name!r} has no setting {', '.join(unknown)}; settings: {', '.join(known) or 'none'}"
        )
    return kind(**settings)


def check_rows(rows: VerticalRows, has_property: Tensor, victim_party: int) -> None:
    """Raise `UsageError` where there is no such party, or ``has_property`` is not a mask of the rows."""
    n_parties = len(rows.widths)
    if not 0 <= victim_party < n_parties:
        raise UsageError(f"victim_party must be at least 0 and below {n_parties} (parties), got {victim_party}")
    if has_property.dtype != torch.bool or has_property.shape != rows.ids.shape:
        got = f"{has_property.dtype} of shape {tuple(has_property.shape)}"
        raise UsageError(f"has_property must be a bool tensor of shape [{len(rows.ids)}], got {got}")


@VERTICAL_DEFENSES.register("none", REFERENCE)
@dataclass(frozen=True)
class NoDefense(VerticalDefense):
    """Nothing is changed."""

    name = "none"
    citation = ""
    words = "no defense"
