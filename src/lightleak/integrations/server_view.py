"""What a server knows about its clients' updates besides the weights, stated once for all clients and rounds."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from safetensors.torch import save_file

from lightleak.core.arguments import require_kind, require_path
from lightleak.core.bounds import Bounds, require_one_of, require_within
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ProtocolFacts
from lightleak.core.stored import FILE_MODE, FOLDER_MODE, read_facts, read_tensors
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.targets.functional import criterion
from lightleak.targets.own import is_own
from lightleak.targets.own_check import ROWS, require_classifier
from lightleak.targets.spec import NetworkSpec, build_network

Sends = Literal["weights", "delta", "gradient"]

VERSION = 1
"""Of the files that `ServerView.save` writes."""


@dataclass(frozen=True)
class ServerView:
    """The threat model of captures from another framework.

    Attributes:
        network: the network whose weights travel.
        encoder: the fitted encoder of the clients' rows.
        sends: what a client sends back: its ``weights`` after training, how far they moved (``delta``, after minus
            before), or the ``gradient`` of its mean loss on all its rows.
        learning_rate: of the clients' SGD; no fact of a gradient.
        epochs: local epochs; None where the server does not know them.
        batch_size: rows per local step; ``all`` where every step takes all of a client's rows; None where the server
            does not know.
        momentum: of the clients' SGD.
        weight_decay: of the clients' SGD.
        optimizer: local optimizer, by name.
        loss: the training criterion, by name.
        as_gradient: weights or a delta after one step of SGD are recorded as the gradient behind that step, which the
            attacks on gradients take.
        training_mode: clients train in train mode (batch statistics, dropout) rather than in eval mode.
        share_buffers: updates carry the network's buffers before training, where the weights sent out hold them.
        share_statistics: BatchNorm's buffers, which a client sends back after one step, give the statistics of its
            batch (`batch_statistics`); attacks use them where their settings say so.
        marginals: one-way marginals that the server knows.
        defense: what clients do to an update before it leaves them, in words; ``none``: nothing.
        prefix: of the network's names in a state dict, such as ``network.`` in that of a `TabularClassifier`; whatever
            does not begin with it is left out.

    Raises:
        UsageError: a value out of range or of the wrong type, or settings that cannot work together.
        UnsupportedError: a user's network that is not a classifier of such rows (`require_classifier`).
        DataError: an encoder that is not fitted.
    """

    network: NetworkSpec
    encoder: TableEncoder
    sends: Sends = "weights"
    learning_rate: float | None = None
    epochs: int | None = 1
    batch_size: int | Literal["all"] | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    optimizer: str = "sgd"
    loss: str = "cross_entropy"
    as_gradient: bool = False
    training_mode: bool = True
    share_buffers: bool = True
    share_statistics: bool = False
    marginals: Marginals | None = None
    defense: str = "none"
    prefix: str = ""

    def __post_init__(self) -> None:
        spec = "a NetworkSpec (a module becomes one by NetworkSpec(hand_over(module), n_classes, encoder.layout))"
        require_kind("network", self.network, NetworkSpec, spec)
        require_kind("encoder", self.encoder, TableEncoder, "a TableEncoder, such as .encoder of lightleak.prepare")
        require_one_of("sends", self.sends, get_args(Sends))
        self.network.require_layout(self.encoder.layout)
        # As in the updates that will be recorded, so that none turns out unreadable when the federation is over.
        stated = {name: getattr(self, name) for name in _STATED if (name, getattr(self, name)) != ("batch_size", "all")}
        facts = ProtocolFacts(n_rows=1, **stated)
        for name in stated:
            object.__setattr__(self, name, getattr(facts, name))
        if self.learning_rate is not None:
            require_within(Bounds(gt=0), "learning_rate", self.learning_rate)
        criterion(self.loss)  # refuses an unknown one
        self._check_as_gradient()
        if self.share_statistics and not (self.kind == "gradient" and self.training_mode):
            raise UsageError(
                "share_statistics reads the statistics of one step in train mode off its buffers: it needs "
                f"sends='gradient' or as_gradient, and training_mode; got sends={self.sends!r}, "
                f"as_gradient={self.as_gradient}, training_mode={self.training_mode}"
            )
        if is_own(self.network.name):
            self._check_logits(require_classifier(build_network(self.network, seed=0), self.encoder.spread_rows(ROWS)))
        self.encoder.to_state()  # refuses an encoder that is not fitted

    def _check_logits(self, got: int) -> None:
        if got != self.network.n_classes:
            name, expected = self.network.name, self.network.n_classes
            raise UsageError(f"network {name!r} must return {expected} logits (n_classes of its spec), got {got}")

    def _check_as_gradient(self) -> None:
        if not self.as_gradient:
            return
        if self.sends == "gradient":
            raise UsageError("as_gradient turns weights or a delta into a gradient; sends='gradient' needs no turning")
        wanted = {
            "a known learning_rate": (self.learning_rate is not None, f"learning_rate={self.learning_rate}"),
            "optimizer='sgd'": (self.optimizer == "sgd", f"optimizer={self.optimizer!r}"),
            "epochs=1": (self.epochs == 1, f"epochs={self.epochs}"),
        }
        if wrong := {need: got for need, (fits, got) in wanted.items() if not fits}:
            needs, got = " and ".join(wrong), ", ".join(wrong.values())
            raise UsageError(f"as_gradient, the gradient of one step of SGD, needs {needs}; got {got}")

    @property
    def kind(self) -> Literal["gradient", "delta"]:
        """Of the updates that are recorded."""
        return "gradient" if self.sends == "gradient" or self.as_gradient else "delta"

    def facts(self, n_rows: int, round_number: int = 0) -> ProtocolFacts:
        """Return what the protocol states about one client's update.

        Args:
            n_rows: rows of the client.
            round_number: communication round, counted from 0.

        Raises:
            ObservationError: ``as_gradient`` for a client whose rows did not go into one step.
        """
        size = n_rows if self.batch_size == "all" else self.batch_size
        common: dict[str, Any] = {"loss": self.loss, "step": round_number, "epoch": round_number}
        common |= {"defense": self.defense, "n_rows": n_rows}
        if self.as_gradient and (size is None or size < n_rows):
            raise ObservationError(f"as_gradient needs a client's {n_rows} rows in one step, got batches of {size}")
        if self.kind == "gradient":
            return ProtocolFacts(batch_size=n_rows, **common)
        known = self.epochs is not None and size is not None
        return ProtocolFacts(
            epochs=self.epochs,
            batch_size=size,
            local_steps=(self.epochs or 0) * -(-n_rows // (size or 1)) if known else None,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            optimizer=self.optimizer,
            **common,
        )

    def save(self, folder: Path | str) -> None:
        """Write ``view.json`` and ``view.safetensors`` into ``folder`` (created), for a server that reads files."""
        folder = require_path("folder", folder)
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        encoder, tensors = self.encoder.to_state()
        facts = {
            "schema_version": VERSION,
            "network": self.network.to_dict(),
            "encoder": encoder,
            "marginals": None if self.marginals is None else self.marginals.to_dict(),
            **{name: getattr(self, name) for name in _PLAIN},
        }
        save_file({name: value.cpu().contiguous() for name, value in tensors.items()}, folder / "view.safetensors")
        (folder / "view.json").write_text(json.dumps(facts, indent=1))
        for name in ("view.json", "view.safetensors"):
            (folder / name).chmod(FILE_MODE)

    @classmethod
    def load(cls, folder: Path | str) -> "ServerView":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing, damaged or of an unknown version.
        """
        folder = require_path("folder", folder)
        facts = read_facts(folder / "view.json", "server view", VERSION)
        tensors = read_tensors(folder / "view.safetensors")
        try:
            marginals = facts.pop("marginals")
            return cls(
                network=NetworkSpec.from_dict(facts.pop("network")),
                encoder=TableEncoder.from_state(facts.pop("encoder"), tensors),
                marginals=None if marginals is None else Marginals.from_dict(marginals),
                **facts,
            )
        except (KeyError, TypeError) as error:
            raise ObservationError(f"{folder}/view.json does not describe a server's view: {error}") from error


_STATED = ("learning_rate", "epochs", "batch_size", "momentum", "weight_decay", "optimizer", "loss", "defense")
"""Settings that are facts of every update."""

_PLAIN = tuple(name for name in ServerView.__dataclass_fields__ if name not in ("network", "encoder", "marginals"))
