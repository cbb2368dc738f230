"""A run folder as an audit of a released model leaves it, with made-up but plausible numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from markupsafe import Markup

from lightleak.report.blocks import Details, Section, Table
from lightleak.report.kinds.released import page
from lightleak.report.read import load_run

# The twenty most frequent first diagnoses of Diabetes-130 (ICD-9), and about how many encounters have them.
CLASSES = {
    "428": 6862, "414": 6581, "786": 4016, "410": 3614, "486": 3508, "427": 2766, "491": 2275, "715": 2151, "682": 2042,
    "434": 2028, "780": 2019, "996": 1967, "276": 1889, "38": 1688, "250.8": 1680, "599": 1595, "584": 1520,
    "V57": 1207, "250.6": 1183, "518": 1115,
}  # fmt: skip
NUMBERS = {
    "time_in_hospital": (1, 14), "num_lab_procedures": (1, 132), "num_procedures": (0, 6), "num_medications": (1, 81),
    "number_outpatient": (0, 42), "number_emergency": (0, 76), "number_inpatient": (0, 21), "number_diagnoses": (1, 16),
}  # fmt: skip
GROUPS = {"continuous": 1, "discrete": 8, "categorical": 1, "boolean": 40}
FLAGS = [f"diag_{place}={code}" for place in (2, 3) for code in ("250", "276", "401", "411", "427", "428", "496")]
# Attack: accuracy, shapes, pair trends, inversion loss, distance, equal rows (PLG-MI: thesis Tables 5.5 and 5.6; the
# public rows: what GANDALF made of them in a first trial on Diabetes-130).
FIGURES = {
    "plgmi": (0.813, 0.903, 0.814, 1.9, 0.071, 0.0004),
    "gan_without_target": (0.588, 0.902, 0.812, 3.4, 0.07, 0.0004),
    "public_pseudo_labeled": (0.62, 0.921, 0.851, 0.4, 0.042, 0.011),
    "public_random": (0.058, 0.966, 0.913, 6.1, 0.049, 0.009),
}
# Search: change of the accuracy, relative change of the loss, seconds, rows.
SEARCHES = {
    "random": (0.0, 0.0, 2.1, 20_000), "softmax": (0.01, -0.1, 1.9, 1000), "gradient": (0.022, -0.6, 48.0, 1000),
    "tpe": (-0.09, -0.2, 190.0, 40),
}  # fmt: skip
THREATS = {
    "plgmi": "An attacker who holds the released model with its weights and public rows of the same columns.",
    "gan_without_target": "An attacker who may ask the released model for the classes of public rows.",
    "public_pseudo_labeled": "An attacker who may ask the released model for the classes of public rows.",
    "public_random": "Anybody with public rows of the same columns.",
}
EXCLUDED = "3 public rows, at least 20 are needed"


class ReleasedRunMaker:
    """Writes run folders; every part can be left out or changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        *,
        attacks: tuple[str, ...] = tuple(FIGURES),
        searches: tuple[str, ...] = ("random",),
        settings: tuple[str, ...] = ("2",),
        seeds: tuple[int, ...] = (0,),
        evaluations: int = 5,
        classes: tuple[str, ...] = tuple(CLASSES),
        excluded: tuple[str, ...] = ("518",),
        by_class: bool = True,
        inversion: bool = True,
        parts: tuple[str, ...] | None = None,
        extra: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        without: tuple[str, ...] = (),
    ) -> Path:
        rng = np.random.default_rng(0)
        rows: list[dict[str, Any]] = []
        entries: list[dict[str, Any]] = []
        for setting in settings:
            for seed in seeds:
                for attack in attacks:
                    for search in searches if attack == "plgmi" else ("random",):
                        for index in range(evaluations):
                            place = (attack, search, setting, seed, index)
                            names = [name for name in classes if name not in excluded] if by_class else []
                            rows += self._rows(rng, place, names)
                        if evaluations:
                            entries.append(_entry(rng, attack, search, setting, seed, classes, excluded))
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = [row | (extra or {}) for row in rows]
        self._write("results.json", {"schema_version": 1, "rows": rows, "summary": []})
        if inversion:
            kept = [{name: one[name] for name in one if parts is None or name in (*NAMES, *parts)} for one in entries]
            self._write("inversion.json", {"schema_version": 1, "entries": kept})
        self._write(
            "environment.json",
            {"date": "2025-03-01T10:00:00", "command": ["lightleak", "audit", "released.yaml"], "device": "cpu",
             "packages": {"torch": "2.13.0", "lightleak": "0.4.0"}},
        )  # fmt: skip
        settled = config or {
            "kind": "released-model",
            "title": "What a diagnosis model gives away",
            "data": {"name": "diabetes130"},
            "attacks": list(attacks),
            "seeds": list(seeds),
        }
        (self.folder / "config.yaml").write_text(yaml.safe_dump(settled, sort_keys=False))
        for name in without:
            (self.folder / name).unlink()
        return self.folder

    def _rows(self, rng, place, names: list[str]) -> list[dict[str, Any]]:
        attack, search, setting, seed, index = place
        accuracy, shapes, trends, loss, distance, equal = FIGURES[attack]
        gain, drop, seconds, samples = SEARCHES[search]
        accuracy = float(
            np.clip(accuracy + gain + (0.002 if attack == "public_random" else 0.02) * rng.standard_normal(), 0, 1)
        )
        fixed = {
            "unit": f"{setting}-{seed}-{attack}-{search}-{index}", "kind": "released-model", "protocol": "released",
            "dataset": "diabetes130", "target": "mlp-2048-1024-512-256", "evaluation": "gandalf", "attack": attack,
            "label": attack, "setting": setting, "seed": seed, "evaluation_index": index, "latent_search": search,
            "bridge": "shared" if attack == "plgmi" else None, "real_rows_accuracy": 0.401,
            "target_test_accuracy": 0.334,
            "threat_model": THREATS[attack],
            "options": {"inversion_weight": 1.0, "pseudo_labels": {"top_n": 100}} if attack == "plgmi" else {},
            "warnings": [f"class 518 is left out: {EXCLUDED}"] if attack == "plgmi" else [],
        }  # fmt: skip
        beside = {"disjoint_accuracy": 0.8 * accuracy, "distinct_nearest_rows": 40 * shapes, "nearer_to_train": 0.5}
        beside |= {f"over_public_{name}": accuracy - 0.62 for name in ("attack_accuracy", *beside)}
        rows = [fixed | beside | {
            "class": "all", "samples": samples, "condition_accuracy": 0.5, "public_condition_accuracy": 0.6,
            "attack_accuracy": accuracy,
            "attack_accuracy_low": accuracy - 0.006, "attack_accuracy_high": accuracy + 0.006,
            "shapes_score": shapes + 0.001 * rng.standard_normal(),
            "pair_trends_score": trends + 0.003 * rng.standard_normal(), "class_shapes_score": None,
            "inversion_loss": loss * (1 + drop) + 0.1 * rng.standard_normal(),
            "inversion_loss_searched": loss * (1 + 1.3 * drop) if search in ("gradient", "tpe") else None,
            "exact_match_rate": equal,
            "gower_distance": None if names else distance, "real_rows_accuracy_class": None,
            "seconds": seconds,
            "fit_seconds": {"plgmi": 1260.0, "gan_without_target": 840.0}.get(attack),
        }]  # fmt: skip
        for number, name in enumerate(names):
            own = float(np.clip(accuracy + 0.17 * np.sin(2.3 * number) + 0.02 * rng.standard_normal(), 0.02, 1))
            rows.append(fixed | {
                "class": name, "samples": 1000, "attack_accuracy": own, "attack_accuracy_low": own - 0.02,
                "attack_accuracy_high": min(own + 0.02, 1.0), "shapes_score": None, "pair_trends_score": None,
                "class_shapes_score": shapes - 0.03 + 0.03 * np.cos(number), "inversion_loss": loss,
                "exact_match_rate": equal, "gower_distance": distance + 0.01 * np.cos(number), "seconds": None,
                "fit_seconds": None,
                "real_rows_accuracy_class": float(np.clip(0.42 + 0.3 * np.cos(1.7 * number), 0.03, 0.9)),
            })  # fmt: skip
        return rows

    def _write(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content))


NAMES = ("label", "attack", "setting", "seed", "dataset", "latent_search")


def _entry(rng, attack: str, search: str, setting: str, seed: int, classes, excluded) -> dict[str, Any]:
    shapes = FIGURES[attack][1]
    kept = [name for name in classes if name not in excluded]
    columns = ["bmi", *NUMBERS, "race", *FLAGS, *(f"medication_{number:02}" for number in range(26))]
    means = {name: shapes - 0.18 * (name in NUMBERS) for name in columns}
    scores = {name: float(np.clip(mean + 0.05 * rng.standard_normal(), 0, 1)) for name, mean in means.items()}
    lowest = sorted(columns, key=scores.__getitem__)[:8]
    return {
        "label": attack, "attack": attack, "setting": setting, "seed": seed, "dataset": "diabetes130",
        "latent_search": search,
        "class_shapes": {
            "groups": list(GROUPS), "columns": GROUPS,
            "classes": [
                {"class": name, "rows": CLASSES.get(name, 500), "scores": {
                    group: float(np.clip(mean + 0.06 * np.sin(number + place) + 0.02 * rng.standard_normal(), 0, 1))
                    for place, (group, mean) in enumerate(
                        {"continuous": 0.83, "discrete": 0.74, "categorical": 0.91, "boolean": 0.96}.items())}}
                for number, name in enumerate(kept)
            ],
        },
        "column_shapes": scores,
        "lowest_columns": [
            {"column": name, "kind": _kind(name), "score": scores[name],
             "metric": "KSComplement" if _kind(name) in ("continuous", "discrete") else "TVComplement"}
            for name in lowest
        ],
        "nearest": [_nearest(rng, name) for name in kept],
        "losses": _losses(rng) if attack in ("plgmi", "gan_without_target") and search == "random" else {},
        "pseudo_labels": [
            {"class": name, "public_rows": 3 if name in excluded else int(50039 * 0.05 * (1 + np.sin(number))) + 60,
             "used": 0 if name in excluded else 100, "excluded": EXCLUDED if name in excluded else None}
            for number, name in enumerate(classes)
        ] if attack != "public_random" else [],
        "memorisation": {
            "train_mean": FIGURES[attack][4], "heldout_mean": FIGURES[attack][4] + 0.0004,
            "share_nearer_to_train": 0.499 + 0.004 * (2 * (attack == "plgmi") + seed % 3),
            "low": 0.492, "high": 0.522, "n": 4000,
        },
        "task": {"private_rows": 49121, "private_test_rows": 2585, "public_rows": 37208, "dropped_rows": 12831,
                 "classes": len(classes), "features": 50},
        "target_scores": {"train_accuracy": 0.912, "test_accuracy": 0.334, "epochs": 29},
        "evaluation_scores": {"train_accuracy": 0.447, "test_accuracy": 0.401, "epochs": 61},
    }  # fmt: skip


def _kind(column: str) -> str:
    named = {"bmi": "continuous", "race": "categorical"}
    return "discrete" if column in NUMBERS else named.get(column, "boolean")


def _nearest(rng, name: str) -> dict[str, Any]:
    real: dict[str, Any] = {"bmi": round(float(rng.normal(29, 5)), 2)}
    made: dict[str, Any] = {"bmi": round(real["bmi"] + float(rng.exponential(0.8)), 2)}
    for column, (low, high) in NUMBERS.items():
        real[column] = int(low + (high - low) * rng.random() ** 3)
        made[column] = real[column] + int(rng.integers(-1, 3) * (column in ("num_lab_procedures", "num_medications")))
    real["race"] = "Caucasian"
    made["race"] = "Caucasian" if rng.random() < 0.8 else "AfricanAmerican"
    for flag in FLAGS:
        real[flag] = made[flag] = "yes" if rng.random() < 0.2 else "no"
    return {"class": name, "distance": float(rng.uniform(0.001, 0.02)), "reconstructed": made, "private": real}


def _losses(rng) -> dict[str, Any]:
    steps = np.arange(0, 27_500, 50)
    fade = np.exp(-steps / 4000)
    noise = rng.standard_normal((4, len(steps)))
    return {
        "iteration": steps.tolist(),
        "generator": (-0.6 + 1.4 * fade + 0.25 * noise[0]).tolist(),
        "discriminator": (-0.4 - 3 * fade + 0.2 * noise[1]).tolist(),
        "inversion": (1.2 + 9 * fade + 0.4 * noise[2] * (0.3 + fade)).tolist(),
        "conditioning": (10 ** (-2.2 + 2.6 * fade + 0.15 * noise[3])).tolist(),
    }


@pytest.fixture
def make_released(tmp_path: Path) -> ReleasedRunMaker:
    """A maker for a run folder named ``run``."""
    return ReleasedRunMaker(tmp_path / "run")


@pytest.fixture
def make_named_released(tmp_path: Path) -> Callable[[str], ReleasedRunMaker]:
    """A maker for a run folder of any name."""
    return lambda name: ReleasedRunMaker(tmp_path / name)


class Sections:
    """The sections of a page by id, and the tables in them."""

    def __init__(self, sections: list[Section]) -> None:
        self.by_id = {section.id: section for section in sections}

    def blocks(self, name: str) -> list[Any]:
        """Blocks of a section, with those that are folded."""

        def unfolded(blocks: Any) -> list[Any]:
            return [
                one for block in blocks for one in (block, *(unfolded(block.blocks) if type(block) is Details else ()))
            ]

        return unfolded(self.by_id[name].blocks) if name in self.by_id else []

    def of(self, name: str, kind: type) -> list[Any]:
        """Blocks of a section of one kind."""
        return [block for block in self.blocks(name) if type(block) is kind]

    def words(self, name: str) -> str:
        """Paragraphs of a section, and the text of its templates."""
        found = (
            block.striptags() if isinstance(block, Markup) else getattr(block, "text", "")
            for block in self.blocks(name)
        )
        return " ".join(" ".join(map(str, found)).split())

    def lines(self, name: str, label: str = "") -> dict[str, list[str]]:
        """Lines of the tables whose label begins so, by their first cell; smaller lines behind a bar."""
        tables = [table for table in self.of(name, Table) if table.label.startswith(label)]
        found = [line.cells for table in tables for group in table.groups for line in group.lines]
        return {str(first.text): ["|".join((cell.text, *cell.small)) for cell in cells] for first, *cells in found}


@pytest.fixture
def sections_of(tmp_path: Path) -> Callable[..., Sections]:
    """The sections of the page of some rows and entries."""

    def make(rows: Any, entries: Any = (), redact: bool = False) -> Sections:
        folder = tmp_path / "made"
        folder.mkdir(exist_ok=True)
        kind = {"kind": "released-model"}
        results = {"schema_version": 1, "rows": [row | kind for row in rows]}
        (folder / "results.json").write_text(json.dumps(results))
        (folder / "inversion.json").write_text(json.dumps({"schema_version": 1, "entries": list(entries)}))
        (folder / "config.yaml").write_text("kind: released-model")
        return Sections([one for one in page([load_run(folder)], redact).sections if one is not None])

    return make
