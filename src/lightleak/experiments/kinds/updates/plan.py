"""The units of an audit of client updates: every attack on every observation."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightleak.callbacks.capture_store import list_captures, load_update
from lightleak.core.devices import resolve_device
from lightleak.core.errors import LightLeakError, ObservationError, UsageError, placed
from lightleak.core.observations import ClientUpdate
from lightleak.core.registry import MEMORY
from lightleak.core.seeds import numpy_generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.defenses.horizontal.dp_sgd import DPSGD
from lightleak.experiments.attack_settings import (
    OF_MONITOR,
    check_attack,
    chosen_attacks,
    label_setting,
    label_sharing,
    require_some,
    sends_statistics,
    shares_labels,
    shares_statistics,
    with_label_setting,
)
from lightleak.experiments.clients import FreshClients, FreshFedAvgClients
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment, target_name
from lightleak.experiments.federation_config import defense_of
from lightleak.experiments.observed import Observed, named_captures, recall, shared, version_of
from lightleak.experiments.row_facts import capture_facts, defense_facts, protocol_facts, release_facts
from lightleak.experiments.training import (
    TRAINING_FILE,
    check_trainer,
    check_training,
    client_defense,
    client_rows,
    prepare_training,
)
from lightleak.experiments.unit import StoredUpdate, Unit
from lightleak.protocols.records import load_truth
from lightleak.protocols.replay import require_replay
from lightleak.targets.own import trust_network
from lightleak.targets.spec import NetworkSpec


def plan_units(config: AuditConfig, experiment: Experiment, folder: Path) -> list[Unit]:
    """Every attack on every observation of the run, in a fixed order."""
    client = shared(fresh_clients(config, experiment).observe)
    releases, defended, stated = config.initial.releases, dict[str, Any](), (config.defense, experiment.spec)
    if not config.defense.is_none:
        defended = defense_facts(config.defense, folder / TRAINING_FILE, config.protocol.local_epochs)
    observed: list[tuple[str, Callable[[], Observed], dict[str, Any], bool]] = []
    captures = list_captures(root) if (root := folder / "captures").is_dir() else []
    order = numpy_generator(config.seed, "sample").permutation(len(captures)).tolist()
    for size in config.initial.batch_sizes:
        for i in range(config.initial.batches):
            facts = protocol_facts(config.protocol, size)
            source = "given" if experiment.spec.name.startswith(MEMORY) else "initial"
            facts |= {"batch_index": i, "source": source, "epoch": 0, "defense": "none"}
            facts |= {"releases": releases} if releases > 1 else {}
            # An epsilon is about the whole training and its sampled batches; a fresh client sends one whole batch,
            # which `release_epsilon` is about.
            facts |= {name: value for name, value in defended.items() if name != "epsilon"}
            facts |= release_facts(*stated, sends_statistics(config), releases)
            observed.append((f"initial-b{size}-{i:03d}", client(size, i), facts, False))
    if isinstance(defense_of(config.defense), DPSGD) and not config.protocol.is_fedavg:
        # Of the training alone: a fresh client has the rows it is given.
        defended |= {"planned_batch_size": config.training.batch_size}
    defended |= release_facts(*stated, sends_statistics(config, is_training=True))
    for i, taken in enumerate(captures):
        update = recall_update(taken)
        facts, observe = capture_facts(update, i) | defended, StoredUpdate(load_own_capture, taken)
        observed.append((taken.name, observe, facts, config.capture.is_whole))
    units = []
    for attack, changed in config.attacks.items():
        options = with_label_setting(config, attack, changed)
        skipped = {captures[i].name for i in order[config.capture.sample.get(attack, len(order)) :]}
        common = {
            "dataset": experiment.table.card.name,
            "target": target_name(experiment.spec),
            "labels": label_setting(config, options),
        }
        units += [
            Unit(f"{attack}-{where}", attack, options, observe, common | facts, config.seed, keeps_people=keeps_people)
            for where, observe, facts, keeps_people in observed
            if where not in skipped
        ]
    return units


def stored_units(config: AuditConfig, root: Path) -> list[Unit]:
    """Every attack of the config on every capture below ``root``."""
    trust_network(config.target.network)  # the config is the user's; what a capture names is not trusted
    captures = {}
    for name, path in named_captures(root).items():
        update = recall_update(path)
        if is_image_state(update.encoder):
            raise UsageError(
                f"{path} holds an update on images; attack it from Python, ATTACKS.get(name)().run(update)"
            )
        captures[name] = update, StoredUpdate(load_capture, path)
    return units_on_captures(config, captures)


def units_on_captures(
    config: AuditConfig, captures: Mapping[str, tuple[ClientUpdate, Callable[[], Observed]]]
) -> list[Unit]:
    """Every attack of the config on captured updates.

    Args:
        config: the attacks.
        captures: by name the update, and what observes it with its truth.

    Raises:
        UsageError: they are of different tables, whose results would be summarized as one.
    """
    require_one_table({name: update.encoder for name, (update, _) in captures.items()})
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
            units.append(Unit(f"{attack}-{name}", attack, options, observe, facts, config.seed, keeps_people=True))
    return units


def require_one_table(encoders: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `UsageError` where two captures, by name, are of tables with other columns or kinds of columns."""
    tables = {name: _columns(state) for name, state in encoders.items()}
    first, *others = tables or ("",)
    for other in others:
        pair = tables[first], tables[other]
        if pair[0] != pair[1]:
            differing = [name for name in {**pair[0], **pair[1]} if pair[0].get(name) != pair[1].get(name)]
            raise UsageError(
                f"captures must be of one table, got {first} and {other}, which differ in {differing[0]!r}"
                f"{f' and {len(differing) - 1} more columns' if differing[1:] else ''}; attack each table's captures "
                "into a run folder of its own"
            )


def _columns(encoder: Mapping[str, Any]) -> dict[str, str]:
    """Kind of every column of a captured schema, by name; categories and bounds may be those of other rows."""
    schema = encoder.get("schema", {})
    columns = [*schema.get("columns", ()), *([schema["label"]] if "label" in schema else ())]
    return {column["name"]: column["kind"] for column in columns}


def fresh_clients(config: AuditConfig, experiment: Experiment) -> FreshClients | FreshFedAvgClients:
    """Clients of the audit that are attacked against the untrained network."""
    people, spec, defense = experiment.population, experiment.spec, client_defense(config, experiment)
    if config.protocol.is_fedavg:
        sharing = label_sharing(config)
        return FreshFedAvgClients(people, spec, config.seed, config.protocol, sharing, defense, config.defense.point)
    rounds = config.initial.releases, config.initial.server_rate
    return FreshClients(people, spec, config.seed, shares_labels(config), shares_statistics(config), defense, *rounds)


def recall_update(folder: Path) -> ClientUpdate:
    """Return the observation of a capture, read once; errors as for `load_update`."""
    return recall(version_of(folder / "observation"), lambda: (load_update(folder), None))[0]


def load_capture(folder: Path) -> Observed:
    """Observation and, where it is stored with it, the truth of one capture; each is read and checked once.

    Raises:
        ObservationError: a file is missing or damaged, or the recorded rows do not reproduce the captured update:
            against a truth that is not the update's, no score means anything. Only what a defense has changed cannot
            be reproduced; it passes. Or a row lies beyond the bounds that the update states.
    """
    update, truth = _recall_capture(folder)
    if truth is not None and not is_image_state(update.encoder):
        with placed(str(folder), ObservationError):
            TableEncoder.of(update).require_within_bounds(truth.inputs)
    return update, truth


def _recall_capture(folder: Path) -> Observed:
    if not (folder / "truth").is_dir():
        return recall_update(folder), None
    return recall(version_of(folder), lambda: _checked(folder, recall_update(folder)))


def _checked(folder: Path, update: ClientUpdate) -> Observed:
    truth = load_truth(folder / "truth")
    if update.state != "noised":
        require_replay(update, truth)
    elif len(truth.inputs) != update.facts.n_rows:
        raise ObservationError(
            f"{folder}: the update speaks of {update.facts.n_rows} rows, the recorded ones are {len(truth.inputs)}"
        )
    return update, truth


def load_own_capture(folder: Path) -> Observed:
    """As `load_capture`, for an audit's own captures: without a truth a row would have no scores, and be kept.

    As those of fresh clients, rows may lie beyond the bounds that the server assumes.

    Raises:
        ObservationError: also where the truth is gone.
    """
    update, truth = _recall_capture(folder)
    if truth is None:
        raise ObservationError(
            f"{folder} has no truth to score against (a redacted run removes it when all is done): "
            "choose another --output, or attack it with `lightleak attack`"
        )
    return update, truth


def check_served(config: AuditConfig, experiment: Experiment, pass_over: bool = False) -> dict[str, str]:
    """Try everything that could fail in the middle of a run: the Trainer, the batches, every attack on a first update.

    Args:
        config: the experiment.
        experiment: what it names, made.
        pass_over: return the attacks that do not apply instead of refusing the config, unless none applies.

    Returns:
        Why attacks are left out, by name.

    Raises:
        UsageError: what cannot be served, and why.
    """
    device = resolve_device(config.device)
    if config.rounds > 0:
        trainer = check_trainer(config.training.trainer, config.device, runs_beside_others=False)
        check_training(prepare_training(config, experiment), trainer)
    fresh = fresh_clients(config, experiment)
    firsts = [_first_update(fresh, size) for size in client_sizes(config, experiment)]
    left_out: dict[str, UsageError] = {}
    for name, attack, where in chosen_attacks(config):
        if where == OF_MONITOR and not config.rounds:
            continue
        attack.check_device(device)
        try:
            for update in firsts:
                check_attack(attack, update)
        except UsageError as error:
            if not pass_over or where == OF_MONITOR:
                raise
            left_out[name] = error
    return require_some(config.attacks, left_out)


def client_sizes(config: AuditConfig, experiment: Experiment) -> list[int]:
    """Rows of the clients whose updates are attacked, each number once."""
    sizes = set(config.initial.batch_sizes if config.initial.batches else ())
    return sorted(sizes | ({client_rows(config, experiment)} if config.rounds else set()))


def _first_update(fresh: FreshClients | FreshFedAvgClients, size: int) -> ClientUpdate:
    try:
        return fresh.observe(size, 0)[0]
    except LightLeakError:
        raise
    except Exception as error:  # a user's forward may raise anything
        said = " ".join(str(error).split())
        raise UsageError(
            f"the network cannot compute what a client of {size} rows sends: {type(error).__name__}: {said}"
        ) from error
