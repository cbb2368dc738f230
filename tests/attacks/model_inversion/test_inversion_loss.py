"""The inversion losses against their definitions, and their gradients against Eq. 3.6 and 3.7 of the thesis."""

import pytest
import torch
from torch import Tensor

from lightleak.attacks.model_inversion.inversion_loss import InversionLoss, cross_entropy, max_margin

ROWS, CLASSES = 40, 7


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(ROWS, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3


@pytest.fixture
def labels() -> Tensor:
    return torch.randint(CLASSES, (ROWS,), generator=torch.Generator().manual_seed(1))


def gradient(measure: InversionLoss, logits: Tensor, labels: Tensor) -> Tensor:
    """Of the summed loss by the logits."""
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(measure(logits, labels).sum(), logits)[0]


def test_max_margin_is_equation_3_5(logits: Tensor, labels: Tensor) -> None:
    expected = [
        max(float(row[i]) for i in range(CLASSES) if i != label) - float(row[label])
        for row, label in zip(logits, labels.tolist(), strict=True)
    ]
    assert max_margin(logits, labels).tolist() == expected


def test_cross_entropy_is_equation_3_4(logits: Tensor, labels: Tensor) -> None:
    expected = -logits.softmax(1).log()[torch.arange(ROWS), labels]
    torch.testing.assert_close(cross_entropy(logits, labels), expected)


def test_gradient_of_max_margin_is_equation_3_6(logits: Tensor, labels: Tensor) -> None:
    expected = torch.zeros_like(logits)
    for i, label in enumerate(labels.tolist()):
        others = [k for k in range(CLASSES) if k != label]
        expected[i, label] = -1
        expected[i, max(others, key=lambda k, i=i: float(logits[i, k]))] = 1  # type: ignore[misc]
    assert torch.equal(gradient(max_margin, logits, labels), expected)


def test_gradient_of_cross_entropy_is_equation_3_7(logits: Tensor, labels: Tensor) -> None:
    expected = logits.softmax(1) - torch.nn.functional.one_hot(labels, CLASSES)
    torch.testing.assert_close(gradient(cross_entropy, logits, labels), expected)


def test_equal_competitors_share_no_gradient() -> None:
    """Eq. 3.6 has one +1, also where two classes compete."""
    assert gradient(max_margin, torch.tensor([[0.0, 2.0, 2.0]]), torch.tensor([0])).tolist() == [[-1.0, 1.0, 0.0]]


def test_max_margin_does_not_vanish_where_cross_entropy_does() -> None:
    """Thesis Sec. 3.2.3: the reason for the max-margin loss."""
    sure, label = torch.tensor([[200.0, 0.0, 0.0]]), torch.tensor([0])
    assert gradient(cross_entropy, sure, label).abs().max() == 0
    assert gradient(max_margin, sure, label)[0, 0] == -1


def test_a_shift_of_all_logits_changes_neither(logits: Tensor, labels: Tensor) -> None:
    for measure in (max_margin, cross_entropy):
        torch.testing.assert_close(measure(logits + 5, labels), measure(logits, labels))
