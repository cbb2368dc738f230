"""The truth of a released-model audit: private rows, and the evaluation models that say what a row looks like."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from lightleak.attacks.model_inversion.released import logits_of
from lightleak.core.class_samples import ClassSamples
from lightleak.core.errors import ObservationError
from lightleak.core.stored import read_facts, read_groups, write_parts
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.inversion.score import PrivateRows, SampleScores, score_samples
from lightleak.targets import NetworkSpec, build_network

SCHEMA_VERSION = 1
_PARTS = ("weights", "encoder", "disjoint")


@dataclass(frozen=True)
class ModelScores:
    """How good a model is: shares of rows whose class it names.

    Attributes:
        train_accuracy: on the rows it was trained on.
        validation_accuracy: on the validation rows.
        test_accuracy: on held-out private rows.
        epochs: epochs until it stopped.
        seconds: wall time of the training.
        by_class: accuracy on the held-out rows of each class, by name; None for a class without any.
    """

    train_accuracy: float
    validation_accuracy: float
    test_accuracy: float
    epochs: int
    seconds: float
    by_class: Mapping[str, float | None] = field(default_factory=dict)

    def mean_over(self, names: Sequence[str], classes: Sequence[int]) -> float | None:
        """Mean accuracy over those classes that have held-out rows; None where none has."""
        known = [value for index in classes if (value := self.by_class.get(names[index])) is not None]
        return fmean(known) if known else None


@dataclass(frozen=True)
class Judge:
    """What reconstructed rows are compared with; only audits hold it.

    Attributes:
        spec: specification of both evaluation models.
        network: the evaluation model that learned from the target's training rows, in eval mode.
        encoder: the target's encoder, which is the evaluation models' too.
        train: private rows that target and evaluation model were trained on, with their class.
        test: private rows that no model was trained on, with their class.
        unseen: private rows that the disjoint evaluation model alone was trained on, with their class.
        models: scores of ``target``, ``evaluation`` and ``disjoint``.
        disjoint: the evaluation model that shares no training row with the target, in eval mode.
    """

    spec: NetworkSpec
    network: nn.Module
    encoder: TableEncoder
    train: pd.DataFrame
    test: pd.DataFrame
    unseen: pd.DataFrame
    models: Mapping[str, ModelScores]
    disjoint: nn.Module

    @cached_property
    def private(self) -> PrivateRows:
        """The private rows, read once; held out is what neither target nor first evaluation model was trained on."""
        held_out = pd.concat([self.test, self.unseen], ignore_index=True)
        return PrivateRows.of(self.encoder.schema, self.train, held_out)

    def to(self, device: torch.device) -> "Judge":
        """Move the evaluation models, and with them the comparison of rows, to ``device``."""
        self.network.to(device)
        self.disjoint.to(device)
        return self

    def score(self, samples: ClassSamples, seed: int = 0) -> SampleScores:
        """Compare rows, class by class."""
        inputs = self.encoder.encode(samples.rows)
        logits, second = (logits_of(network, inputs) for network in (self.network, self.disjoint))
        device = next(self.network.parameters(), inputs).device
        return score_samples(samples.rows, samples.labels, logits, self.private, seed, device, disjoint=second)

    def save(self, folder: Path) -> None:
        """Write the truth into ``folder`` (created), readable by its owner only."""
        encoder, statistics = self.encoder.to_state()
        weights = {"weights": self.network.state_dict(), "disjoint": self.disjoint.state_dict()}
        facts = {
            "schema_version": SCHEMA_VERSION,
            "network": self.spec.to_dict(),
            "encoder": encoder,
            "models": {name: asdict(scores) for name, scores in self.models.items()},
        }
        tables = {"train": self.train, "test": self.test, "unseen": self.unseen}
        write_parts(folder, facts, {**weights, "encoder": statistics}, tables)

    @classmethod
    def load(cls, folder: Path) -> "Judge":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing or damaged.
        """
        facts = read_facts(folder / "facts.json", "truth of a released model", SCHEMA_VERSION)
        groups = read_groups(folder / "tensors.safetensors", _PARTS)
        try:
            spec = NetworkSpec.from_dict(facts["network"])
            network, disjoint = (_restored(spec, groups[name]) for name in ("weights", "disjoint"))
            encoder = TableEncoder.from_state(facts["encoder"], groups["encoder"])
            models = {name: ModelScores(**scores) for name, scores in facts["models"].items()}
            train, test, unseen = (pd.read_parquet(folder / f"{name}.parquet") for name in ("train", "test", "unseen"))
        except (KeyError, TypeError, RuntimeError, OSError, ValueError) as error:
            raise ObservationError(f"{folder} does not hold the truth of a released model: {error}") from error
        return cls(spec, network, encoder, train, test, unseen, models, disjoint)


def _restored(spec: NetworkSpec, weights: Mapping[str, Tensor]) -> nn.Module:
    """The network in eval mode."""
    network = build_network(spec, seed=0)
    network.load_state_dict(weights)
    return network.requires_grad_(False).eval()


def accuracy(predicted: Tensor, labels: Tensor) -> float | None:
    """Share of equal entries; None where there are none."""
    return float((predicted == labels).double().mean()) if len(labels) else None


def fact_sheet(scores: ModelScores) -> dict[str, Any]:
    """Scores as inversion.json holds them, with the mean over all classes that have held-out rows.

    >>> fact_sheet(ModelScores(0.9, 0.8, 0.7, 3, 1.0, {"a": 1.0, "b": 0.5, "c": None}))["class_mean"]
    0.75
    """
    known = [value for value in scores.by_class.values() if value is not None]
    found = {name: value for name, value in asdict(scores).items() if name != "by_class"}
    return found | ({"class_mean": fmean(known)} if known else {})
