"""Rows of results.json and entries of inversion.json of a released-model audit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lightleak.attacks.model_inversion import FittedInversion, InversionAttack
from lightleak.core.class_samples import ClassSamples
from lightleak.experiments.experiment import target_name
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.released.judge import Judge, fact_sheet
from lightleak.metrics.inversion.score import MEASURES, SampleScores, SampleStatistics
from lightleak.targets import NetworkSpec

ALL = "all"
"""The class of a row about all classes."""

CURVE_POINTS = 500
"""Points of a loss curve that a report draws."""


@dataclass(frozen=True)
class Facts:
    """What all rows of one attack on one model share.

    Attributes:
        columns: their columns of results.json.
        real: the evaluation model's accuracy on held-out private rows of each class, by name.
    """

    columns: Mapping[str, Any]
    real: Mapping[str, float | None]


def facts_of(
    config: ReleasedConfig,
    seed: int,
    label: str,
    target: NetworkSpec,
    attack: InversionAttack,
    fitted: FittedInversion,
    judge: Judge | None,
    names: Sequence[str],
) -> Facts:
    """What rows of one attack share; without a judge nothing is known of the models' accuracy.

    ``real_rows_accuracy`` is what attack accuracy is, a mean over the classes that are attacked, of held-out private
    rows; ``real_rows_accuracy_pooled`` counts rows. Neither bounds an attack: made-up rows can be more typical.
    """
    options = attack.options()
    models = judge.models if judge is not None else {}
    own, real, disjoint = (models.get(role) for role in ("target", "evaluation", "disjoint"))
    columns = {
        "kind": "released-model",
        "protocol": "released",
        "dataset": config.data.title,
        "target": target_name(target),
        "evaluation": None if judge is None else target_name(judge.spec),
        "attack": attack.name,
        "label": label,
        "setting": config.setting,
        "seed": seed,
        "bridge": options.get("bridge"),
        "real_rows_accuracy": None if real is None else real.mean_over(names, fitted.classes),
        "real_rows_accuracy_pooled": None if real is None else real.test_accuracy,
        "disjoint_real_rows_accuracy": None if disjoint is None else disjoint.mean_over(names, fitted.classes),
        "target_test_accuracy": None if own is None else own.test_accuracy,
        "target_train_accuracy": None if own is None else own.train_accuracy,
        "fit_seconds": fitted.seconds,
        "options": options,
    }
    return Facts(columns, {} if real is None else real.by_class)


def overall_row(
    unit: str,
    facts: Facts,
    k: int,
    samples: ClassSamples,
    scores: SampleScores | None = None,
    statistics: SampleStatistics | None = None,
    public: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The row of all classes together; without the truth it holds what an attacker knows.

    ``public`` is what `compared_with_public` found.
    """
    row = _row(unit, facts, k, samples, ALL, facts.columns["real_rows_accuracy"]) | {
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
    if scores is not None:
        row |= scores.to_row()
    row |= (statistics.to_row() if statistics is not None else {}) | dict(public or {})
    return row | {f"over_public_{name}": _difference(row.get(name), row.get(f"public_{name}")) for name in MEASURES}


def class_rows(
    unit: str, facts: Facts, k: int, samples: ClassSamples, names: Sequence[str], scores: SampleScores | None = None
) -> Iterator[dict[str, Any]]:
    """One row for every class that was attacked."""
    scored = {row["class"]: row for row in scores.class_rows()} if scores is not None else {}
    for index in samples.labels.unique().tolist():
        name, own = names[index], samples.labels == index
        yield _row(unit, facts, k, samples, name, facts.real.get(name)) | {
            "samples": int(own.sum()),
            "inversion_loss": float(samples.loss[own].double().mean()),
            **scored.get(name, {}),
        }


def entry(
    facts: Facts,
    samples: ClassSamples,
    names: Sequence[str],
    fitted: FittedInversion,
    scores: SampleScores | None = None,
    statistics: SampleStatistics | None = None,
    judge: Judge | None = None,
    task: Mapping[str, Any] | None = None,
    redact: bool = False,
) -> dict[str, Any]:
    """What the report shows of one attack and search besides the rows of results.json; see the report's reader."""
    keys = ("label", "attack", "setting", "seed", "dataset")
    found: dict[str, Any] = {key: facts.columns[key] for key in keys} | {"latent_search": samples.search}
    found["losses"] = thinned(fitted.losses)
    found["pseudo_labels"] = [{**one, "class": names[one["class"]]} for one in fitted.pseudo_labels]
    if scores is not None:
        found |= scores.to_dict()
        if redact:
            found["nearest"] = [{key: one[key] for key in ("class", "distance")} for one in found["nearest"]]
    if statistics is not None:
        found |= statistics.to_dict()
    if judge is not None:
        found |= {f"{role}_scores": fact_sheet(scores) for role, scores in judge.models.items()}
    if task is not None:
        found["task"] = dict(task)
    return found


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


def _row(unit: str, facts: Facts, k: int, samples: ClassSamples, name: str, real: float | None) -> dict[str, Any]:
    return {
        "unit": unit if name == ALL else f"{unit}-{name}",
        **facts.columns,
        "evaluation_index": k,
        "latent_search": samples.search,
        "class": name,
        "real_rows_accuracy_class": real,
        "threat_model": samples.threat_model,
        "threat": None if samples.threat is None else samples.threat.to_dict(),
    }
