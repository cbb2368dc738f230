"""Intermediate results and their truth on disk: safetensors and JSON, never pickled, readable by their owner only.

An observation and its truth go into folders of their own, so that one can be handed on without the other. The file
`TRAINING` next to them says how the training went; no attack reads it.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import PropertyTruth
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts
from lightleak.core.parties import Kind
from lightleak.core.records import read_record, write_record
from lightleak.core.stored import FILE_MODE, FOLDER_MODE, MAX_TENSOR_BYTES, read_facts, read_tensors, write_json
from lightleak.core.threat_model import Does

SCHEMA_VERSION = 1

OBSERVATION, TRUTH = "intermediate results", "property truth"

TRAINING = "training.json"
"""File of a capture with its `TrainingRecord`; captures of earlier versions lack it."""


@dataclass(frozen=True)
class TrainingRecord:
    """How the training went that was captured.

    Attributes:
        seed: its root seed.
        defense: label of the defense in the config.
        defense_name: name of the defense.
        defense_strength: its strength, where it has one.
        variant: what the adversary did meanwhile, such as ``passive`` or ``LR+MR``.
        does: how it departed from the protocol.
        defense_options: settings of the defense.
    """

    seed: int
    defense: str
    defense_name: str
    defense_strength: float | None = None
    variant: str = "passive"
    does: tuple[Does, ...] = ()
    defense_options: Mapping[str, Any] = field(default_factory=dict)


def save_observation(seen: IntermediateResults, folder: Path) -> None:
    """Write ``tensors.safetensors`` and ``facts.json`` into ``folder``, in place of an earlier one."""
    tensors = {f"results/{kind}": values for kind, values in seen.results.items()}
    tensors |= {"ids": seen.ids, "auxiliary/ids": seen.auxiliary.ids}
    tensors["auxiliary/has_property"] = seen.auxiliary.has_property
    own = {"features": seen.features, "labels": seen.labels}
    tensors |= {name: values for name, values in own.items() if values is not None}
    known = seen.auxiliary
    facts = {
        "adversary": seen.adversary,
        "auxiliary": {"property_name": known.property_name, "columns": list(known.columns)},
        "facts": asdict(seen.facts),
    }
    _write(folder, OBSERVATION, facts, tensors)


def load_observation(folder: Path, max_tensor_bytes: int = MAX_TENSOR_BYTES) -> IntermediateResults:
    """Read what `save_observation` wrote.

    Raises:
        ObservationError: a file is missing, damaged, too large, of an unknown version, of something else, or the parts
            do not fit each other.
    """
    facts, tensors = _read(folder, OBSERVATION, max_tensor_bytes)
    results = {key.removeprefix("results/"): values for key, values in tensors.items() if key.startswith("results/")}
    plain, optional = {"ids", "auxiliary/ids", "auxiliary/has_property"}, {"features", "labels"}
    _check_names(folder, set(tensors) - {f"results/{kind}" for kind in results}, plain | optional, optional)
    _check_tensor(folder, "ids", tensors["ids"], 1, torch.int64)
    _check_tensor(folder, "auxiliary/ids", tensors["auxiliary/ids"], 1, torch.int64)
    _check_tensor(folder, "auxiliary/has_property", tensors["auxiliary/has_property"], 1, torch.bool)
    for name, values in results.items():
        _check_tensor(folder, name, values, 2, None)
    if (own := tensors.get("features")) is not None:  # a table of bits is kept as bytes
        _check_tensor(folder, "features", own, 2, torch.uint8 if own.dtype == torch.uint8 else None)
    if (labels := tensors.get("labels")) is not None:
        _check_tensor(folder, "labels", labels, 1, torch.int64)
    try:
        auxiliary, protocol = dict(facts["auxiliary"]), dict(facts["facts"])
        columns, name = _strings(auxiliary["columns"]), _string(auxiliary["property_name"])
        held = {*_strings(protocol["adversary_columns"]), *_strings(protocol["victim_columns"])}
        if foreign := sorted(set(columns) - held):
            raise ValueError(f"auxiliary columns must be the adversary's own, got {foreign[0]!r}")
        known = AuxiliaryData(name, tensors["auxiliary/ids"], tensors["auxiliary/has_property"], columns)
        return IntermediateResults(
            adversary=facts["adversary"],
            ids=tensors["ids"],
            results=cast(Mapping[Kind, Tensor], results),
            auxiliary=known,
            facts=_protocol(protocol),
            features=tensors.get("features"),
            labels=tensors.get("labels"),
        )
    except ObservationError as error:
        raise ObservationError(f"{folder}: {error}") from error
    except (TypeError, ValueError, KeyError) as error:
        raise ObservationError(f"{folder / 'facts.json'} does not describe {OBSERVATION}: {error}") from error


def save_truth(truth: PropertyTruth, folder: Path) -> None:
    """Write ``tensors.safetensors`` and ``facts.json`` into ``folder``, in place of an earlier one."""
    facts = {"property_name": truth.property_name, "fraction": truth.fraction}
    _write(folder, TRUTH, facts, {"has_property": truth.has_property})


def load_truth(folder: Path, max_tensor_bytes: int = MAX_TENSOR_BYTES) -> PropertyTruth:
    """Read what `save_truth` wrote.

    Raises:
        ObservationError: as for `load_observation`; a fraction outside [0, 1].
    """
    facts, tensors = _read(folder, TRUTH, max_tensor_bytes)
    _check_names(folder, set(tensors), {"has_property"}, set())
    _check_tensor(folder, "has_property", tensors["has_property"], 1, torch.bool)
    try:
        name, fraction = _string(facts["property_name"]), facts["fraction"]
        if not isinstance(fraction, int | float) or isinstance(fraction, bool):
            raise ValueError(f"fraction must be a number, got {fraction!r}")
    except (TypeError, ValueError, KeyError) as error:
        raise ObservationError(f"{folder / 'facts.json'} does not describe {TRUTH}: {error}") from error
    if not 0 <= fraction <= 1:
        raise ObservationError(f"{folder}: fraction must be from 0 to 1, got {fraction}")
    return PropertyTruth(name, float(fraction), tensors["has_property"])


def save_training(record: TrainingRecord, folder: Path) -> None:
    """Write `TRAINING` into the folder of a capture."""
    write_json(folder / TRAINING, {"schema_version": SCHEMA_VERSION, **write_record(record)})
    (folder / TRAINING).chmod(FILE_MODE)


def load_training(folder: Path) -> TrainingRecord | None:
    """Read what `save_training` wrote; None where a capture does not say how it was trained.

    Raises:
        ObservationError: the file is damaged, too large, of an unknown version, or a value has a wrong type.
    """
    path = folder / TRAINING
    if not path.exists():
        return None
    try:
        return read_record(TrainingRecord, read_facts(path, "a training", SCHEMA_VERSION), str(path))
    except UsageError as error:
        raise ObservationError(str(error)) from error


def _write(folder: Path, what: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    folder.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    # The folder gets its name when it is whole: an interrupted save leaves none.
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=FOLDER_MODE)
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, partial / "tensors.safetensors")
    (partial / "facts.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION, "what": what, **facts}, indent=1))
    for file in partial.iterdir():
        file.chmod(FILE_MODE)
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)


def _read(folder: Path, what: str, max_bytes: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    path = folder / "facts.json"
    facts = read_facts(path, what, SCHEMA_VERSION)
    if (kind := facts.pop("what", None)) != what:
        raise ObservationError(f"{path} must describe {what}, got {kind!r}")
    return facts, read_tensors(folder / "tensors.safetensors", max_bytes)


def _check_names(folder: Path, got: set[str], allowed: set[str], optional: set[str]) -> None:
    path = folder / "tensors.safetensors"
    if unknown := sorted(got - allowed):
        raise ObservationError(
            f"{path} holds unknown tensors {', '.join(unknown)}; known: {', '.join(sorted(allowed))}"
        )
    if missing := sorted(allowed - optional - got):
        raise ObservationError(f"{path} lacks {', '.join(missing)}")


def _check_tensor(folder: Path, name: str, values: Tensor, n_dims: int, dtype: torch.dtype | None) -> None:
    fits = values.is_floating_point() if dtype is None else values.dtype == dtype
    if values.ndim != n_dims or not fits:
        wanted = f"{n_dims} dimension{'s' * (n_dims > 1)} of {dtype or 'a float type'}"
        raise ObservationError(f"{folder}: {name} must have {wanted}, got {values.ndim} of {values.dtype}")


def _protocol(facts: dict[str, Any]) -> VerticalFacts:
    for name, (least, most) in _RANGES.items():
        value = facts.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    for name in ("adversary_party", "victim_party"):
        if facts[name] >= facts["n_parties"]:
            raise ValueError(f"{name} must be below the {facts['n_parties']} parties, got {facts[name]}")
    if facts["adversary_party"] == facts["victim_party"]:
        raise ValueError(f"adversary and victim must be two parties, got {facts['victim_party']} for both")
    named = {name: _strings(facts[name]) for name in ("adversary_columns", "victim_columns")}
    if shared := sorted(set(named["adversary_columns"]) & set(named["victim_columns"])):
        raise ValueError(f"a column belongs to one party, got {shared[0]!r} for both")
    return VerticalFacts(**(facts | named))


_RANGES = {
    "n_parties": (2, 10_000),
    "adversary_party": (0, 10_000),
    "victim_party": (0, 10_000),
    "epoch": (0, 10**9),
    "batch_size": (1, 10**9),
    "n_classes": (2, 100_000),
}
"""What numbers of a file may be: more is no protocol, and may take all memory."""


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}")
    return value


def _strings(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ValueError(f"expected a list of names, got {values!r}")
    return tuple(map(_string, values))
