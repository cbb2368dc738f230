"""The short way in from Python: from a DataFrame and a module to a report, and configs as the command reads them."""

import io
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from torch import nn

from lightleak.callbacks.capture_store import Capture, load_update
from lightleak.core.arguments import require_kind, require_path, whole_number
from lightleak.core.console import SteadyConsole
from lightleak.core.errors import DataError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.people import load_people, read_people, risks_table
from lightleak.core.private_files import private_files
from lightleak.core.registry import MEMORY
from lightleak.core.results import kind_name
from lightleak.data.column import MissingPolicy
from lightleak.data.described_inputs import describe_inputs
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.own_table import hand_over_table
from lightleak.data.prepared import PreparedTable
from lightleak.data.schema import TableSchema
from lightleak.data.user_table import load_table
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.kinds.updates.kind import check_units
from lightleak.experiments.kinds.updates.memory import run_updates, updates_config
from lightleak.experiments.kinds.updates.plan import stored_units
from lightleak.experiments.leakage_callback import LeakageCallback
from lightleak.experiments.load import KINDS, kind_of
from lightleak.experiments.load import load_config as load_audit
from lightleak.experiments.observed import find_captures
from lightleak.experiments.run import run_audit, run_in_folder
from lightleak.experiments.settings import read_settings, setting_key
from lightleak.experiments.terminal import print_results
from lightleak.experiments.unit import Observed
from lightleak.report.build import FILE_NAME as REPORT_FILE
from lightleak.targets.client_form import ClientForm
from lightleak.targets.own import hand_over, is_own, trust_network, uncompiled
from lightleak.targets.own_check import ROWS, require_auditable
from lightleak.targets.single_logit import with_two_logits
from lightleak.targets.spec import NETWORKS
from lightleak.targets.trainer import quiet_lightning

__all__ = [
    "Leakage",
    "LeakageCallback",
    "PreparedTable",
    "attack_updates",
    "audit_model",
    "describe_inputs",
    "load_config",
    "prepare",
    "run_config",
]

Model = nn.Module | str | Callable[[int, int], nn.Module]
"""A module from encoded rows ``[n, width]`` to logits, what makes one of width and number of classes, or a name."""

Attacks = str | Sequence[str] | Mapping[str, Mapping[str, Any]]
"""Names, or names with settings, as in a config."""

ANY_DEVICE = "auto"
"""A GPU where there is one."""

STUDY = "study"
"""The section that makes a config a study."""

TERMINAL = 100
"""Columns of the table that printing a `Leakage` gives."""


@dataclass(frozen=True)
class Leakage:
    """What a run found; printing it gives the table that the command prints.

    Attributes:
        folder: the run folder, readable by its owner only.
        results: the content of ``results.json``.
    """

    folder: Path
    results: Mapping[str, Any]

    @property
    def report(self) -> Path:
        """The report, one self-contained HTML file."""
        return self.folder / REPORT_FILE

    @property
    def rows(self) -> pd.DataFrame:
        """One row per attacked update and attack."""
        return pd.DataFrame(self.results["rows"])

    @property
    def people(self) -> pd.DataFrame:
        """One row per attack and person behind the updates: seen and proven how often, first when, and the verdict.

        Raises:
            UsageError: the people are not known (an audit needs ``capture.coverage`` ``epoch`` or ``rounds``, captured
                updates their private rows), or the run is redacted.
        """
        return load_people(self.folder)

    @property
    def risks(self) -> pd.DataFrame:
        """One row per attack and risk of WP216 (singling out, linkage, inference): main attack, control and baseline.

        Each is a share with its 95% interval (``main``, ``main_low``, ``main_high``, ``main_n``, and so on); what was
        not measured is missing. No line where `people` are not known; redacted runs have them too.
        """
        return risks_table(read_people(self.results, str(self.folder)))

    @property
    def left_out(self) -> Mapping[str, str]:
        """Attacks that do not apply, each with what stands in the way; empty where all apply."""
        return dict(self.results.get("left_out", {}))

    @property
    def summary(self) -> pd.DataFrame:
        """One row per group of alike updates; of every score its mean and 95% interval (``_low``, ``_high``)."""
        return pd.DataFrame([_flat(group) for group in self.results["summary"]])

    def __str__(self) -> str:
        kind = KINDS.get(kind_name(next((row.get("kind") for row in self.results["rows"]), None)))
        if "study" in self.results or kind is None:
            return f"{len(self.results['rows'])} results; report: {self.report}"
        text = io.StringIO()
        print_results(kind.tables(self.results), self.results, Console(file=text, width=TERMINAL, color_system=None))
        return text.getvalue().rstrip()


def prepare(
    data: pd.DataFrame | Path | str,
    label: str | int,
    *,
    schema: TableSchema | Path | str | None = None,
    drop: Sequence[str | int] = (),
    missing: MissingPolicy = "refuse",
    encoding: Encoding = "standardized",
    seed: int = 0,
    name: str | None = None,
    categorical: Sequence[str | int] = (),
    sensitive: Sequence[str | int] = (),
) -> PreparedTable:
    """Read your own table and fit its encoder.

    Args:
        data: a DataFrame, or a CSV, TSV or Parquet file.
        label: name of the label column.
        schema: kinds, categories and bounds; inferred where it is left out.
        drop: columns that are no features, such as dates, free text and identifiers
            (``prepared.table.possible_identifiers`` names candidates).
        missing: what to do about missing values: ``refuse`` them, ``impute``, or make them a ``category``.
        encoding: how cells become numbers; see `TableEncoder`.
        seed: of the split into training and test rows.
        name: what reports call the table.
        categorical: columns whose numbers are codes of categories (``prepared.table.possible_codes`` names candidates).
        sensitive: columns to mark as sensitive, which people are grouped by; those of categories are the secrets of
            inference (`Leakage.risks`).

    Raises:
        DataError: columns that cannot be used; the message names each, what is wrong, and the argument that fixes it.
        UsageError: an argument of the wrong type.

    >>> frame = pd.DataFrame({"age": range(20, 60), "sex": ["f", "m"] * 20, "ill": ["no", "no", "yes", "yes"] * 10})
    >>> prepare(frame, label="ill").width
    3
    """
    _check_table(data, schema, drop)
    columns: dict[str, Any] = {"drop": drop, "categorical": categorical, "sensitive": sensitive}
    table = load_table(data, label, schema, seed=seed, missing=missing, **columns)
    if name is not None:
        table = replace(table, card=replace(table.card, name=name, title=name))
    return PreparedTable(table, TableEncoder(table.schema, encoding).fit(table.train, includes_attacked=True))


def audit_model(
    data: PreparedTable | pd.DataFrame | Path | str,
    model: Model = "mlp",
    *,
    label: str | int | None = None,
    output: Path | str,
    attacks: Attacks | None = None,
    batch_size: int | Sequence[int] = 32,
    batches: int = 6,
    epochs: int = 0,
    seed: int = 0,
    device: str = ANY_DEVICE,
    settings: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Leakage:
    """Attack what clients would send of a table through a network, and write a run folder with its report.

    Each of ``batches`` clients draws ``batch_size`` rows and sends the gradient of its mean cross-entropy at the
    weights that a module has when it is handed over; a network named by a string starts from random weights. With
    ``epochs`` a copy is also trained, and what it sends then is attacked as well. The module itself is not changed.
    One with a single logit is attacked, and trained, as the network of two classes that it equals. Clients train it in
    train mode, whatever its mode; layers in eval mode within a module in train mode, such as frozen BatchNorm, stay in
    eval mode. Attacks that do not
    apply to the network are left out and listed with the reason, in the result and in the report, unless none applies.

    Args:
        data: of `prepare`, or what `prepare` takes; then with ``label``.
        model: a module, what makes one of ``(width, n_classes)``, a name of the registry, or
            ``package.module:factory``.
        label: label column, where ``data`` is not prepared.
        output: the run folder; one that holds the same run is continued.
        attacks: names, or names with settings; TabLeak, ``audit_max`` and the baseline where it is left out.
        batch_size: rows of a client; several for a curve.
        batches: clients per batch size.
        epochs: of the training.
        seed: root seed of the clients' rows, the networks, the training and the attacks.
        device: where attacks and training run: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        settings: any further setting of a config by its dotted key, such as ``{"labels": "restored"}``.
        progress: show it, as the command does.

    Raises:
        UsageError: settings, a table or a module that cannot be served, with what is wrong, or a folder that holds
            another run; before any work.
    """
    prepared = _prepared(data, label)
    sizes = _sizes(batch_size)
    network, called = _network(model, prepared)
    batches, epochs = (whole_number(name, n, least=0) for name, n in (("batches", batches), ("epochs", epochs)))
    on_fedavg = _settings(settings).get("protocol.name") == "fedavg"
    tree: dict[str, Any] = {
        "data": {"name": hand_over_table(prepared.table), "encoding": prepared.encoder.encoding},
        "target": {"network": network},
        # FedAvg has rounds and local batches of its own, under ``protocol``.
        "training": {} if on_fedavg and not epochs else {"epochs": epochs, "batch_size": sizes[0] if sizes else 0},
        "initial": {"batch_sizes": sizes, "batches": batches},
        "seed": whole_number("seed", seed, least=0),
        "device": _device(device, settings),
        "title": f"Leakage of {prepared.table.card.title} through {called}",
        "workers": 1,
    }
    if attacks is not None:
        tree["attacks"] = _attacks(attacks)
    config = AuditConfig.parse(tree, _settings(settings), "settings")
    if config.workers != 1:
        raise UsageError(
            f"a table in memory is attacked by one process: workers must be 1, got {config.workers}; write table and "
            "network factory to files and name them in a config for more"
        )
    return _leakage(output, lambda folder, c: run_audit(config, folder, _command(), c, pass_over=True), progress)


def attack_updates(
    updates: ClientUpdate | Capture | Sequence[Any] | Path | str,
    attacks: Attacks | None = None,
    *,
    output: Path | str,
    data: PreparedTable | None = None,
    model: nn.Module | None = None,
    device: str = ANY_DEVICE,
    settings: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Leakage:
    """Attack updates from anywhere: what a callback captured, what another framework's server received, or a folder.

    Attacks that do not apply to these updates are left out and listed with the reason, unless none applies.

    Args:
        updates: a `ClientUpdate`, a `Capture`, a pair of update and `GroundTruth`, a list of these, or a folder of
            captures. Without the true rows the report shows what was reconstructed and proven, and no accuracy.
        attacks: names, or names with settings; left out, those for this kind of update.
        output: the run folder; one that holds the same run is continued.
        data: the table whose training rows are behind the updates: `Leakage.people` then names its rows, and
            `Leakage.risks` has a control and a baseline.
        model: the module behind updates that name one which was handed over in another process.
        device: where attacks run: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        settings: any further setting of a config by its dotted key, such as ``{"labels": "restored"}``.
        progress: show it, as the command does.

    Raises:
        UsageError: settings or updates that cannot be served, rows that are not an update's, or a folder that holds
            another run; before any work.
        DataError: a private row that is not a training row of ``data``.
    """
    observed = _observed(updates)
    if data is not None:
        require_kind("data", data, PreparedTable, "the result of lightleak.prepare")
    if model is not None:
        require_kind("model", model, nn.Module, "the nn.Module behind the updates")
        for name in {str(update.network.get("name")) for update, _ in observed}:
            if name.startswith(MEMORY):
                hand_over(uncompiled(model), name)
    chosen: dict[str, Any] = {"device": _device(device, settings)}
    if attacks is not None:
        chosen["attacks"] = _attacks(attacks)
    config = updates_config([update for update, _ in observed], chosen, _settings(settings))
    if not isinstance(updates, Path | str):
        work = partial(run_updates, observed, config, pass_over=True, table=data)
        return _leakage(output, lambda folder, c: work(folder, _command(), c), progress)
    root = Path(updates)
    ready = check_units(config, stored_units(config, root), pass_over=True, table=data)
    return _leakage(output, lambda folder, c: run_in_folder(config, ready, folder, _command(), c, root), progress)


def load_config(path: Path | str, overrides: Mapping[str, Any] | None = None) -> Any:
    """Read a config as the command does: the same function, the same checks, the same errors.

    Args:
        path: YAML file of any kind of audit, or of a study.
        overrides: values by dotted key, as the command's flags: ``{"training.epochs": 3}``.

    Raises:
        UsageError: the file is missing or no YAML mapping, a key is unknown, or a value has the wrong type or range.
    """
    file = require_path("path", path)
    if STUDY in read_settings(file):
        from lightleak.tuning.config import load_tune_config

        return load_tune_config(file, _settings(overrides))
    return load_audit(file, overrides)


def run_config(config: Any, output: Path | str, *, progress: bool = False) -> Leakage:
    """Run a config of `load_config` into a folder, as ``lightleak audit`` and ``lightleak tune`` do.

    A script needs ``if __name__ == "__main__":`` around it where the config's ``workers`` is not 1: every worker
    process imports the script.

    Raises:
        UsageError: a config that cannot be served, or a folder that holds another run; before any work.
    """
    if hasattr(config, STUDY):
        from lightleak.tuning.run import run_tune

        return _leakage(output, lambda folder, c: run_tune(config, folder, 0, _command(), c), progress)
    kind_of(config)  # refuses what is no config
    return _leakage(output, lambda folder, c: run_audit(config, folder, _command(), c), progress)


def _leakage(output: Path | str, work: Callable[[Path, Console], Any], progress: bool) -> Leakage:
    if output == "":
        raise UsageError("output must name a folder, got ''")
    folder = require_path("output", output)
    with private_files():
        if progress:
            return Leakage(folder, work(folder, SteadyConsole()))
        with quiet_lightning():
            return Leakage(folder, work(folder, Console(quiet=True, force_interactive=False)))


def _check_table(data: Any, schema: Any, drop: Any) -> None:
    frames = "a DataFrame with the label among its columns, or a CSV, TSV or Parquet file"
    require_kind("data", data, (pd.DataFrame, Path, str), frames)
    if isinstance(data, pd.DataFrame) and data.columns.nlevels > 1:
        first = data.columns[0]
        raise DataError(
            f"columns of data must have one level of names, got {data.columns.nlevels}, such as {first}; join them: "
            "data.columns = ['_'.join(map(str, name)) for name in data.columns]"
        )
    if schema is not None:
        require_kind("schema", schema, (TableSchema, Path, str), "a TableSchema, a YAML file with one, or None")
    require_kind("drop", drop, Sequence, "a list of columns")


def _sizes(batch_size: Any) -> list[int]:
    if isinstance(batch_size, Sequence) and not isinstance(batch_size, str):
        return [whole_number("batch_size", size) for size in batch_size]
    return [whole_number("batch_size", batch_size)]


def _device(device: Any, settings: Mapping[str, Any] | None) -> str:
    """The argument; a setting of that name overrides its default, and must not contradict it."""
    require_kind("device", device, (str, torch.device), "auto, cpu, cuda or cuda:N")
    also = _settings(settings).get("device", device)
    if device != ANY_DEVICE and str(also) != str(device):
        raise UsageError(f"device={str(device)!r} and settings={{'device': {also!r}}} contradict each other; give one")
    return str(device)


def _prepared(data: Any, label: str | int | None) -> PreparedTable:
    if isinstance(data, PreparedTable):
        if label is not None and str(label) != data.schema.label.name:
            raise UsageError(f"the table was prepared with label {data.schema.label.name!r}, got label {label!r}")
        return data
    if label is None:
        raise UsageError("label must name the label column, unless the table was prepared by lightleak.prepare")
    return prepare(data, label)


def _network(model: Model, prepared: PreparedTable) -> tuple[str, str]:
    """The name by which a config may call the model, and a short one for the title."""
    if isinstance(model, str):
        if is_own(model):
            trust_network(model)
        else:
            NETWORKS.get(model)
        return model, model
    expected = "model must be or make an nn.Module, or name a network"
    if not callable(model):
        raise UsageError(f"{expected}, got {type(model).__name__}")
    made = model if isinstance(model, nn.Module) else _made(model, prepared.width, prepared.n_classes)
    if not isinstance(made, nn.Module):
        raise UsageError(f"{expected}, got {type(made).__name__}")
    made, _ = with_two_logits(ClientForm.of(uncompiled(made), None, prepared.encoder.spread_rows(ROWS)), prepared.width)
    require_auditable(made, prepared.encoder, prepared.n_classes)
    return hand_over(made), type(made).__name__


def _made(factory: Callable[[int, int], nn.Module], width: int, n_classes: int) -> nn.Module:
    with suppress(ValueError):  # what is written in C may not state its arguments
        try:
            signature(factory).bind(width, n_classes)
        except TypeError as error:
            name = getattr(factory, "__name__", type(factory).__name__)
            raise UsageError(
                f"model must be an nn.Module, or a factory that takes (width, n_classes), here ({width}, {n_classes}); "
                f"{name} does not take them: {error}"
            ) from error
    return factory(width, n_classes)


def _observed(updates: Any) -> list[Observed]:
    if isinstance(updates, Path | str):
        return [(load_update(path), None) for path in find_captures(Path(updates))]
    if isinstance(updates, ClientUpdate | Capture) or _is_pair(updates):
        updates = [updates]
    expected = "updates must be ClientUpdate, Capture, or pairs (ClientUpdate, GroundTruth)"
    if not isinstance(updates, Sequence):
        raise UsageError(f"{expected}, a list of these, or a folder of captures, got {type(updates).__name__}")
    found: list[Observed] = []
    for one in updates:
        if isinstance(one, Capture):
            found.append((one.update, one.truth))
        elif isinstance(one, ClientUpdate):
            found.append((one, None))
        elif _is_pair(one):
            found.append((one[0], one[1]))
        else:
            raise UsageError(f"{expected}, got {type(one).__name__}")
    return found


def _is_pair(one: Any) -> bool:
    if not isinstance(one, tuple) or len(one) != 2 or not isinstance(one[0], ClientUpdate):
        return False
    return one[1] is None or isinstance(one[1], GroundTruth)


def _attacks(attacks: Attacks) -> Any:
    require_kind("attacks", attacks, (str, Sequence, Mapping), "names, or a mapping of names to settings")
    if isinstance(attacks, Mapping):
        return {name: dict(options) if isinstance(options, Mapping) else options for name, options in attacks.items()}
    return attacks if isinstance(attacks, str) else list(attacks)


def _settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    held = {} if settings is None else settings
    require_kind("settings", held, Mapping, "a mapping of dotted keys, such as {'labels': 'restored'}")
    return {setting_key(name): value for name, value in held.items()}


def _command() -> list[str]:
    """What ``environment.json`` names: the script, or that there was none."""
    return ["python", *(sys.argv[:1] if sys.argv and sys.argv[0] else [])]


def _flat(group: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in group.items():
        if isinstance(value, Mapping):
            flat |= {key: value.get("mean"), f"{key}_low": value.get("low"), f"{key}_high": value.get("high")}
        else:
            flat[key] = value
    return flat
