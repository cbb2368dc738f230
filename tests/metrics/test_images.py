"""PSNR and share of reconstructed images: means over batches, and over ranks."""

import pytest
import torch
from torchmetrics import Metric, MetricCollection

from lightleak.core.errors import UsageError
from lightleak.core.image_similarity import matched_psnr
from lightleak.metrics.images import IMAGE_METRICS, RECONSTRUCTED_ABOVE, ImagePSNR, ReconstructedShare

BATCHES = [torch.tensor([10.0, 21.0, 30.0]), torch.tensor([20.0, 19.5]), torch.tensor([18.0, 25.0, 26.0, 27.0])]


def merged(metric: Metric, shares: list[list[torch.Tensor]]) -> float:
    """What ranks that saw these batches agree on: torchmetrics sums their states."""
    total = metric.clone()
    for share in shares:
        rank = metric.clone()
        for batch in share:
            rank.update(batch)
        for name, reduce in rank._reductions.items():
            setattr(total, name, reduce(torch.stack([getattr(total, name), getattr(rank, name)])))
    total._update_count = 1
    return total.compute().item()


def test_every_metric_is_a_mean_over_batches() -> None:
    expected = {
        "psnr": (61 / 3 + 39.5 / 2 + 96 / 4) / 3,
        "reconstructed_share": (2 / 3 + 0 / 2 + 3 / 4) / 3,
    }
    assert set(IMAGE_METRICS) == set(expected)
    for name, make in IMAGE_METRICS.items():
        metric = make()
        for batch in BATCHES:
            metric.update(batch)
        assert metric.compute().item() == pytest.approx(expected[name]), name
        for shares in ([BATCHES[:1], BATCHES[1:]], [[], BATCHES]):
            assert merged(make(), shares) == pytest.approx(expected[name]), name


def test_the_threshold_is_that_of_the_dataset() -> None:
    psnr = torch.tensor([18.9, 19.0, 19.1, 20.1])
    assert ReconstructedShare(RECONSTRUCTED_ABOVE["cifar100"])(psnr).item() == 0.5
    assert ReconstructedShare(RECONSTRUCTED_ABOVE["femnist"])(psnr).item() == 0.25


def test_a_collection_keeps_thresholds_apart() -> None:
    metrics = MetricCollection({"low": ReconstructedShare(19.0), "high": ReconstructedShare(20.0), "psnr": ImagePSNR()})
    for batch in (torch.tensor([30.0, 10.0]), torch.tensor([19.5, 10.0])):
        metrics.update(batch)
    found = {name: value.item() for name, value in metrics.compute().items()}
    assert found == {"low": 0.5, "high": 0.25, "psnr": 17.375}


def test_reconstructed_images_score_in_any_order() -> None:
    true = torch.rand(6, 64)
    made = (true + 0.05 * torch.randn(6, 64)).clamp(0, 1)
    made[4:] = torch.rand(2, 64)
    share = ReconstructedShare()(matched_psnr(made[torch.randperm(6)], true))
    assert share.item() == pytest.approx(4 / 6)


@pytest.mark.parametrize("make", IMAGE_METRICS.values(), ids=IMAGE_METRICS)
def test_what_is_not_one_number_per_image_is_refused(make: type[Metric]) -> None:
    for wrong in (torch.rand(2, 2), torch.empty(0), torch.tensor(3.0)):
        with pytest.raises(UsageError, match=r"psnr must hold one number per image, \[n\], got shape"):
            make().update(wrong)
