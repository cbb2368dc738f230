"""ProVFL-M is distribution comparison on a run that its augmentation has bent."""

import json
from typing import Any

import lightning
import pytest
import torch

from lightleak.attacks.property_inference import provfl_m  # noqa: F401  registers the attack
from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS
from lightleak.attacks.property_inference.comparison_config import DistributionComparisonConfig
from lightleak.attacks.property_inference.distribution_comparison import DistributionComparison
from lightleak.attacks.property_inference.label_replacement import LabelReplacementConfig
from lightleak.attacks.property_inference.model_refinement import ModelRefinementConfig
from lightleak.callbacks.intermediate_capture import IntermediateCapture
from lightleak.core.errors import UsageError
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts
from lightleak.data.vertical import VerticalDataModule, VerticalRows
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split import SplitClassifier, SplitSpec

pytestmark = pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
WIDTHS = (3, 3)
N_ROWS = 1500
MIXTURE: dict[str, Any] = {"estimator": "mixture"}


def attack(**options: Any) -> Any:
    return PROPERTY_ATTACKS.get("provfl_m")(**options)


def world() -> tuple[VerticalRows, torch.Tensor]:
    """The property is half visible in the adversary's first column (of party 1) and hardly in the label."""
    draw = torch.Generator().manual_seed(0)
    has = torch.rand(N_ROWS, generator=draw) < 0.7
    inputs = torch.randn(N_ROWS, 6, generator=draw)
    inputs[:, 3] += 1.5 * has
    labels = (inputs[:, 1] + inputs[:, 4] > 0).long()
    return VerticalRows(inputs, labels, torch.arange(N_ROWS), WIDTHS), has


def observe(
    adversary: Any, augmentation: Any = None, n_classes: int = 2
) -> tuple[IntermediateResults, float, SplitClassifier]:
    rows, has = world()
    known = torch.cat([has.nonzero()[:150, 0], (~has).nonzero()[:150, 0]])
    auxiliary = AuxiliaryData("a=b", known, has[known], ("own",))
    capture = IntermediateCapture(1, 0, adversary, epochs=(3,))
    callbacks: list[lightning.Callback] = [capture]
    if augmentation is not None:
        callbacks += augmentation.callbacks(adversary, 1, auxiliary, rows.party_inputs(1, known), seed=0)
    module = SplitClassifier(SplitSpec(WIDTHS), OptimizerConfig("sgd", 0.05), seed=0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=4,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, datamodule=VerticalDataModule(rows, rows, 32))
    ids, results = capture.results(3)
    facts = VerticalFacts(2, 1, 0, ("own",), ("theirs",), 3, 32, n_classes)
    return IntermediateResults(adversary, ids, results, auxiliary, facts), float(has.float().mean()), module


def separation(seen: IntermediateResults) -> float:
    """How far apart the norms of the two auxiliary classes lie, in standard deviations."""
    norms = seen.results["AO"][seen.positions(seen.auxiliary.ids)].abs().mean(1)
    has = seen.auxiliary.has_property
    return float((norms[has].mean() - norms[~has].mean()).abs() / norms.std())


def test_refinement_makes_a_passive_adversary_see_more() -> None:
    made = attack(**MIXTURE, strength=1.0)
    plain, _, untouched = observe("C2")
    bent, truth, module = observe("C2", made.training_part("C2"))
    assert separation(bent) > separation(plain) + 0.3
    assert made.run(bent).fraction == pytest.approx(truth, abs=0.1)
    # The victim's network is not the adversary's to touch between epochs; in four epochs it drifts a little.
    before, after = ([party.linears[0].weight for party in one.network.bottoms] for one in (untouched, module))
    moved = [float((a - b).norm()) for a, b in zip(after, before, strict=True)]
    assert moved[0] < 0.2 * moved[1]


def test_the_estimate_is_that_of_distribution_comparison() -> None:
    seen, _, _ = observe("C1")
    found = attack(**MIXTURE).run(seen, seed=3)
    plain = DistributionComparison(DistributionComparisonConfig(estimator="mixture")).run(seen, seed=3)
    assert (found.fraction, found.low, found.high, found.by_kind) == (
        plain.fraction,
        plain.low,
        plain.high,
        plain.by_kind,
    )
    assert found.details["augmentation"] == "LR+MR"
    assert "that follows the protocol" in plain.threat_model
    told = "trains on the property in place of the auxiliary rows' labels and bends its own bottom network"
    assert told in found.threat_model
    assert "follows the protocol" not in found.threat_model
    assert (
        attack(**MIXTURE, label_replacement=False, model_refinement=False).run(seen, 3).threat_model
        == plain.threat_model
    )


def test_the_variant_that_cheats_says_so() -> None:
    seen, _, _ = observe("C1")
    published = attack(as_published=True, estimator="mixture")
    assert "this variant cheats" in published.run(seen).threat_model
    assert published.training_part("C1").label_replacement == LabelReplacementConfig.as_published()
    assert published.training_part("C1").model_refinement == ModelRefinementConfig.as_published()
    assert published.config.comparison.features == "sorted"


@pytest.mark.parametrize(
    ("options", "adversary", "n_classes", "expected"),
    [
        ({}, "C1", 2, "LR+MR"),
        ({}, "C2", 2, "MR"),
        ({}, "C1", 3, "MR"),
        ({"label_replacement": False}, "C1", 2, "MR"),
        ({"model_refinement": False}, "C1", 2, "LR"),
        ({"model_refinement": False}, "C2", 2, "passive"),
        ({"label_replacement": True, "model_refinement": False}, "C1", 2, "LR"),
    ],
)
def test_each_adversary_does_what_it_can(
    options: dict[str, Any], adversary: Any, n_classes: int, expected: str
) -> None:
    assert attack(**options).training_part(adversary, n_classes).describe() == expected


def test_a_passive_adversary_asked_to_replace_labels_is_refused() -> None:
    wanted = attack(**MIXTURE, label_replacement=True)
    with pytest.raises(UsageError, match=r"label replacement needs an active adversary \(C1\).*C2 is passive"):
        wanted.training_part("C2")
    seen, _, _ = observe("C2")
    for call in (wanted.check, wanted.run):
        with pytest.raises(UsageError, match="needs an active adversary"):
            call(seen)


def test_settings_reach_their_part_and_are_json_ready() -> None:
    made = attack(strength=0.5, cap=2.0, query_relabeled=True, samples=50, kinds=["AO"])
    augmentation = made.training_part("C1")
    assert augmentation.model_refinement == ModelRefinementConfig(strength=0.5, cap=2.0)
    assert augmentation.label_replacement == LabelReplacementConfig(query_relabeled=True)
    assert made.config.comparison == DistributionComparisonConfig(samples=50, kinds=("AO",))
    plain = made.options()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["samples"] == 50
    assert plain["augmentation"]["model_refinement"]["strength"] == 0.5
    for options, message in (
        ({"strenght": 1.0}, "no setting strenght"),
        ({"strength": -1.0}, "strength must be at least 0, got -1.0"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"rows": "all"}, "rows must be one of"),
    ):
        with pytest.raises(UsageError, match=message):
            attack(**options)
