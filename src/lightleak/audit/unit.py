"""The unit of a campaign: one attack on one observation, and what is kept of it."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lightleak.attacks import ATTACKS
from lightleak.core.observations import ClientUpdate, GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.score import matched, score

Observed = tuple[ClientUpdate, GroundTruth | None]


@dataclass(frozen=True)
class Unit:
    """One attack on one observation.

    Attributes:
        id: unique in the run, and a file name.
        attack: attack name.
        options: its settings.
        observe: makes or reads the observation (and the truth, where the run owns it).
        facts: what the results row says besides the scores; ``batch_size`` is needed.
        seed: root of the unit's random streams.
    """

    id: str
    attack: str
    options: dict[str, Any]
    observe: Callable[[], Observed]
    facts: dict[str, Any]
    seed: int

    @property
    def cost(self) -> float:
        """Relative work, for the progress bar: candidates, rows and steps."""
        settings = ATTACKS.get(self.attack)(**self.options).options()
        return float(settings.get("restarts", 1) * settings.get("steps", 1) * self.facts["batch_size"])


def unit_file(folder: Path, unit_id: str) -> Path:
    """Where the row of a finished unit is kept."""
    return folder / "units" / f"{unit_id}.json"


def run_pack(
    pack: Sequence[Unit], folder: Path, device: torch.device, redact: bool, report: Callable[[float], None]
) -> None:
    """Attack the observations of a pack in one call and keep what is not kept yet.

    Args:
        pack: units of one attack, with the same settings and shapes.
        folder: the run folder.
        device: where the attack runs.
        redact: keep no true or reconstructed value.
        report: told about work done, in the unit of `Unit.cost`.
    """
    observed = [unit.observe() for unit in pack]
    attack, cost = ATTACKS.get(pack[0].attack)(**pack[0].options), pack[0].cost
    seeds = [derive_seed(unit.seed, unit.attack, unit.id) for unit in pack]
    updates = [update for update, _ in observed]
    found = attack.run_many(updates, seeds, device, lambda fraction: report(fraction * cost))
    for unit, (update, truth), reconstruction in zip(pack, observed, found, strict=True):
        file = unit_file(folder, unit.id)
        if not file.is_file():
            row = _row(unit, update, truth, reconstruction, attack.options(), folder, redact)
            _write(file, json.dumps(row))


def _row(
    unit: Unit,
    update: ClientUpdate,
    truth: GroundTruth | None,
    reconstruction: Reconstruction,
    options: dict[str, Any],
    folder: Path,
    redact: bool,
) -> dict[str, Any]:
    encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors)
    row = {"unit": unit.id, **unit.facts, "attack": unit.attack, "seed": unit.seed}
    if truth is not None:
        row |= score(reconstruction, truth, encoder)
    row |= {
        "seconds": reconstruction.seconds,
        "loss": reconstruction.loss,
        "threat_model": reconstruction.threat_model.describe(),
        "options": options,
        "reconstruction": None,
    }
    if not redact:
        rows = matched(reconstruction, truth, encoder) if truth is not None else reconstruction.rows
        file = Path("reconstructions") / f"{unit.id}.csv"
        (folder / file).parent.mkdir(exist_ok=True)
        _write(folder / file, rows.to_csv(index=False))
        row["reconstruction"] = str(file)
    cleaned: dict[str, Any] = without_nan(row)
    return cleaned


def without_nan(value: Any) -> Any:
    """``value`` with NaN and infinities as ``None``: JSON has no word for them."""
    if isinstance(value, dict):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, text: str) -> None:
    """Write whole or not at all: a file that exists is complete."""
    partial = path.with_suffix(path.suffix + ".part")
    partial.write_text(text)
    partial.replace(path)
