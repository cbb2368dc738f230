"""What a plan says of exact inversion: what it may expect of every batch size, before any work."""

from collections.abc import Callable, Sequence
from functools import partial

from lightleak.attacks.gradient_inversion.exact.certify.feasibility import (
    RowKind,
    expected_of_delta,
    expected_of_layers,
)
from lightleak.attacks.gradient_inversion.network.client import relu_chain
from lightleak.attacks.gradient_inversion.network.traced import trace
from lightleak.core.certificate import Feasibility
from lightleak.core.errors import UnsupportedError
from lightleak.experiments.attack_settings import shares_statistics
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.federation_config import defense_of
from lightleak.experiments.training import rows_of_clients
from lightleak.targets.functional import drops_units, without_dropout
from lightleak.targets.spec import build_network

WORDS = {
    "exact": "every row, with proof",
    "partial": "some rows, perhaps with proof",
    "approximate": "rows are optimized together; none is proven by itself",
}


def feasibility_lines(config: AuditConfig, experiment: Experiment) -> list[str]:
    """One line per batch size that is attacked, or one that says why exact inversion does not apply."""
    network, width = build_network(experiment.spec, seed=0), experiment.encoder.width
    if experiment.encoder.encoding == "quantile":
        return ["does not apply: the encoding 'quantile' is not affine in numbers"]
    layers = relu_chain(network)
    kind = RowKind.of(experiment.encoder.schema, drops_units(network))
    expect: Callable[[int], Feasibility]
    if config.protocol.is_fedavg:
        if layers is None:
            return [f"does not apply: {experiment.spec.name} here is no chain of linear layers with ReLU between them"]
        hidden = [network.get_parameter(f"{layer}.weight").shape[0] for layer in layers[:-1]]
        expect = partial(expected_of_delta, hidden=hidden, encoded_width=width, kind=kind)
    else:
        try:
            # Known statistics of a batch leave its rows apart, as running ones do.
            network = without_dropout(network.train(not shares_statistics(config)))
            shapes = trace(network, width, n_rows=1, encoder=experiment.encoder).shapes[:-1]
        except UnsupportedError as error:
            return [f"does not apply: {error}"]
        expect = partial(expected_of_layers, shapes=shapes, kind=kind)
    lines = []
    for size in attacked_sizes(config, experiment):
        found = expect(size)
        lines.append(f"{size} rows: {WORDS[found.expected]} ({found.reason})")
    if defense_of(config.defense) is not None:
        lines.append("all of this without the defence, which may take it away")
    return lines


def attacked_sizes(config: AuditConfig, experiment: Experiment) -> list[int]:
    """Rows behind the updates that are attacked, of all clients of an aggregate, each number once."""
    sizes: Sequence[int] = config.initial.batch_sizes if config.initial.batches else ()
    if config.rounds:
        sizes = (*sizes, rows_of_clients(config, experiment))
    return sorted({size * config.protocol.aggregate for size in sizes})
