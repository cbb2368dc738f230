"""``lightleak attack`` on intermediate results that were captured before, here or elsewhere, with or without truth."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from lightleak.attacks.property_inference import PropertyAttack
from lightleak.callbacks.intermediate_store import load_observation, load_truth
from lightleak.core.devices import resolve_device
from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import PropertyTruth
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.seeds import derive_seed
from lightleak.experiments.environment import write_environment
from lightleak.experiments.kinds.vertical.choices import attack_named
from lightleak.experiments.kinds.vertical.config import OWN_COLUMNS, VerticalConfig
from lightleak.experiments.kinds.vertical.job import file_name
from lightleak.experiments.kinds.vertical.rows import beside_own_columns, estimate_row
from lightleak.experiments.kinds.vertical.run import SUMMARY_KEYS
from lightleak.experiments.offline import find_captures
from lightleak.experiments.results import write_results
from lightleak.experiments.run import open_run_folder
from lightleak.experiments.unit import unit_file, without_nan, write_whole
from lightleak.experiments.vertical_summary import print_vertical_summary
from lightleak.report import build_report


def attack_vertical_captures(
    config: VerticalConfig, root: Path, folder: Path, command: Sequence[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Run the config's attacks on every capture below ``root`` and write a run folder; no training takes place.

    Without truth the rows carry no error: the estimate, its interval and its warnings are what an attacker has.

    Raises:
        UsageError: no capture, an unknown attack, a truth that is not the observation's, an observation an attack
            cannot serve, or a folder that holds another run; before any work.
    """
    console = console or Console()
    device = resolve_device(config.device)
    attacks = {label: attack_named(label, options) for label, options in config.attacks.items()}
    captures = {path: load_capture(path) for path in find_captures(root)}
    for seen, _ in captures.values():
        for _, attack in _serving(attacks, seen):
            attack.check(seen)
    open_run_folder(folder, config, root)
    write_environment(folder, device, command)
    rows = []
    try:
        for path, (seen, truth) in captures.items():
            name = "-".join(path.relative_to(root).parts) or root.resolve().name
            for label, attack in _serving(attacks, seen):
                unit = file_name(f"{label}-{name}")
                file = unit_file(folder, unit)
                if not file.is_file():
                    seed = derive_seed(config.seeds[0], label, seen.auxiliary.property_name, seen.adversary)
                    row = estimate_row(unit, attack, attack.run(seen, seed, device), seen, truth)
                    facts = {"label": label, "variant": label, "defense": None, "seed": config.seeds[0]}
                    facts |= {"dataset": config.data.title, "capture": name}
                    write_whole(file, json.dumps(without_nan(row | facts)))
                rows.append(json.loads(file.read_text()))
    finally:
        results = write_results(folder, beside_own_columns(rows), SUMMARY_KEYS)
        build_report(folder, redact=bool(config.redact))
    print_vertical_summary(results, console)
    return results


def _serving(attacks: Mapping[str, PropertyAttack], seen: IntermediateResults) -> Iterator[tuple[str, PropertyAttack]]:
    """Attacks by label; the null only where the capture holds the adversary's own columns."""
    return ((label, one) for label, one in attacks.items() if label != OWN_COLUMNS or seen.features is not None)


def load_capture(folder: Path) -> tuple[IntermediateResults, PropertyTruth | None]:
    """Observation and, where it lies beside it, the truth of one capture.

    Raises:
        ObservationError: a file is missing or damaged, or the truth belongs to another observation.
    """
    seen = load_observation(folder / "observation")
    if not (folder / "truth").is_dir():
        return seen, None
    truth = load_truth(folder / "truth")
    if truth.property_name != seen.auxiliary.property_name or len(truth.has_property) != len(seen.ids):
        raise ObservationError(
            f"{folder}/truth is about {truth.property_name} of {len(truth.has_property)} records, the observation "
            f"about {seen.auxiliary.property_name} of {len(seen.ids)}"
        )
    return seen, truth
