"""Models of TabM, DeepTab and pytorch-frame as they ship, on encoded rows; each needs its package."""

from typing import Any

import torch
from torch import Tensor, nn

from lightleak.data.layout import EncodedLayout
from lightleak.targets import options
from lightleak.targets.normalization import with_functional_normalization
from lightleak.targets.packages import FromPackage, NumbersAndCodes, naming_settings
from lightleak.targets.spec import NETWORKS

NORMALIZATIONS = ("layer_norm", "batch_norm")
"""Of pytorch-frame's models, which may also have none."""


@NETWORKS.register("tabm")
class TabM(FromPackage, nn.Module):
    """TabM (Gorishniy et al. 2025, arXiv 2410.24210): k networks that share weights; logits are their mean.

    One-hot blocks enter among the numbers, which is what TabM makes of codes. Training takes the loss of the mean.
    """

    package, extra = "tabm", "zoo"

    def __init__(self, layout: EncodedLayout, n_classes: int, **settings: Any) -> None:
        """Build the model.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            settings: arguments of ``TabM.make``; defaults are tabm's.

        Raises:
            UsageError: a setting that ``TabM.make`` does not take.
            UnsupportedError: tabm is not installed.
        """
        super().__init__()
        self.require_package()
        from tabm import TabM as Members

        n_classes = options.count("n_classes", n_classes, 2)
        with naming_settings("TabM.make of tabm", settings):
            self.members = Members.make(n_num_features=layout.width, d_out=n_classes, **settings)

    def forward(self, x: Tensor) -> Tensor:
        """Encoded rows ``[n, d]`` to logits ``[n, n_classes]``."""
        logits: Tensor = self.members(x).mean(1)
        return logits


@NETWORKS.register("deeptab_mlp")
class DeepTabMLP(FromPackage, nn.Module):
    """DeepTab's MLP (Thielmann et al. 2024, arXiv 2408.06291): codes of categories enter as numbers."""

    package = "deeptab"

    def __init__(self, layout: EncodedLayout, n_classes: int, **settings: Any) -> None:
        """Build the model.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            settings: fields of ``MLPConfig``; defaults are DeepTab's.

        Raises:
            UsageError: a setting that ``MLPConfig`` does not have.
            UnsupportedError: deeptab is not installed.
        """
        super().__init__()
        self.require_package()
        from deeptab.architectures.mlp import MLP
        from deeptab.configs.models.mlp_config import MLPConfig

        self.layout, n_classes = layout, options.count("n_classes", n_classes, 2)
        numbers = {block.name: {"dimension": 1} for block in layout.numerical}
        codes = {block.name: {"dimension": 1, "categories": block.width} for block in layout.categorical}
        with naming_settings("MLPConfig of DeepTab", settings):
            mlp = MLP((numbers, codes, {}), num_classes=n_classes, config=MLPConfig(**settings))
        self.mlp = with_functional_normalization(mlp)

    def forward(self, x: Tensor) -> Tensor:
        """Encoded rows ``[n, d]`` to logits ``[n, n_classes]``."""
        numbers = [x[:, block.slice] for block in self.layout.numerical]
        codes = [x[:, b.slice] @ torch.arange(b.width).to(x).unsqueeze(-1) for b in self.layout.categorical]
        logits: Tensor = self.mlp(numbers, codes, [])
        return logits


class _OfFrames(nn.Module):
    """A model of pytorch-frame as a function of numbers and codes."""

    def __init__(self, model: type[nn.Module], layout: EncodedLayout, n_classes: int, settings: dict[str, Any]) -> None:
        super().__init__()
        from torch_frame import stype
        from torch_frame.data.stats import StatType

        numbers, codes = ([block.name for block in blocks] for blocks in (layout.numerical, layout.categorical))
        statistics: dict[str, dict[Any, Any]] = {name: {StatType.MEAN: 0.0, StatType.STD: 1.0} for name in numbers}
        for block in layout.categorical:
            statistics[block.name] = {StatType.COUNT: (list(range(block.width)), [1] * block.width)}
        self.names = {stype.numerical: numbers, stype.categorical: codes}
        with naming_settings(f"{model.__name__} of pytorch-frame", settings):
            self.model = model(
                out_channels=n_classes, col_stats=statistics, col_names_dict=self._of_table(self.names), **settings
            )

    def forward(self, continuous: Tensor, categorical: Tensor) -> Tensor:
        """Numbers ``[n, p]`` and codes ``[n, q]`` to logits ``[n, n_classes]``."""
        from torch_frame import TensorFrame

        parts = dict(zip(self.names, (continuous, categorical), strict=True))
        logits: Tensor = self.model(TensorFrame(self._of_table(parts), self._of_table(self.names)))
        return logits

    def _of_table(self, by_kind: dict[Any, Any]) -> dict[Any, Any]:
        """Return the entries of the kinds of which the table has columns."""
        return {kind: value for kind, value in by_kind.items() if self.names[kind]}


class FrameNetwork(NumbersAndCodes):
    """A model of pytorch-frame (Hu et al. 2024, arXiv 2404.00776) on encoded rows."""

    package, extra = "pytorch-frame", "zoo"
    model_name: str
    sizes: dict[str, int]

    def __init__(self, layout: EncodedLayout, n_classes: int, **settings: Any) -> None:
        """Build the model.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            settings: arguments of the model's class, whose sizes have the defaults of the class here.

        Raises:
            UsageError: a setting that the model does not take.
            UnsupportedError: pytorch-frame is not installed.
        """
        self.require_package()
        from torch_frame.nn import models

        n_classes = options.count("n_classes", n_classes, 2)
        for size in self.sizes.keys() & settings.keys():
            options.count(size, settings[size])
        if settings.get("normalization") is not None:  # it takes any other word for none
            options.choice("normalization", settings["normalization"], NORMALIZATIONS)
        model = _OfFrames(getattr(models, self.model_name), layout, n_classes, {**self.sizes, **settings})
        super().__init__(model, layout)


@NETWORKS.register("frame_mlp")
class FrameMLP(FrameNetwork):
    """pytorch-frame's MLP: the mean of the columns' embeddings, LayerNorm, ReLU, dropout."""

    model_name, sizes = "MLP", {"channels": 128, "num_layers": 3}


@NETWORKS.register("frame_resnet")
class FrameResNet(FrameNetwork):
    """pytorch-frame's ResNet (Gorishniy et al. 2021, arXiv 2106.11959): embedded columns side by side, LayerNorm."""

    model_name, sizes = "ResNet", {"channels": 128, "num_layers": 3}


@NETWORKS.register("frame_ft_transformer")
class FrameFTTransformer(FrameNetwork):
    """pytorch-frame's FT-Transformer (Gorishniy et al. 2021, arXiv 2106.11959): attention over columns."""

    model_name, sizes = "FTTransformer", {"channels": 64, "num_layers": 3}
