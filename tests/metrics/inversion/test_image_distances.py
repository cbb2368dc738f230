"""Distances of made images: equal to slow and obvious references, and to closed forms."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from lightleak.core.errors import UsageError
from lightleak.metrics.inversion import image_distances
from lightleak.metrics.inversion.image_distances import FeatureFrechetDistance, frechet_distance, knn_distance


@pytest.mark.parametrize(("k", "squared"), [(1, False), (3, False), (3, True), (50, True)])
def test_knn_is_that_of_a_loop_over_pairs(k: int, squared: bool) -> None:
    made, private = torch.randn(7, 3, 2, 2), torch.randn(30, 3, 2, 2)
    labels, private_labels = torch.tensor([0, 2, 2, 1, 0, 1, 2]), torch.arange(30) % 3
    expected = []
    for image, label in zip(made, labels, strict=True):
        own = [float(((image - one) ** 2).sum()) for one in private[private_labels == label]]
        nearest = sorted(own)[:k]
        expected.append(np.mean(nearest if squared else np.sqrt(nearest)))
    found = knn_distance(made, labels, private, private_labels, k, squared)
    assert found.tolist() == pytest.approx(expected, rel=1e-5)


def test_knn_of_an_equal_image_is_zero_however_bright() -> None:
    private = torch.full((40, 1, 8, 8), 1000.0) + torch.arange(40.0).view(-1, 1, 1, 1)
    labels = torch.zeros(40, dtype=torch.long)
    assert (knn_distance(private, labels, private, labels) == 0).all()


def test_knn_does_not_depend_on_the_size_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    made, private = torch.randn(50, 5), torch.randn(40, 5)
    labels, private_labels = torch.arange(50) % 4, torch.arange(40) % 4
    whole = knn_distance(made, labels, private, private_labels)
    monkeypatch.setattr(image_distances, "DISTANCES_AT_ONCE", 25)
    assert torch.equal(knn_distance(made, labels, private, private_labels), whole)


def test_knn_of_a_class_without_private_images_is_unknown() -> None:
    found = knn_distance(torch.zeros(2, 3), torch.tensor([0, 1]), torch.ones(4, 3), torch.zeros(4))
    assert found[0] == pytest.approx(3**0.5) and found[1].isnan()


@pytest.mark.parametrize(("made", "labels", "k"), [((2, 3), 2, 0), ((2, 4), 2, 1), ((2, 3), 1, 1)])
def test_knn_names_what_does_not_fit(made: tuple[int, int], labels: int, k: int) -> None:
    with pytest.raises(UsageError, match=r"k must be|one shape"):
        knn_distance(torch.zeros(made), torch.zeros(labels), torch.ones(4, 3), torch.zeros(4), k)


def reference(made: np.ndarray, private: np.ndarray) -> float:
    """Eq. 3.12 as it is printed, with SciPy's root of a matrix."""
    means, covariances = zip(*((x.mean(0), np.cov(x, rowvar=False)) for x in (made, private)), strict=True)
    root = sqrtm(covariances[0] @ covariances[1]).real
    return float(((means[0] - means[1]) ** 2).sum() + np.trace(covariances[0] + covariances[1] - 2 * root))


@pytest.mark.parametrize("width", [2, 16, 33])
def test_frechet_is_the_printed_equation(width: int) -> None:
    rng = np.random.default_rng(width)
    made = rng.standard_normal((90, width)) @ rng.standard_normal((width, width)) + 2
    private = rng.standard_normal((70, width))
    found = frechet_distance(torch.from_numpy(made), torch.from_numpy(private))
    assert found == pytest.approx(reference(made, private), rel=1e-6)
    assert frechet_distance(torch.from_numpy(private), torch.from_numpy(made)) == pytest.approx(found, rel=1e-6)


def test_frechet_of_the_same_features_is_zero_and_of_moved_ones_the_square() -> None:
    features = torch.randn(200, 8, dtype=torch.float64)
    assert frechet_distance(features, features) == pytest.approx(0, abs=1e-5)
    assert frechet_distance(features + 3, features) == pytest.approx(8 * 9, rel=1e-6)


def test_frechet_adds_up_over_batches() -> None:
    made, private = torch.randn(40, 4), torch.randn(60, 4) * 2 + 1
    metric = FeatureFrechetDistance(4)
    for part in made.double().split(7):
        metric.update(part, real=False)
    for part in private.double().split(11):
        metric.update(part, real=True)
    assert float(metric.compute()) == pytest.approx(frechet_distance(made, private), rel=1e-9)


@pytest.mark.parametrize("made", [(1, 3), (5, 2), (5, 3, 1)])
def test_frechet_names_what_does_not_fit(made: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="two matrices of one width"):
        frechet_distance(torch.zeros(made), torch.zeros(5, 3))
