"""What a row of results.json says of the protocol and the defense behind an update."""

from pathlib import Path
from typing import Any

from lightleak.core.observations import ClientUpdate
from lightleak.core.stored import read_json
from lightleak.defenses.horizontal.dp_sgd import DPSGD
from lightleak.defenses.horizontal.shipped import FrameworkFilter
from lightleak.experiments.federation_config import DefenseConfig, ProtocolConfig, defense_of
from lightleak.targets.normalization import batch_norms, moved_buffers
from lightleak.targets.spec import NetworkSpec, build_network

PRIVACY = ("epsilon", "release_epsilon", "delta")
"""What a row says of differential privacy: of the whole training, of one update whose batch is known, their delta."""

STATISTICS_LEAVE = "statistics of a batch (such as BatchNorm's) leave the client undefended"
"""Why a filter that has an epsilon guarantees nothing."""


def protocol_facts(protocol: ProtocolConfig, n_rows: int) -> dict[str, Any]:
    """Of an update of clients with ``n_rows`` rows each; ``batch_size`` counts the rows of all.

    >>> protocol_facts(ProtocolConfig("fedavg", local_epochs=5, local_batches=4, aggregate=2), 32)["batch_size"]
    64
    """
    local = protocol.local_batch_of(n_rows)
    return {
        "protocol": protocol.name,
        "batch_size": n_rows * protocol.aggregate,
        "local_epochs": protocol.local_epochs,
        "local_batches": -(-n_rows // local),
        "local_batch_size": local,
        "n_clients": protocol.aggregate,
    }


def observed_facts(update: ClientUpdate) -> dict[str, Any]:
    """Of a recorded update, as it says itself; what it does not say is ``None``."""
    facts = update.facts
    said: dict[str, Any] = {"batch_size": facts.n_rows, "n_clients": facts.n_clients}
    said |= {"releases": len(update.releases)} if update.further_updates else {}
    if update.kind == "gradient":
        # The batch is one local step, in however many micro-batches it was computed.
        return said | {"protocol": "fedsgd", "local_epochs": 1, "local_batches": 1, "local_batch_size": facts.n_rows}
    return said | {
        "protocol": "fedavg",
        "local_epochs": facts.epochs,
        "local_batches": _batches(update),
        "local_batch_size": facts.batch_size,
    }


def _batches(update: ClientUpdate) -> int | None:
    """Local steps per epoch: from the number of steps, or from rows and batch size of clients of equal share."""
    facts = update.facts
    if facts.local_steps is not None and facts.epochs is not None:
        return facts.local_steps // facts.epochs
    if facts.batch_size is None or facts.n_clients is None:
        return None
    rows = max(facts.client_rows, default=-(-facts.n_rows // facts.n_clients))
    return -(-rows // facts.batch_size)


def observed_defense(update: ClientUpdate) -> str:
    """What a recorded update says its client did to it: ``none``, ``clipped``, or the defense in words."""
    if update.state == "noised":
        return update.facts.defense if update.facts.defense != "none" else "noised"
    return "none" if update.state == "raw" else update.state


def capture_facts(update: ClientUpdate, index: int) -> dict[str, Any]:
    """What the results row says of a captured update, number ``index`` of the captures in their order."""
    return {
        **observed_facts(update),
        "batch_index": index,
        "source": "training",
        "epoch": update.facts.epoch,
        "defense": observed_defense(update),
    }


def release_facts(config: DefenseConfig, spec: NetworkSpec, statistics: bool, releases: int = 1) -> dict[str, Any]:
    """Return what a framework's filter guarantees for ``releases`` updates of the same rows; empty for other defenses.

    It changes parameters alone. Where statistics of the batch leave the client, nothing is guaranteed, and
    ``no_guarantee`` says why.

    Args:
        config: the defense.
        spec: the network.
        statistics: whether those that the network keeps of a batch leave the client (`sends_statistics`).
        releases: number of updates.
    """
    defense = defense_of(config)
    if not isinstance(defense, FrameworkFilter) or config.point == "steps":
        return {}
    network = build_network(spec, seed=0)
    granted = defense.release_privacy(sum(p.numel() for p in network.parameters()), releases)
    if granted and statistics and (batch_norms(network) or moved_buffers(network, spec.layout.width)):
        return {"no_guarantee": STATISTICS_LEAVE}
    return granted


def defense_facts(config: DefenseConfig, training: Path, local_epochs: int = 1) -> dict[str, Any]:
    """Of a run whose clients defend themselves: the defense, its strength, and the privacy that an accountant found.

    Args:
        config: the defense.
        local_epochs: local steps of an update that a row takes part in.
        training: what the finished training left (`TRAINING_FILE`); without it nothing is said of privacy.
    """
    defense = defense_of(config)
    strength = None if defense is None else defense.strength
    facts: dict[str, Any] = {"defense": config.name, "defense_strength": strength}
    if isinstance(defense, DPSGD) and defense.noise_multiplier:
        facts |= {"release_epsilon": defense.release_epsilon(local_epochs), "delta": defense.delta}
    granted = read_json(training) if training.is_file() else {}
    return facts | {name: granted[name] for name in PRIVACY if name in granted}
