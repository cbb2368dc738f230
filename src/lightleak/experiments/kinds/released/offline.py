"""``lightleak attack`` on released models that were kept before, here or elsewhere, with or without the truth."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lightleak.attacks.model_inversion import FittedInversion, Workplace
from lightleak.core.devices import resolve_device
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.released_model import ReleasedModel
from lightleak.core.seeds import derive_seed
from lightleak.data.column import Column
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import TableSchema
from lightleak.experiments.environment import write_environment
from lightleak.experiments.kinds.released.choices import attack_named
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.released.job import write_rows
from lightleak.experiments.kinds.released.judge import Judge
from lightleak.experiments.kinds.released.reference import PublicReference, beside_public
from lightleak.experiments.kinds.released.rows import Facts, class_rows, entry, facts_of, overall_row
from lightleak.experiments.kinds.released.run import PER, SUMMARY_KEYS, gather_entries
from lightleak.experiments.kinds.vertical.job import file_name
from lightleak.experiments.offline import find_captures
from lightleak.experiments.released_summary import print_released_summary
from lightleak.experiments.results import write_results
from lightleak.experiments.run import open_run_folder
from lightleak.experiments.unit import unit_file, without_nan, write_whole
from lightleak.report import build_report
from lightleak.targets import NetworkSpec


def attack_released_captures(
    config: ReleasedConfig, root: Path, folder: Path, command: Sequence[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Run the config's attacks on every released model below ``root`` and write a run folder.

    Without truth the rows carry the inversion loss alone: what an attacker has.

    Raises:
        UsageError: no capture, an unknown attack, a model an attack cannot serve, or a folder that holds another run;
            before any work.
    """
    console = console or Console()
    device = resolve_device(config.device)
    attacks = {label: attack_named(label, options) for label, options in config.attacks.items()}
    captures = {path: load_capture(path) for path in find_captures(root)}
    for seen, _ in captures.values():
        for attack in attacks.values():
            attack.check(seen)
    open_run_folder(folder, config, root)
    write_environment(folder, device, command)
    rows: list[dict[str, Any]] = []
    try:
        for path, (seen, judge) in captures.items():
            name = "-".join(path.relative_to(root).parts) or root.resolve().name
            for label, attack in attacks.items():
                unit = file_name(f"{label}-{name}")
                file = unit_file(folder, unit)
                if not file.is_file():
                    at = Workplace(device, folder / "generators" / unit)
                    fitted = attack.fit(seen, derive_seed(config.seeds[0], label), at)
                    target = NetworkSpec.from_dict(seen.network)
                    schema = TableSchema.from_dict(seen.encoder["schema"])
                    names = schema.label.categories
                    facts = facts_of(config, config.seeds[0], label, target, attack, fitted, judge, names)
                    if len(captures) > 1:  # several models: each is a setting of its own
                        facts = replace(facts, told={**facts.told, "setting": f"{config.setting}, capture {name}"})
                    reference = PublicReference.of(seen, attack.pseudo_labels)
                    found = _rows(config, folder, unit, facts, schema.label, fitted, judge, reference)
                    write_whole(file, json.dumps(without_nan(found)))
                rows += json.loads(file.read_text())
        shutil.rmtree(folder / "generators", ignore_errors=True)
    finally:
        results = write_results(folder, rows, SUMMARY_KEYS, PER)
        gather_entries(folder)
        build_report(folder, redact=bool(config.redact))
    print_released_summary(results, console)
    return results


def load_capture(folder: Path) -> tuple[ReleasedModel, Judge | None]:
    """Observation and, where it lies beside it, the truth of one capture.

    Raises:
        ObservationError: a file is missing or damaged, or network, columns and public rows do not fit each other.
    """
    seen = ReleasedModel.load(folder / "observation")
    try:
        spec, encoder = NetworkSpec.from_dict(seen.network), TableEncoder.from_state(seen.encoder, seen.encoder_tensors)
        if spec.layout != encoder.layout:
            raise ObservationError("the columns of the network (layout) are not those of the encoder (schema)")
        encoder.schema.validate(seen.public, require_label=False)
    except UsageError as error:
        raise ObservationError(f"{folder / 'observation'}: {error}") from error
    return seen, Judge.load(folder / "truth") if (folder / "truth").is_dir() else None


def _rows(
    config: ReleasedConfig,
    folder: Path,
    unit: str,
    facts: Facts,
    label: Column,
    fitted: FittedInversion,
    judge: Judge | None,
    reference: PublicReference,
) -> list[dict[str, Any]]:
    """One evaluation of every search."""
    found, names = [], label.categories
    for search in (search for search in config.samples.searches if search in fitted.searches):
        seed = derive_seed(config.seeds[0], "evaluation", 0)
        labels = torch.tensor(list(fitted.classes)).repeat_interleave(config.samples.rows_per_class(search))
        samples = fitted.generate(labels, seed, search)
        scores = None if judge is None else judge.score(samples, derive_seed(seed, "memorisation"))
        told = entry(facts, samples, names, fitted, scores, judge=judge, redact=bool(config.redact))
        write_whole(folder / "inversion" / f"{unit}-{search}.json", json.dumps(without_nan(told)))
        if not config.redact:
            write_rows(folder, f"{unit}-{search}", samples, label, config.raw_csv)
        beside = beside_public(reference, fitted, samples, judge, seed)
        found += [overall_row(f"{unit}-{search}", facts, 0, samples, scores, beside=beside)]
        found += class_rows(f"{unit}-{search}", facts, 0, samples, names, scores)
    return found
