"""What could fail in the middle of an audit of client updates, tried before it begins."""

from lightleak.core.devices import resolve_device
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.experiments.attack_settings import make_attack, require_some, with_label_setting
from lightleak.experiments.clients import FreshClients, FreshFedAvgClients
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.kinds.updates.plan import fresh_clients
from lightleak.experiments.training import check_trainer, prepare_training, rows_of_clients


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
    monitor, device = config.monitor, resolve_device(config.device)
    attacks = [(name, options, f"attacks.{name}") for name, options in config.attacks.items()]
    sizes = config.initial.batch_sizes if config.initial.batches else ()
    if config.rounds > 0:
        check_trainer(config.training.trainer, config.device, runs_beside_others=False)
        prepare_training(config, experiment)
        sizes = (*sizes, rows_of_clients(config, experiment))
        if monitor.attack is not None:
            attacks.append((monitor.attack, monitor.options, "monitor.options"))
    fresh = fresh_clients(config, experiment)
    firsts = [_first_update(fresh, size) for size in sorted(set(sizes))]
    left_out: dict[str, UsageError] = {}
    for name, options, where in attacks:
        attack = make_attack(name, with_label_setting(config, name, options), where)
        attack.check_device(device)
        try:
            for update in firsts:
                attack.check(update)
        except UsageError as error:
            if not pass_over or where == "monitor.options":
                raise
            left_out[name] = error
    return require_some(config.attacks, left_out)


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
