"""Who may do what, and with which rows."""

import json
from typing import Any

import pytest
import torch

from lightleak.attacks.property_inference.augmentation import Augmentation
from lightleak.attacks.property_inference.label_replacement import LabelReplacement, LabelReplacementConfig
from lightleak.attacks.property_inference.model_refinement import ModelRefinement, ModelRefinementConfig
from lightleak.core.errors import UsageError
from lightleak.core.intermediate_results import AuxiliaryData

AUXILIARY = AuxiliaryData("sex=Male", torch.tensor([4, 7, 9]), torch.tensor([True, False, True]), ("age",))
INPUTS = torch.ones(3, 2)
BOTH = Augmentation(LabelReplacementConfig(), ModelRefinementConfig())


def made(augmentation: Augmentation, adversary: Any = "C1", **more: Any) -> list[Any]:
    return augmentation.callbacks(adversary, 1, AUXILIARY, INPUTS, seed=0, **more)


def test_every_part_becomes_a_callback_on_the_auxiliary_rows() -> None:
    replacement, refinement = made(BOTH)
    assert isinstance(replacement, LabelReplacement)
    assert isinstance(refinement, ModelRefinement)
    assert refinement.party == 1
    ids, zeros = torch.arange(10), torch.zeros(10, dtype=torch.long)
    assert replacement.relabel(ids, zeros).nonzero().flatten().tolist() == [4, 9]
    assert [type(one) for one in made(Augmentation(model_refinement=ModelRefinementConfig()), "C2")] == [
        ModelRefinement
    ]
    assert made(Augmentation(), "C2") == []


def test_a_passive_adversary_cannot_replace_labels() -> None:
    with pytest.raises(UsageError, match=r"needs an active adversary \(C1\), which has the labels; C2"):
        made(BOTH, "C2")


def test_the_published_replacement_takes_what_no_adversary_knows_explicitly() -> None:
    with pytest.raises(UsageError, match=r"needs every_property, .* which no adversary knows; the honest variant is"):
        made(Augmentation.as_published())
    ids, has = torch.arange(20), torch.arange(20) < 5
    replacement, refinement = made(Augmentation.as_published(strength=2.0), every_property=(ids, has))
    labels = torch.ones(20, dtype=torch.long)
    assert replacement.relabel(ids, labels).nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
    assert replacement.n_auxiliary == 3
    assert replacement.config.query_relabeled
    assert refinement.config == ModelRefinementConfig(strength=2.0, objective="as_coded")


def test_only_the_cheating_variant_reads_the_property_of_other_rows() -> None:
    everything = (torch.arange(20), torch.ones(20, dtype=torch.bool))
    replacement, _ = made(BOTH, every_property=everything)
    assert replacement.relabel(torch.arange(20), torch.zeros(20, dtype=torch.long)).nonzero().flatten().tolist() == [
        4,
        9,
    ]


def test_names_and_plain_form() -> None:
    names = [
        Augmentation(LabelReplacementConfig()).describe(),
        Augmentation(model_refinement=ModelRefinementConfig()).describe(),
        BOTH.describe(),
        Augmentation().describe(),
    ]
    assert names == ["LR", "MR", "LR+MR", "passive"]
    plain = json.loads(json.dumps(BOTH.to_dict()))
    assert plain == BOTH.to_dict()
    again = ModelRefinementConfig(**plain["model_refinement"])
    assert again == BOTH.model_refinement
    assert Augmentation().to_dict() == {"label_replacement": None, "model_refinement": None}
