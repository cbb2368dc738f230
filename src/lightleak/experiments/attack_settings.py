"""What a config says of its attacks: checked before any work, completed with the config's label setting."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from lightleak.attacks import ATTACKS, UpdateAttack
from lightleak.attacks.model_inversion import INVERSION_ATTACKS
from lightleak.attacks.property_inference import PROPERTY_ATTACKS
from lightleak.core.errors import LightLeakError, UnsupportedError, UsageError, placed
from lightleak.core.observations import ClientUpdate
from lightleak.core.registry import Registry
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.federation_config import LABEL_METHODS
from lightleak.protocols.fedavg import ShareLabels

OF_MONITOR = "monitor.options"
"""Place of the monitor's settings in a config."""


def make_attack(name: str, options: Mapping[str, Any], where: str) -> UpdateAttack:
    """The attack with its settings; ``where`` names their place in the config.

    Raises:
        UsageError: an unknown attack or setting, or a value of the wrong type or range.
    """
    if name not in ATTACKS and name in _of_other_kinds():
        raise UsageError(f"{where}: {name} is no attack on client updates; it needs kind: {_of_other_kinds()[name]}")
    make = ATTACKS.get(name)
    with placed(where):
        return make(**options)


def _of_other_kinds() -> dict[str, str]:
    return {name: "vertical" for name in PROPERTY_ATTACKS} | {name: "released-model" for name in INVERSION_ATTACKS}


def check_attacks(attacks: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `UsageError` for an unknown attack or setting."""
    for name, options in attacks.items():
        make_attack(name, options, f"attacks.{name}")


def check_attack(attack: UpdateAttack, update: ClientUpdate) -> None:
    """Check whether an attack applies to an update.

    Raises:
        UsageError: it does not, or the update's network raised something, whose type and message are given.
    """
    try:
        attack.check(update)
    except LightLeakError:
        raise
    except Exception as error:  # a user's network may raise anything
        said = " ".join(str(error).split())
        raise UsageError(f"{attack.name}: cannot be tried on this network ({type(error).__name__}: {said})") from error


def require_some(attacks: Collection[str], left_out: Mapping[str, UsageError]) -> dict[str, str]:
    """Return why attacks are left out, by name; refuse where that leaves none.

    Args:
        attacks: names of all that were chosen.
        left_out: those that do not apply, with what they raised.

    Raises:
        UsageError: no attack is left; of a single attack its own error.
    """
    if set(attacks) <= set(left_out):
        if len(left_out) == 1:
            raise next(iter(left_out.values()))
        reasons = "; ".join(f"{name}: {error}" for name, error in left_out.items())
        raise UnsupportedError(f"none of the attacks applies. {reasons}")
    return {name: str(error).removeprefix(f"{name}: ") for name, error in left_out.items()}


def with_label_setting(config: AuditConfig, attack: str, options: dict[str, Any]) -> dict[str, Any]:
    """The attack's settings with the config's label settings, where the attack uses labels and sets none itself."""
    made = ATTACKS.get(attack)()
    known = made.options()
    if "labels" not in known:
        return options
    stage = made.label_stage("delta" if config.protocol.is_fedavg else "gradient")
    if stage is not None:
        return _of_composed(config, options, stage)
    on_fedavg = "label_order" in known
    restored = config.label_method or LABEL_METHODS["fedavg" if on_fedavg else "fedsgd"][0]
    chosen = {"labels": "true" if config.labels == "true" else restored, **options}
    if on_fedavg and chosen["labels"] == "true":
        return {"label_order": config.protocol.label_order, **chosen}
    return chosen


def _of_composed(config: AuditConfig, options: dict[str, Any], stage: str) -> dict[str, Any]:
    """The same for an attack of which one stage alone uses labels."""
    labels = options.get("labels", config.labels)
    last: dict[str, Any] = {}
    if labels == "restored" and config.label_method is not None:
        last = {"labels": config.label_method}
    elif labels == "true" and config.protocol.is_fedavg:
        last = {"label_order": config.protocol.label_order}
    of_stage = {**last, **(options.get(stage) or {})}
    return {"labels": labels, **options, **({stage: of_stage} if of_stage else {})}


def label_setting(config: AuditConfig, options: Mapping[str, Any], update: ClientUpdate | None = None) -> str:
    """``true`` or ``restored``: what an attack with these completed settings does, for its results row.

    Args:
        config: says it of an attack without such a setting, which takes labels where an update carries them.
        options: of the attack.
        update: one that was recorded: without labels, whatever is said of them was restored.
    """
    if update is not None and update.labels is None:
        return "restored"
    return "true" if options.get("labels", config.labels) == "true" else "restored"


def shares_labels(config: AuditConfig) -> bool:
    """Whether updates carry their labels: only where an attack, or the monitor, is given the true ones."""
    return any(attack.options().get("labels") == "true" for _, attack, _ in chosen_attacks(config))


def label_sharing(config: AuditConfig) -> ShareLabels:
    """What FedAvg updates say of their labels: the most that an attack, or the monitor, is given."""
    given = [attack for _, attack, _ in chosen_attacks(config) if attack.options().get("labels") == "true"]
    if not given:
        return "none"
    stages = [(attack.options(), attack.label_stage("delta")) for attack in given]
    orders = [options.get("label_order", options.get(stage or "", {}).get("label_order")) for options, stage in stages]
    return "batches" if "batches" in orders else "counts"


def shares_statistics(config: AuditConfig) -> bool:
    """Whether updates carry their BatchNorm statistics: of FedSGD, where an attack or the monitor is to know them."""
    if config.protocol.is_fedavg:
        return False
    return any(attack.threat_model.batch_statistics for _, attack, _ in chosen_attacks(config))


def sends_statistics(config: AuditConfig, is_training: bool = False) -> bool:
    """Whether statistics of a client's batch leave it, if its network has any; no defense changes them.

    Besides what `shares_statistics`, the server averages the running statistics of FedAvg clients, and those of a
    FedSGD training are in the buffers of its next update.

    Args:
        config: the audit.
        is_training: of a client in a training, not of a fresh one.
    """
    return is_training or config.protocol.is_fedavg or shares_statistics(config)


def chosen_attacks(config: AuditConfig) -> list[tuple[str, UpdateAttack, str]]:
    """Return every attack, and the monitor's, as (name, attack, place of its settings in the config)."""
    chosen = [(name, options, f"attacks.{name}") for name, options in config.attacks.items()]
    if config.monitor.attack is not None:
        chosen.append((config.monitor.attack, config.monitor.options, OF_MONITOR))
    return [
        (name, make_attack(name, with_label_setting(config, name, options), where), where)
        for name, options, where in chosen
    ]


T = TypeVar("T")


def made_from_label(registry: Registry[Callable[..., T]], label: str, options: Mapping[str, Any]) -> T:
    """Return the attack that a label of the config names, or that its setting ``attack`` names.

    >>> made_from_label(PROPERTY_ATTACKS, "few rows", {"attack": "provfl_b", "sample_size": 200}).name
    'provfl_b'

    Raises:
        UsageError: an unknown attack or setting, or a value of the wrong type or range.
    """
    settings = dict(options)
    with placed(f"attacks.{label}"):
        make = registry.get(settings.pop("attack", label))
        try:
            return make(**settings)
        except TypeError as error:  # a factory with named arguments refuses others
            raise UsageError(str(error)) from error
