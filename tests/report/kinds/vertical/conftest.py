"""A run folder as a vertical audit leaves it, with made-up but plausible numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from lightleak.metrics.norm_distributions import compare_norms

SHARES = {
    "sex=Male": 0.662,
    "race=White": 0.843,
    "workclass=Private": 0.675,
    "marital-status=Married-civ-spouse": 0.458,
}
# Mean absolute errors of the order of ProVFL's Table V and of the honest split; None: the attack answers the prior.
ERRORS: dict[str, dict[str, tuple[float | None, ...]]] = {
    "C1": {
        "provfl_b": (0.014, 0.03, None, 0.02),
        "provfl_b_mixture": (0.012, 0.02, None, 0.015),
        "provfl_m": (0.01, 0.018, None, 0.012),
        "aia": (0.016, 0.09, None, 0.05),
    },
    "C2": {
        "provfl_b": (0.018, 0.04, None, 0.03),
        "provfl_m": (0.009, 0.02, None, 0.02),
        "aia": (0.02, 0.16, None, 0.08),
    },
}
OWN = (0.05, 0.01, 0.02, 0.05)
"""How far off the adversary's own columns alone are, property by property."""

VARIANTS = {("C1", "provfl_m"): "LR+MR", ("C2", "provfl_m"): "MR"}
_PARTY: dict[str, Any] = {"who": "active_party", "sees": ["AO"], "knows": ["property_sample"], "sample": 4000}
ATTACKERS = {
    "provfl_m": _PARTY | {"does": ["refines_network"]},
    "aia_raw_adjusted": _PARTY | {"sees": ["own_columns"]},
    "prior": {"who": "nobody", "knows": ["property_sample"], "sample": 4000},
}
THREATS = {
    "provfl_b": "A party that follows the protocol and knows of 4000 auxiliary rows whether they have the property.",
    "provfl_b_mixture": "A party that follows the protocol and knows of 4000 auxiliary rows whether they have the "
    "property.",
    "provfl_m": "A party that departs from the protocol: it trains its own network to show the property, too.",
    "aia": "A party that follows the protocol and classifies each record by its intermediate results.",
    "aia_raw_adjusted": "A party that reads its own columns and nothing that is exchanged.",
    "prior": "A party that reads nothing and answers the auxiliary share.",
}
UNOBSERVANT = ("aia_raw_adjusted", "prior")
# Strength, factor on the error, AUC (ProVFL Table XVI).
DEFENSES = {
    "none": (None, 1.0, 0.9039),
    "laplace scale 0.01": (0.01, 1.3, 0.9027),
    "laplace scale 0.1": (0.1, 2.0, 0.8353),
    "r3elu epsilon 1.0": (1.0, 12.0, 0.5229),
    "r3elu epsilon 10.0": (10.0, 9.0, 0.6634),
    "withdraw ratio 0.1": (0.1, 1.6, 0.9014),
    "withdraw ratio 0.5": (0.5, 10.0, 0.8979),
}
WARNING = "C1: the estimate 50.2% is not told apart from the auxiliary share of 50.0% (p = 2.2e-05)"


class VerticalRunMaker:
    """Writes run folders; every part can be left out or changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        *,
        properties: tuple[str, ...] = ("sex=Male", "workclass=Private"),
        attacks: tuple[str, ...] = ("provfl_b", "provfl_m", "aia", "aia_raw_adjusted", "prior"),
        adversaries: tuple[str, ...] = ("C1", "C2"),
        defenses: tuple[str, ...] = ("none",),
        seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6),
        norms: bool = True,
        truth: bool = True,
        extra: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        without: tuple[str, ...] = (),
    ) -> Path:
        rng = np.random.default_rng(0)
        rows = [
            self._row(rng, name, adversary, attack, defense, seed, truth) | (extra or {})
            for seed in seeds
            for defense in defenses
            for name in properties
            for adversary in adversaries
            for attack in attacks
            if attack in UNOBSERVANT or attack in ERRORS[adversary]
            if defense == "none" or attack in ("provfl_b", "aia", "aia_raw_adjusted")
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write("results.json", {"schema_version": 1, "rows": rows, "summary": []})
        if norms:
            entries = [entry for name in properties for entry in _entries(rng, name)]
            self._write("norms.json", {"schema_version": 1, "entries": entries})
        self._write(
            "environment.json",
            {"date": "2025-03-01T10:00:00", "command": ["lightleak", "audit", "vertical.yaml"], "device": "cpu",
             "packages": {"torch": "2.13.0", "lightleak": "0.2.0"}},
        )  # fmt: skip
        settings = config or {
            "kind": "vertical",
            "title": "What two insurers tell each other",
            "data": {"name": "adult"},
            "properties": list(properties),
            "seeds": list(seeds),
        }
        (self.folder / "config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
        for name in without:
            (self.folder / name).unlink()
        return self.folder

    def _row(self, rng, name, adversary, attack, defense, seed, truth) -> dict[str, Any]:
        strength, factor, auc = DEFENSES[defense]
        true = SHARES[name] + 0.002 * rng.standard_normal()
        prior = 0.5
        index = list(SHARES).index(name)
        own = OWN[index] * (1 + 0.1 * (seed % 3))
        typical = None if attack in UNOBSERVANT else ERRORS[adversary][attack][index]
        if attack == "prior":
            estimated = prior
        elif attack == "aia_raw_adjusted":
            estimated = true - own
        elif typical is None:
            estimated = prior + 0.05 * rng.standard_normal()
        else:
            estimated = true + min(typical * factor, 0.35) * rng.standard_normal() * 1.25
        estimated = float(np.clip(estimated, 0, 1))
        half = 0.0 if attack == "prior" else 1.2 * (typical or 0.05)
        low, high = max(0.0, estimated - half), min(1.0, estimated + half)
        kinds = ("AO", "AG", "VO", "VG") if adversary == "C1" and attack.startswith("provfl") else ()
        return {
            "unit": f"adult-{seed}-{defense}", "kind": "vertical", "dataset": "adult", "target": "split-32-16-16",
            "protocol": "vertical", "attack": attack, "variant": VARIANTS.get((adversary, attack), "passive"),
            "adversary": adversary, "property": name, "defense": defense, "defense_strength": strength, "seed": seed,
            "epoch": 18, "true_fraction": true if truth else None, "estimated_fraction": estimated, "low": low,
            "high": high, "prior": prior, "absolute_error": abs(estimated - true) if truth else None,
            "own_columns_error": own if truth else None,
            "covered": low <= true <= high if truth else None, "auc": auc + 0.001 * rng.standard_normal(),
            "accuracy": 0.85, "seconds": 0.001 if attack == "prior" else 1.5,
            "warnings": [WARNING] if typical is None and attack not in UNOBSERVANT else [],
            "threat_model": THREATS[attack].replace("the property", name),
            "threat": ATTACKERS.get(attack, _PARTY), "defense_name": defense.partition(" ")[0],
            "options": {} if attack == "prior" else {"samples": 200, "queries": 100},
            "by_kind": {kind: float(np.clip(estimated + 0.02 * rng.standard_normal(), 0, 1)) for kind in kinds},
        }  # fmt: skip

    def _write(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content))


def _entries(rng: np.random.Generator, name: str) -> list[dict[str, Any]]:
    has = torch.from_numpy(rng.random(4000) < SHARES[name])
    found = []
    for variant, shift in (("passive", 0.5), ("MR", 1.6)):
        for kind in ("AO", "AG", "VO", "VG") if variant == "passive" else ("AO",):
            for norm, scale in (("l1", 1.0), ("linf", 3.0)):
                values = scale * np.exp(0.4 * rng.standard_normal(4000) + shift * 0.5 * has.numpy())
                found.append(
                    {"dataset": "adult", "property": name, "adversary_party": 1, "variant": variant, "kind": kind,
                     "norm": norm, "epoch": 18, "seed": 0} | compare_norms(torch.from_numpy(values), has, bins=40)
                )  # fmt: skip
    return found


@pytest.fixture
def make_vertical(tmp_path: Path) -> VerticalRunMaker:
    """A maker for a run folder named ``run``."""
    return VerticalRunMaker(tmp_path / "run")


@pytest.fixture
def make_named_vertical(tmp_path: Path) -> Callable[[str], VerticalRunMaker]:
    """A maker for a run folder of any name."""
    return lambda name: VerticalRunMaker(tmp_path / name)
