"""Areas under the ROC curve against counted pairs, and against silence where a class is absent."""

import warnings

import pytest
import torch
from torch import Tensor

from lightleak.targets.evaluation import classification_metrics
from lightleak.targets.split.loss import FLUSH_AFTER, EpochLoss, loss_sum


def counted_area(scores: Tensor, positive: Tensor) -> float:
    """Share of pairs (positive, negative) in the right order, ties half: the area's definition."""
    difference = scores[positive].unsqueeze(1) - scores[~positive]
    return float(((difference > 0).double() + 0.5 * (difference == 0)).mean())


def computed(n_classes: int, probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    metrics = classification_metrics(n_classes, "test/")
    for part in torch.arange(len(labels)).split(7):
        metrics.update(probabilities[part], labels[part])
    return {name: float(value) for name, value in metrics.compute().items()}


def test_two_classes() -> None:
    scores, labels = torch.rand(40).mul(10).round().div(10), torch.randint(2, (40,))
    values = computed(2, scores, labels)
    assert values["test/auroc"] == pytest.approx(counted_area(scores, labels == 1), abs=1e-6)
    assert values["test/accuracy"] == pytest.approx(float(((scores > 0.5) == labels).float().mean()))


@pytest.mark.parametrize("absent", [(), (2,), (0, 3)])
def test_many_classes_count_those_that_are_there(absent: tuple[int, ...]) -> None:
    probabilities = torch.softmax(torch.randn(60, 5), 1)
    there = [label for label in range(5) if label not in absent]
    labels = torch.tensor(there)[torch.randint(len(there), (60,))]
    expected = sum(counted_area(probabilities[:, label], labels == label) for label in there) / len(there)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values = computed(5, probabilities, labels)
    assert values["test/auroc"] == pytest.approx(expected, abs=1e-6)
    assert values["test/accuracy"] == pytest.approx(float((probabilities.argmax(1) == labels).float().mean()))
    told = [str(warning.message) for warning in caught if "AUROC" in str(warning.message)]
    assert told == ([f"AUROC leaves out {len(absent)} of 5 classes, which have no rows"] if absent else [])


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_of_one_class_have_no_area(n_classes: int, label: int) -> None:
    probabilities = torch.rand(8) if n_classes == 2 else torch.softmax(torch.randn(8, n_classes), 1)
    with pytest.warns(UserWarning, match="AUROC is undefined: all rows are of one class"):
        values = computed(n_classes, probabilities, torch.full((8,), label))
    assert values["test/auroc"] != values["test/auroc"]  # NaN
    assert 0 <= values["test/accuracy"] <= 1


@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_network_that_diverged_has_no_area_in_any_order_of_rows(n_classes: int, share: float) -> None:
    probabilities = torch.rand(40) if n_classes == 2 else torch.softmax(torch.randn(40, n_classes), 1)
    probabilities[: int(40 * share)] = torch.nan
    labels = torch.arange(40) % n_classes
    with pytest.warns(UserWarning, match="AUROC is undefined: predictions are NaN"):
        orders = (labels.argsort(), torch.randperm(40))
        values = [computed(n_classes, probabilities[order], labels[order]) for order in orders]
    assert all(value["test/auroc"] != value["test/auroc"] for value in values)  # NaN


@pytest.mark.parametrize("steps", [1, FLUSH_AFTER, FLUSH_AFTER + 3])
def test_the_epochs_loss_is_the_sum_over_its_rows(steps: int) -> None:
    epoch = EpochLoss()
    epoch.add(torch.randn(4), torch.randint(2, (4,)))
    epoch.reset()
    assert epoch.total() is None
    logits, labels = torch.randn(steps, 4), torch.randint(2, (steps, 4))
    for batch in zip(logits, labels, strict=True):
        epoch.add(*batch)
    total = epoch.total()
    assert total is not None
    assert total.tolist() == pytest.approx([float(loss_sum(logits.flatten(), labels.flatten())), steps * 4], rel=1e-5)
