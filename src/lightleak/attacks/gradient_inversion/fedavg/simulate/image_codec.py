"""Images as rows: what the FedAvg paper reconstructs. No relaxation; pixels are held in range by a regularizer."""

import pandas as pd
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import EngineConfig, EntropyMethod
from lightleak.core.image_similarity import psnr
from lightleak.core.observations import ClientUpdate
from lightleak.data.image_scale import ImageScale


class IdentityRelaxation:
    """The variables are the rows."""

    def forward(self, z: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See `RowRelaxation`."""
        return z, (z, z)

    def backward(self, grad: Tensor, state: tuple[Tensor, Tensor]) -> Tensor:
        """See `RowRelaxation`."""
        return grad


class ImageCodec:
    """Standardized flat images.

    Args:
        scale: shape, mean and deviation.
    """

    def __init__(self, scale: ImageScale) -> None:
        self.scale, self.width = scale, scale.width

    def relaxation(self, config: EngineConfig, dtype: torch.dtype, device: torch.device) -> IdentityRelaxation:
        """See `RowCodec`; whatever the configuration says."""
        return IdentityRelaxation()

    def project(self, rows: Tensor) -> Tensor:
        """See `RowCodec`: pixels in [0, 1]."""
        return self.scale.encode(self.scale.decode(rows)).to(rows.dtype)

    def similarity(self, reference: Tensor, candidates: Tensor) -> Tensor:
        """See `RowCodec`; peak signal-to-noise ratio (FedAvg paper, App. A)."""
        return psnr(self._pixels(reference), self._pixels(candidates))

    def decode(self, rows: Tensor) -> pd.DataFrame:
        """See `RowCodec`: a column per pixel in [0, 1]."""
        return pd.DataFrame(self._pixels(rows).cpu().numpy(), columns=[f"pixel_{i}" for i in range(self.width)])

    def uncertainty(self, aligned: Tensor, method: EntropyMethod) -> pd.DataFrame:
        """See `RowCodec`; none is defined for pixels."""
        unknown = torch.full(aligned.shape[1:], float("nan"))
        return pd.DataFrame(unknown.numpy(), columns=self.decode(aligned[0, :0]).columns)

    def _pixels(self, rows: Tensor) -> Tensor:
        return self.scale.decode(rows).flatten(-3)


def image_codec(update: ClientUpdate) -> ImageCodec:
    """The codec of an update on images."""
    return ImageCodec(ImageScale.from_state(update.encoder))
