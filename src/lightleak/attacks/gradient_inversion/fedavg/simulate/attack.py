"""Inversion of FedAvg updates: simulate local training, optimize its rows, match epochs, pool restarts."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lightleak.attacks.attack import PartOfWork, Progress
from lightleak.attacks.gradient_inversion.fedavg.checks import (
    can_be_cut,
    local_epochs,
    require_cut,
    require_fedavg,
    rows_per_client,
    total_steps,
)
from lightleak.attacks.gradient_inversion.fedavg.simulate.config import FedAvgConfig
from lightleak.attacks.gradient_inversion.fedavg.simulate.image_codec import image_codec
from lightleak.attacks.gradient_inversion.fedavg.simulate.label_counts import restore_whole_counts
from lightleak.attacks.gradient_inversion.fedavg.simulate.label_split import orders_of, random_split, shared_positions
from lightleak.attacks.gradient_inversion.fedavg.simulate.problem import (
    build_update_matcher,
    bytes_per_candidate,
    schedule_of,
    segment_length,
)
from lightleak.attacks.gradient_inversion.fedavg.simulate.row_priors import row_priors
from lightleak.attacks.gradient_inversion.fedavg.simulate.schedule import Schedule
from lightleak.attacks.gradient_inversion.network.checks import require_fit
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.optimize.chain_options import require_options
from lightleak.attacks.gradient_inversion.optimize.labels import (
    DUMMY_ROWS,
    expand_counts,
    geng_rows,
    require_restorable,
)
from lightleak.attacks.gradient_inversion.optimize.pooling import match_epochs
from lightleak.attacks.gradient_inversion.optimize.reach import require_reach
from lightleak.attacks.gradient_inversion.optimize.shell import Posed, RestartedInversion
from lightleak.attacks.gradient_inversion.tables.codec import RowCodec, table_codec
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.targets.spec import NetworkSpec


class FedAvgInversion(RestartedInversion[FedAvgConfig]):
    """Reconstruct the rows behind a FedAvg update (Dimitrov et al. 2022, Algorithm 2), of one client or of several.

    Args:
        name: registry name.
        citation: the paper.
        config: the settings.
        title: the field's name for it.
    """

    def __init__(self, name: str, citation: str, config: FedAvgConfig, title: str = "") -> None:
        knows = ThreatModel(
            labels="true" if config.labels == "true" else "restored",
            batch_labels=config.label_order == "batches",
            local_training=True,
        )
        super().__init__(name, citation, config, title, knows)

    def check(self, update: ClientUpdate) -> None:
        """Refuse updates this attack has no meaning for.

        Raises:
            ObservationError: a FedSGD gradient, facts that contradict each other or state too little, labels that were
                not shared, or tensors that do not fit the network.
            UnsupportedError: a loss or optimizer that is not simulated, labels that cannot be restored from this
                network, or a derivative that does not reach every column (`require_reach`).
        """
        config = self.config
        require_fedavg(self.name, update)
        epochs, steps = local_epochs(self.name, update.facts), total_steps(self.name, update.facts)
        if config.assumed_epochs is not None:
            if steps % config.assumed_epochs:
                raise ObservationError(
                    f"{self.name}: assumed_epochs must divide the update's {steps} local steps, got "
                    f"{config.assumed_epochs}"
                )
            if config.assumed_epochs != epochs:
                require_cut(self.name, rows_per_client(self.name, update.facts), steps // config.assumed_epochs)
        if config.labels == "true" and update.labels is None:
            raise ObservationError(
                f"{self.name}: the update shares no labels; restore them by labels: restored in the config, or by "
                f"--attacks.{self.name}.labels interpolated"
            )
        if config.label_order == "batches":
            if update.batch_labels is None:
                raise ObservationError(
                    f"{self.name}: the update does not share the labels of its batches (batch_labels)"
                )
            if config.assumed_epochs not in (None, epochs) or update.batch_labels.shape[1] != epochs:
                raise ObservationError(
                    f"{self.name}: label_order 'batches' needs the update's own epochs ({epochs}), got "
                    f"{config.assumed_epochs or update.batch_labels.shape[1]}"
                )
            if update.labels is None or not orders_of(update.batch_labels, update.labels):
                raise ObservationError(
                    f"{self.name}: every epoch of batch_labels must be an order of the client's labels"
                )
        network = client_network(update)
        require_fit(update, network)
        if config.labels != "true":
            require_restorable(network, "geng")
        for_images = config.total_variation or config.clip or config.prior_statistic.startswith("conv")
        if for_images and not is_image_state(update.encoder):
            raise UnsupportedError(
                f"{self.name}: total_variation, clip and prior_statistic {config.prior_statistic!r} are for images; "
                "this update is on rows of a table"
            )
        require_options(self.name, update, config)
        require_reach(self.name, update, network)

    def codec(self, update: ClientUpdate, device: torch.device) -> RowCodec:
        """Rows of a table, or images."""
        return image_codec(update) if is_image_state(update.encoder) else table_codec(update, device)

    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """See `UpdateAttack.run_many`; updates that do not tell their epochs are attacked once for every divisor."""
        for update in updates:
            self.check(update)
        results: dict[int, Reconstruction] = {}
        pairs = list(enumerate(zip(updates, seeds, strict=True)))
        for index, (update, seed) in pairs:
            if self.config.assumed_epochs is None and local_epochs(self.name, update.facts) is None:
                results[index] = self._best_of_divisors(update, seed, device, progress)
        stated = [(index, pair) for index, pair in pairs if index not in results]
        found = super().run_many([u for _, (u, _) in stated], [s for _, (_, s) in stated], device, progress)
        results |= {index: one for (index, _), one in zip(stated, found, strict=True)}
        return [results[index] for index in range(len(updates))]

    def pose(
        self, pairs: Sequence[tuple[ClientUpdate, int]], codec: RowCodec, device: torch.device, dtype: torch.dtype
    ) -> Posed:
        """A variable per row and, in a full simulation, per local epoch."""
        updates, config = [update for update, _ in pairs], self.config
        schedule, clients = schedule_of(updates[0], config), updates[0].facts.n_clients or 1
        labels = [self._labels(update, seed, schedule) for update, seed in pairs]
        priors = row_priors(config, schedule, codec)
        matcher = build_update_matcher(updates, labels, schedule, config, priors, device, dtype)
        shape = (clients, schedule.copies, schedule.rows)

        def rows(x: Tensor) -> Tensor:
            return match_epochs(codec.similarity, x.unflatten(2, shape)).flatten(2, 3)

        # A later epoch may take the labels in another order than the first, whose order the rows have.
        places = torch.stack([shared_positions(part)[:, : schedule.copies] for part in labels]).to(device)

        def variables_of(rows: Tensor) -> Tensor:
            each = rows.unflatten(2, (clients, 1, schedule.rows)).expand(-1, -1, -1, schedule.copies, -1, -1)
            return each.gather(4, places[:, None, ..., None].expand_as(each)).flatten(2, 4)

        first = torch.stack([part[:, 0].flatten() for part in labels])
        return Posed(matcher, first, clients * schedule.copies * schedule.rows, rows, variables_of)

    def bytes_per_restart(self, update: ClientUpdate) -> int:
        """See `RestartedInversion`."""
        return bytes_per_candidate(update, self.config, segment_length(update, self.config))

    def _best_of_divisors(
        self, update: ClientUpdate, seed: int, device: torch.device | str, progress: Progress | None
    ) -> Reconstruction:
        """Try every number of epochs the steps allow and keep the reconstruction of least loss (App. C.4)."""
        steps = total_steps(self.name, update.facts)
        rows = rows_per_client(self.name, update.facts)
        divisors = [e for e in range(1, steps + 1) if steps % e == 0 and can_be_cut(rows, steps // e)]
        report = PartOfWork(progress, 1 / len(divisors))
        tried = [
            FedAvgInversion(self.name, self.citation, replace(self.config, assumed_epochs=epochs))
            for epochs in divisors
        ]
        found = [one.run_many([update], [seed], device, report)[0] for one in tried]
        best = min(found, key=lambda one: one.loss)
        return replace(best, seconds=sum(one.seconds for one in found))

    def _labels(self, update: ClientUpdate, seed: int, schedule: Schedule) -> Tensor:
        """LongTensor ``[clients, epochs, rows]`` in the order in which the simulated batches take them."""
        clients = update.facts.n_clients or 1
        if self.config.label_order == "batches":
            assert update.batch_labels is not None  # `check` refuses an update without them
            return update.batch_labels.cpu()[:, : schedule.epochs]
        draws = generator(seed, "labels")
        if self.config.labels == "true":
            assert update.labels is not None  # likewise
            labels = update.labels.cpu().view(clients, -1).sort(-1).values.flatten()  # whoever sent them in which order
        else:
            labels = self._restored(update, draws)
            # Counts are restored over all clients; which client holds which label stays open.
            labels = labels[torch.randperm(len(labels), generator=draws)]
        return random_split(labels.view(clients, -1), schedule.epochs, draws)

    def _restored(self, update: ClientUpdate, draws: torch.Generator) -> Tensor:
        steps, method = total_steps(self.name, update.facts), self.config.labels
        assert method != "true"  # the caller
        if is_image_state(update.encoder):
            dummy = torch.randn(DUMMY_ROWS, NetworkSpec.from_dict(update.network).layout.width, generator=draws)
        else:
            dummy = geng_rows(TableEncoder.of(update), draws)
        return expand_counts(restore_whole_counts(update, steps, dummy, method))
