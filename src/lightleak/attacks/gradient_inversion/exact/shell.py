"""The frame of the attacks that return certificates: checks of an update, one run per update, the reconstruction."""

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import pandas as pd
import torch
from torch import Tensor

from lightleak.attacks.attack import Progress, UpdateAttack
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.config import ExactSettings
from lightleak.attacks.gradient_inversion.network.chain import layer_names
from lightleak.attacks.gradient_inversion.network.checks import require_fit
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.certificate import Certificate, Feasibility, RowStatus
from lightleak.core.devices import synchronize
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state

Config = TypeVar("Config", bound=ExactSettings)


class CertifyingInversion(UpdateAttack, Generic[Config]):
    """An attack on rows of a table behind a ReLU network's update that says which of the rows are proven.

    Args:
        config: the settings.

    Attributes:
        local_training: whether it attacks weight updates of a local training rather than gradients.
    """

    local_training: ClassVar[bool] = False

    def __init__(self, config: Config) -> None:
        self.config = config
        marginals = config.prior in ("auto", "marginals")
        self.threat_model = ThreatModel(labels="restored", marginals=marginals, local_training=self.local_training)

    def options(self) -> dict[str, Any]:
        """The settings of the attack."""
        return self.config.to_dict()

    def check(self, update: ClientUpdate) -> None:
        """Refuse updates that this attack cannot serve.

        Raises:
            ObservationError: an update of the wrong kind (`check_protocol`), or tensors that do not fit the network.
            UnsupportedError: another loss, images, an encoding whose numbers are not affine, or a network that is not
                a ReLU chain with enough hidden layers.
        """
        self.check_protocol(update)
        if update.facts.loss != "cross_entropy":
            raise UnsupportedError(f"{self.name} needs the loss 'cross_entropy', got {update.facts.loss!r}")
        if is_image_state(update.encoder):
            raise UnsupportedError(f"{self.name} reconstructs rows of a table; this update is on images")
        require_fit(update, client_network(update), self.combines_releases)
        self.check_network(update)
        encoder = TableEncoder.of(update)
        if encoder.encoding == "quantile":
            raise UnsupportedError(f"{self.name} needs numbers encoded by an affine map, got the encoding 'quantile'")
        RowPrior.of(update, encoder, self.config.prior)

    def check_network(self, update: ClientUpdate) -> None:
        """Refuse networks that this attack cannot serve: by default all but plain ReLU networks.

        Raises:
            UnsupportedError: see above.
        """
        layer_names(update)

    @abstractmethod
    def check_protocol(self, update: ClientUpdate) -> None:
        """Refuse updates of another kind or from clients that trained otherwise.

        Raises:
            ObservationError: see above.
            UnsupportedError: likewise.
        """

    @abstractmethod
    def invert(
        self, update: ClientUpdate, encoder: TableEncoder, seed: int, progress: Progress | None
    ) -> "CertifiedRows":
        """Reconstruct the rows of one update that passed `check`.

        Args:
            update: the observation.
            encoder: its encoder, on the device of the work.
            seed: root of its random streams.
            progress: called with the fraction of the work done since the last call.
        """

    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """See `UpdateAttack.run_many`; one update after the other, each vectorized over its candidates."""
        for update in updates:
            self.check(update)
        return [
            self._run(update, seed, torch.device(device), progress) for update, seed in zip(updates, seeds, strict=True)
        ]

    def stepped(self, update: ClientUpdate, seed: int, device: torch.device) -> None:
        """See `UpdateAttack.stepped`: steps of a search are a part of its time."""
        return None

    def _run(self, update: ClientUpdate, seed: int, device: torch.device, progress: Progress | None) -> Reconstruction:
        began = time.perf_counter()
        encoder = TableEncoder.of(update, device)
        found = self.invert(update, encoder, seed, progress)
        synchronize(device)
        return found.reconstruction(self.name, self.threat_model, encoder, began)


@dataclass(frozen=True)
class CertifiedRows:
    """What `CertifyingInversion.invert` returns.

    Attributes:
        encoded: the rows ``[n, d]``; guesses for rows that were not found come last.
        labels: LongTensor ``[n]``.
        uncertainty: see `Reconstruction`.
        residual: part of the update that the rows leave unexplained.
        proof: of the rows that were found.
        multiplicity: how often each row that was found occurs, LongTensor.
        feasibility: what could be expected of the update.
        guesses: rows that are guesses.
        scale: see `Certificate`.
        labels_proven: see `Certificate`.
        assumed_statistics: see `Certificate`.
        normalized_proven: likewise, of the rows that were found.
    """

    encoded: Tensor
    labels: Tensor
    uncertainty: pd.DataFrame
    residual: float
    proof: Proof
    multiplicity: Tensor
    feasibility: Feasibility
    guesses: int = 0
    scale: float = 1.0
    labels_proven: bool = True
    assumed_statistics: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    normalized_proven: Tensor | None = None

    def reconstruction(
        self, attack: str, threat_model: ThreatModel, encoder: TableEncoder, began: float
    ) -> Reconstruction:
        """The same as a reconstruction, whose work began at ``began`` (`time.perf_counter`)."""
        proven, seen = self.proof.cells, self.normalized_proven
        if not encoder.layout.categorical:  # of numbers alone, a label without digits is no row
            proven = self.proof.digits if seen is None else proven & seen
        found: list[RowStatus] = ["certified" if is_proven else "likely" for is_proven in proven.tolist()]
        guesses: list[RowStatus] = ["missing"]
        normalized_proven = () if seen is None else (*seen.tolist(), *[False] * self.guesses)
        return Reconstruction(
            attack=attack,
            threat_model=threat_model,
            rows=encoder.decode(self.encoded),
            labels=self.labels.cpu(),
            encoded=self.encoded.cpu(),
            uncertainty=self.uncertainty,
            loss=self.residual,
            seconds=time.perf_counter() - began,
            certificate=Certificate(
                residual=self.residual,
                status=tuple(found + guesses * self.guesses),
                digits=(*self.proof.digits.tolist(), *[False] * self.guesses),
                multiplicity=(*self.multiplicity.tolist(), *[1] * self.guesses),
                feasibility=self.feasibility,
                scale=self.scale,
                labels_proven=self.labels_proven,
                assumed_statistics=self.assumed_statistics,
                normalized_proven=normalized_proven,
            ),
        )
