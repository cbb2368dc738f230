"""How alike images are: peak signal-to-noise ratio, and the pairing of two batches by it."""

import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.core.matching import match_rows

HIGHEST_PSNR = 100.0
"""Decibels given to equal images, whose ratio is infinite: one would make every mean infinite, and no assignment can
weigh it. Two images of bytes that differ in one of CIFAR's 3,072 values have 83 dB."""


def psnr(a: Tensor, b: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of every pair, in decibels: ``-10 log10(mean (a_i - b_j)^2)`` at a data range of 1.

    Args:
        a: ``[..., n, pixels]``, images in [0, 1] as rows.
        b: ``[..., m, pixels]``.

    Returns:
        ``[..., n, m]``, at most `HIGHEST_PSNR`.

    Raises:
        UsageError: rows of different widths.

    >>> psnr(torch.zeros(1, 2), torch.tensor([[0.1, 0.1], [0.0, 1.0]]))
    tensor([[20.0000,  3.0103]])
    """
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise UsageError(f"images must be rows of equally many pixels, got {list(a.shape)} and {list(b.shape)}")
    # Not by matrix products: those lose the distance of two images that are nearly equal.
    apart = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    return (-10 * (apart.square() / a.shape[-1]).log10()).clamp_max(HIGHEST_PSNR)


def matched_psnr(reconstructed: Tensor, true: Tensor) -> Tensor:
    """PSNR of each true image with the reconstructed one it is paired with (Dimitrov et al. 2022, Sec. 5.1).

    The pairs are those of the largest total PSNR, by the Hungarian method.

    Args:
        reconstructed: ``[..., n, pixels]``, images in [0, 1] as rows.
        true: ``[..., n, pixels]``.

    Returns:
        ``[..., n]``, decibels.

    Raises:
        UsageError: shapes that differ.

    >>> matched_psnr(torch.tensor([[1.0, 1.0], [0.1, 0.1]]), torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    tensor([20.0000,  3.0103])
    """
    if reconstructed.shape != true.shape:
        raise UsageError(
            f"as many reconstructed images as true ones are needed, of one size; got {list(reconstructed.shape)} and "
            f"{list(true.shape)}"
        )
    similarity = psnr(true, reconstructed)
    return similarity.gather(-1, match_rows(similarity).unsqueeze(-1)).squeeze(-1)
