"""What an attacker holds of a released model: the model, the public rows, and how far the model may be opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
import torch
from torch import Tensor

from lightleak.core.errors import ObservationError
from lightleak.core.stored import MAX_TENSOR_BYTES, read_facts, read_groups, write_parts

SCHEMA_VERSION = 1

Access = Literal["white_box", "black_box"]


@dataclass(frozen=True)
class ReleasedModel:
    """A trained classifier and public rows of the same columns (PLG-MI's threat model, thesis Sec. 2.1).

    Attributes:
        network: specification of the network (`lightleak.targets.spec.NetworkSpec.to_dict`).
        parameters: named parameters.
        buffers: named buffers; a released model ships them.
        encoder: schema and encoder of the target: its label's categories are the private classes.
        encoder_tensors: the encoder's statistics as tensors.
        public: public rows, the schema's feature columns; they have no label the attacker could use.
        access: ``white_box`` (gradients through the network) or ``black_box`` (logits of rows of one's choice).

    Raises:
        ObservationError: on construction, where a part is missing or not of its kind.
    """

    network: Mapping[str, Any]
    parameters: Mapping[str, Tensor]
    encoder: Mapping[str, Any]
    encoder_tensors: Mapping[str, Tensor]
    public: pd.DataFrame
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    access: Access = "white_box"

    def __post_init__(self) -> None:
        if self.access not in get_args(Access):
            raise ObservationError(f"access must be one of {', '.join(get_args(Access))}, got {self.access!r}")
        for what in ("network", "encoder"):
            if not isinstance(getattr(self, what), Mapping):
                raise ObservationError(f"{what} must be a mapping, got {type(getattr(self, what)).__name__}")
        if not len(self.public):
            raise ObservationError("a released model is attacked with public rows, got none")
        for what, tensors in (("parameter", self.parameters), ("buffer", self.buffers)):
            for name, tensor in tensors.items():
                if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                    raise ObservationError(f"{what} {name!r} must be finite, got NaN or infinity")

    def save(self, folder: Path) -> None:
        """Write ``tensors.safetensors``, ``facts.json`` and ``public.parquet`` into ``folder``, for its owner only."""
        groups = {name: getattr(self, name) for name in _TENSOR_GROUPS}
        facts = {
            "schema_version": SCHEMA_VERSION,
            "network": dict(self.network),
            "encoder": dict(self.encoder),
            "access": self.access,
        }
        write_parts(folder, facts, groups, {"public": self.public})

    @classmethod
    def load(cls, folder: Path, max_tensor_bytes: int = MAX_TENSOR_BYTES) -> "ReleasedModel":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing, damaged, too large, or of an unknown version.
        """
        facts = read_facts(folder / "facts.json", "released model", SCHEMA_VERSION)
        groups = read_groups(folder / "tensors.safetensors", _TENSOR_GROUPS, max_tensor_bytes)
        try:
            public = pd.read_parquet(folder / "public.parquet")
            return cls(facts["network"], encoder=facts["encoder"], public=public, access=facts["access"], **groups)
        except KeyError as error:
            raise ObservationError(f"{folder / 'facts.json'} lacks {error}") from error
        except (OSError, ValueError) as error:
            raise ObservationError(f"{folder / 'public.parquet'} cannot be read: {error}") from error


_TENSOR_GROUPS = ("parameters", "buffers", "encoder_tensors")
