"""Intermediate results that were captured before, with or without truth, and the attacks on them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lightleak.callbacks.intermediate_store import load_observation, load_truth
from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import PropertyTruth
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.seeds import derive_seed
from lightleak.experiments.captures import named_captures
from lightleak.experiments.kinds.vertical.choices import attack_named
from lightleak.experiments.kinds.vertical.config import OWN_COLUMNS, VerticalConfig
from lightleak.experiments.kinds.vertical.rows import estimate_row
from lightleak.experiments.pack import Pack
from lightleak.experiments.unit import file_name, unit_file, without_nan, write_whole


@dataclass(frozen=True)
class CapturePack(Pack):
    """One attack on one capture.

    Attributes:
        config: the attacks.
        label: the attack's label in the config.
        name: of the capture, unique among those that are attacked.
        path: its folder.
    """

    config: VerticalConfig
    label: str
    name: str
    path: Path

    @property
    def ids(self) -> Sequence[str]:
        """Its one unit."""
        return [file_name(f"{self.label}-{self.name}")]

    @property
    def cost(self) -> float:
        """Counts as one."""
        return 1.0

    def inputs(self, folder: Path) -> Mapping[str, Path]:
        """See `Pack.inputs`."""
        return {"capture": self.path}

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Attack, and keep the row."""
        seen, truth = load_capture(folder / "capture")
        attack, root = attack_named(self.label, self.config.attacks[self.label]), self.config.seeds[0]
        seed = derive_seed(root, self.label, seen.auxiliary.property_name, seen.adversary)
        row = estimate_row(self.ids[0], attack, attack.run(seen, seed, device), seen, truth)
        facts = {"label": self.label, "variant": self.label, "defense": None, "seed": root}
        facts |= {"dataset": self.config.data.title, "capture": self.name}
        write_whole(unit_file(folder, self.ids[0]), json.dumps(without_nan(row | facts)))
        report(self.cost)


def capture_packs(config: VerticalConfig, root: Path) -> list[CapturePack]:
    """Every attack on every capture below ``root``, checked.

    Raises:
        UsageError: no capture, an unknown attack, a truth that is not the observation's, or an observation an attack
            cannot serve.
    """
    attacks = {label: attack_named(label, options) for label, options in config.attacks.items()}
    packs = []
    for name, path in named_captures(root).items():
        seen, _ = load_capture(path)
        for label, attack in attacks.items():
            if label == OWN_COLUMNS and seen.features is None:  # the null needs the adversary's own columns
                continue
            attack.check(seen)
            packs.append(CapturePack(config, label, name, path))
    return packs


def load_capture(folder: Path) -> tuple[IntermediateResults, PropertyTruth | None]:
    """Return the observation of one capture, and its truth where that is stored with it.

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
