"""Gradient inversion of FedSGD gradients: restore labels, then optimize rows until their gradient is the client's."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.network.checks import (
    require_batch_statistics,
    require_even_batches,
    require_fit,
    require_one_gradient,
    require_one_normalization,
)
from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain
from lightleak.attacks.gradient_inversion.optimize.chain_options import chain_options, require_options
from lightleak.attacks.gradient_inversion.optimize.labels import (
    DUMMY_ROWS,
    expand_counts,
    geng_rows,
    plausible_rows,
    require_restorable,
    restore_counts,
    round_counts,
)
from lightleak.attacks.gradient_inversion.optimize.problem import build_matcher, bytes_per_restart
from lightleak.attacks.gradient_inversion.optimize.reach import require_reach
from lightleak.attacks.gradient_inversion.optimize.shell import Posed, RestartedInversion, unchanged
from lightleak.attacks.gradient_inversion.tables.codec import RowCodec, table_codec
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state


class GradientInversion(RestartedInversion[InversionConfig]):
    """Reconstruct the batch behind a gradient. Every published attack on FedSGD here is a configuration of it.

    Args:
        name: registry name.
        citation: the paper.
        config: the settings.
        title: the field's name for it.
    """

    precisions = (*RestartedInversion.precisions, "bfloat16")

    def __init__(self, name: str, citation: str, config: InversionConfig, title: str = "") -> None:
        knows = ThreatModel(
            labels="true" if config.labels == "true" else "restored",
            batch_statistics=config.batch_norm_prior > 0,
        )
        super().__init__(name, citation, config, title, knows)

    def check(self, update: ClientUpdate) -> None:
        """Refuse updates this attack has no meaning for.

        Raises:
            ObservationError: a weight delta or an aggregate, unequal micro-batches or some with BatchNorm, labels or
                BatchNorm statistics that were not shared, or tensors that do not fit the network.
            UnsupportedError: a loss other than cross-entropy, labels that cannot be restored from this network,
                a precision that its derivative cannot be taken in, or a derivative that does not reach every column
                (`require_reach`).
        """
        facts, config = update.facts, self.config
        require_one_gradient(self.name, update)
        if facts.loss != "cross_entropy":
            raise UnsupportedError(f"{self.name} needs the loss 'cross_entropy', got {facts.loss!r}")
        if config.labels == "true" and update.labels is None:
            raise ObservationError(
                f"{self.name}: the update shares no labels; restore them by labels: restored in the config, or by "
                f"--attacks.{self.name}.labels geng (or bias)"
            )
        if is_image_state(update.encoder):
            raise UnsupportedError(f"{self.name} reconstructs rows of a table; this update is on images")
        require_even_batches(self.name, update)
        network = client_network(update)
        require_fit(update, network)
        require_one_normalization(self.name, update, network)
        if config.precision == "bfloat16" and (relu_chain(network) is None or config.l2_prior > 0):
            raise UnsupportedError(
                f"{self.name}: precision 'bfloat16' is for plain ReLU networks without l2_prior, whose derivative is "
                f"known in closed form; got {update.network['name']!r}, l2_prior {config.l2_prior}; use tf32 or float32"
            )
        require_options(self.name, update, config)
        if config.needs_closed_form and config.l2_prior > 0:
            raise UnsupportedError(
                f"{self.name}: {', '.join(config.needs_closed_form)} needs l2_prior 0, which the closed form does not "
                f"serve; got {config.l2_prior}"
            )
        if config.labels != "true":
            require_restorable(network, config.labels)
        if config.batch_norm_prior > 0:
            require_batch_statistics(update, network)
        require_reach(self.name, update, network)

    def codec(self, update: ClientUpdate, device: torch.device) -> RowCodec:
        """Rows of a table."""
        return table_codec(update, device)

    def pose(
        self, pairs: Sequence[tuple[ClientUpdate, int]], codec: RowCodec, device: torch.device, dtype: torch.dtype
    ) -> Posed:
        """One variable per row of the batch."""
        updates = [update for update, _ in pairs]
        labels = torch.stack([self._labels(update, seed) for update, seed in pairs])
        options = chain_options(updates, self.config, device, dtype)
        matcher = build_matcher(
            updates, labels, self.config, device, dtype, options.straight_through, options.whitening
        )
        return Posed(matcher, labels, updates[0].facts.n_rows, unchanged, unchanged)

    def bytes_per_restart(self, update: ClientUpdate) -> int:
        """See `RestartedInversion`."""
        return bytes_per_restart(update, self.config.precision)

    def _labels(self, update: ClientUpdate, seed: int) -> Tensor:
        n = update.facts.n_rows
        if self.config.labels == "true":
            assert update.labels is not None  # `check` refuses an update without labels
            return update.labels.cpu()
        draws = generator(seed, "labels")
        encoder = TableEncoder.of(update)
        network, method = client_network(update), self.config.labels
        dummy = plausible_rows(encoder, DUMMY_ROWS, draws) if method == "bias" else geng_rows(encoder, draws)
        counts = restore_counts(network, update.parameters, update.buffers, update.update, n, dummy, method)
        return expand_counts(round_counts(counts, n))
