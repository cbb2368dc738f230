"""What `lightleak list targets` says of exact inversion is what the attack says of the built network."""

from typing import Any

import pytest
from torch import nn

from lightleak.attacks import ATTACKS
from lightleak.cards.exactness import WITH_DROPOUT, exact_inversion
from lightleak.core.errors import UnsupportedError
from lightleak.targets import NETWORKS
from lightleak.targets.mlp import MLP


def test_each_case_is_told_apart() -> None:
    assert exact_inversion("mlp") == "supported"
    assert exact_inversion("resnet") == "supported where the server knows the batch statistics of BatchNorm"
    assert exact_inversion("linear") == "not supported: exact inversion needs a hidden layer, and Linear has none"
    assert exact_inversion("boosted_trees") == "not supported: no gradient"
    assert exact_inversion("image_cnn") == "not applicable: it does not take encoded tables"


def test_the_attack_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = ATTACKS.get("exact")

    def refusing(**options: Any) -> Any:
        made = exact(**options)

        def check(update: Any) -> None:
            if update.training_mode:
                raise UnsupportedError("exact: not in train mode")

        made.check = check
        return made

    monkeypatch.setitem(ATTACKS._entries, "exact", refusing)
    assert exact_inversion("mlp") == "supported where clients compute in eval mode"


def test_dropout_by_default_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dropping(MLP):
        def __init__(self, layout: Any, n_classes: int) -> None:
            super().__init__(layout, n_classes)
            self.dropout = nn.Dropout(0.5)

    monkeypatch.setitem(NETWORKS._entries, "dropping", Dropping)
    assert exact_inversion("dropping") == f"supported; {WITH_DROPOUT}"


def test_dropout_in_front_of_the_first_layer_is_refused_in_train_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    class Masking(MLP):
        def __init__(self, layout: Any, n_classes: int) -> None:
            super().__init__(layout, n_classes)
            self.mask = nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            return super().forward(self.mask(x))

    monkeypatch.setitem(NETWORKS._entries, "masking", Masking)
    assert exact_inversion("masking") == "supported where clients compute in eval mode"
