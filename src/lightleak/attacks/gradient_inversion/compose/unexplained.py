"""How much of an update a reconstruction leaves unexplained: judges of attacks that need no truth."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.fedavg.checks import local_epochs, rows_per_client, total_steps
from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain
from lightleak.attacks.gradient_inversion.optimize.chain_options import chain_options
from lightleak.attacks.gradient_inversion.optimize.problem import build_matcher
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed
from lightleak.data.encoder import TableEncoder
from lightleak.protocols.client_training import LocalTraining, row_order, train_client
from lightleak.protocols.local_pass import local_pass

RIDGE = 0.1
"""Of the whitening in `misfit`, as share of the largest eigenvalue. Measured on Adult (batches of 16, 48 and 96 rows,
four each, five attacks): of 120 pairs the plain distance prefers the worse reconstruction in 20 without noise, in 26
with noise of 1e-4 and in 23 with 1e-3; whitened in 15, 18 and 18. A ridge of 0.01 lets noise in: 13, 21 and 25."""

ORDERS = 4
"""Orders in which simulated clients take their rows: an attack does not know theirs, and one could suit one guess."""


def unexplained_share(update: ClientUpdate, reconstruction: Reconstruction, seed: int = 0) -> float:
    """Norm of the update minus what the reconstructed rows would have sent, relative to the update's.

    The rows are taken as they stand in the table, each with its own label, and the client's work on them is repeated in
    float64. Of a FedAvg update it is repeated in `ORDERS` random orders, and the best of them is reported.

    Args:
        update: one client's update, or an aggregate of clients with equally many rows.
        reconstruction: rows and labels of all of it.
        seed: of the orders.
    """
    encoder = TableEncoder.of(update)
    rows, labels = encoder.encode(reconstruction.rows).double(), reconstruction.labels.cpu()
    if update.kind == "gradient":
        return _distance(_gradient(update, rows, labels), update)
    return min(_distance(_delta(update, rows, labels, derive_seed(seed, i)), update) for i in range(ORDERS))


def misfit(update: ClientUpdate, reconstruction: Reconstruction, seed: int = 0) -> float:
    """A distance to choose between reconstructions by: the smaller, the more cells tend to be right.

    The plain distance is ruled by the few directions that all rows share. Of the gradient of a plain ReLU network it is
    therefore whitened over random rows of the schema, so that what distinguishes rows counts as much; of everything
    else it is `unexplained_share`. Arguments as there.
    """
    encoder = TableEncoder.of(update)
    affine = encoder.encoding != "quantile"
    if update.kind != "gradient" or len(relu_chain(client_network(update)) or []) < 2 or not affine:
        return unexplained_share(update, reconstruction, seed)
    config, cpu = InversionConfig(objective="squared_error", whitening=RIDGE, labels="geng"), torch.device("cpu")
    whitening = chain_options([update], config, cpu, torch.float64).whitening
    labels = reconstruction.labels.cpu().unsqueeze(0)
    matcher = build_matcher([update], labels, config, cpu, torch.float64, whitening=whitening)
    value, _ = matcher.value_and_grad(encoder.encode(reconstruction.rows).double()[None, None])
    return float(value)


def _gradient(update: ClientUpdate, rows: Tensor, labels: Tensor) -> dict[str, Tensor]:
    network = client_network(update).double()
    return local_pass(network, _double(update.parameters), _double(update.buffers), rows, labels).gradient


def _delta(update: ClientUpdate, rows: Tensor, labels: Tensor, seed: int) -> dict[str, Tensor]:
    name, facts = "unexplained_share", update.facts
    size, epochs = rows_per_client(name, facts), local_epochs(name, facts)
    steps = total_steps(name, facts)
    # Where epochs are not stated, steps over all rows move the weights about as far.
    batches = 1 if epochs is None else steps // epochs
    training = LocalTraining(
        steps // batches, -(-size // batches), facts.learning_rate or 1.0, facts.momentum, facts.weight_decay
    )
    network = client_network(update).double()
    clients = [
        train_client(
            network,
            _double(update.parameters),
            _double(update.buffers),
            x,
            y,
            training,
            row_order(training, len(x), derive_seed(seed, client)),
            dropout=0,
        ).delta
        for client, (x, y) in enumerate(zip(rows.split(size), labels.split(size), strict=True))
    ]
    return {name: torch.stack([delta[name] for delta in clients]).mean(0) for name in clients[0]}


def _distance(found: dict[str, Tensor], update: ClientUpdate) -> float:
    observed = _double(update.update)
    missing = sum(float((found[name].cpu() - value).square().sum()) for name, value in observed.items())
    whole = sum(float(value.square().sum()) for value in observed.values())
    return (missing / whole) ** 0.5 if whole > 0 else float(missing > 0)


def _double(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.cpu().double() if t.is_floating_point() else t.cpu() for name, t in tensors.items()}
