"""Rows of results.json and entries of inversion.json of a released-model audit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from lightleak.attacks.model_inversion import FittedInversion, InversionAttack
from lightleak.core.class_samples import ClassSamples
from lightleak.core.released_model import ReleasedModel
from lightleak.core.results import ALL
from lightleak.data.column import Column
from lightleak.data.schema import TableSchema
from lightleak.experiments.experiment import target_name
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.released.judge import Judge, fact_sheet
from lightleak.metrics.inversion.score import MEASURES, SampleScores, SampleStatistics
from lightleak.targets import NetworkSpec

CURVE_POINTS = 500
"""Points of a loss curve that a report draws."""


@dataclass(frozen=True)
class Subject:
    """What is attacked.

    Attributes:
        seen: what the attacker holds.
        judge: the truth; None where nobody knows it.
        task: what the report says of the task, where the audit made it.
    """

    seen: ReleasedModel
    judge: Judge | None
    task: Mapping[str, Any] | None = None

    @property
    def label(self) -> Column:
        """The label column."""
        return TableSchema.from_dict(self.seen.encoder["schema"]).label


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a fitted attack.

    Attributes:
        unit: its unit.
        number: of the evaluation, from 0.
        samples: rows that were made.
        scores: how they compare with private rows; None without the truth.
        statistics: how as many rows of all classes compare; None where they are not compared.
    """

    unit: str
    number: int
    samples: ClassSamples
    scores: SampleScores | None
    statistics: SampleStatistics | None


@dataclass(frozen=True)
class FittedAttack:
    """A fitted attack on one model: makes the rows and entries of its evaluations.

    Attributes:
        config: the audit.
        seed: root seed.
        label: the attack's label in the config.
        setting: name of the setting in results.
        attack: the attack.
        fitted: what it has learned.
        subject: what is attacked.
    """

    config: ReleasedConfig
    seed: int
    label: str
    setting: str
    attack: InversionAttack
    fitted: FittedInversion
    subject: Subject

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the classes."""
        return self.subject.label.categories

    @cached_property
    def shared(self) -> dict[str, Any]:
        """What all rows share; without a judge nothing is known of the models' accuracy.

        ``real_rows_accuracy`` is what attack accuracy is, a mean over the classes that are attacked, of held-out
        private rows; ``real_rows_accuracy_pooled`` counts rows. Neither bounds an attack: made-up rows can be more
        typical.
        """
        judge, options, classes = self.subject.judge, self.attack.options(), self.fitted.classes
        models = judge.models if judge is not None else {}
        own, real, disjoint = (models.get(role) for role in ("target", "evaluation", "disjoint"))
        return {
            "kind": "released-model",
            "protocol": "released",
            "dataset": self.config.data.title,
            "target": target_name(NetworkSpec.from_dict(self.subject.seen.network)),
            "evaluation": None if judge is None else target_name(judge.spec),
            "attack": self.attack.name,
            "label": self.label,
            "setting": self.setting,
            "seed": self.seed,
            "bridge": options.get("bridge"),
            "real_rows_accuracy": None if real is None else real.mean_over(self.names, classes),
            "real_rows_accuracy_pooled": None if real is None else real.test_accuracy,
            "disjoint_real_rows_accuracy": None if disjoint is None else disjoint.mean_over(self.names, classes),
            "target_test_accuracy": None if own is None else own.test_accuracy,
            "target_train_accuracy": None if own is None else own.train_accuracy,
            "fit_seconds": self.fitted.seconds,
            "options": options,
        }

    def overall_row(self, one: Evaluation, public: Mapping[str, Any]) -> dict[str, Any]:
        """The row of all classes together; without the truth it holds what an attacker knows.

        ``public`` is what `compared_with_public` found.
        """
        samples = one.samples
        row = self._row(one, ALL, self.shared["real_rows_accuracy"]) | {
            "samples": len(samples.labels),
            "inversion_loss": float(samples.loss.double().mean()),
            "inversion_loss_searched": samples.details.get("loss_after"),
            "inversion_loss_start": samples.details.get("loss_before"),
            "seconds": samples.seconds,
            "excluded_classes": len(samples.excluded),
            "warnings": list(samples.warnings),
            "shapes_score": None,
            "pair_trends_score": None,
        }
        for found in (one.scores, one.statistics):
            row |= {} if found is None else found.to_row()
        row |= public
        return row | {f"over_public_{name}": _difference(row.get(name), row.get(f"public_{name}")) for name in MEASURES}

    def class_rows(self, one: Evaluation) -> Iterator[dict[str, Any]]:
        """One row for every class that was attacked."""
        judge, samples = self.subject.judge, one.samples
        real = {} if judge is None else judge.models["evaluation"].by_class
        scored = {} if one.scores is None else {row["class"]: row for row in one.scores.class_rows()}
        for index in samples.labels.unique().tolist():
            name, own = self.names[index], samples.labels == index
            yield self._row(one, name, real.get(name)) | {
                "samples": int(own.sum()),
                "inversion_loss": float(samples.loss[own].double().mean()),
                **scored.get(name, {}),
            }

    def _row(self, one: Evaluation, name: str, real: float | None) -> dict[str, Any]:
        samples = one.samples
        return {
            "unit": one.unit if name == ALL else f"{one.unit}-{name}",
            **self.shared,
            "evaluation_index": one.number,
            "latent_search": samples.search,
            "class": name,
            "real_rows_accuracy_class": real,
            "threat_model": samples.threat_model,
            "threat": None if samples.threat is None else samples.threat.to_dict(),
        }

    def entry(self, one: Evaluation) -> dict[str, Any]:
        """What the report shows of a search besides the rows of results.json; see the report's reader."""
        keys = ("label", "attack", "setting", "seed", "dataset")
        found: dict[str, Any] = {key: self.shared[key] for key in keys} | {"latent_search": one.samples.search}
        found["losses"] = thinned(self.fitted.losses)
        found["pseudo_labels"] = [{**label, "class": self.names[label["class"]]} for label in self.fitted.pseudo_labels]
        if one.scores is not None:
            found |= one.scores.to_dict()
            if self.config.redact:
                found["nearest"] = [{key: near[key] for key in ("class", "distance")} for near in found["nearest"]]
        if one.statistics is not None:
            found |= one.statistics.to_dict()
        if self.subject.judge is not None:
            found |= {f"{role}_scores": fact_sheet(scores) for role, scores in self.subject.judge.models.items()}
        return found | ({} if self.subject.task is None else {"task": dict(self.subject.task)})


def thinned(losses: Mapping[str, Sequence[float]], most: int = CURVE_POINTS) -> dict[str, list[float]]:
    """Curves of at most ``most`` points, each the mean of as many iterations, with the last of them as its place."""
    length = len(losses.get("iteration", ()))
    step = max(1, -(-length // most))
    spans = [slice(at, min(at + step, length)) for at in range(0, length, step)]
    return {
        name: [curve[span][-1] if name == "iteration" else fmean(curve[span]) for span in spans]
        for name, curve in losses.items()
    }


def _difference(value: float | None, public: float | None) -> float | None:
    return None if value is None or public is None else value - public
