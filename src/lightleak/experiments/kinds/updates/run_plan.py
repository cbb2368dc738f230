"""What ``--plan`` says of an audit of client updates: its units, its training and what both take."""

import copy
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.nn.functional import one_hot

from lightleak.attacks.gradient_inversion.exact.certify.feasibility import (
    RowKind,
    expected_behind_tokens,
    expected_of_delta,
    expected_of_layers,
)
from lightleak.attacks.gradient_inversion.exact.unknown_statistics import normalized_columns
from lightleak.attacks.gradient_inversion.fedavg.exact.first_layer import require_first_layer
from lightleak.attacks.gradient_inversion.fedavg.exact.halfway import expected_halfway
from lightleak.attacks.gradient_inversion.network.client import relu_chain, smooth_chain
from lightleak.attacks.gradient_inversion.network.dropout import require_dropout_behind
from lightleak.attacks.gradient_inversion.network.tokens import trace_any
from lightleak.callbacks.capture_store import save_capture
from lightleak.core.certificate import Feasibility
from lightleak.core.errors import UnsupportedError
from lightleak.core.grouping import by_key
from lightleak.data.codes import column_notices
from lightleak.experiments.attack_settings import shares_statistics
from lightleak.experiments.campaign import packs_without_a_run
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment, target_name
from lightleak.experiments.federation_config import defense_of
from lightleak.experiments.kinds.updates.plan import client_sizes, plan_units
from lightleak.experiments.probe import Probed, RunPlan, bytes_words, estimate, probe_training, seconds_words
from lightleak.experiments.training import client_rows, data_module, places_of_training
from lightleak.experiments.unit import Unit, kept_cells
from lightleak.targets.functional import drops_units, without_dropout
from lightleak.targets.spec import build_network

MONITOR = "monitor"


def plan_updates(config: AuditConfig, experiment: Experiment, device: torch.device) -> RunPlan:
    """See `lightleak.experiments.kind.Kind.plan`."""
    fresh = plan_units(config, experiment, Path(os.devnull))
    captured = captured_units(config, experiment)
    packs = packs_without_a_run([*fresh, *captured], device)
    table, protocol = experiment.table, config.protocol
    of_fresh = sum(pack[0].facts["source"] != "training" for pack in packs)
    lines = {
        "table": experiment.table_words,
        "target": f"{target_name(experiment.spec)}, {config.rounds} epochs at batch size {config.training.batch_size}",
        "attacks": f"{', '.join(config.attacks)}, labels {config.labels}, on {device}",
        "units": f"{len(fresh)} on fresh clients in {of_fresh} packs, {len(captured)} on the training run",
    }
    if protocol.is_fedavg:
        rows = client_rows(config, experiment)
        lines["target"] = (
            f"{target_name(experiment.spec)}, {config.rounds} rounds of {protocol.clients_of_round} of "
            f"{protocol.clients} clients with {rows} rows, {protocol.local_epochs} local epochs in batches of "
            f"{protocol.local_batch_of(rows)}"
        )
    if captured and config.capture.is_whole:
        epochs = {epoch for epoch in config.capture.epochs if epoch < config.rounds}
        kept, size = len(epochs) * updates_of_epoch(config, experiment), stored_bytes(captured[0])
        lines["captures"] = f"{kept} updates of {bytes_words(size)}, {bytes_words(kept * size)} on disk"
    if notices := column_notices(table.possible_codes, table.possible_identifiers):
        lines["columns"] = ". ".join(notices)
    defense = defense_of(config.defense)
    if defense is not None:
        lines["defense"] = defense.describe()
    exact = [("" if i else "exact", line) for i, line in enumerate(feasibility_lines(config, experiment))]
    return RunPlan([*lines.items(), *exact], partial(_probe, config, experiment, packs, device))


def _probe(
    config: AuditConfig, experiment: Experiment, packs: list[list[Unit]], device: torch.device, seconds: float
) -> Probed:
    monitored = [[unit] for unit in monitored_units(config, experiment)]
    found = estimate([*packs, *monitored], device, kept_cells(config.redact), seconds)
    attacks = [one for one in found if one.source != MONITOR]
    watched = [one for one in found if one.source == MONITOR]
    if not config.rounds:
        return Probed([attacks])
    epoch = probe_training(config, experiment, places_of_training(config).world)
    before = config.rounds * epoch.seconds + sum(sum(one.durations) for one in watched)
    epochs = f"{config.rounds} {'rounds' if config.protocol.is_fedavg else 'epochs'}"
    batches = "" if epoch.steps == 1 else f" of {epoch.steps} batches"
    memory = "" if epoch.memory is None else f"; {bytes_words(epoch.memory)} of memory"
    extra = ", with the monitor's attacks" if watched else ""
    words = f"{epochs}{batches}, {seconds_words(epoch.seconds)} each{extra}: {seconds_words(before)}{memory}"
    return Probed([attacks], before, [("training", words)], watched)


def captured_units(config: AuditConfig, experiment: Experiment) -> list[Unit]:
    """Stand-ins for the attacks on updates that the training will record: fresh clients with as many rows."""
    if not config.rounds:
        return []
    of_attacks = by_key(_stand_ins(config, experiment, "training"), lambda unit: unit.attack)
    return [unit for attack, units in of_attacks.items() for unit in units[: config.capture.sample.get(attack)]]


def monitored_units(config: AuditConfig, experiment: Experiment) -> list[Unit]:
    """The same for the attacks of the monitor."""
    monitor = config.monitor
    if not config.rounds or monitor.attack is None:
        return []
    changed = replace(config, attacks={monitor.attack: monitor.options})
    return _stand_ins(changed, experiment, MONITOR, monitor.every)


def _stand_ins(config: AuditConfig, experiment: Experiment, source: str, every: int = 1) -> list[Unit]:
    """Every attack on fresh clients in place of the updates of all captured epochs, or of every so many."""
    epochs = sorted({epoch for epoch in config.capture.epochs if epoch < config.rounds and epoch % every == 0})
    rows = client_rows(config, experiment)
    of_an_epoch = updates_of_epoch(config, experiment)
    initial = replace(config.initial, batch_sizes=(rows,), batches=of_an_epoch)
    alike = plan_units(replace(config, initial=initial), experiment, Path(os.devnull))
    return [
        replace(unit, id=f"{unit.id}-{epoch}", facts={**unit.facts, "source": source, "epoch": epoch})
        for epoch in epochs
        for unit in alike
    ]


def updates_of_epoch(config: AuditConfig, experiment: Experiment) -> int:
    """Updates that are captured in one epoch, or round."""
    if not config.capture.is_whole:
        return config.capture.per_epoch * places_of_training(config).world
    if config.protocol.is_fedavg:
        return config.protocol.updates_of_round
    return -(-len(data_module(config, experiment).train_indices) // config.training.batch_size)


def stored_bytes(unit: Unit) -> int:
    """Disk space of the unit's update with the rows behind it."""
    with TemporaryDirectory() as folder:
        save_capture(folder, *unit.observe())
        return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


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
    fedavg = config.protocol.is_fedavg
    try:
        # Known statistics of a batch leave its rows apart, as running ones do, and so do those of numbers alone.
        trained = without_dropout(copy.deepcopy(network).train())
        is_open = not fedavg and not shares_statistics(config) and bool(normalized_columns(trained, experiment.encoder))
        mode = fedavg or not (is_open or shares_statistics(config))
        by_rows = without_dropout(copy.deepcopy(network).train(mode))
        traced = trace_any(by_rows, width, 1, experiment.encoder)
        if fedavg:
            require_first_layer(traced, "weights move with every local step")
        if kind.drops_units:
            require_first_layer(traced, "clients train with dropout")
            require_dropout_behind(network, traced.names[0], width)
    except UnsupportedError as error:
        return [f"does not apply: {error}"]
    shapes = traced.shapes[:-1]

    def expect(n_rows: int) -> Feasibility:
        if fedavg and layers is not None:
            hidden = [network.get_parameter(f"{layer}.weight").shape[0] for layer in layers[:-1]]
            return expected_of_delta(n_rows, hidden, width, kind)
        if fedavg and _is_fitted(config, network):
            steps = config.protocol.local_training(n_rows).steps(n_rows)
            return expected_halfway(n_rows, steps, [shape[0] for shape in shapes], width, kind)
        if fedavg:
            return expected_of_delta(n_rows, [shapes[0][0]], shapes[0][1] - 1, kind)
        of_layers = expected_of_layers if traced.first_sees_cells else expected_behind_tokens
        return of_layers(n_rows, shapes, kind)

    lines = []
    for size in [size * config.protocol.aggregate for size in client_sizes(config, experiment)]:
        found = expect(size)
        lines.append(f"{size} rows: {WORDS[found.expected]} ({found.reason})")
    if is_open:
        lines.append("numbers that BatchNorm normalizes up to a shift and a scale: its statistics are not shared")
    faint = faint_share(trained, experiment)
    if faint >= LEAST_SHARE:
        lines.append(
            f"{100 * faint:.0f}% of the training rows have less than a hundredth of the largest row's gradient in the "
            "untrained network, which is sure of them: they may stay without proof"
        )
    if defense_of(config.defense) is not None:
        lines.append("all of this without the defense, which may take it away")
    return lines


FAINT, LEAST_SHARE, SAMPLED = 1e-2, 0.01, 512
"""A row's gradient, relative to the largest row's, below which it may not be proven; the share of such rows from which
on a plan speaks of them; rows that are asked."""


def faint_share(network: nn.Module, experiment: Experiment) -> float:
    """Share of training rows of whose label the network is so sure that their gradient is faint.

    Where the error of the logits is small, so is that of every layer. Of pytorch-tabular's CategoryEmbedding, whose
    embeddings begin at N(0, 1), 24, 28 and 20 of 160 rows of batches of 8 were faint (Adult, German, Bank), and 21, 18
    and 16 were not proven.
    """
    people = experiment.population
    inputs, labels = people.inputs[:SAMPLED], people.labels[:SAMPLED]
    with torch.no_grad():
        p = copy.deepcopy(network)(inputs).softmax(-1)
    errors = (p - one_hot(labels, p.shape[-1])).norm(dim=-1)
    return float((errors <= FAINT * errors.max()).double().mean())


def _is_fitted(config: AuditConfig, network: nn.Module) -> bool:
    """Whether `exact_fedavg` fits rows to all layers of a client's update (`halfway.is_served`)."""
    chain, protocol = smooth_chain(network), config.protocol
    is_plain = protocol.aggregate == 1 and not protocol.momentum and not drops_units(network)
    return chain is not None and len(chain[0]) > 1 and is_plain
