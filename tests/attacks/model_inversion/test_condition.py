"""A classifier that learns from made rows and names real ones."""

import math

import torch

from lightleak.attacks.model_inversion.condition import ConditionClassifier


def rows(n: int, seed: int, spread: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of three classes around different centers, of which two differ in the second column alone."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(3).repeat_interleave(n)
    centers = torch.tensor([[3.0, 0.0], [0.0, 1.5], [0.0, -1.5]])
    return centers[labels] + spread * torch.randn(3 * n, 2, generator=random), labels


def test_rows_of_their_class_teach_it_and_others_do_not() -> None:
    held = rows(200, 0)
    made, labels = rows(50, 1)
    assert ConditionClassifier.fit(made, labels, 3).accuracy(*held) > 0.95
    assert ConditionClassifier.fit(made, labels.roll(50), 3).accuracy(*held) < 0.1  # of the next class
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))]
    assert ConditionClassifier.fit(made, shuffled, 3).accuracy(*held) < 0.6  # of no class in particular


def test_accuracy_is_a_mean_over_classes_and_unknown_without_rows() -> None:
    made, labels = rows(50, 1)
    fitted = ConditionClassifier.fit(made, labels, 3)
    first = ConditionClassifier(torch.zeros(3, 2), torch.eye(3)[0])  # always the first class
    many, few = torch.cat([made[:50], made[50:55]]), torch.cat([labels[:50], labels[50:55]])
    assert first.accuracy(many, few) == 0.5
    assert math.isnan(fitted.accuracy(made[:0], labels[:0]))


def test_the_same_rows_give_the_same_classifier() -> None:
    one, other = (ConditionClassifier.fit(*rows(30, 4), 3) for _ in range(2))
    assert torch.equal(one.weight, other.weight) and torch.equal(one.bias, other.bias)
