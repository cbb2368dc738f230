"""The units of an audit of client updates: every attack on every observation."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightleak.callbacks.capture_store import list_captures
from lightleak.core.observations import ClientUpdate
from lightleak.defenses.horizontal import UpdateDefense
from lightleak.experiments.attack_settings import (
    label_setting,
    label_sharing,
    shares_labels,
    shares_statistics,
    with_label_setting,
)
from lightleak.experiments.clients import FreshClients, FreshFedAvgClients
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment, target_name
from lightleak.experiments.kinds.updates.captures import load_own_capture, recall_update
from lightleak.experiments.observed import Observed, shared
from lightleak.experiments.row_facts import defense_facts, observed_defense, observed_facts, protocol_facts
from lightleak.experiments.training import TRAINING_FILE, client_defense
from lightleak.experiments.unit import StoredUpdate, Unit
from lightleak.targets.own import MEMORY
from lightleak.targets.spec import NetworkSpec


def plan_units(config: AuditConfig, experiment: Experiment, folder: Path) -> list[Unit]:
    """Every attack on every observation of the run, in a fixed order."""
    client = shared(fresh_clients(config, experiment).observe)
    defended = {} if config.defense.is_none else defense_facts(config.defense, folder / TRAINING_FILE)
    observed: list[tuple[str, Callable[[], Observed], dict[str, Any]]] = []
    for size in config.initial.batch_sizes:
        for i in range(config.initial.batches):
            facts = protocol_facts(config.protocol, size)
            source = "given" if experiment.spec.name.startswith(MEMORY) else "initial"
            facts |= {"batch_index": i, "source": source, "epoch": 0, "defense": "none"}
            # An epsilon is about the whole training and its sampled batches; a fresh client sends one whole batch,
            # which `release_epsilon` is about.
            facts |= {name: value for name, value in defended.items() if name != "epsilon"}
            observed.append((f"initial-b{size}-{i:03d}", client(size, i), facts))
    root = folder / "captures"
    for i, taken in enumerate(list_captures(root) if root.is_dir() else []):
        update = recall_update(taken)
        observed.append((taken.name, StoredUpdate(load_own_capture, taken), capture_facts(update, i) | defended))
    units = []
    for attack, changed in config.attacks.items():
        options = with_label_setting(config, attack, changed)
        common = {
            "dataset": experiment.table.card.name,
            "target": target_name(experiment.spec),
            "labels": label_setting(config, options),
        }
        units += [
            Unit(f"{attack}-{where}", attack, options, observe, common | facts, config.seed)
            for where, observe, facts in observed
        ]
    return units


def units_on_captures(
    config: AuditConfig, captures: Mapping[str, tuple[ClientUpdate, Callable[[], Observed]]]
) -> list[Unit]:
    """Every attack of the config on captured updates.

    Args:
        config: the attacks.
        captures: by name the update, and what observes it with its truth.
    """
    units = []
    for attack, changed in config.attacks.items():
        options = with_label_setting(config, attack, changed)
        for i, (name, (update, observe)) in enumerate(captures.items()):
            facts = {
                "dataset": config.data.title,
                "target": target_name(NetworkSpec.from_dict(update.network)),
                "labels": label_setting(config, options, update),
                **capture_facts(update, i),
            }
            units.append(Unit(f"{attack}-{name}", attack, options, observe, facts, config.seed))
    return units


def capture_facts(update: ClientUpdate, index: int) -> dict[str, Any]:
    """What the results row says of a captured update, number ``index`` of the captures in their order."""
    return {
        **observed_facts(update),
        "batch_index": index,
        "source": "training",
        "epoch": update.facts.epoch,
        "defense": observed_defense(update),
    }


def fresh_clients(config: AuditConfig, experiment: Experiment) -> FreshClients | FreshFedAvgClients:
    """Clients of the audit that are attacked against the untrained network."""
    people, spec, defense = experiment.population(), experiment.spec, client_defense(config, experiment)
    if config.protocol.is_fedavg:
        assert defense is None or isinstance(defense, UpdateDefense)  # `AuditConfig` refuses others
        sharing = label_sharing(config)
        return FreshFedAvgClients(people, spec, config.seed, config.protocol, sharing, defense, config.defense.point)
    return FreshClients(people, spec, config.seed, shares_labels(config), shares_statistics(config), defense)
